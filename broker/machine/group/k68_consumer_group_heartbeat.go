package group

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/internal/mutant"
)

// refusal is an error and its explanation; nil is none.
type refusal struct {
	code    int16
	message string
}

func refuse(e *kerr.Error, format string, args ...any) *refusal {
	return &refusal{e.Code, fmt.Sprintf(format, args...)}
}

// ConsumerGroupHeartbeat decides a ConsumerGroupHeartbeat request, v0 and 1 (KIP-848). The caller sends the response.
// What it leaves to do outside is in work.
func (gs *Groups) ConsumerGroupHeartbeat(ctx Context, req *kmsg.ConsumerGroupHeartbeatRequest) (resp *kmsg.ConsumerGroupHeartbeatResponse, work Work) {
	gs.start(ctx)
	resp = kmsg.NewPtrConsumerGroupHeartbeatResponse()
	resp.Version = req.Version
	var why *refusal
	if why = checkHeartbeat(req); why == nil {
		if req.MemberEpoch < 0 {
			why = gs.leaveConsumers(ctx, req, resp)
		} else {
			work, why = gs.heartbeatConsumer(ctx, req, resp)
		}
	}
	if why != nil {
		resp.ErrorCode, resp.ErrorMessage = why.code, &why.message
	}
	return resp, work
}

// Work is what a heartbeat leaves to do outside, where it holds nobody up.
type Work struct {
	// Pattern, if not empty, has to be matched against the topics again; the outcome comes back by Matched.
	Pattern string
	// Assignment, if not nil, has to be made; it comes back by Assigned.
	Assignment *Assignment
}

// MaxPatternBytes bounds a subscribed pattern; a longer one is INVALID_REGULAR_EXPRESSION.
const MaxPatternBytes = 4096

// checkHeartbeat refuses what is wrong whatever the group is.
func checkHeartbeat(req *kmsg.ConsumerGroupHeartbeatRequest) *refusal {
	empty := func(s *string) bool { return s != nil && (*s == "" || len(*s) > maxNameBytes) }
	switch epoch := req.MemberEpoch; {
	case req.Group == "":
		return refuse(kerr.InvalidRequest, "GroupId can't be empty.")
	case epoch < leftEpoch:
		return refuse(kerr.InvalidRequest, "MemberEpoch is %d, but must be greater than or equal to -2.", epoch)
	case len(req.MemberID) > maxNameBytes || req.MemberID == "" && (epoch != 0 || req.Version >= 1):
		return refuse(kerr.InvalidRequest, "MemberId can't be empty.")
	case empty(req.InstanceID):
		return refuse(kerr.InvalidRequest, "InstanceId can't be empty.")
	case empty(req.RackID):
		return refuse(kerr.InvalidRequest, "RackId can't be empty.")
	case epoch == leftEpoch && req.InstanceID == nil:
		return refuse(kerr.InvalidRequest, "InstanceId can't be null.")
	case epoch < 0:
		return nil
	case req.ServerAssignor != nil && assignors[*req.ServerAssignor] == nil:
		return refuse(kerr.UnsupportedAssignor, "ServerAssignor %s is not supported. Supported assignors: uniform, range.", *req.ServerAssignor)
	case req.SubscribedTopicRegex != nil && len(*req.SubscribedTopicRegex) > MaxPatternBytes:
		return refuse(kerr.InvalidRegularExpression, "SubscribedTopicRegex has %d bytes, %d are allowed.", len(*req.SubscribedTopicRegex), MaxPatternBytes)
	case epoch > 0:
		return nil
	case req.RebalanceTimeoutMillis < 0:
		return refuse(kerr.InvalidRequest, "RebalanceTimeoutMs must be provided in first request.")
	case req.Topics == nil || len(req.Topics) > 0:
		return refuse(kerr.InvalidRequest, "TopicPartitions must be empty when (re-)joining.")
	case req.SubscribedTopicNames == nil && req.SubscribedTopicRegex == nil:
		return refuse(kerr.InvalidRequest, "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
	}
	return nil
}

// consumers returns the group if it is a consumer group, or has no members; nil if there is none of that name.
func (gs *Groups) consumers(name string) (*group, *refusal) {
	g, ok := gs.groups.Get(name)
	switch {
	case !ok:
		return nil, nil
	case g.classic():
		return nil, refuse(kerr.GroupIDNotFound, "Group %s is not a consumer group.", name)
	}
	return g, nil
}

// find finds the member that a request speaks for, or says why it may not.
func (c *consumerState) find(memberID string, instance *string) (*consumerMember, *refusal) {
	if c == nil {
		return nil, refuse(kerr.UnknownMemberID, "Member %s is not a member of the group.", memberID)
	}
	if instance != nil {
		holder, ok := c.statics[*instance]
		if !ok {
			return nil, refuse(kerr.UnknownMemberID, "Instance id %s is unknown.", *instance)
		}
		if holder != memberID {
			return nil, refuse(kerr.FencedInstanceID, "Static member %s with instance id %s was fenced by member %s.", memberID, *instance, holder)
		}
	}
	m, ok := c.members.Get(memberID)
	if !ok {
		return nil, refuse(kerr.UnknownMemberID, "Member %s is not a member of the group.", memberID)
	}
	return m, nil
}

func (gs *Groups) leaveConsumers(ctx Context, req *kmsg.ConsumerGroupHeartbeatRequest, resp *kmsg.ConsumerGroupHeartbeatResponse) *refusal {
	g, why := gs.consumers(req.Group)
	if why == nil && (g == nil || g.saved.consumer == nil) {
		why = refuse(kerr.GroupIDNotFound, "Group %s not found.", req.Group)
	}
	if why != nil {
		return why
	}
	m, why := g.saved.consumer.find(req.MemberID, req.InstanceID)
	if why != nil {
		return why
	}
	resp.MemberID, resp.MemberEpoch = &req.MemberID, req.MemberEpoch
	if req.MemberEpoch != leftEpoch {
		gs.removeConsumers(ctx, g, req.MemberID)
		return nil
	}
	// It keeps what it has for the rest of its session, except what it owed to others; its successor may commit for it at any
	// epoch.
	rec := &consumerCurrentRecord{group: g.name, id: m.info.id, epoch: leftEpoch, prevEpoch: m.epoch, state: reconciled}
	for _, p := range placesOf(m.assigned) {
		rec.assigned = append(rec.assigned, holding{p, 0})
	}
	gs.record(ctx, kindConsumerCurrent, rec)
	gs.timers.stop(&gs.timersOf(g, m.info.id).revocation)
	return nil
}

// heartbeatConsumer handles a member that joins, or lives on.
func (gs *Groups) heartbeatConsumer(ctx Context, req *kmsg.ConsumerGroupHeartbeatRequest, resp *kmsg.ConsumerGroupHeartbeatResponse) (work Work, why *refusal) {
	g, before, info, why := gs.admitted(ctx, req)
	if why != nil {
		return Work{}, why
	}
	owned := ownedPartitions(req.Topics)
	resubscribed := gs.saveConsumer(ctx, g, before, info)
	work.Assignment = gs.assign(ctx, g)
	m, _ := g.saved.consumer.members.Get(info.id)
	moved := gs.reconcile(ctx, g, m, owned, resubscribed)
	m, _ = g.saved.consumer.members.Get(info.id)
	gs.touchConsumer(ctx, g, m)
	gs.awaitRevocation(ctx, g, m, moved)
	resp.MemberID, resp.MemberEpoch, resp.HeartbeatIntervalMillis = &m.info.id, m.epoch, gs.heartbeatIntervalMs(g.name)
	whole := req.RebalanceTimeoutMillis != -1 && (req.SubscribedTopicNames != nil || req.SubscribedTopicRegex != nil) && req.Topics != nil
	if before == nil || req.MemberEpoch == 0 || whole || !samePlaces(before.assigned, m.assigned) {
		resp.Assignment = assignmentOf(m)
	}
	if p, ok := g.saved.consumer.patterns.Get(m.info.pattern); ok && p.version < ctx.TopicsVersion() {
		work.Pattern = m.info.pattern
	}
	return work, nil
}

// admitted returns the group of a member that joins or lives on, made if need be and made a consumer group, the member as
// it was, nil for a new one, and what it is from now on; or says why it may not.
func (gs *Groups) admitted(ctx Context, req *kmsg.ConsumerGroupHeartbeatRequest) (*group, *consumerMember, *consumerInfo, *refusal) {
	var up *upgrade
	var c *consumerState
	g, ok := gs.groups.Get(req.Group)
	switch {
	case ok && g.classic() && req.MemberEpoch > 0:
		return nil, nil, nil, refuse(kerr.GroupIDNotFound, "Group %s is not a consumer group.", req.Group)
	case ok && g.classic():
		var why *refusal
		if up, why = gs.planUpgrade(ctx, g); why != nil {
			return nil, nil, nil, why
		}
		c = up.state
	case ok:
		c = g.saved.consumer
	}
	before, why := c.admit(req, ownedPartitions(req.Topics))
	if why != nil {
		return nil, nil, nil, why
	}
	info := gs.consumerInfo(ctx, req, before)
	if why = gs.roomForConsumer(c, before, info); why != nil {
		return nil, nil, nil, why
	}
	if !ok {
		var code int16
		if g, code = gs.open(req.Group); code != 0 {
			return nil, nil, nil, &refusal{code, "There are too many groups, or the group id is too long."}
		}
	}
	if up != nil {
		gs.upgrade(ctx, g, up)
		if before != nil {
			before, _ = g.saved.consumer.members.Get(before.info.id)
		}
	}
	return g, before, info, nil
}

// admit finds the member that a heartbeat speaks for, the one that it replaces, or nil for a new one; or says why it
// may not.
func (c *consumerState) admit(req *kmsg.ConsumerGroupHeartbeatRequest, owned []topicPartition) (*consumerMember, *refusal) {
	if req.MemberEpoch == 0 {
		if c == nil {
			return nil, nil
		}
		m, _ := c.members.Get(req.MemberID)
		if req.InstanceID == nil {
			return m, nil
		}
		holder, ok := c.members.Get(c.statics[*req.InstanceID])
		switch {
		case !ok && m != nil && m.info.instance != nil:
			return nil, refuse(kerr.InvalidRequest, "InstanceId can't be changed.")
		case !ok:
			return m, nil
		case holder.info.id != req.MemberID && m != nil:
			return nil, refuse(kerr.FencedInstanceID, "Member %s is not instance %s.", req.MemberID, *req.InstanceID)
		case holder.info.id != req.MemberID && holder.info.classic == nil && holder.epoch != leftEpoch && !mutant.On("instance taken before it was released"):
			return nil, refuse(kerr.UnreleasedInstanceID, "Static member %s with instance id %s cannot join the group because the instance id is owned by member %s.",
				req.MemberID, *req.InstanceID, holder.info.id)
		}
		return holder, nil
	}
	m, why := c.find(req.MemberID, req.InstanceID)
	if why != nil {
		return nil, why
	}
	switch epoch := req.MemberEpoch; {
	case mutant.On("member epoch not checked"):
	case epoch > m.epoch:
		return nil, refuse(kerr.FencedMemberEpoch, "The consumer group member has a greater member epoch (%d) than the one known by the group coordinator (%d).", epoch, m.epoch)
	case epoch < m.epoch && (epoch != m.prevEpoch || owned == nil || !within(owned, m.assigned)):
		return nil, refuse(kerr.FencedMemberEpoch, "The consumer group member has a smaller member epoch (%d) than the one known by the group coordinator (%d).", epoch, m.epoch)
	}
	return m, nil
}

// within tells whether all of owned is assigned.
func within(owned []topicPartition, assigned []holding) bool {
	return !slices.ContainsFunc(owned, func(p topicPartition) bool {
		_, ok := findHolding(assigned, p)
		return !ok
	})
}

// ownedPartitions sorts what a member says it has; nil if it says nothing.
func ownedPartitions(topics []kmsg.ConsumerGroupHeartbeatRequestTopic) []topicPartition {
	if topics == nil {
		return nil
	}
	owned := []topicPartition{}
	for _, t := range topics {
		for _, p := range t.Partitions {
			owned = append(owned, topicPartition{t.TopicID, p})
		}
	}
	slices.SortFunc(owned, compareTopicPartitions)
	return owned
}

// consumerInfo is what a member is after a request that names only what is different.
func (gs *Groups) consumerInfo(ctx Context, req *kmsg.ConsumerGroupHeartbeatRequest, before *consumerMember) *consumerInfo {
	info := &consumerInfo{}
	if before != nil {
		*info = *before.info
		info.hash = 0
	}
	info.clientID, info.clientHost, info.classic = ctx.ClientID(), ctx.ClientHost(), nil
	if req.MemberEpoch == 0 {
		info.id = req.MemberID
		if info.id == "" {
			info.id = ctx.NewID()
		}
	}
	if req.InstanceID != nil {
		info.instance = req.InstanceID
	}
	if req.RackID != nil {
		info.rack = req.RackID
	}
	if req.RebalanceTimeoutMillis >= 0 {
		info.rebalanceMs = req.RebalanceTimeoutMillis
	}
	if req.SubscribedTopicNames != nil {
		info.topics = distinct(req.SubscribedTopicNames)
	}
	if req.Version >= 1 && req.SubscribedTopicRegex != nil {
		info.pattern = *req.SubscribedTopicRegex
	}
	if req.ServerAssignor != nil {
		info.assignor = *req.ServerAssignor
	}
	return info
}

// roomForConsumer refuses what would exceed a bound of the group, nil for a new one.
func (gs *Groups) roomForConsumer(c *consumerState, before *consumerMember, info *consumerInfo) *refusal {
	grows, held := info.sizeBytes(), int64(0)
	if before != nil {
		grows -= before.info.sizeBytes()
	}
	if c != nil {
		held = c.sizeBytes
		if before == nil && c.members.Len() >= gs.cfg.MaxConsumerGroupSize {
			return refuse(kerr.GroupMaxSizeReached, "The consumer group has reached its maximum capacity of %d members.", gs.cfg.MaxConsumerGroupSize)
		}
	}
	if grows > 0 && (held+int64(grows) > int64(gs.cfg.MaxGroupBytes) || !gs.mayGrow(grows)) {
		return refuse(kerr.GroupMaxSizeReached, "The subscriptions of the group's members take too much memory.")
	}
	return nil
}

// saveConsumer records what is new about a member, and raises the group epoch if that concerns the others: then it is new,
// or subscribes to other topics than before.
func (gs *Groups) saveConsumer(ctx Context, g *group, before *consumerMember, info *consumerInfo) (resubscribed bool) {
	if g.saved.consumer == nil {
		gs.record(ctx, kindConsumerEpoch, &consumerEpochRecord{g.name, g.saved.generation, 0, ctx.WallMs()})
	}
	c := g.saved.consumer
	switch {
	case before != nil && before.info.id != info.id:
		gs.stopConsumer(g, before.info.id)
		rec := &consumerReplacedRecord{g.name, before.info.id, info}
		gs.record(ctx, rec.kind(), rec)
	case before == nil || !sameInfo(before.info, info):
		rec := &consumerMemberRecord{g.name, info}
		gs.record(ctx, rec.kind(), rec)
	}
	resubscribed = before == nil || !sameSubscription(before.info, info)
	if resubscribed {
		gs.bump(ctx, g, gs.metadataHash(ctx, c))
	}
	gs.refresh(ctx, g)
	return resubscribed
}

// samePlaces tells whether two lists have the same partitions.
func samePlaces(a, b []holding) bool {
	return slices.EqualFunc(a, b, func(a, b holding) bool { return a.topicPartition == b.topicPartition })
}

// assignmentOf is what a member may read.
func assignmentOf(m *consumerMember) *kmsg.ConsumerGroupHeartbeatResponseAssignment {
	out := &kmsg.ConsumerGroupHeartbeatResponseAssignment{}
	for i, h := range m.assigned {
		if i == 0 || m.assigned[i-1].topic != h.topic {
			out.Topics = append(out.Topics, kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic{TopicID: h.topic})
		}
		t := &out.Topics[len(out.Topics)-1]
		t.Partitions = append(t.Partitions, h.partition)
	}
	return out
}

// MatchedPattern names the topics that match a pattern, ascending.
type MatchedPattern struct {
	Pattern string
	Topics  []string
}

// Matched takes the topics that were found to match a pattern of the group's, as they were at topicsVersion or later.
// What is older than what is known, or nobody's pattern any more, is dropped.
func (gs *Groups) Matched(ctx Context, name string, topicsVersion uint64, m MatchedPattern) {
	gs.start(ctx)
	g, ok := gs.groups.Get(name)
	if !ok || g.saved.consumer == nil {
		return
	}
	p, ok := g.saved.consumer.patterns.Get(m.Pattern)
	if !ok || p.version >= topicsVersion && !mutant.On("outdated match taken") {
		return
	}
	p.version = topicsVersion
	if slices.Equal(p.names, m.Topics) {
		return
	}
	next := pattern{names: m.Topics}
	grows := next.sizeBytes() - p.sizeBytes()
	if grows > 0 && g.saved.consumer.matchBytes+grows > int64(gs.cfg.MaxGroupBytes) || !gs.mayGrow(int(grows)) {
		return
	}
	gs.record(ctx, kindConsumerPatterns, &consumerPatternsRecord{g.name, []MatchedPattern{m}})
	gs.bump(ctx, g, gs.metadataHash(ctx, g.saved.consumer))
}
