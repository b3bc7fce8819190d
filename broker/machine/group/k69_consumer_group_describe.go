package group

import (
	"fmt"
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ConsumerGroupDescribe answers a ConsumerGroupDescribe request, v0 and 1.
func (gs *Groups) ConsumerGroupDescribe(ctx Context, req *kmsg.ConsumerGroupDescribeRequest) {
	gs.start(ctx)
	resp := kmsg.NewPtrConsumerGroupDescribeResponse()
	resp.Version = req.Version
	budgetBytes := maxAnswerGroups * gs.cfg.MaxGroupBytes
	for _, name := range req.Groups {
		out := gs.describeConsumers(ctx, name, &budgetBytes)
		out.AuthorizedOperations = math.MinInt32
		if req.IncludeAuthorizedOperations && out.ErrorCode == 0 {
			out.AuthorizedOperations = groupOperations
		}
		resp.Groups = append(resp.Groups, out)
	}
	ctx.Reply(ctx.OpID(), resp)
}

func (gs *Groups) describeConsumers(ctx Context, name string, budgetBytes *int) kmsg.ConsumerGroupDescribeResponseGroup {
	refused := kmsg.NewConsumerGroupDescribeResponseGroup()
	refused.Group = name
	g, ok := gs.groups.Get(name)
	switch {
	case !mayGroup(ctx, kmsg.ACLOperationDescribe, name):
		refused.ErrorCode = kerr.GroupAuthorizationFailed.Code
		return refused
	case name == "":
		refused.ErrorCode = kerr.InvalidGroupID.Code
		return refused
	case !ok || g.groupType() != "consumer":
		refused.ErrorCode = kerr.GroupIDNotFound.Code
		refused.ErrorMessage = kmsg.StringPtr(fmt.Sprintf("Group %s not found.", name))
		if ok {
			refused.ErrorMessage = kmsg.StringPtr(fmt.Sprintf("Group %s is not a consumer group.", name))
		}
		return refused
	case *budgetBytes < 0: // nothing is put together any more just to be dropped
		return tooManyConsumers(refused)
	}
	c := g.saved.consumer
	out := kmsg.NewConsumerGroupDescribeResponseGroup()
	out.Group, out.State, out.AssignorName = name, g.state(), c.assignor()
	out.Epoch, out.AssignmentEpoch = g.saved.generation, c.targetEpoch
	seen := describable{ctx: ctx}
	c.members.Scan(func(_ string, m *consumerMember) bool {
		d := kmsg.NewConsumerGroupDescribeResponseGroupMember()
		d.MemberID, d.InstanceID, d.RackID, d.MemberEpoch = m.info.id, m.info.instance, m.info.rack, m.epoch
		d.ClientID, d.ClientHost, d.SubscribedTopics = m.info.clientID, describeHost(m.info.clientHost), m.info.topics
		d.SubscribedTopicRegex = &m.info.pattern
		if d.MemberType = 1; m.info.classic != nil {
			d.MemberType = 0
		}
		has := placesOf(slices.Concat(m.assigned, m.revoking)) // what it is to give up is its own until it has
		slices.SortFunc(has, compareTopicPartitions)
		d.Assignment.TopicPartitions = describePartitions(ctx, has)
		d.TargetAssignment.TopicPartitions = describePartitions(ctx, m.target)
		*budgetBytes -= int(m.sizeBytes())
		out.Members = append(out.Members, d)
		return *budgetBytes >= 0 && seen.all(d.Assignment.TopicPartitions) && seen.all(d.TargetAssignment.TopicPartitions)
	})
	if seen.denied {
		refused.ErrorCode = kerr.TopicAuthorizationFailed.Code
		refused.ErrorMessage = kmsg.StringPtr("The group has topics that the client is not authorized to describe.")
		return refused
	}
	if *budgetBytes < 0 {
		return tooManyConsumers(refused)
	}
	return out
}

func tooManyConsumers(refused kmsg.ConsumerGroupDescribeResponseGroup) kmsg.ConsumerGroupDescribeResponseGroup {
	refused.ErrorCode = kerr.PolicyViolation.Code
	refused.ErrorMessage = kmsg.StringPtr("The answer is too large: describe fewer groups in one request.")
	return refused
}

// describable remembers whether the client may see the topics of a group.
type describable struct {
	ctx    Context
	known  map[string]bool
	denied bool
}

// all reports whether the client may see every topic so far.
func (d *describable) all(topics []kmsg.AssignmentTopicPartition) bool {
	for i := range topics {
		name := topics[i].Topic
		if d.denied || d.known[name] {
			continue
		}
		if d.known == nil {
			d.known = make(map[string]bool)
		}
		d.denied = !mayTopic(d.ctx, kmsg.ACLOperationDescribe, name)
		d.known[name] = true
	}
	return !d.denied
}

// describePartitions groups partitions by topic; those of topics that are gone have no name and are left out.
func describePartitions(ctx Context, list []topicPartition) []kmsg.AssignmentTopicPartition {
	var out []kmsg.AssignmentTopicPartition
	known := false
	for i, p := range list {
		if i == 0 || list[i-1].topic != p.topic {
			name, ok := ctx.TopicByID(p.topic)
			if known = ok; ok {
				out = append(out, kmsg.AssignmentTopicPartition{TopicID: p.topic, Topic: name})
			}
		}
		if known {
			t := &out[len(out)-1]
			t.Partitions = append(t.Partitions, p.partition)
		}
	}
	return out
}
