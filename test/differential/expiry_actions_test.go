//go:build peers

package differential

import "github.com/twmb/franz-go/pkg/kmsg"

var expiryActions = []action{{3, (*world).expire}}

// A transaction that one request opens may be over soon after; one that takes two must live until the second has come.
const (
	briefMillis = 100
	shortMillis = 1000
)

// expire lets the transaction of a producer time out; then its old client goes on, until another one takes its place.
func (w *world) expire() step {
	p := w.producer(true)
	timeout := int32(briefMillis)
	at := place{w.names[w.IntN(len(w.names))], 0}
	open := func() step { return w.addTo(p, at) }
	switch {
	case p.v2 && w.chance(50):
		open = func() step { return w.produceTo(p, at) }
	case !p.v2 && w.chance(25):
		timeout = shortMillis
		w.queue = append(w.queue, open)
		open = func() step { return w.produceTo(p, at) }
	}
	w.queue = append(w.queue, open, func() step {
		p.open = map[place]bool{}
		s := w.describe(*p.id)
		s.until = func(d *driver) error { return d.timedOut(*p.id) }
		return s
	})
	for range 1 + w.IntN(3) {
		w.queue = append(w.queue, func() step { return w.late(p, at) })
	}
	if w.chance(50) {
		w.queue = append(w.queue, func() step { return w.renewed(p, 600000, p.pid, p.epoch) })
	}
	w.queue = append(w.queue, func() step { return w.renewed(p, 600000, -1, -1) })
	return w.renewed(p, timeout, -1, -1)
}

// renewed is an InitProducerId of a client that names what it has, or -1.
func (w *world) renewed(p *producer, timeoutMillis int32, pid int64, epoch int16) step {
	req := kmsg.NewPtrInitProducerIDRequest()
	w.version(req, 3, 5)
	req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = p.id, timeoutMillis, pid, epoch
	return one(p.client, req, func(r kmsg.Response) {
		if r := r.(*kmsg.InitProducerIDResponse); r.ErrorCode == 0 {
			p.renew(r.ProducerID, r.ProducerEpoch)
		}
	})
}

func (w *world) addTo(p *producer, at place) step {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	w.version(req, 0, 3)
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = *p.id, p.pid, p.epoch
	t := kmsg.NewAddPartitionsToTxnRequestTopic()
	t.Topic, t.Partitions = at.topic, []int32{at.partition}
	req.Topics = append(req.Topics, t)
	return one(p.client, req, nil)
}

// produceTo sends a producer's next batch with the version that it speaks.
func (w *world) produceTo(p *producer, at place) step {
	w.stamp += int64(w.IntN(50) - 10)
	b := batch{producer: p.pid, epoch: p.epoch, sequence: p.next[at], records: 1 + w.IntN(4), magic: 2, salt: w.Uint64(),
		transactional: true, timestamp: w.stamp, key: true}
	req := w.produceRequest(p, at, b)
	req.TransactionID = p.id
	if p.v2 {
		w.version(req, 12, 12)
	} else {
		w.version(req, 3, 11)
	}
	return one(p.client, req, func(r kmsg.Response) { w.produced(p, at, b, true, r.(*kmsg.ProduceResponse)) })
}

func (w *world) describe(id string) step {
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{id}
	return one(0, req, nil)
}

// late is what a client may send that does not know that its transaction is over.
func (w *world) late(p *producer, at place) step {
	g := w.groups[w.IntN(len(w.groups))]
	switch w.IntN(5) {
	case 0:
		return w.produceTo(p, at)
	case 1:
		return w.addTo(p, at)
	case 2:
		req := kmsg.NewPtrAddOffsetsToTxnRequest()
		w.anyVersion(req)
		req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = *p.id, p.pid, p.epoch, g.name
		return one(p.client, req, nil)
	case 3:
		req := kmsg.NewPtrTxnOffsetCommitRequest()
		w.anyVersion(req)
		req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group, req.Generation = *p.id, p.pid, p.epoch, g.name, -1
		t := kmsg.NewTxnOffsetCommitRequestTopic()
		q := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		t.Topic, q.Partition, q.Offset = at.topic, at.partition, int64(w.IntN(100))
		t.Partitions = append(t.Partitions, q)
		req.Topics = append(req.Topics, t)
		return one(p.client, req, nil)
	}
	req := kmsg.NewPtrEndTxnRequest()
	if p.v2 {
		w.version(req, 5, 5)
	} else {
		w.version(req, 0, 4)
	}
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = *p.id, p.pid, p.epoch, w.chance(60)
	return w.end(p, req)
}
