package group

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func partitionKey(group, topic string, partition int32) string {
	return fmt.Sprintf("%s/%s-%d", group, topic, partition)
}

// commit takes one partition's outcome; the order grows with the request, not with the partition.
func (m *offsetModel) commit(code int16, producerID int64, group, topic string, partition int32, offset int64) {
	if code != 0 {
		return
	}
	key, o := partitionKey(group, topic, partition), modelOffset{offset, m.order + 1}
	if producerID == noProducer {
		m.committed[key] = o
		return
	}
	if m.pending[key] == nil {
		m.pending[key] = map[int64]modelOffset{}
	}
	m.pending[key][producerID] = o
}

func (r *randomRun) plainCommit(c *client, generation int32) {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.InstanceID, req.Generation = c.group, c.member, c.instance, generation
	if r.rng.IntN(4) == 0 {
		req.MemberID, req.InstanceID, req.Generation = "", nil, -1
	}
	for range 1 + r.rng.IntN(2) {
		topic := pick(r.rng, "t", "s")
		req.Topics = append(req.Topics, kmsg.OffsetCommitRequestTopic{Topic: topic, TopicID: topicID(topic),
			Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Partition: r.rng.Int32N(4), Offset: r.rng.Int64N(1000)}}})
	}
	r.gs.OffsetCommit(r, r.ask(req, int16(2+r.rng.IntN(9))).(*kmsg.OffsetCommitRequest))
}

func (r *randomRun) txnCommit(c *client, generation int32) {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.Group, req.MemberID, req.InstanceID, req.Generation = c.group, c.member, c.instance, generation
	if r.rng.IntN(3) == 0 {
		req.MemberID, req.InstanceID, req.Generation = "", nil, -1
	}
	topic, partition, offset := pick(r.rng, "t", "s"), r.rng.Int32N(4), r.rng.Int64N(1000)
	req.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: topic,
		Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{{Partition: partition, Offset: offset}}}}
	id := r.rng.Int64N(3)
	resp := r.gs.TxnOffsetCommit(r, id, r.ask(req, int16(r.rng.IntN(6))).(*kmsg.TxnOffsetCommitRequest))
	r.model.commit(resp.Topics[0].Partitions[0].ErrorCode, id, req.Group, topic, partition, offset)
	r.model.order++
	r.answered(r.op, resp)
}

func (r *randomRun) endTxn(producerID int64, commit bool) {
	r.change(func(gs *Groups) { gs.ApplyTxnEnd(producerID, commit) })
	for key, producers := range r.model.pending {
		if o, ok := producers[producerID]; ok && commit && o.order > r.model.committed[key].order {
			r.model.committed[key] = o
		}
		delete(producers, producerID)
	}
	if r.gs.HasPending(producerID) {
		r.t.Fatalf("producer %d has pending offsets after the end of its transaction", producerID)
	}
}

func (r *randomRun) deleteTopic(topic string) {
	r.change(func(gs *Groups) { gs.ApplyTopicDeleted(topic) })
	for _, group := range []string{"g", "h"} {
		for p := range int32(4) {
			delete(r.model.committed, partitionKey(group, topic, p))
			delete(r.model.pending, partitionKey(group, topic, p))
		}
	}
}

// compareOffsets asks for all offsets and compares them with the model.
func (r *randomRun) compareOffsets() {
	r.t.Helper()
	before := r.reply
	defer func() { r.reply = before }()
	for _, stable := range []bool{false, true} {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Version, req.RequireStable = 9, stable
		for _, name := range []string{"g", "h"} {
			req.Groups = append(req.Groups, kmsg.OffsetFetchRequestGroup{Group: name, Topics: []kmsg.OffsetFetchRequestGroupTopic{
				{Topic: "t", Partitions: []int32{0, 1, 2, 3}}, {Topic: "s", Partitions: []int32{0, 1, 2, 3}}}})
		}
		r.reply = func(_ uint64, resp kmsg.Response) {
			for _, g := range resp.(*kmsg.OffsetFetchResponse).Groups {
				for _, t := range g.Topics {
					for _, p := range t.Partitions {
						r.compareOffset(stable, partitionKey(g.Group, t.Topic, p.Partition), p)
					}
				}
			}
		}
		r.op++
		r.gs.OffsetFetch(r, req)
	}
}

func (r *randomRun) compareOffset(stable bool, key string, got kmsg.OffsetFetchResponseGroupTopicPartition) {
	r.t.Helper()
	want, unstable := int64(-1), stable && len(r.model.pending[key]) > 0
	if o, ok := r.model.committed[key]; ok && !unstable {
		want = o.offset
	}
	if got.Offset != want || (got.ErrorCode != 0) != unstable {
		r.t.Fatalf("%s is %d with code %d; want %d, unstable: %v", key, got.Offset, got.ErrorCode, want, unstable)
	}
}
