package group

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/internal/mutant"
)

// classic tells whether the group has members, and they are those of a classic group.
func (g *group) classic() bool { return g.live.phase != phaseEmpty || g.live.members.Len() > 0 }

// upgrade is what a classic group will be as a consumer group. Nothing of it is part of the state yet.
type upgrade struct{ state *consumerState }

// planUpgrade says what a classic group with members is as a consumer group: its epoch is the generation, and each member
// has, and shall have, what the leader assigned to it; what else it owns it is to give up.
func (gs *Groups) planUpgrade(ctx Context, g *group) (*upgrade, *refusal) {
	cannot := func(why string) (*upgrade, *refusal) {
		return nil, refuse(kerr.GroupIDNotFound, "Cannot upgrade classic group %s to consumer group because %s.", g.name, why)
	}
	switch {
	case !gs.cfg.Migration.upgrades():
		return cannot("online upgrade is disabled")
	case g.protocolType() != consumerProtocol:
		return cannot("the group does not use the consumer embedded protocol")
	case g.live.members.Len() > gs.cfg.MaxConsumerGroupSize:
		return cannot("the group size exceeds the consumer group maximum size")
	}
	up := &upgrade{newConsumerState()}
	why := ""
	g.live.members.Scan(func(id string, m *member) bool {
		var c *consumerMember
		if c, why = up.member(ctx, g, m.info); why != "" {
			return false
		}
		up.state.members.Set(id, c)
		if c.info.instance != nil {
			up.state.statics[*c.info.instance] = id
		}
		return true
	})
	if why != "" {
		return cannot(why)
	}
	up.state.members.Scan(func(id string, c *consumerMember) bool {
		m, _ := g.live.members.Get(id)
		up.awaits(ctx, c, m.info.subscription(g.saved.protocol))
		up.state.sizeBytes += c.sizeBytes()
		return true
	})
	if !gs.mayGrow(int(up.state.sizeBytes)) {
		return nil, refuse(kerr.GroupMaxSizeReached, "The members of group %s would take too much memory.", g.name)
	}
	return up, nil
}

// member turns a classic member into one of the consumer group; why says why that cannot be.
func (up *upgrade) member(ctx Context, g *group, info *memberInfo) (m *consumerMember, why string) {
	sub, ok := subscriptionOf(info.subscription(g.saved.protocol))
	if !ok {
		return nil, "the embedded consumer protocol is malformed"
	}
	var assigned []byte
	if s, ok := g.saved.members.Get(info.id); ok {
		assigned = s.assignment
	}
	var has []topicPartition
	if len(assigned) > 0 {
		var a kmsg.ConsumerMemberAssignment
		switch err := a.ReadFrom(assigned); {
		case err != nil || a.Version < 0:
			return nil, "the embedded consumer protocol is malformed"
		case len(a.UserData) > 0:
			return nil, "an unsupported custom assignor is in use. " +
				"Please refer to the documentation or switch to a default assignor before re-attempting the upgrade"
		}
		for _, t := range a.Topics {
			has = up.claim(ctx, has, t.Topic, t.Partitions)
		}
	} else {
		// A generation that waits for its assignment has none yet, but its cooperative members go on reading what they own.
		for _, t := range sub.OwnedPartitions {
			has = up.claim(ctx, has, t.Topic, t.Partitions)
		}
	}
	slices.SortFunc(has, compareTopicPartitions)
	epoch := g.saved.generation
	m = &consumerMember{epoch: epoch, prevEpoch: epoch, target: has, info: &consumerInfo{id: info.id, instance: info.instance,
		rack: sub.Rack, clientID: info.clientID, clientHost: info.clientHost, rebalanceMs: info.rebalanceMs,
		topics: distinct(sub.Topics), classic: &classicInfo{info.sessionMs, info.protocols}}}
	for _, p := range has {
		m.assigned = append(m.assigned, holding{p, epoch})
	}
	return m, ""
}

// awaits notes what a cooperative member owned when it joined and nobody was assigned: until it joins without it, it may
// still be about to give it up.
func (up *upgrade) awaits(ctx Context, m *consumerMember, subscription []byte) {
	sub, _ := subscriptionOf(subscription)
	var owned []topicPartition
	for _, t := range sub.OwnedPartitions {
		owned = up.claim(ctx, owned, t.Topic, t.Partitions)
	}
	if len(owned) == 0 || mutant.On("upgrade forgets what is being given up") {
		return
	}
	slices.SortFunc(owned, compareTopicPartitions)
	m.state = unrevoked
	for _, p := range owned {
		m.revoking = append(m.revoking, holding{p, m.epoch})
	}
}

// claim adds partitions that exist and that no member has yet: a leader may have given one out twice.
func (up *upgrade) claim(ctx Context, has []topicPartition, topic string, partitions []int32) []topicPartition {
	id, count, ok := ctx.Topic(topic)
	if !ok {
		return has
	}
	for _, n := range partitions {
		p := topicPartition{id, n}
		if _, taken := up.state.owners[p]; n < 0 || n >= count || taken {
			continue
		}
		up.state.owners[p] = ""
		has = append(has, p)
	}
	return has
}

// subscription is what a member said under the group's protocol, or before there is one under its own first.
func (m *memberInfo) subscription(protocol string) []byte {
	if metadata := m.metadata(protocol); metadata != nil || len(m.protocols) == 0 {
		return metadata
	}
	return m.protocols[0].metadata
}

// subscriptionOf reads what consumers send as their protocol's metadata.
func subscriptionOf(metadata []byte) (sub kmsg.ConsumerMemberMetadata, ok bool) {
	err := sub.ReadFrom(metadata)
	return sub, err == nil && sub.Version >= 0
}

// distinct sorts names.
func distinct(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names)
}

// upgrade makes the group a consumer group. Whoever waits for the end of a rebalance is asked to join again.
func (gs *Groups) upgrade(ctx Context, g *group, up *upgrade) {
	l := &g.live
	for _, m := range l.members.Values() {
		gs.remove(ctx, g, m, kerr.RebalanceInProgress.Code)
	}
	for _, id := range l.pending.Keys() {
		gs.dropPending(g, id)
	}
	gs.timers.stop(&l.timer)
	l.phase, l.leader, l.initial, l.subscribed, l.subscribedOK = phaseEmpty, "", false, nil, false
	gs.recordRemoved(ctx, g, g.saved.members.Keys()...)
	epoch := g.saved.generation
	gs.record(ctx, kindConsumerEpoch, &consumerEpochRecord{g.name, epoch, 0, ctx.WallMs()})
	target := &consumerTargetRecord{group: g.name, epoch: epoch}
	up.state.members.Scan(func(id string, m *consumerMember) bool {
		gs.record(ctx, kindClassicMember, &consumerMemberRecord{g.name, m.info})
		target.members = append(target.members, memberTarget{id, m.target})
		return true
	})
	gs.record(ctx, kindConsumerTarget, target)
	up.state.members.Scan(func(id string, m *consumerMember) bool {
		rec := &consumerCurrentRecord{group: g.name, id: id, epoch: epoch, prevEpoch: epoch, state: m.state, assigned: m.assigned, revoking: m.revoking}
		if mutant.On("upgrade forgets what classic members have") {
			rec.assigned = nil
		}
		gs.record(ctx, kindConsumerCurrent, rec)
		now, _ := g.saved.consumer.members.Get(id)
		gs.touchConsumer(ctx, g, now)
		return true
	})
	l.consumers.assignMs = 0
}

// downgrades tells whether only members of the classic protocol are left when some go, not more than a classic group may have.
func (gs *Groups) downgrades(g *group, gone []string) bool {
	c := g.saved.consumer
	left, classics := c.members.Len(), c.classics
	for _, id := range gone {
		left--
		if m, ok := c.members.Get(id); ok && m.info.classic != nil {
			classics--
		}
	}
	return left > 0 && left == classics && left <= gs.cfg.MaxGroupSize && gs.cfg.Migration.downgrades()
}

// downgrade makes the group a classic one, without the members that go. All that stay are of the classic protocol. If all of
// them have what they should have, the group is settled: it is stable, and each is assigned that. Otherwise the caller has to
// let them join again, and each is assigned what it may still read, also if it was to give it up: a member of the consumer
// protocol that comes before they have joined must not get that.
func (gs *Groups) downgrade(ctx Context, g *group, gone []string, settled bool) {
	l, c := &g.live, g.saved.consumer
	all := c.members.Values()
	rec := &generationRecord{group: g.name, protocolType: consumerProtocol, generation: g.saved.generation, atMs: ctx.WallMs()}
	assignments := &assignmentRecord{group: g.name, generation: g.saved.generation}
	l.protocolType = consumerProtocol
	for _, m := range all {
		if slices.Contains(gone, m.info.id) {
			continue
		}
		i := m.info
		info := &memberInfo{id: i.id, instance: i.instance, clientID: i.clientID, clientHost: i.clientHost,
			sessionMs: i.classic.sessionMs, rebalanceMs: i.rebalanceMs, protocols: i.classic.protocols}
		gs.insert(g, &member{info: info})
		rec.members = append(rec.members, info)
		has := m.target
		if !settled && !mutant.On("downgrade forgets what is to be given up") {
			has = placesOf(slices.Concat(m.assigned, m.revoking))
			slices.SortFunc(has, compareTopicPartitions)
		}
		assignments.members = append(assignments.members, memberAssignment{i.id, encodeAssignment(ctx, i.classic, has)})
	}
	l.leader = rec.members[0].id
	rec.leader, rec.protocol = l.leader, g.vote()
	gs.record(ctx, kindConsumersRemoved, &removedRecord{g.name, ctx.WallMs(), c.members.Keys()})
	gs.record(ctx, kindGeneration, rec)
	gs.record(ctx, kindAssignment, assignments)
	l.phase, l.subscribed, l.subscribedOK = phaseStable, nil, false
	for _, m := range all {
		gs.stopConsumer(g, m.info.id)
	}
	l.members.Scan(func(id string, m *member) bool {
		s, _ := g.saved.members.Get(id)
		m.info = s.info
		gs.touch(ctx, m)
		return true
	})
}

// newestEmbedded is the newest version of the embedded consumer protocol.
const newestEmbedded = 3

// encodeAssignment writes partitions as a leader would, in the version of the member's subscription. Topics that are gone
// are left out.
func encodeAssignment(ctx Context, c *classicInfo, partitions []topicPartition) []byte {
	sub, _ := subscriptionOf(c.protocols[0].metadata)
	out := kmsg.ConsumerMemberAssignment{Version: min(max(sub.Version, 0), newestEmbedded)}
	for _, t := range describePartitions(ctx, partitions) {
		out.Topics = append(out.Topics, kmsg.ConsumerMemberAssignmentTopic{Topic: t.Topic, Partitions: t.Partitions})
	}
	return out.AppendTo(nil)
}
