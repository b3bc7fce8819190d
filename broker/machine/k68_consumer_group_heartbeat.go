package machine

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine/group"
)

// ConsumerGroupHeartbeat (key 68), v0 and 1. A pattern (v1) is matched outside of the loop, and a large group's assignment
// made there: the member is answered, and the outcome comes back as an operation of its own.

// GroupReply answers a heartbeat, or a JoinGroup to a group with members of both protocols, that leaves work to do. Topics
// to match are those that the board shows when this reply is released, or newer ones.
type GroupReply struct {
	Response kmsg.Response
	Match    *MatchTopics // nil, or to be submitted with its Topics
	Assign   *Assign      // nil, or to be submitted when it is made
}

// Assign brings back an assignment. It is dropped if the group has gone on meanwhile. No reply.
type Assign struct{ *group.Assignment }

// MatchTopics says which topics match a pattern to which members of a group subscribe, ascending. It is dropped if
// topics of the same version or newer ones were matched before, or nobody has the pattern any more. No reply.
type MatchTopics struct {
	Group         string
	Pattern       string
	TopicsVersion uint64
	Topics        []string
}

func (m *Machine) consumerGroupHeartbeat(req *kmsg.ConsumerGroupHeartbeatRequest) {
	refused := req.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
	unseen := func(topic string) bool { return !m.mayTopic(kmsg.ACLOperationDescribe, topic) }
	switch {
	case m.level(groupVersion) < 1:
		refused.ErrorCode = kerr.UnsupportedVersion.Code
		m.reply(refused)
		return
	case !m.mayGroup(kmsg.ACLOperationRead, req.Group):
		refused.ErrorCode = kerr.GroupAuthorizationFailed.Code
		m.reply(refused)
		return
	case slices.ContainsFunc(req.SubscribedTopicNames, unseen):
		refused.ErrorCode = kerr.TopicAuthorizationFailed.Code
		m.reply(refused)
		return
	}
	resp, work := m.groups.ConsumerGroupHeartbeat((*groupContext)(m), req)
	m.reply(resp)
	m.handOut(req.Group, work)
}

// handOut makes work part of the reply that the operation has just got.
func (m *Machine) handOut(name string, work group.Work) {
	if work.Pattern == "" && work.Assignment == nil {
		return
	}
	own := &m.step.out.Replies[len(m.step.out.Replies)-1]
	r := &GroupReply{Response: own.Body.(kmsg.Response)}
	if work.Pattern != "" {
		r.Match = &MatchTopics{Group: name, Pattern: work.Pattern, TopicsVersion: m.topicsVersion}
	}
	if work.Assignment != nil {
		r.Assign = &Assign{work.Assignment}
	}
	own.Body = r
}

func (m *Machine) matchTopics(b *MatchTopics) {
	seen := slices.DeleteFunc(b.Topics, func(topic string) bool { return !m.mayTopic(kmsg.ACLOperationDescribe, topic) })
	m.groups.Matched((*groupContext)(m), b.Group, b.TopicsVersion, group.MatchedPattern{Pattern: b.Pattern, Topics: seen})
}
