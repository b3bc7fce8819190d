package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/internal/mutant"
)

// Heartbeat answers a Heartbeat request, v0 to 4. What it leaves to do outside is in work.
func (gs *Groups) Heartbeat(ctx Context, req *kmsg.HeartbeatRequest) (work Work) {
	gs.start(ctx)
	resp := kmsg.NewPtrHeartbeatResponse()
	resp.Version = req.Version
	if !mayGroup(ctx, kmsg.ACLOperationRead, req.Group) {
		resp.ErrorCode = kerr.GroupAuthorizationFailed.Code
	} else if g, ok := gs.groups.Get(req.Group); ok && g.hasConsumers() {
		work, resp.ErrorCode = gs.heartbeatClassic(ctx, g, req)
	} else {
		resp.ErrorCode = gs.heartbeat(ctx, req)
	}
	ctx.Reply(ctx.OpID(), resp)
	return work
}

func (gs *Groups) heartbeat(ctx Context, req *kmsg.HeartbeatRequest) int16 {
	if req.Group == "" {
		return kerr.InvalidGroupID.Code
	}
	g, m, code := gs.find(req.Group, req.MemberID, sinceVersion(req.Version, 3, req.InstanceID), req.Generation)
	if code != 0 {
		return code
	}
	gs.touch(ctx, m)
	if g.live.phase == phasePreparing {
		return kerr.RebalanceInProgress.Code
	}
	return 0
}

// find is check for a request that names group and generation.
func (gs *Groups) find(name, memberID string, instance *string, generation int32) (*group, *member, int16) {
	g, ok := gs.groups.Get(name)
	if !ok {
		return nil, nil, kerr.UnknownMemberID.Code
	}
	m, code := g.check(memberID, instance)
	if code != 0 {
		return nil, nil, code
	}
	if generation != g.saved.generation && !mutant.On("commit of an old generation accepted") {
		return nil, nil, kerr.IllegalGeneration.Code
	}
	return g, m, 0
}

// sinceVersion hides a field that the request's version does not have.
func sinceVersion(version, first int16, s *string) *string {
	if version < first {
		return nil
	}
	return s
}
