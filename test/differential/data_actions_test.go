//go:build peers

package differential

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

var dataActions = []action{
	{200, (*world).produce},
	{60, (*world).fetch},
	{60, (*world).listOffsets},
	{6, (*world).deleteRecords},
	{4, (*world).offsetForLeaderEpoch},
}

// produce sends the next batch of a producer, or one that it should not send.
func (w *world) produce() step {
	p := w.producers[w.IntN(len(w.producers))]
	at := w.place()
	if p.pid == -1 { // a transactional batch without a producer: docs/compat.md
		return w.initProducer()
	}
	b, next := w.batch(p, at)
	if len(p.sent) > 0 && w.chance(12) {
		if again := p.sent[w.IntN(len(p.sent))]; w.mayErr(p, again.at) {
			at, b, next = again.at, again.b, false
		}
	}
	req := w.produceRequest(p, at, b)
	if w.chance(4) {
		w.spoil(req, &b)
	}
	return one(p.client, req, func(r kmsg.Response) { w.produced(p, at, b, next, r.(*kmsg.ProduceResponse)) })
}

// produced remembers a batch that went in; next tells whether the producer goes on after it.
func (w *world) produced(p *producer, at place, b batch, next bool, resp *kmsg.ProduceResponse) {
	if w.refused(at, resp) || b.producer != p.pid {
		return
	}
	p.open[at] = p.open[at] || b.transactional
	p.sent = append(p.sent, sent{at, b})
	if len(p.sent) > 8 {
		p.sent = p.sent[1:]
	}
	if next && b.epoch == p.epoch {
		p.next[at] = int32((int64(b.sequence) + int64(b.records)) % (1 << 31))
	}
}

// refused looks a partition up in an answer.
func (w *world) refused(at place, resp *kmsg.ProduceResponse) bool {
	for _, t := range resp.Topics {
		if t.Topic != at.topic && (t.TopicID == ([16]byte{}) || t.TopicID != w.topics[at.topic]) {
			continue
		}
		for _, p := range t.Partitions {
			if p.Partition == at.partition {
				return p.ErrorCode != 0
			}
		}
	}
	return true
}

// batch is the next one of a producer, as a rule; the second result tells whether its sequence follows.
func (w *world) batch(p *producer, at place) (batch, bool) {
	w.stamp += int64(w.IntN(50) - 10)
	b := batch{producer: p.pid, epoch: p.epoch, sequence: p.next[at], records: 1 + w.IntN(4), magic: 2, salt: w.Uint64(),
		transactional: p.id != nil, timestamp: w.stamp, gzip: w.chance(5), key: w.chance(30)}
	if p.id == nil && w.chance(1) {
		p.next[at] = 1<<31 - 1 - int32(w.IntN(6)) // wrap around, where any sequence may come
		b.sequence = p.next[at]
	}
	next := true
	kind := w.IntN(40)
	if kind < 9 && kind != 6 && !w.mayErr(p, at) || p.id != nil && (kind == 4 || kind == 5 || kind == 8) {
		// Nor does a transactional client have such an epoch or producer id.
		return b, next
	}
	switch kind {
	case 0:
		b.sequence += int32(1 + w.IntN(3))
	case 1:
		b.sequence = max(b.sequence-1, 0)
	case 2:
		b.sequence = 0
	case 3:
		b.epoch = max(b.epoch-1, 0)
	case 4:
		b.epoch++
	case 5:
		b.epoch++
		b.sequence = 0
	case 6:
		b.producer, b.epoch, b.sequence, b.transactional, next = -1, -1, -1, false, false
	case 7:
		b.transactional = !b.transactional
	case 8:
		b.producer = 987654300 + int64(w.IntN(3))
	case 9:
		b.padding = 3000
	}
	return b, next
}

// mayErr reports whether a producer may send something else than the next batch. Outside of a transaction Apache Kafka
// remembers the sequence of a batch that it refused, also of an old one, and refuses later ones until the next marker:
// docs/compat.md.
func (w *world) mayErr(p *producer, at place) bool { return p.id == nil || p.open[at] }

func (w *world) produceRequest(p *producer, at place, b batch) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	switch {
	case w.chance(10) || p.id == nil:
		w.anyVersion(req)
	case p.v2:
		w.version(req, 12, 13)
	default:
		w.version(req, 3, 11)
	}
	req.Acks, req.TimeoutMillis = -1, 10000
	if p.id != nil && !w.chance(2) {
		req.TransactionID = p.id
	}
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID = at.topic, w.topics[at.topic]
	if req.Version >= 13 && t.TopicID == ([16]byte{}) {
		t.TopicID = [16]byte{1, 2, 3}
	}
	part := kmsg.NewProduceRequestTopicPartition()
	part.Partition, part.Records = at.partition, b.encode()
	t.Partitions = append(t.Partitions, part)
	req.Topics = append(req.Topics, t)
	return req
}

// spoil makes a request that no broker should take.
func (w *world) spoil(req *kmsg.ProduceRequest, b *batch) {
	part := &req.Topics[0].Partitions[0]
	switch w.IntN(9) {
	case 0:
		b.badCRC = true
		part.Records = b.encode()
	case 1:
		b.control = true
		part.Records = b.encode()
	case 2:
		b.baseOffset = 7
		part.Records = b.encode()
	case 3:
		part.Records = append(part.Records, part.Records...)
	case 4:
		part.Records = []byte{} // Apache Kafka never answers to null
	case 5:
		part.Records = part.Records[:len(part.Records)-3]
	case 6:
		req.Acks = 2
	case 7:
		b.timestamp, b.key = 1<<60, true // a compacted topic would find two faults
		part.Records = b.encode()
	case 8:
		b.records = 0
		part.Records = b.encode()
	}
}

func (w *world) fetch() step {
	req := kmsg.NewPtrFetchRequest()
	w.anyVersion(req)
	at := w.place()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 0, 1, 1<<20
	req.IsolationLevel = int8(w.IntN(2))
	req.SessionEpoch = -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = at.topic, w.topics[at.topic]
	if req.Version >= 13 && t.TopicID == ([16]byte{}) {
		t.TopicID = [16]byte{1, 2, 3}
	}
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.PartitionMaxBytes, p.CurrentLeaderEpoch = at.partition, 1<<20, -1
	if w.chance(50) {
		p.FetchOffset = int64(w.IntN(40))
	}
	if w.chance(3) {
		p.FetchOffset = pick(w, int64(-1), 100000)
	}
	if w.chance(15) {
		p.PartitionMaxBytes = int32(w.IntN(600))
	}
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return one(w.IntN(6), req, nil)
}

func (w *world) listOffsets() step {
	req := kmsg.NewPtrListOffsetsRequest()
	w.anyVersion(req)
	req.ReplicaID = -1
	req.IsolationLevel = int8(w.IntN(2))
	req.TimeoutMillis = 5000
	for _, at := range w.places(2) {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = at.topic
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.CurrentLeaderEpoch = at.partition, -1
		p.Timestamp = pick(w, int64(-1), -1, -1, -2, -3, -4, -5, -6, -7, firstStamp, w.stamp, w.stamp-int64(w.IntN(500)))
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
	}
	return one(w.IntN(6), req, nil)
}

func (w *world) deleteRecords() step {
	req := kmsg.NewPtrDeleteRecordsRequest()
	w.anyVersion(req)
	req.TimeoutMillis = 5000
	at := w.place()
	t := kmsg.NewDeleteRecordsRequestTopic()
	t.Topic = at.topic
	p := kmsg.NewDeleteRecordsRequestTopicPartition()
	p.Partition, p.Offset = at.partition, pick(w, int64(-1), -2, int64(w.IntN(30)), int64(w.IntN(10)), 100000)
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return one(0, req, nil)
}

func (w *world) offsetForLeaderEpoch() step {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	w.anyVersion(req)
	req.ReplicaID = -1
	at := w.place()
	t := kmsg.NewOffsetForLeaderEpochRequestTopic()
	t.Topic = at.topic
	p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = at.partition, -1, pick(w, int32(1000), 500)
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return one(0, req, nil)
}
