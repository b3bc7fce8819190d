package group

import (
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupOperations is the bit field of what may be done to a group: READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS,
// ALTER_CONFIGS.
const groupOperations = 1<<3 | 1<<6 | 1<<8 | 1<<10 | 1<<11

// DescribeGroups answers a DescribeGroups request, v0 to 6.
func (gs *Groups) DescribeGroups(ctx Context, req *kmsg.DescribeGroupsRequest) {
	gs.start(ctx)
	resp := kmsg.NewPtrDescribeGroupsResponse()
	resp.Version = req.Version
	budgetBytes := maxAnswerGroups * gs.cfg.MaxGroupBytes
	for _, name := range req.Groups {
		out := kmsg.NewDescribeGroupsResponseGroup()
		out.Group, out.ErrorCode = name, kerr.GroupAuthorizationFailed.Code
		if mayGroup(ctx, kmsg.ACLOperationDescribe, name) {
			out = gs.describe(name, req.Version, &budgetBytes)
		}
		out.AuthorizedOperations = math.MinInt32
		if req.Version >= 3 && req.IncludeAuthorizedOperations && out.ErrorCode == 0 {
			out.AuthorizedOperations = groupOperations
		}
		resp.Groups = append(resp.Groups, out)
	}
	ctx.Reply(ctx.OpID(), resp)
}

func (gs *Groups) describe(name string, version int16, budgetBytes *int) kmsg.DescribeGroupsResponseGroup {
	out := kmsg.NewDescribeGroupsResponseGroup()
	out.Group = name
	g, ok := gs.groups.Get(name)
	if !ok || g.groupType() != "classic" {
		out.State = "Dead"
		if version >= 6 {
			out.ErrorCode = kerr.GroupIDNotFound.Code
			out.ErrorMessage = kmsg.StringPtr(fmt.Sprintf("Group %s not found.", name))
			if ok {
				out.ErrorMessage = kmsg.StringPtr(fmt.Sprintf("Group %s is not a classic group.", name))
			}
		}
		return out
	}
	out.State, out.ProtocolType = g.live.phase.String(), g.protocolType()
	stable := g.live.phase == phaseStable
	if stable {
		out.Protocol = g.saved.protocol
	}
	g.live.members.Scan(func(id string, m *member) bool {
		d := kmsg.DescribeGroupsResponseGroupMember{MemberID: id, InstanceID: m.info.instance,
			ClientID: m.info.clientID, ClientHost: describeHost(m.info.clientHost)}
		if s, ok := g.saved.members.Get(id); ok && stable {
			d.ProtocolMetadata, d.MemberAssignment = s.info.metadata(g.saved.protocol), s.assignment
		}
		*budgetBytes -= len(id) + len(d.ClientID) + len(d.ClientHost) + len(d.ProtocolMetadata) + len(d.MemberAssignment)
		out.Members = append(out.Members, d)
		return *budgetBytes >= 0
	})
	if *budgetBytes < 0 {
		refused := kmsg.NewDescribeGroupsResponseGroup()
		refused.Group, refused.ErrorCode = name, kerr.PolicyViolation.Code
		refused.ErrorMessage = kmsg.StringPtr("The answer is too large: describe fewer groups in one request.")
		return refused
	}
	return out
}

// protocolType is that of the members, or of those that the group had last.
func (g *group) protocolType() string {
	if g.live.members.Len() > 0 {
		return g.live.protocolType
	}
	return g.saved.protocolType
}

// describeHost writes an address as Java does, where a host's name would stand before the slash: tools show it as it comes.
func describeHost(address string) string { return "/" + address }
