package machine

import (
	"cmp"
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeTopicPartitions (key 75), v0 (KIP-966): topics page by page, ascending by name.

// maxDescribedPartitions is Apache Kafka's bound of one page (max.request.partition.size.limit).
const maxDescribedPartitions = 2000

func (m *Machine) describeTopicPartitions(req *kmsg.DescribeTopicPartitionsRequest) {
	resp := req.ResponseKind().(*kmsg.DescribeTopicPartitionsResponse)
	room := int32(maxDescribedPartitions)
	if req.ResponsePartitionLimit > 0 {
		room = min(room, req.ResponsePartitionLimit)
	}
	for _, name := range m.topicsFrom(req) {
		first := int32(0)
		if c := req.Cursor; c != nil && c.Topic == name {
			first = max(0, c.Partition)
		}
		t := m.topics[name]
		if t == nil || !m.mayTopic(kmsg.ACLOperationDescribe, name) {
			if len(req.Topics) > 0 {
				resp.Topics = append(resp.Topics, m.undescribed(name))
			}
			continue
		}
		count := int32(len(t.partitions))
		if room == 0 {
			resp.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name, Partition: first}
			break
		}
		last := min(count, first+room)
		resp.Topics = append(resp.Topics, m.describePage(t, first, last))
		room -= max(0, last-first)
		if last < count {
			resp.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name, Partition: last}
			break
		}
	}
	m.reply(resp)
}

// topicsFrom lists the names that are asked for, each once, from the cursor's topic on; all topics if none is named.
func (m *Machine) topicsFrom(req *kmsg.DescribeTopicPartitionsRequest) []string {
	var names []string
	for _, t := range req.Topics {
		names = append(names, t.Topic)
	}
	if len(req.Topics) == 0 {
		for _, t := range m.sorted {
			names = append(names, t.Name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if req.Cursor != nil {
		from, _ := slices.BinarySearchFunc(names, req.Cursor.Topic, cmp.Compare[string])
		names = names[from:]
	}
	return names
}

func (m *Machine) undescribed(name string) kmsg.DescribeTopicPartitionsResponseTopic {
	r := kmsg.NewDescribeTopicPartitionsResponseTopic()
	r.Topic, r.AuthorizedOperations = kmsg.StringPtr(name), math.MinInt32
	r.ErrorCode = kerr.UnknownTopicOrPartition.Code
	if !m.mayTopic(kmsg.ACLOperationDescribe, name) {
		r.ErrorCode = kerr.TopicAuthorizationFailed.Code
	}
	return r
}

func (m *Machine) describePage(t *topic, first, last int32) kmsg.DescribeTopicPartitionsResponseTopic {
	r := kmsg.NewDescribeTopicPartitionsResponseTopic()
	r.Topic, r.TopicID, r.AuthorizedOperations = kmsg.StringPtr(t.Name), t.ID, math.MinInt32
	alone := []int32{m.cfg.NodeID}
	for n := first; n < last; n++ {
		p := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
		p.Partition, p.LeaderID, p.LeaderEpoch = n, m.cfg.NodeID, m.LeaderEpoch()
		p.Replicas, p.ISR, p.EligibleLeaderReplicas, p.LastKnownELR = alone, alone, []int32{}, []int32{}
		r.Partitions = append(r.Partitions, p)
	}
	return r
}
