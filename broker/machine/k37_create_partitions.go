package machine

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// CreatePartitions (key 37), v0 to 3.

func (m *Machine) createPartitions(req *kmsg.CreatePartitionsRequest) {
	resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
	for i, times := range timesNamed(len(req.Topics), func(i int) string { return req.Topics[i].Topic }) {
		if times == 0 { // answered already
			continue
		}
		t := &req.Topics[i]
		r := kmsg.NewCreatePartitionsResponseTopic()
		r.Topic = t.Topic
		why := m.checkGrowth(t)
		if times > 1 {
			why = refuseTwice(t.Topic, times)
		}
		if why != nil {
			r.ErrorCode, r.ErrorMessage = why.code.Code, kmsg.StringPtr(why.message)
		} else if !req.ValidateOnly {
			m.grow(m.topics[t.Topic], t.Count)
		}
		resp.Topics = append(resp.Topics, r)
	}
	m.reply(resp)
}

func (m *Machine) checkGrowth(r *kmsg.CreatePartitionsRequestTopic) *refusal {
	if !m.mayTopic(kmsg.ACLOperationAlter, r.Topic) {
		return refuse(kerr.TopicAuthorizationFailed, "the client may not change topic %q", r.Topic)
	}
	t := m.topics[r.Topic]
	if t == nil {
		return refuse(kerr.UnknownTopicOrPartition, "there is no topic %q", r.Topic)
	}
	has := int32(len(t.partitions))
	if r.Count <= has {
		return refuse(kerr.InvalidPartitions, "topic %s has %d partitions and cannot get %d: they can only grow", r.Topic, has, r.Count)
	}
	if why := m.checkPartitionCount(r.Count, r.Count-has); why != nil {
		return why
	}
	if r.Assignment == nil {
		return nil
	}
	if len(r.Assignment) != int(r.Count-has) {
		return refuse(kerr.InvalidReplicaAssignment, "%d assignments for %d new partitions", len(r.Assignment), r.Count-has)
	}
	for _, a := range r.Assignment {
		if why := m.checkReplicas(a.Replicas); why != nil {
			return why
		}
	}
	return nil
}

func (m *Machine) grow(t *topic, count int32) {
	a := partitionsAdded{name: t.Name, firstID: m.nextPartition, partitions: count - int32(len(t.partitions))}
	m.record(kindPartitionsAdded, a.append(m.beginRecord()))
	m.step.out.Topics = append(m.step.out.Topics, TopicChange{Topic: *t.Topic})
}
