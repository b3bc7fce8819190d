package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/internal/mutant"
)

// DeleteGroups answers a DeleteGroups request, v0 to 2. A group without members goes with all of its offsets, those of
// open transactions included, as in Apache Kafka.
func (gs *Groups) DeleteGroups(ctx Context, req *kmsg.DeleteGroupsRequest) {
	gs.start(ctx)
	resp := kmsg.NewPtrDeleteGroupsResponse()
	resp.Version = req.Version
	for _, name := range req.Groups {
		out := kmsg.NewDeleteGroupsResponseGroup()
		out.Group, out.ErrorCode = name, gs.deleteGroup(ctx, name)
		resp.Groups = append(resp.Groups, out)
	}
	ctx.Reply(ctx.OpID(), resp)
}

func (gs *Groups) deleteGroup(ctx Context, name string) int16 {
	g, ok := gs.groups.Get(name)
	switch {
	case !mayGroup(ctx, kmsg.ACLOperationDelete, name):
		return kerr.GroupAuthorizationFailed.Code
	case !ok || g.empty() && !g.saved.exists:
		return kerr.GroupIDNotFound.Code
	case !g.empty() && !mutant.On("group with members deleted"):
		return kerr.NonEmptyGroup.Code
	}
	gs.record(ctx, kindGroupRemoved, &groupRecord{name})
	return 0
}
