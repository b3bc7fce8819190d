package group

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/internal/mutant"
)

// Members of the classic protocol in a consumer group: their requests are answered from its state, and never wait. To such
// a member the group is one that rebalances whenever it has a step to take.

// joinConsumers answers a JoinGroup to a group with members of the consumer protocol, or returns the code of a refusal.
func (gs *Groups) joinConsumers(ctx Context, g *group, j *joiner, id string) (work Work, code int16) {
	c := g.saved.consumer
	if gs.cfg.Migration == MigrationDisabled || !c.acceptsClassic(j) {
		return Work{}, kerr.InconsistentGroupProtocol.Code
	}
	if j.info.id = id; id == "" {
		j.info.id = ctx.NewID()
		if j.version >= 4 && j.info.instance == nil {
			ctx.Reply(ctx.OpID(), joinError(j.version, j.info.id, kerr.MemberIDRequired.Code))
			return Work{}, 0
		}
	}
	before, code := c.rejoiner(id, j.info.instance)
	if code != 0 {
		return Work{}, code
	}
	sub, ok := subscriptionOf(j.info.protocols[0].metadata)
	if !ok {
		return Work{}, kerr.InconsistentGroupProtocol.Code
	}
	info := classicConsumer(j.info, &sub, before)
	if why := gs.roomForConsumer(c, before, info); why != nil {
		return Work{}, why.code
	}
	last := before != nil && j.info.instance != nil && before.info.classic == nil && c.classics == c.members.Len()-1
	gs.dropPending(g, id) // handed out when the group was a classic one without members
	changed := gs.saveConsumer(ctx, g, before, info)
	if last && c.members.Len() <= gs.cfg.MaxGroupSize && gs.cfg.Migration.downgrades() {
		gs.joinDowngraded(ctx, g, j, info.id)
		return Work{}, 0
	}
	work.Assignment = gs.assign(ctx, g)
	m, _ := g.saved.consumer.members.Get(info.id)
	gs.reconcile(ctx, g, m, ownedTopics(ctx, sub.OwnedPartitions), changed)
	m, _ = g.saved.consumer.members.Get(info.id)
	gs.touchConsumer(ctx, g, m)
	t := gs.timersOf(g, info.id)
	gs.timers.stop(&t.revocation)
	gs.timers.set(&t.sync, ctx.EngineMs()+int64(info.rebalanceMs))
	resp := newJoinResponse(j.version)
	resp.MemberID, resp.Generation = info.id, m.epoch
	resp.ProtocolType, resp.Protocol = kmsg.StringPtr(consumerProtocol), kmsg.StringPtr(info.classic.protocols[0].name)
	ctx.Reply(ctx.OpID(), resp)
	return work, 0
}

// acceptsClassic tells whether the members of the classic protocol, whom a downgrade would leave among themselves, have a
// protocol in common with this one.
func (c *consumerState) acceptsClassic(j *joiner) bool {
	return j.protocolType == consumerProtocol && slices.ContainsFunc(j.info.protocols, func(p protocol) bool {
		return c.support[p.name] == c.classics
	})
}

// rejoiner finds the member that joins again or, as a static one, is replaced; nil for a new one.
func (c *consumerState) rejoiner(id string, instance *string) (*consumerMember, int16) {
	if instance == nil {
		m, _ := c.members.Get(id)
		return m, 0
	}
	holder, ok := c.members.Get(c.statics[*instance])
	switch {
	case id == "":
		return holder, 0
	case !ok:
		return nil, kerr.UnknownMemberID.Code
	case holder.info.id != id:
		return nil, kerr.FencedInstanceID.Code
	}
	return holder, 0
}

// classicConsumer is what a member is after a JoinGroup.
func classicConsumer(joins *memberInfo, sub *kmsg.ConsumerMemberMetadata, before *consumerMember) *consumerInfo {
	info := &consumerInfo{}
	if before != nil {
		*info = *before.info
		info.hash = 0
	}
	info.id, info.clientID, info.clientHost = joins.id, joins.clientID, joins.clientHost
	if joins.instance != nil {
		info.instance = joins.instance
	}
	if sub.Rack != nil {
		info.rack = sub.Rack
	}
	info.rebalanceMs, info.pattern, info.topics = joins.rebalanceMs, "", distinct(sub.Topics)
	info.classic = &classicInfo{joins.sessionMs, joins.protocols}
	return info
}

// joinDowngraded answers a static member that came back with the classic protocol, as the last that had another. If all
// others have what they should have, nobody else notices.
func (gs *Groups) joinDowngraded(ctx Context, g *group, j *joiner, id string) {
	c := g.saved.consumer
	settled := c.targetEpoch == g.saved.generation
	c.members.Scan(func(other string, m *consumerMember) bool {
		settled = settled && (other == id || m.state == reconciled && m.epoch == c.targetEpoch)
		return settled
	})
	gs.downgrade(ctx, g, nil, settled)
	m, _ := g.live.members.Get(id)
	if settled {
		resp := g.joined(j.version, m, nil)
		resp.LeaderID = "" // whoever leads need not assign anything
		ctx.Reply(ctx.OpID(), resp)
		return
	}
	gs.parkJoin(ctx, g, m, j.version)
	gs.rebalance(ctx, g)
}

// ownedTopics sorts what a member of the classic protocol says it owns; never nil.
func ownedTopics(ctx Context, topics []kmsg.ConsumerMemberMetadataOwnedPartition) []topicPartition {
	owned := []topicPartition{}
	for _, t := range topics {
		if id, _, ok := ctx.Topic(t.Topic); ok {
			for _, p := range t.Partitions {
				owned = append(owned, topicPartition{id, p})
			}
		}
	}
	slices.SortFunc(owned, compareTopicPartitions)
	return owned
}

// findClassic finds the member of the classic protocol that a request speaks for.
func (c *consumerState) findClassic(memberID string, instance *string, generation int32) (*consumerMember, int16) {
	m, why := c.find(memberID, instance)
	switch {
	case why != nil:
		return nil, why.code
	case m.info.classic == nil:
		return nil, kerr.UnknownMemberID.Code
	case m.epoch != generation && !mutant.On("generation of a classic member not checked"):
		return nil, kerr.IllegalGeneration.Code
	}
	return m, 0
}

// syncConsumers answers a SyncGroup to a group with members of the consumer protocol, or returns the code of a refusal.
func (gs *Groups) syncConsumers(ctx Context, g *group, req *kmsg.SyncGroupRequest) int16 {
	c := g.saved.consumer
	m, code := c.findClassic(req.MemberID, sinceVersion(req.Version, 3, req.InstanceID), req.Generation)
	if code != 0 {
		return code
	}
	if req.Version >= 5 && (differs(req.ProtocolType, consumerProtocol) || differs(req.Protocol, m.info.classic.protocols[0].name)) {
		return kerr.InconsistentGroupProtocol.Code
	}
	if c.targetEpoch > m.epoch && m.state != unrevoked {
		gs.awaitJoin(ctx, g, m)
		return kerr.RebalanceInProgress.Code
	}
	gs.timers.stop(&gs.timersOf(g, m.info.id).sync)
	gs.touchConsumer(ctx, g, m)
	resp := syncError(req.Version, 0)
	resp.ProtocolType, resp.Protocol = req.ProtocolType, req.Protocol
	resp.MemberAssignment = encodeAssignment(ctx, m.info.classic, placesOf(m.assigned))
	ctx.Reply(ctx.OpID(), resp)
	return 0
}

// awaitJoin bounds how long a member may take to join again once it was asked to.
func (gs *Groups) awaitJoin(ctx Context, g *group, m *consumerMember) {
	if t := &gs.timersOf(g, m.info.id).revocation; t.slot == 0 && !mutant.On("classic member need not join again") {
		gs.timers.set(t, ctx.EngineMs()+int64(m.info.rebalanceMs))
	}
}

// heartbeatClassic answers a Heartbeat to a group with members of the consumer protocol. Unlike in Apache Kafka it also
// does what a heartbeat of the others would do for the group: there may be no others.
func (gs *Groups) heartbeatClassic(ctx Context, g *group, req *kmsg.HeartbeatRequest) (work Work, code int16) {
	c := g.saved.consumer
	m, code := c.findClassic(req.MemberID, sinceVersion(req.Version, 3, req.InstanceID), req.Generation)
	if code != 0 {
		return Work{}, code
	}
	gs.touchConsumer(ctx, g, m)
	gs.refresh(ctx, g)
	work.Assignment = gs.assign(ctx, g)
	m, _ = c.members.Get(req.MemberID)
	if m.epoch < c.targetEpoch || m.state == unrevoked || m.state == unreleased && !c.waits(m) {
		gs.awaitJoin(ctx, g, m)
		return work, kerr.RebalanceInProgress.Code
	}
	return work, 0
}

// waits tells whether others still have something of what a member should get.
func (c *consumerState) waits(m *consumerMember) bool {
	return slices.ContainsFunc(m.target, func(p topicPartition) bool {
		_, taken := c.owners[p]
		_, has := findHolding(m.assigned, p)
		return taken && !has
	})
}

// leaveMixed removes members by LeaveGroup, of either protocol: an operator may name those of the other one.
func (gs *Groups) leaveMixed(ctx Context, g *group, members []kmsg.LeaveGroupRequestMember) []kmsg.LeaveGroupResponseMember {
	c := g.saved.consumer
	var gone []string
	out := make([]kmsg.LeaveGroupResponseMember, 0, len(members))
	for _, who := range members {
		answer := kmsg.LeaveGroupResponseMember{MemberID: who.MemberID, InstanceID: who.InstanceID}
		id := who.MemberID
		if id == "" && who.InstanceID != nil {
			id = c.statics[*who.InstanceID]
		}
		if m, why := c.find(id, who.InstanceID); why != nil {
			answer.ErrorCode = why.code
		} else if !slices.Contains(gone, m.info.id) {
			gone = append(gone, m.info.id)
		}
		out = append(out, answer)
	}
	if len(gone) > 0 {
		gs.removeConsumers(ctx, g, gone...)
	}
	return out
}
