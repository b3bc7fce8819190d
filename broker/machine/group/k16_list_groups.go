package group

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListGroups answers a ListGroups request, v0 to 5.
func (gs *Groups) ListGroups(ctx Context, req *kmsg.ListGroupsRequest) {
	gs.start(ctx)
	resp := kmsg.NewPtrListGroupsResponse()
	resp.Version = req.Version
	wanted := func(filter []string, first int16, value string) bool {
		return req.Version < first || len(filter) == 0 ||
			slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(f, value) })
	}
	all := maySeeGroups(ctx)
	gs.groups.Scan(func(name string, g *group) bool {
		if !all && !mayGroup(ctx, kmsg.ACLOperationDescribe, name) {
			return true
		}
		if !wanted(req.TypesFilter, 5, g.groupType()) {
			return true
		}
		if state := g.state(); wanted(req.StatesFilter, 4, state) {
			resp.Groups = append(resp.Groups, kmsg.ListGroupsResponseGroup{Group: name,
				ProtocolType: g.protocolType(), GroupState: state, GroupType: g.groupType()})
		}
		return true
	})
	ctx.Reply(ctx.OpID(), resp)
}
