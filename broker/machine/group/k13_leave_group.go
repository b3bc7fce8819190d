package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// LeaveGroup answers a LeaveGroup request, v0 to 5.
func (gs *Groups) LeaveGroup(ctx Context, req *kmsg.LeaveGroupRequest) {
	gs.start(ctx)
	resp := kmsg.NewPtrLeaveGroupResponse()
	resp.Version = req.Version
	members := req.Members
	if req.Version < 3 {
		members = []kmsg.LeaveGroupRequestMember{{MemberID: req.MemberID}}
	}
	g, ok := gs.groups.Get(req.Group)
	switch {
	case !mayGroup(ctx, kmsg.ACLOperationRead, req.Group):
		resp.ErrorCode = kerr.GroupAuthorizationFailed.Code
	case req.Group == "":
		resp.ErrorCode = kerr.InvalidGroupID.Code
	case !ok && req.Version < 3:
		resp.ErrorCode = kerr.UnknownMemberID.Code
	case !ok:
		for _, who := range members {
			resp.Members = append(resp.Members, kmsg.LeaveGroupResponseMember{
				MemberID: who.MemberID, InstanceID: who.InstanceID, ErrorCode: kerr.UnknownMemberID.Code,
			})
		}
	case req.Version < 3:
		resp.ErrorCode = gs.leave(ctx, g, members)[0].ErrorCode
	default:
		resp.Members = gs.leave(ctx, g, members)
	}
	ctx.Reply(ctx.OpID(), resp)
}

// leave removes members one by one; the rest is asked to join again once.
func (gs *Groups) leave(ctx Context, g *group, members []kmsg.LeaveGroupRequestMember) []kmsg.LeaveGroupResponseMember {
	if g.hasConsumers() {
		return gs.leaveMixed(ctx, g, members)
	}
	var gone []string
	left := false
	out := make([]kmsg.LeaveGroupResponseMember, 0, len(members))
	for _, who := range members {
		answer := kmsg.LeaveGroupResponseMember{MemberID: who.MemberID, InstanceID: who.InstanceID}
		if who.InstanceID == nil && gs.dropPending(g, who.MemberID) {
			left = true
		} else if m, code := g.leaver(who.MemberID, who.InstanceID); code != 0 {
			answer.ErrorCode = code
		} else {
			gs.remove(ctx, g, m, kerr.UnknownMemberID.Code)
			gone = append(gone, m.info.id)
			left = true
		}
		out = append(out, answer)
	}
	gs.recordRemoved(ctx, g, gone...)
	switch {
	case len(gone) > 0:
		gs.rebalance(ctx, g)
	case left:
		gs.completeIfAllJoined(ctx, g)
	}
	gs.forget(g)
	return out
}

// leaver finds who leaves. An administrator removes a static member by its instance id alone.
func (g *group) leaver(memberID string, instance *string) (*member, int16) {
	if memberID == "" {
		if m := g.live.holder(instance); m != nil {
			return m, 0
		}
		return nil, kerr.UnknownMemberID.Code
	}
	return g.check(memberID, instance)
}
