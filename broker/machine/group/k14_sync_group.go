package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/internal/mutant"
)

// SyncGroup answers a SyncGroup request, v0 to 5, at once or when the leader's assignment is recorded.
func (gs *Groups) SyncGroup(ctx Context, req *kmsg.SyncGroupRequest) {
	gs.start(ctx)
	if code := gs.sync(ctx, req); code != 0 {
		ctx.Reply(ctx.OpID(), syncError(req.Version, code))
	}
}

func syncError(version, code int16) *kmsg.SyncGroupResponse {
	resp := kmsg.NewPtrSyncGroupResponse()
	resp.Version, resp.ErrorCode = version, code
	return resp
}

// sync returns the code of a refusal; with 0 the request was answered or waits.
func (gs *Groups) sync(ctx Context, req *kmsg.SyncGroupRequest) int16 {
	switch {
	case !mayGroup(ctx, kmsg.ACLOperationRead, req.Group):
		return kerr.GroupAuthorizationFailed.Code
	case req.Group == "":
		return kerr.InvalidGroupID.Code
	}
	if req.Version >= 5 && (req.ProtocolType == nil || req.Protocol == nil) {
		return kerr.InconsistentGroupProtocol.Code // mandatory since then (KIP-559)
	}
	if g, ok := gs.groups.Get(req.Group); ok && g.hasConsumers() {
		return gs.syncConsumers(ctx, g, req)
	}
	g, m, code := gs.find(req.Group, req.MemberID, sinceVersion(req.Version, 3, req.InstanceID), req.Generation)
	if code != 0 {
		return code
	}
	if req.Version >= 5 && (differs(req.ProtocolType, g.saved.protocolType) || differs(req.Protocol, g.saved.protocol)) {
		return kerr.InconsistentGroupProtocol.Code
	}
	switch g.live.phase {
	case phaseStable:
		gs.answerSync(ctx, g, m, parked{ctx.OpID(), req.Version})
		gs.stopIfSynced(g)
		return 0
	case phaseCompleting:
		return gs.awaitAssignment(ctx, g, m, req)
	}
	return kerr.RebalanceInProgress.Code
}

func differs(got *string, want string) bool { return got != nil && *got != want }

// awaitAssignment parks the request. The leader's one carries the assignment, and all that wait are answered.
func (gs *Groups) awaitAssignment(ctx Context, g *group, m *member, req *kmsg.SyncGroupRequest) int16 {
	l := &g.live
	leads := m.info.id == l.leader
	var rec *assignmentRecord
	if leads {
		var sizeBytes int
		if rec, sizeBytes = g.assignment(req.GroupAssignment); sizeBytes > gs.cfg.MaxGroupBytes || !gs.mayGrow(sizeBytes) {
			return kerr.PolicyViolation.Code
		}
	}
	gs.refuseSync(ctx, m)
	l.synced(m)
	m.sync = parked{ctx.OpID(), req.Version}
	gs.timers.stop(&m.timer)
	if !leads {
		return 0
	}
	gs.record(ctx, kindAssignment, rec)
	l.phase = phaseStable
	l.members.Scan(func(_ string, m *member) bool {
		if p := m.sync; p.op != 0 {
			m.sync = parked{}
			gs.answerSync(ctx, g, m, p)
		}
		return true
	})
	gs.stopIfSynced(g)
	return 0
}

// assignment lists what the leader assigned to members of this generation, and its size.
func (g *group) assignment(list []kmsg.SyncGroupRequestGroupAssignment) (*assignmentRecord, int) {
	rec := &assignmentRecord{group: g.name, generation: g.saved.generation}
	sizeBytes := 0
	for _, a := range list {
		if _, ok := g.saved.members.Get(a.MemberID); ok {
			rec.members = append(rec.members, memberAssignment{a.MemberID, a.MemberAssignment})
			sizeBytes += len(a.MemberAssignment)
		}
	}
	return rec, sizeBytes
}

func (gs *Groups) answerSync(ctx Context, g *group, m *member, p parked) {
	g.live.synced(m)
	gs.touch(ctx, m)
	resp := syncError(p.version, 0)
	resp.ProtocolType, resp.Protocol = kmsg.StringPtr(g.saved.protocolType), kmsg.StringPtr(g.saved.protocol)
	who := m.info.id
	if mutant.On("everybody gets the leader's assignment") {
		who = g.live.leader
	}
	if s, ok := g.saved.members.Get(who); ok {
		resp.MemberAssignment = s.assignment
	}
	ctx.Reply(p.op, resp)
}

// stopIfSynced ends the wait for SyncGroup once nobody owes one.
func (gs *Groups) stopIfSynced(g *group) {
	if g.live.unsynced == 0 {
		gs.timers.stop(&g.live.timer)
	}
}
