package group

import (
	"encoding/binary"

	"github.com/strandline-io/strandline/broker/machine/codec"
	"github.com/strandline-io/strandline/internal/mutant"
)

// Apply applies one durable record, decided now or replayed. An error wraps ErrCorrupt: the record is damaged or does
// not fit the state; the state is unchanged then. The payload stays the caller's.
func (gs *Groups) Apply(kind uint8, payload []byte) error {
	r := &reader{codec.NewReader(payload)}
	switch kind {
	case kindGeneration:
		return gs.applyGeneration(r)
	case kindAssignment:
		return gs.applyAssignment(r)
	case kindRebalance:
		return gs.applyRebalance(r)
	case kindRemoved:
		return gs.applyRemoved(r)
	case kindReplaced:
		return gs.applyReplaced(r)
	case kindOffsets:
		return gs.applyOffsets(r)
	case kindOffsetsRemoved:
		return gs.applyOffsetsRemoved(r)
	case kindGroupRemoved:
		return gs.applyGroupRemoved(r)
	}
	return gs.applyConsumer(kind, r)
}

func (gs *Groups) applyGeneration(r *reader) error {
	rec := readGeneration(r)
	if err := r.End(); err != nil {
		return err
	}
	if len(rec.members) == 0 {
		return codec.Corrupt("generation %d of group %q has no members", rec.generation, rec.group)
	}
	seen := make(map[string]bool, len(rec.members))
	for _, m := range rec.members {
		if seen[m.id] {
			return codec.Corrupt("generation %d of group %q has member %q twice", rec.generation, rec.group, m.id)
		}
		seen[m.id] = true
	}
	if !seen[rec.leader] {
		return codec.Corrupt("generation %d of group %q has no member %q, its leader", rec.generation, rec.group, rec.leader)
	}
	if g, ok := gs.groups.Get(rec.group); ok && g.hasConsumers() {
		return codec.Corrupt("generation %d of group %q, which has members of the consumer protocol", rec.generation, rec.group)
	}
	g := gs.make(rec.group)
	s := &g.saved
	gs.dropMembers(g)
	gs.dropConsumers(g)
	for _, m := range rec.members {
		gs.setMember(g, &savedMember{info: m})
	}
	s.phase, s.protocolType, s.generation = phaseCompleting, rec.protocolType, rec.generation
	s.protocol, s.leader, s.sinceMs = rec.protocol, rec.leader, rec.atMs
	gs.rehash(g)
	return nil
}

func (gs *Groups) applyAssignment(r *reader) error {
	rec := readAssignment(r)
	if err := r.End(); err != nil {
		return err
	}
	g, err := gs.known(rec.group)
	if err != nil {
		return err
	}
	if g.saved.phase != phaseCompleting || g.saved.generation != rec.generation {
		return codec.Corrupt("assignment for generation %d of group %q, which is %v in generation %d",
			rec.generation, rec.group, g.saved.phase, g.saved.generation)
	}
	for _, a := range rec.members {
		if _, ok := g.saved.members.Get(a.id); !ok {
			return codec.Corrupt("assignment for member %q, which group %q does not have", a.id, rec.group)
		}
	}
	for _, a := range rec.members {
		m, _ := g.saved.members.Get(a.id)
		gs.setMember(g, &savedMember{info: m.info, assignment: a.assignment})
	}
	g.saved.phase = phaseStable
	gs.rehash(g)
	return nil
}

func (gs *Groups) applyRebalance(r *reader) error {
	name := r.String()
	if err := r.End(); err != nil {
		return err
	}
	g, err := gs.known(name)
	if err != nil {
		return err
	}
	if g.saved.phase == phaseEmpty {
		return codec.Corrupt("rebalance of group %q, which has no members", name)
	}
	g.saved.phase = phasePreparing
	gs.rehash(g)
	return nil
}

func (gs *Groups) applyRemoved(r *reader) error {
	rec := readRemoved(r)
	if err := r.End(); err != nil {
		return err
	}
	g, err := gs.known(rec.group)
	if err != nil {
		return err
	}
	s := &g.saved
	for _, id := range rec.members {
		if _, ok := s.members.Get(id); !ok {
			return codec.Corrupt("removal of member %q, which group %q does not have", id, rec.group)
		}
	}
	if s.phase == phaseEmpty {
		return codec.Corrupt("removal from group %q, which has no members", rec.group)
	}
	for _, id := range rec.members {
		gs.dropMember(g, id)
		if s.leader == id {
			s.leader = ""
		}
	}
	s.phase = phasePreparing
	if s.members.Len() == 0 {
		s.phase, s.protocol, s.leader, s.sinceMs = phaseEmpty, "", "", rec.atMs
	}
	gs.rehash(g)
	return nil
}

func (gs *Groups) applyReplaced(r *reader) error {
	rec := readReplaced(r)
	if err := r.End(); err != nil {
		return err
	}
	g, err := gs.known(rec.group)
	if err != nil {
		return err
	}
	old, ok := g.saved.members.Get(rec.oldID)
	if !ok {
		return codec.Corrupt("replacement of member %q, which group %q does not have", rec.oldID, rec.group)
	}
	if _, ok := g.saved.members.Get(rec.member.id); ok {
		return codec.Corrupt("member %q replaces %q, but is in group %q already", rec.member.id, rec.oldID, rec.group)
	}
	gs.dropMember(g, rec.oldID)
	gs.setMember(g, &savedMember{info: rec.member, assignment: old.assignment})
	if g.saved.leader == rec.oldID {
		g.saved.leader = rec.member.id
	}
	gs.rehash(g)
	return nil
}

func (gs *Groups) applyOffsets(r *reader) error {
	rec := readOffsets(r)
	if err := r.End(); err != nil {
		return err
	}
	if rec.producerID < noProducer {
		return codec.Corrupt("offsets of group %q are pending for producer id %d", rec.group, rec.producerID)
	}
	g := gs.make(rec.group)
	if !g.saved.exists {
		g.saved.sinceMs = rec.atMs
		gs.rehash(g)
	}
	gs.commits++
	for _, t := range rec.topics {
		for _, p := range t.partitions {
			e := gs.makeEntry(g, t.name, p.partition)
			o := &offset{offset: p.offset, leaderEpoch: p.leaderEpoch, metadata: p.metadata, commitMs: rec.atMs,
				expireMs: rec.expireMs, order: gs.commits}
			if rec.producerID == noProducer || mutant.On("pending offsets visible before the commit") {
				gs.setCommitted(g, t.name, e, o)
			} else {
				gs.setPending(g, t.name, e, rec.producerID, o)
			}
		}
	}
	return nil
}

func (gs *Groups) applyOffsetsRemoved(r *reader) error {
	rec := readOffsetsRemoved(r)
	if err := r.End(); err != nil {
		return err
	}
	g, err := gs.known(rec.group)
	if err != nil {
		return err
	}
	for _, t := range rec.topics {
		for _, p := range t.partitions {
			if e := g.entry(t.name, p); e != nil {
				if mutant.On("pending offsets outlive their deletion") {
					gs.clearCommitted(e)
					gs.prune(g, t.name, e)
					continue
				}
				gs.drop(g, t.name, e)
			}
		}
	}
	return nil
}

func (gs *Groups) applyGroupRemoved(r *reader) error {
	name := r.String()
	if err := r.End(); err != nil {
		return err
	}
	g, err := gs.known(name)
	if err != nil {
		return err
	}
	gs.dropMembers(g)
	gs.dropConsumers(g)
	for _, topic := range g.saved.topics.Keys() {
		gs.dropAll(g, topic)
	}
	gs.sum -= g.saved.hash
	g.saved = saved{}
	gs.forget(g)
	return nil
}

// known returns a group that exists durably.
func (gs *Groups) known(name string) (*group, error) {
	if g, ok := gs.groups.Get(name); ok && g.saved.exists {
		return g, nil
	}
	return nil, codec.Corrupt("group %q does not exist", name)
}

// make returns a group, making it if need be: bounds were checked when the record was decided.
func (gs *Groups) make(name string) *group {
	g, ok := gs.groups.Get(name)
	if !ok {
		g = newGroup(name)
		gs.groups.Set(name, g)
		gs.sizeBytes += int64(overheadBytes + len(name))
	}
	return g
}

func (gs *Groups) setMember(g *group, m *savedMember) {
	gs.dropMember(g, m.info.id)
	b := append(gs.hashBuf[:0], 'M')
	b = codec.AppendString(b, g.name)
	b = appendMember(b, m.info)
	b = codec.AppendBytes(b, m.assignment)
	gs.hashBuf = b
	m.hash = hashBytes(b)
	gs.sum += m.hash
	gs.sizeBytes += m.sizeBytes()
	g.saved.members.Set(m.info.id, m)
}

func (gs *Groups) dropMember(g *group, id string) {
	if m, ok := g.saved.members.Delete(id); ok {
		gs.sum -= m.hash
		gs.sizeBytes -= m.sizeBytes()
	}
}

func (gs *Groups) dropMembers(g *group) {
	for _, id := range g.saved.members.Keys() {
		gs.dropMember(g, id)
	}
}

// rehash brings the hash up to date with the group's own fields; from then on the group exists.
func (gs *Groups) rehash(g *group) {
	s := &g.saved
	b := append(gs.hashBuf[:0], 'G')
	b = codec.AppendString(b, g.name)
	b = appendHead(b, s)
	b = appendConsumerHead(b, s.consumer)
	gs.hashBuf = b
	gs.sum -= s.hash
	s.hash = hashBytes(b)
	gs.sum += s.hash
	s.exists = true
}

func appendHead(b []byte, s *saved) []byte {
	b = append(b, byte(s.phase))
	b = codec.AppendString(b, s.protocolType)
	b = binary.AppendVarint(b, int64(s.generation))
	b = codec.AppendString(b, s.protocol)
	b = codec.AppendString(b, s.leader)
	return binary.AppendVarint(b, s.sinceMs)
}
