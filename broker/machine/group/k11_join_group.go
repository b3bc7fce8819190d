package group

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxProtocols bounds what one member may offer; more is INVALID_REQUEST. Clients offer two or three.
const maxProtocols = 100

// joiner is a JoinGroup request that was read and found well formed.
type joiner struct {
	version      int16
	protocolType string
	info         *memberInfo // the id is empty until it is known
}

// JoinGroup answers a JoinGroup request, v0 to 9, at once or when the join phase ends. What it leaves to do outside is in
// work; then the request was answered at once.
func (gs *Groups) JoinGroup(ctx Context, req *kmsg.JoinGroupRequest) (work Work) {
	gs.start(ctx)
	work, code := gs.join(ctx, req)
	if code != 0 {
		ctx.Reply(ctx.OpID(), joinError(req.Version, req.MemberID, code))
	}
	return work
}

func newJoinResponse(version int16) *kmsg.JoinGroupResponse {
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.Version = version
	return resp
}

func joinError(version int16, memberID string, code int16) *kmsg.JoinGroupResponse {
	resp := newJoinResponse(version)
	resp.ErrorCode, resp.Generation, resp.MemberID = code, -1, memberID
	if code == kerr.GroupMaxSizeReached.Code {
		resp.MemberID = ""
	}
	return resp
}

// join returns the code of a refusal; with 0 the request was answered or waits.
func (gs *Groups) join(ctx Context, req *kmsg.JoinGroupRequest) (Work, int16) {
	if !mayGroup(ctx, kmsg.ACLOperationRead, req.Group) {
		return Work{}, kerr.GroupAuthorizationFailed.Code
	}
	j, code := gs.readJoin(ctx, req)
	if code != 0 {
		return Work{}, code
	}
	var g *group
	if req.MemberID == "" {
		if g, code = gs.open(req.Group); code != 0 {
			return Work{}, code
		}
		defer gs.forget(g)
	} else if g, _ = gs.groups.Get(req.Group); g == nil {
		return Work{}, kerr.UnknownMemberID.Code
	}
	if g.hasConsumers() {
		return gs.joinConsumers(ctx, g, j, req.MemberID)
	}
	return Work{}, gs.joinClassic(ctx, g, j, req)
}

// joinClassic is join for a classic group, or one without members.
func (gs *Groups) joinClassic(ctx Context, g *group, j *joiner, req *kmsg.JoinGroupRequest) int16 {
	known, _ := g.live.members.Get(req.MemberID)
	if !gs.hasRoom(g, known, j) {
		return kerr.GroupMaxSizeReached.Code
	}
	if !g.accepts(j.protocolType, j.info.protocols) {
		return kerr.InconsistentGroupProtocol.Code
	}
	switch {
	case req.MemberID != "":
		return gs.rejoin(ctx, g, j, req.MemberID)
	case j.info.instance == nil:
		j.info.id = ctx.ClientID() + "-" + ctx.NewID()
		if req.Version >= 4 {
			return gs.reserve(ctx, g, j)
		}
		gs.addMember(ctx, g, j)
		return 0
	default:
		j.info.id = *j.info.instance + "-" + ctx.NewID()
		if old, ok := g.live.statics[*j.info.instance]; ok {
			gs.replaceMember(ctx, g, old, j)
		} else {
			gs.addMember(ctx, g, j)
		}
		return 0
	}
}

func (gs *Groups) readJoin(ctx Context, req *kmsg.JoinGroupRequest) (*joiner, int16) {
	switch {
	case req.Group == "":
		return nil, kerr.InvalidGroupID.Code
	case req.SessionTimeoutMillis < gs.cfg.MinSessionTimeoutMs || req.SessionTimeoutMillis > gs.cfg.MaxSessionTimeoutMs:
		return nil, kerr.InvalidSessionTimeout.Code
	case len(req.Protocols) > maxProtocols || len(req.ProtocolType) > maxNameBytes:
		return nil, kerr.InvalidRequest.Code
	}
	info := &memberInfo{id: req.MemberID, clientID: ctx.ClientID(), clientHost: ctx.ClientHost(),
		sessionMs: req.SessionTimeoutMillis, rebalanceMs: req.SessionTimeoutMillis}
	if req.Version >= 1 {
		info.rebalanceMs = max(req.RebalanceTimeoutMillis, 0)
	}
	if req.Version >= 5 && req.InstanceID != nil {
		if *req.InstanceID == "" || len(*req.InstanceID) > maxNameBytes {
			return nil, kerr.InvalidRequest.Code
		}
		info.instance = kmsg.StringPtr(*req.InstanceID)
	}
	for _, p := range req.Protocols {
		if !slices.ContainsFunc(info.protocols, func(q protocol) bool { return q.name == p.Name }) {
			info.protocols = append(info.protocols, protocol{p.Name, slices.Clone(p.Metadata)})
		}
	}
	return &joiner{req.Version, req.ProtocolType, info}, 0
}

// hasRoom tells whether the group may have one member more, or this one again. While a rebalance collects members only
// those count who have joined: who comes last must go.
func (gs *Groups) hasRoom(g *group, known *member, j *joiner) bool {
	l := &g.live
	grows := j.info.sizeBytes()
	count := l.members.Len()
	if l.phase == phasePreparing {
		count = l.joining
	}
	if old := l.holder(j.info.instance); known == nil {
		known = old
	}
	if known != nil {
		grows -= known.info.sizeBytes()
		if l.phase != phasePreparing || known.join.op != 0 {
			count = 0
		}
	}
	return count < gs.cfg.MaxGroupSize && l.sizeBytes+grows <= gs.cfg.MaxGroupBytes && gs.mayGrow(grows)
}

// mayGrow tells whether the state of all groups may take that much more.
func (gs *Groups) mayGrow(bytes int) bool {
	return bytes <= 0 || gs.sizeBytes+int64(bytes) <= gs.cfg.MaxStateBytes
}

// holder returns the member that has this group.instance.id, nil if there is none.
func (l *live) holder(instance *string) *member {
	if instance == nil {
		return nil
	}
	return l.statics[*instance]
}

// reserve hands out a member id and lets the client come back with it (KIP-394): a client that never learned its id
// leaves no member behind.
func (gs *Groups) reserve(ctx Context, g *group, j *joiner) int16 {
	if g.live.pending.Len() >= gs.cfg.MaxPendingMembers {
		return kerr.GroupMaxSizeReached.Code
	}
	t := &timer{kind: timerPending, group: g, id: j.info.id}
	g.live.pending.Set(j.info.id, t)
	gs.sizeBytes += int64(overheadBytes + len(j.info.id))
	gs.timers.set(t, ctx.EngineMs()+int64(j.info.sessionMs))
	ctx.Reply(ctx.OpID(), joinError(j.version, j.info.id, kerr.MemberIDRequired.Code))
	return 0
}

func (gs *Groups) addMember(ctx Context, g *group, j *joiner) {
	l := &g.live
	if l.members.Len() == 0 {
		l.protocolType = j.protocolType
	}
	m := &member{info: j.info, isNew: true}
	gs.insert(g, m)
	if l.leader == "" {
		l.leader = m.info.id
	}
	l.newcomer = true
	gs.parkJoin(ctx, g, m, j.version)
	gs.rebalance(ctx, g)
}

// rejoin handles a JoinGroup with a member id.
func (gs *Groups) rejoin(ctx Context, g *group, j *joiner, id string) int16 {
	if j.info.instance == nil && gs.dropPending(g, id) {
		gs.addMember(ctx, g, j)
		return 0
	}
	m, code := g.check(id, j.info.instance)
	if code != 0 {
		return code
	}
	l := &g.live
	unchanged := sameProtocols(m.info.protocols, j.info.protocols)
	switch {
	case l.phase == phaseCompleting && unchanged, l.phase == phaseStable && unchanged && l.leader != id:
		// The answer may have been lost; or a follower asks, and nothing is different.
		gs.touch(ctx, m)
		var all []kmsg.JoinGroupResponseMember
		if l.leader == id {
			all = g.joinMembers()
		}
		ctx.Reply(ctx.OpID(), g.joined(j.version, m, all))
	default:
		j.info.instance = m.info.instance
		gs.update(g, m, j.info)
		gs.parkJoin(ctx, g, m, j.version)
		gs.rebalance(ctx, g)
	}
	return 0
}

// refuseSync answers a SyncGroup whose member has gone on to join again.
func (gs *Groups) refuseSync(ctx Context, m *member) {
	if p := m.sync; p.op != 0 {
		m.sync = parked{}
		ctx.Reply(p.op, syncError(p.version, kerr.RebalanceInProgress.Code))
	}
}

// replaceMember puts a static member that came back in the place of its older self, which is fenced. While the group
// is stable and its protocol stays, nobody else notices (KIP-345).
func (gs *Groups) replaceMember(ctx Context, g *group, old *member, j *joiner) {
	l := &g.live
	leaderBefore := l.leader
	if _, ok := g.saved.members.Get(old.info.id); ok {
		gs.record(ctx, kindReplaced, &replacedRecord{g.name, old.info.id, j.info})
		s, _ := g.saved.members.Get(j.info.id)
		j.info = s.info
	}
	l.subscribed, l.subscribedOK = nil, false
	m := &member{info: j.info, isNew: old.isNew}
	wasLeader := l.leader == old.info.id
	gs.remove(ctx, g, old, kerr.FencedInstanceID.Code)
	gs.insert(g, m)
	if wasLeader {
		l.leader = m.info.id
	}
	if l.phase == phaseStable && g.vote() == g.saved.protocol {
		gs.touch(ctx, m)
		var all []kmsg.JoinGroupResponseMember
		if j.version >= 9 && wasLeader {
			all = g.joinMembers()
		}
		resp := g.joined(j.version, m, all)
		resp.SkipAssignment = j.version >= 9 && wasLeader
		if j.version < 9 {
			// A client that cannot be told to skip the assignment must not take itself for the leader.
			resp.LeaderID, resp.Members = leaderBefore, nil
		}
		ctx.Reply(ctx.OpID(), resp)
		return
	}
	gs.parkJoin(ctx, g, m, j.version)
	gs.rebalance(ctx, g)
}
