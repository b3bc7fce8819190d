package broker

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Requests about replicas, leaders, quotas and resources that a broker on its own can only answer in one way. Like all that is
// answered without the loop, they see published state.

const (
	mayNotAlter    = "the client may not alter the cluster"
	mayNotDescribe = "the client may not describe the cluster"
)

// startElectLeaders (key 43): every partition has its only leader.
func startElectLeaders(c *conn, s *slot) error {
	req := s.req.(*kmsg.ElectLeadersRequest)
	resp := req.ResponseKind().(*kmsg.ElectLeadersResponse)
	s.local = resp
	denied := !c.mayCluster(s, kmsg.ACLOperationAlter)
	if denied {
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
	}
	for _, t := range req.Topics { // none named means all that need an election: none
		rt := kmsg.NewElectLeadersResponseTopic()
		rt.Topic = t.Topic
		exists := c.b.has(t.Topic)
		for _, n := range t.Partitions {
			p := kmsg.NewElectLeadersResponseTopicPartition()
			p.Partition, p.ErrorCode = n, kerr.ElectionNotNeeded.Code
			p.ErrorMessage = kmsg.StringPtr("this broker is the only replica and leads already")
			switch {
			case denied:
				p.ErrorCode, p.ErrorMessage = kerr.ClusterAuthorizationFailed.Code, kmsg.StringPtr(mayNotAlter)
			case !exists(n):
				p.ErrorCode, p.ErrorMessage = kerr.UnknownTopicOrPartition.Code, kmsg.StringPtr(fmt.Sprintf("there is no partition %d of topic %q", n, t.Topic))
			}
			rt.Partitions = append(rt.Partitions, p)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return nil
}

// has tells which partitions of a topic exist.
func (b *Broker) has(topic string) func(int32) bool {
	t, ok := b.engine.Board().Topic(topic)
	return func(n int32) bool { return ok && n >= 0 && int(n) < len(t.Partitions) }
}

// startAlterPartitionAssignments (key 45, AlterPartitionReassignments): replicas cannot go anywhere else. Asking for the
// broker alone is done already; there is never a reassignment to cancel.
func startAlterPartitionAssignments(c *conn, s *slot) error {
	req := s.req.(*kmsg.AlterPartitionAssignmentsRequest)
	resp := req.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
	resp.AllowReplicationFactorChange = req.AllowReplicationFactorChange
	denied := !c.mayCluster(s, kmsg.ACLOperationAlter)
	if denied {
		resp.ErrorCode, resp.ErrorMessage = kerr.ClusterAuthorizationFailed.Code, kmsg.StringPtr(mayNotAlter)
	}
	for _, t := range req.Topics {
		rt := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		rt.Topic = t.Topic
		exists := c.b.has(t.Topic)
		for _, p := range t.Partitions {
			rp := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			rp.Partition = p.Partition
			refuse := func(code *kerr.Error, message string) {
				rp.ErrorCode, rp.ErrorMessage = code.Code, &message
			}
			switch {
			case denied:
				refuse(kerr.ClusterAuthorizationFailed, mayNotAlter)
			case !exists(p.Partition):
				refuse(kerr.UnknownTopicOrPartition, fmt.Sprintf("there is no partition %d of topic %q", p.Partition, t.Topic))
			case p.Replicas == nil:
				refuse(kerr.NoReassignmentInProgress, "nothing is being moved")
			case len(p.Replicas) != 1 || p.Replicas[0] != c.b.cfg.NodeID:
				refuse(kerr.InvalidReplicaAssignment, fmt.Sprintf("replicas must be [%d], this broker alone, not %d", c.b.cfg.NodeID, p.Replicas))
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	s.local = resp
	return nil
}

// startListPartitionReassignments (key 46): none is ever under way.
func startListPartitionReassignments(c *conn, s *slot) error {
	resp := s.req.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
	if !c.mayCluster(s, kmsg.ACLOperationDescribe) {
		resp.ErrorCode, resp.ErrorMessage = kerr.ClusterAuthorizationFailed.Code, kmsg.StringPtr(mayNotDescribe)
	}
	s.local = resp
	return nil
}

// startDescribeClientQuotas (key 48): there are no quotas.
func startDescribeClientQuotas(c *conn, s *slot) error {
	resp := s.req.ResponseKind().(*kmsg.DescribeClientQuotasResponse)
	s.local = resp
	if !c.mayCluster(s, kmsg.ACLOperationDescribeConfigs) {
		resp.ErrorCode, resp.ErrorMessage = kerr.ClusterAuthorizationFailed.Code, kmsg.StringPtr(mayNotDescribe)
		return nil
	}
	resp.Entries = []kmsg.DescribeClientQuotasResponseEntry{}
	return nil
}
