package group

import (
	"slices"

	"github.com/strandline-io/strandline/internal/mutant"
)

// reconcile takes a member one step towards its target: it first gives up what is not in the target any more, then
// gets what nobody else has. owned is what it says it has; nil says nothing. If it subscribes to other topics than before,
// it gives up at once what it does not subscribe to any more, whenever the next target comes.
func (gs *Groups) reconcile(ctx Context, g *group, m *consumerMember, owned []topicPartition, resubscribed bool) (moved bool) {
	c := g.saved.consumer
	rec := &consumerCurrentRecord{group: g.name, id: m.info.id, epoch: m.epoch, prevEpoch: m.prevEpoch, state: m.state}
	switch {
	case m.state == reconciled && m.epoch == c.targetEpoch,
		m.state == unrevoked && ownsAny(owned, m.revoking) && !mutant.On("partitions given on before they are revoked"):
		if !resubscribed || mutant.On("unsubscribed topics kept until the target") {
			return false
		}
		if !c.withdraw(ctx, rec, m, owned) {
			return false
		}
	default:
		c.advance(ctx, rec, m, owned)
	}
	// A step that leaves the epoch as it is, even one that changes nothing, ends the time of the epoch before.
	if !mutant.On("previous member epoch outlives a step") || rec.epoch != m.epoch {
		rec.prevEpoch = m.epoch
	}
	moved = rec.epoch != m.epoch || rec.state != m.state || !slices.Equal(rec.assigned, m.assigned) || !slices.Equal(rec.revoking, m.revoking)
	if moved || rec.prevEpoch != m.prevEpoch {
		gs.record(ctx, kindConsumerCurrent, rec)
	}
	return moved
}

// wants tells which topics a member subscribes to; what a pattern matches counts once it was looked at.
func (c *consumerState) wants(ctx Context, m *consumerMember) func(topic [16]byte) bool {
	matched, _ := c.patterns.Get(m.info.pattern)
	known := map[[16]byte]bool{}
	return func(topic [16]byte) bool {
		wanted, seen := known[topic]
		if seen {
			return wanted
		}
		name, ok := ctx.TopicByID(topic)
		if ok {
			_, wanted = slices.BinarySearch(m.info.topics, name)
			if !wanted && matched != nil {
				_, wanted = slices.BinarySearch(matched.names, name)
			}
		}
		known[topic] = wanted
		return wanted
	}
}

// withdraw takes from a member, between two targets, what it does not subscribe to. It reports whether there was any.
func (c *consumerState) withdraw(ctx Context, rec *consumerCurrentRecord, m *consumerMember, owned []topicPartition) bool {
	wants := c.wants(ctx, m)
	rec.revoking = m.revoking
	var gone []holding
	for _, h := range m.assigned {
		if wants(h.topic) {
			rec.assigned = append(rec.assigned, h)
		} else {
			gone = append(gone, h)
		}
	}
	if len(gone) == 0 {
		return false
	}
	if revoking := slices.Concat(m.revoking, gone); ownsAny(owned, revoking) {
		slices.SortFunc(revoking, compareHoldings)
		rec.state, rec.revoking = unrevoked, revoking
	}
	return true
}

// advance takes a member one step towards its target.
func (c *consumerState) advance(ctx Context, rec *consumerCurrentRecord, m *consumerMember, owned []topicPartition) {
	wants := c.wants(ctx, m)
	rec.state = unrevoked
	for _, h := range m.assigned {
		if _, keeps := slices.BinarySearchFunc(m.target, h.topicPartition, compareTopicPartitions); keeps && wants(h.topic) {
			rec.assigned = append(rec.assigned, h)
		} else {
			rec.revoking = append(rec.revoking, h)
		}
	}
	if len(rec.revoking) > 0 && ownsAny(owned, rec.revoking) {
		return
	}
	rec.epoch, rec.state, rec.revoking = c.targetEpoch, reconciled, nil
	kept := rec.assigned
	for _, p := range m.target {
		if _, has := findHolding(kept, p); has || !wants(p.topic) {
			continue
		}
		owner, taken := c.owners[p]
		if taken && owner != m.info.id {
			rec.state = unreleased
			continue
		}
		rec.assigned = append(rec.assigned, holding{p, c.targetEpoch})
	}
	slices.SortFunc(rec.assigned, compareHoldings)
}

func compareHoldings(a, b holding) int {
	return compareTopicPartitions(a.topicPartition, b.topicPartition)
}

// ownsAny tells whether a member that says what it owns may still have one of these. One that says nothing may.
func ownsAny(owned []topicPartition, list []holding) bool {
	if owned == nil {
		return true
	}
	return slices.ContainsFunc(list, func(h holding) bool {
		_, ok := slices.BinarySearchFunc(owned, h.topicPartition, compareTopicPartitions)
		return ok
	})
}

// liveConsumers is the volatile part of a consumer group.
type liveConsumers struct {
	timers        map[string]*consumerTimers // by member id
	topicsVersion uint64                     // of the topics that the metadata hash was compared with
	assignMs      int64                      // from when on the next assignment may be made
}

type consumerTimers struct{ session, revocation, sync timer }

func (gs *Groups) timersOf(g *group, id string) *consumerTimers {
	l := &g.live.consumers
	if l.timers == nil {
		l.timers = map[string]*consumerTimers{}
	}
	t := l.timers[id]
	if t == nil {
		at := func(kind timerKind) timer { return timer{kind: kind, group: g, id: id} }
		t = &consumerTimers{session: at(timerConsumer), revocation: at(timerRevocation), sync: at(timerSync)}
		l.timers[id] = t
	}
	return t
}

// touchConsumer gives a member a full session.
func (gs *Groups) touchConsumer(ctx Context, g *group, m *consumerMember) {
	timeoutMs := gs.sessionTimeoutMs(g.name)
	if m.info.classic != nil {
		timeoutMs = m.info.classic.sessionMs
	}
	gs.timers.set(&gs.timersOf(g, m.info.id).session, ctx.EngineMs()+int64(timeoutMs))
}

// awaitRevocation bounds how long a member may take to give up partitions.
func (gs *Groups) awaitRevocation(ctx Context, g *group, m *consumerMember, moved bool) {
	if m.info.classic != nil {
		return
	}
	t := &gs.timersOf(g, m.info.id).revocation
	switch {
	case m.state != unrevoked:
		gs.timers.stop(t)
	case moved || t.slot == 0:
		gs.timers.set(t, ctx.EngineMs()+int64(m.info.rebalanceMs))
	}
}

func (gs *Groups) stopConsumer(g *group, id string) {
	if t := g.live.consumers.timers[id]; t != nil {
		gs.timers.stop(&t.session)
		gs.timers.stop(&t.revocation)
		gs.timers.stop(&t.sync)
		delete(g.live.consumers.timers, id)
	}
}

// removeConsumers ends members that left or were silent; the rest is assigned anew, or goes on as a classic group.
func (gs *Groups) removeConsumers(ctx Context, g *group, ids ...string) {
	if gs.downgrades(g, ids) {
		gs.downgrade(ctx, g, ids, false)
		gs.rebalance(ctx, g)
		return
	}
	for _, id := range ids {
		gs.stopConsumer(g, id)
	}
	gs.record(ctx, kindConsumersRemoved, &removedRecord{g.name, ctx.WallMs(), ids})
	gs.bump(ctx, g, gs.metadataHash(ctx, g.saved.consumer))
}

// metadataHash sums up the subscribed topics that exist.
func (gs *Groups) metadataHash(ctx Context, c *consumerState) uint64 {
	var b []byte
	c.subscribers.Scan(func(name string, _ int) bool {
		if id, partitions, ok := ctx.Topic(name); ok {
			b = appendTarget(append(b, name...), []topicPartition{{id, partitions}})
		}
		return true
	})
	return hashBytes(b)
}

// bump raises the group epoch: targets have to be made anew.
func (gs *Groups) bump(ctx Context, g *group, metadataHash uint64) {
	epoch := g.saved.generation
	if epoch < 1<<31-1 {
		epoch++
	}
	gs.record(ctx, kindConsumerEpoch, &consumerEpochRecord{g.name, epoch, metadataHash, ctx.WallMs()})
	g.live.consumers.topicsVersion = ctx.TopicsVersion()
}

// refresh raises the group epoch if the subscribed topics are not what they were at it.
func (gs *Groups) refresh(ctx Context, g *group) {
	if g.live.consumers.topicsVersion == ctx.TopicsVersion() {
		return
	}
	g.live.consumers.topicsVersion = ctx.TopicsVersion()
	if h := gs.metadataHash(ctx, g.saved.consumer); h != g.saved.consumer.metadataHash {
		gs.bump(ctx, g, h)
	}
}
