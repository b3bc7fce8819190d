package machine

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeProducers (key 61), v0: who has written to a partition, and what they have open there (KIP-664).

// maxDescribedProducers bounds one answer; the rest of the partitions asked for is refused.
const maxDescribedProducers = 100_000

func (m *Machine) describeProducers(req *kmsg.DescribeProducersRequest) {
	resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
	room := maxDescribedProducers
	for _, t := range req.Topics {
		rt := kmsg.NewDescribeProducersResponseTopic()
		rt.Topic = t.Topic
		for _, number := range t.Partitions {
			rp := m.describePartition(t.Topic, number, room)
			room -= len(rp.ActiveProducers)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	m.reply(resp)
}

func (m *Machine) describePartition(topic string, number int32, room int) kmsg.DescribeProducersResponseTopicPartition {
	r := kmsg.NewDescribeProducersResponseTopicPartition()
	r.Partition = number
	fail := func(why *refusal) kmsg.DescribeProducersResponseTopicPartition {
		r.ErrorCode, r.ErrorMessage = why.code.Code, kmsg.StringPtr(why.message)
		return r
	}
	if !m.mayTopic(kmsg.ACLOperationRead, topic) {
		return fail(refuse(kerr.TopicAuthorizationFailed, "the client may not read topic %q", topic))
	}
	t := m.topics[topic]
	if t == nil || t.find(number) == nil {
		return fail(refuse(kerr.UnknownTopicOrPartition, "there is no partition %d of topic %q", number, topic))
	}
	known := t.find(number).producers.Producers()
	if len(known) > room {
		return fail(refuse(kerr.PolicyViolation, "partition %d of topic %q has %d producers, too many for this answer: ask for fewer partitions", number, topic, len(known)))
	}
	for _, p := range known {
		a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		a.ProducerID, a.ProducerEpoch, a.LastSequence = p.ID, int32(p.Epoch), p.LastSequence
		a.LastTimestamp, a.CoordinatorEpoch, a.CurrentTxnStartOffset = p.LastTimestampMs, p.CoordinatorEpoch, p.TxnFirstOffset
		r.ActiveProducers = append(r.ActiveProducers, a)
	}
	return r
}
