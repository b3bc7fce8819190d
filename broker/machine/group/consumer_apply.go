package group

import (
	"encoding/binary"

	"github.com/strandline-io/strandline/broker/machine/codec"
)

func (gs *Groups) applyConsumer(kind uint8, r *reader) error {
	switch kind {
	case kindConsumerEpoch:
		return gs.applyConsumerEpoch(r)
	case kindConsumerMember, kindClassicMember:
		return gs.applyConsumerMember(r, kind == kindClassicMember)
	case kindConsumersRemoved:
		return gs.applyConsumersRemoved(r)
	case kindConsumerTarget:
		return gs.applyConsumerTarget(r)
	case kindConsumerCurrent:
		return gs.applyConsumerCurrent(r)
	case kindConsumerReplaced, kindClassicReplaced:
		return gs.applyConsumerReplaced(r, kind == kindClassicReplaced)
	case kindConsumerPatterns:
		return gs.applyConsumerPatterns(r)
	case kindSettings:
		return gs.applySettings(r)
	}
	return codec.Corrupt("unknown record kind %d", kind)
}

func (gs *Groups) applyConsumerEpoch(r *reader) error {
	rec := readConsumerEpoch(r)
	if err := r.End(); err != nil {
		return err
	}
	if g, ok := gs.groups.Get(rec.group); ok {
		if g.saved.members.Len() > 0 {
			return codec.Corrupt("group %q becomes a consumer group, but has classic members", rec.group)
		}
		if rec.epoch < g.saved.generation {
			return codec.Corrupt("epoch %d of group %q after %d", rec.epoch, rec.group, g.saved.generation)
		}
	}
	g := gs.make(rec.group)
	s := &g.saved
	if s.consumer == nil {
		s.consumer = newConsumerState()
		s.protocolType, s.protocol, s.leader, s.sinceMs = consumerProtocol, "", "", rec.atMs
	}
	s.generation, s.consumer.metadataHash = rec.epoch, rec.metadataHash
	gs.rehash(g)
	return nil
}

// knownConsumers returns a consumer group that exists durably.
func (gs *Groups) knownConsumers(name string) (*group, *consumerState, error) {
	g, err := gs.known(name)
	if err != nil {
		return nil, nil, err
	}
	if g.saved.consumer == nil {
		return nil, nil, codec.Corrupt("group %q is no consumer group", name)
	}
	return g, g.saved.consumer, nil
}

// checkInstance refuses a static member whose instance id another member has.
func (c *consumerState) checkInstance(info *consumerInfo, replaces string) error {
	if info.instance == nil {
		return nil
	}
	if holder, ok := c.statics[*info.instance]; ok && holder != info.id && holder != replaces {
		return codec.Corrupt("members %q and %q are both instance %q", holder, info.id, *info.instance)
	}
	return nil
}

func (gs *Groups) applyConsumerMember(r *reader, classic bool) error {
	rec := readConsumerMember(r, classic)
	if err := r.End(); err != nil {
		return err
	}
	g, c, err := gs.knownConsumers(rec.group)
	if err != nil {
		return err
	}
	if err := c.checkInstance(rec.info, ""); err != nil {
		return err
	}
	next := consumerMember{info: rec.info}
	if old, ok := c.members.Get(rec.info.id); ok {
		next = *old
		next.info = rec.info
	}
	gs.setConsumer(g, &next)
	return nil
}

func (gs *Groups) applyConsumersRemoved(r *reader) error {
	rec := readRemoved(r)
	if err := r.End(); err != nil {
		return err
	}
	g, c, err := gs.knownConsumers(rec.group)
	if err != nil {
		return err
	}
	for _, id := range rec.members {
		if _, ok := c.members.Get(id); !ok {
			return codec.Corrupt("removal of member %q, which group %q does not have", id, rec.group)
		}
	}
	for _, id := range rec.members {
		gs.dropConsumer(g, id)
	}
	if c.members.Len() == 0 {
		g.saved.sinceMs = rec.atMs
		gs.rehash(g)
	}
	return nil
}

func (gs *Groups) applyConsumerTarget(r *reader) error {
	rec := readConsumerTarget(r)
	if err := r.End(); err != nil {
		return err
	}
	g, c, err := gs.knownConsumers(rec.group)
	if err != nil {
		return err
	}
	if rec.epoch > g.saved.generation || rec.epoch < c.targetEpoch {
		return codec.Corrupt("target of epoch %d for group %q, whose epochs are %d and %d", rec.epoch, rec.group,
			c.targetEpoch, g.saved.generation)
	}
	for _, m := range rec.members {
		if _, ok := c.members.Get(m.id); !ok {
			return codec.Corrupt("target for member %q, which group %q does not have", m.id, rec.group)
		}
	}
	for _, t := range rec.members {
		old, _ := c.members.Get(t.id)
		next := *old
		next.target = t.target
		gs.setConsumer(g, &next)
	}
	c.targetEpoch = rec.epoch
	gs.rehash(g)
	return nil
}

// checkCurrent refuses what cannot follow from the others' state.
func (c *consumerState) checkCurrent(rec *consumerCurrentRecord, groupEpoch int32) error {
	if max(rec.epoch, rec.prevEpoch) > groupEpoch {
		return codec.Corrupt("member %q of group %q is at epoch %d after %d, the group at %d", rec.id, rec.group, rec.epoch,
			rec.prevEpoch, groupEpoch)
	}
	for _, list := range [...][]holding{rec.assigned, rec.revoking} {
		for _, h := range list {
			if owner, ok := c.owners[h.topicPartition]; ok && owner != rec.id {
				return codec.Corrupt("members %q and %q of group %q both have a partition", owner, rec.id, rec.group)
			}
		}
	}
	return nil
}

func (gs *Groups) applyConsumerCurrent(r *reader) error {
	rec := readConsumerCurrent(r)
	if err := r.End(); err != nil {
		return err
	}
	g, c, err := gs.knownConsumers(rec.group)
	if err != nil {
		return err
	}
	old, ok := c.members.Get(rec.id)
	if !ok {
		return codec.Corrupt("progress of member %q, which group %q does not have", rec.id, rec.group)
	}
	if err := c.checkCurrent(&rec, g.saved.generation); err != nil {
		return err
	}
	next := *old
	next.take(&rec)
	gs.setConsumer(g, &next)
	return nil
}

func (m *consumerMember) take(rec *consumerCurrentRecord) {
	m.epoch, m.prevEpoch, m.state = rec.epoch, rec.prevEpoch, rec.state
	m.assigned, m.revoking = rec.assigned, rec.revoking
}

func (gs *Groups) applyConsumerReplaced(r *reader, classic bool) error {
	rec := readConsumerReplaced(r, classic)
	if err := r.End(); err != nil {
		return err
	}
	g, c, err := gs.knownConsumers(rec.group)
	if err != nil {
		return err
	}
	old, ok := c.members.Get(rec.oldID)
	if !ok {
		return codec.Corrupt("replacement of member %q, which group %q does not have", rec.oldID, rec.group)
	}
	if _, ok := c.members.Get(rec.info.id); ok {
		return codec.Corrupt("member %q replaces %q, but is in group %q already", rec.info.id, rec.oldID, rec.group)
	}
	if err := c.checkInstance(rec.info, rec.oldID); err != nil {
		return err
	}
	next := *old
	next.info, next.epoch, next.prevEpoch = rec.info, 0, 0
	// In this order, so that what only this member subscribes to is not forgotten in between.
	gs.setConsumer(g, &next)
	gs.dropConsumer(g, rec.oldID)
	return nil
}

// applyConsumerPatterns passes over patterns that no member has.
func (gs *Groups) applyConsumerPatterns(r *reader) error {
	rec := readConsumerPatterns(r)
	if err := r.End(); err != nil {
		return err
	}
	g, c, err := gs.knownConsumers(rec.group)
	if err != nil {
		return err
	}
	for _, m := range rec.patterns {
		if p, ok := c.patterns.Get(m.Pattern); ok {
			gs.setPattern(g, m.Pattern, p, m.Topics)
		}
	}
	return nil
}

func (gs *Groups) setPattern(g *group, text string, p *pattern, names []string) {
	gs.countPattern(g, p, -1)
	p.names = names
	b := append(gs.hashBuf[:0], 'P')
	b = codec.AppendString(b, g.name)
	b = codec.AppendString(b, text)
	b = appendNames(b, names)
	gs.hashBuf = b
	p.hash = hashBytes(b)
	gs.countPattern(g, p, 1)
}

// countPattern adds a pattern and what it matches to the sums, or takes it out.
func (gs *Groups) countPattern(g *group, p *pattern, n int) {
	c := g.saved.consumer
	gs.sum += uint64(n) * p.hash
	gs.sizeBytes += int64(n) * p.sizeBytes()
	c.matchBytes += int64(n) * p.sizeBytes()
	c.countTopics(p.names, n)
}

// setConsumer puts m in the place of what the group has under its id.
func (gs *Groups) setConsumer(g *group, m *consumerMember) {
	c := g.saved.consumer
	old, replaces := c.members.Get(m.info.id)
	// In this order, so that what only this member subscribes to is not forgotten in between.
	gs.countConsumer(g, m, 1)
	if !replaces || old.info != m.info {
		gs.countSubscription(g, m.info, 1)
	}
	if replaces {
		gs.uncountConsumer(g, old)
		if old.info != m.info {
			gs.countSubscription(g, old.info, -1)
		}
	}
	for _, list := range [...][]holding{m.assigned, m.revoking} {
		for _, h := range list {
			c.owners[h.topicPartition] = m.info.id
		}
	}
	if m.info.instance != nil {
		c.statics[*m.info.instance] = m.info.id
	}
	if m.info.hash == 0 {
		gs.hashBuf = appendAnyConsumer(gs.hashBuf[:0], m.info)
		m.info.hash = hashBytes(gs.hashBuf)
	}
	b := append(gs.hashBuf[:0], 'C')
	b = codec.AppendString(b, g.name)
	b = binary.LittleEndian.AppendUint64(b, m.info.hash)
	b = appendCurrent(b, m.epoch, m.prevEpoch, m.state, m.assigned, m.revoking)
	b = appendTarget(b, m.target)
	gs.hashBuf = b
	m.hash = hashBytes(b)
	gs.sum += m.hash
	c.members.Set(m.info.id, m)
}

func appendConsumerMember(b []byte, m *consumerMember) []byte {
	b = appendConsumer(b, m.info)
	if m.info.classic == nil {
		b = append(b, 0)
	} else {
		b = appendClassic(append(b, 1), m.info.classic)
	}
	b = appendCurrent(b, m.epoch, m.prevEpoch, m.state, m.assigned, m.revoking)
	return appendTarget(b, m.target)
}

func (gs *Groups) dropConsumer(g *group, id string) {
	if m, ok := g.saved.consumer.members.Delete(id); ok {
		gs.uncountConsumer(g, m)
		gs.countSubscription(g, m.info, -1)
	}
}

// uncountConsumer takes m out of all that is derived, its hash included, but not its subscription.
func (gs *Groups) uncountConsumer(g *group, m *consumerMember) {
	c := g.saved.consumer
	gs.sum -= m.hash
	gs.countConsumer(g, m, -1)
	for _, list := range [...][]holding{m.assigned, m.revoking} {
		for _, h := range list {
			if c.owners[h.topicPartition] == m.info.id {
				delete(c.owners, h.topicPartition)
			}
		}
	}
	if i := m.info.instance; i != nil && c.statics[*i] == m.info.id {
		delete(c.statics, *i)
	}
}

// countConsumer adds m's size to the sums, or takes it out.
func (gs *Groups) countConsumer(g *group, m *consumerMember, n int) {
	c := g.saved.consumer
	c.sizeBytes += int64(n) * m.sizeBytes()
	gs.sizeBytes += int64(n) * m.sizeBytes()
}

// countSubscription adds what a member subscribes to to the group's sums, or takes it out.
func (gs *Groups) countSubscription(g *group, info *consumerInfo, n int) {
	c := g.saved.consumer
	c.countTopics(info.topics, n)
	if a := info.assignor; a != "" {
		if c.assignors[a] += n; c.assignors[a] == 0 {
			delete(c.assignors, a)
		}
	}
	if info.classic != nil {
		c.classics += n
		for _, p := range info.classic.protocols {
			if c.support[p.name] += n; c.support[p.name] == 0 {
				delete(c.support, p.name)
			}
		}
	}
	if info.pattern == "" {
		return
	}
	p, ok := c.patterns.Get(info.pattern)
	if !ok {
		p = &pattern{}
		c.patterns.Set(info.pattern, p)
		gs.setPattern(g, info.pattern, p, nil)
	}
	if p.members += n; p.members == 0 {
		gs.countPattern(g, p, -1)
		c.patterns.Delete(info.pattern)
	}
}

// dropConsumers ends the group's life as a consumer group.
func (gs *Groups) dropConsumers(g *group) {
	c := g.saved.consumer
	if c == nil {
		return
	}
	for _, id := range c.members.Keys() {
		gs.dropConsumer(g, id)
	}
	g.saved.consumer = nil
}

// appendConsumerHead writes what a consumer group has beside its members and patterns.
func appendConsumerHead(b []byte, c *consumerState) []byte {
	if c == nil {
		return append(b, 0)
	}
	b = binary.AppendVarint(append(b, 1), int64(c.targetEpoch))
	return binary.AppendUvarint(b, c.metadataHash)
}
