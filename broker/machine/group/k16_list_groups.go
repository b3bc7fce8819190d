package group

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupType is what ListGroups calls all groups of this package; the others are those of KIP-848 and later.
const groupType = "classic"

// ListGroups answers a ListGroups request, v0 to 5.
func (gs *Groups) ListGroups(ctx Context, req *kmsg.ListGroupsRequest) {
	gs.start(ctx)
	resp := kmsg.NewPtrListGroupsResponse()
	resp.Version = req.Version
	wanted := func(filter []string, first int16, value string) bool {
		return req.Version < first || len(filter) == 0 ||
			slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(f, value) })
	}
	if wanted(req.TypesFilter, 5, groupType) {
		gs.groups.Scan(func(name string, g *group) bool {
			if wanted(req.StatesFilter, 4, g.live.phase.String()) {
				resp.Groups = append(resp.Groups, kmsg.ListGroupsResponseGroup{Group: name,
					ProtocolType: g.protocolType(), GroupState: g.live.phase.String(), GroupType: groupType})
			}
			return true
		})
	}
	ctx.Reply(ctx.OpID(), resp)
}
