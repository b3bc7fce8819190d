//go:build peers

package differential

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var consumerActions = []action{
	{30, (*world).beat},
	{3, (*world).leaveConsumers},
	{6, (*world).describeConsumers},
	{10, (*world).commitAsConsumer},
}

// consumer is a member of the consumer group (KIP-848). The assignor is range: with ids that the members chose both brokers
// give each the same. With uniform that is so for a single member.
type consumer struct {
	id     string
	static *string
	named  string // the id under which a static member was last let in
	epoch  int32  // 0 wants to join, -1 and -2 are not there
	owned  []kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic
}

// consumer picks a member.
func (w *world) consumer() *consumer {
	if w.uniform {
		return &w.consumers[0]
	}
	return &w.consumers[w.IntN(len(w.consumers))]
}

func (w *world) consumerGroup() string { return w.prefix + "consumers" }

func (w *world) consumerTopics() []string { return []string{w.prefix + "c0", w.prefix + "c1"} }

// beginConsumers makes topics whose partitions never change: when a coordinator learns of a change is its own matter.
func (w *world) beginConsumers(d *driver) error {
	for i := range w.consumers {
		w.consumers[i] = consumer{id: fmt.Sprintf("%sm%d", w.prefix, i), epoch: -1}
		if name := fmt.Sprintf("static-%d", i); w.chance(40) {
			w.consumers[i].static, w.consumers[i].named = &name, w.consumers[i].id
		}
	}
	w.uniform = w.chance(20)
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis = 7, 10000
	for i, name := range w.consumerTopics() {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = name, int32(3-i), 1
		req.Topics = append(req.Topics, t)
	}
	if err := d.do(one(0, req, nil)); err != nil {
		return err
	}
	alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, w.consumerGroup()
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	zero := "0" // nobody waits for an assignment
	c.Name, c.Op, c.Value = "consumer.assignment.interval.ms", kmsg.IncrementalAlterConfigOpSet, &zero
	r.Configs = append(r.Configs, c)
	alter.Resources = append(alter.Resources, r)
	return d.do(one(0, alter, nil))
}

// beat is a heartbeat of a member, which joins if it is not there; rarely with an epoch that is not its own.
func (w *world) beat() step {
	m := w.consumer()
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	w.anyVersion(req)
	fenced := m.static != nil && m.epoch == 0 // it may still be in; under the same id it may come again here only: docs/compat.md
	if fenced && w.chance(50) {
		return w.leaveWith(m, -2)
	}
	if m.static != nil && m.epoch <= 0 && (fenced || w.chance(40)) {
		w.clients++
		m.id = fmt.Sprintf("%s.%d", m.named, w.clients) // a new process with the name of the old one
	}
	req.Group, req.MemberID, req.InstanceID, req.MemberEpoch = w.consumerGroup(), m.id, m.static, max(m.epoch, 0)
	if m.epoch <= 0 {
		m.owned = nil
		assignor := "range"
		if w.uniform {
			assignor = "uniform"
		}
		req.RebalanceTimeoutMillis, req.ServerAssignor = 600000, &assignor
		req.SubscribedTopicNames = w.consumerTopics()[:1+w.IntN(2)]
		req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	} else {
		if w.chance(70) {
			req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
			for _, t := range m.owned {
				o := kmsg.NewConsumerGroupHeartbeatRequestTopic()
				o.TopicID, o.Partitions = t.TopicID, slices.Clone(t.Partitions)
				req.Topics = append(req.Topics, o)
			}
		}
		if w.chance(10) {
			req.SubscribedTopicNames = w.consumerTopics()[:1+w.IntN(2)]
		}
		if w.chance(6) {
			req.MemberEpoch += pick(w, int32(1), 7)
		}
	}
	if w.chance(2) {
		req.MemberID = w.prefix + "stranger"
		req.MemberEpoch = 3
	}
	return one(0, req, func(r kmsg.Response) {
		resp := r.(*kmsg.ConsumerGroupHeartbeatResponse)
		switch {
		case req.MemberID != m.id:
		case resp.ErrorCode == kerr.FencedMemberEpoch.Code || resp.ErrorCode == kerr.UnknownMemberID.Code:
			m.epoch = 0
		case m.static != nil && resp.ErrorCode != 0:
			m.id, m.epoch = m.named, 0
		case resp.ErrorCode == 0:
			m.epoch, m.named = resp.MemberEpoch, m.id
			if resp.Assignment != nil {
				m.owned = resp.Assignment.Topics
			}
		}
	})
}

func (w *world) leaveConsumers() step {
	m := w.consumer()
	if m.static != nil && w.chance(60) {
		return w.leaveWith(m, -2) // comes back
	}
	return w.leaveWith(m, -1)
}

func (w *world) leaveWith(m *consumer, epoch int32) step {
	m.epoch = epoch
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID, req.MemberEpoch = 1, w.consumerGroup(), m.id, m.static, m.epoch
	return one(0, req, nil)
}

func (w *world) describeConsumers() step {
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	w.anyVersion(req)
	req.Groups = []string{w.consumerGroup()}
	if w.chance(20) {
		req.Groups = append(req.Groups, w.groups[0].name, w.prefix+"nogroup")
	}
	return one(0, req, nil)
}

// commitAsConsumer commits with a member's epoch, or asks for what is committed.
func (w *world) commitAsConsumer() step {
	m := w.consumer()
	epoch := max(m.epoch, -1) // who is away may not commit here, there as -2
	if w.chance(10) {
		epoch = max(epoch+pick(w, int32(1), -1), -1)
	}
	if w.chance(40) {
		req := kmsg.NewPtrOffsetFetchRequest()
		w.version(req, 9, 10)
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group, g.MemberID, g.MemberEpoch = w.consumerGroup(), &m.id, epoch
		t := kmsg.NewOffsetFetchRequestGroupTopic()
		t.Topic, t.Partitions = w.consumerTopics()[0], []int32{0, 1, 2}
		g.Topics = append(g.Topics, t)
		req.Groups = append(req.Groups, g)
		return one(0, req, nil)
	}
	req := kmsg.NewPtrOffsetCommitRequest()
	w.version(req, 8, 10)
	req.Group, req.MemberID, req.Generation = w.consumerGroup(), m.id, epoch
	t := kmsg.NewOffsetCommitRequestTopic()
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	t.Topic, p.Partition, p.Offset, p.LeaderEpoch = w.consumerTopics()[0], int32(w.IntN(3)), int64(w.IntN(100)), -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return one(0, req, nil)
}
