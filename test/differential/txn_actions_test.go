//go:build peers

package differential

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

var txnActions = []action{
	{40, (*world).initProducer},
	{40, (*world).addPartitions},
	{4, (*world).addForBrokers},
	{14, (*world).addOffsets},
	{30, (*world).txnOffsetCommit},
	{90, (*world).endTxn},
	{12, (*world).describeTransactions},
	{4, (*world).listTransactions},
	{12, (*world).describeProducers},
	{2, (*world).writeMarkers},
}

func (p *producer) renew(pid int64, epoch int16) {
	p.pid, p.epoch, p.next, p.open = pid, epoch, map[place]int32{}, map[place]bool{}
}

func (w *world) initProducer() step {
	p := w.producers[w.IntN(len(w.producers))]
	req := kmsg.NewPtrInitProducerIDRequest()
	w.anyVersion(req)
	req.TransactionalID = p.id
	req.TransactionTimeoutMillis = 600000
	req.ProducerID, req.ProducerEpoch = -1, -1
	if w.chance(40) {
		req.ProducerID, req.ProducerEpoch = w.claim(p)
	}
	if w.chance(6) {
		req.TransactionTimeoutMillis = pick(w, int32(0), -1, 900001, 900000)
	}
	if p.id != nil && w.chance(2) {
		empty := ""
		req.TransactionalID = &empty
	}
	if p.id != nil && req.ProducerID == p.pid && req.ProducerEpoch >= 0 {
		// Over an open transaction Apache Kafka looks at the epoch only after it has aborted: docs/compat.md.
		req.ProducerEpoch = p.epoch
	}
	return one(p.client, req, func(r kmsg.Response) {
		if r := r.(*kmsg.InitProducerIDResponse); r.ErrorCode == 0 {
			p.renew(r.ProducerID, r.ProducerEpoch)
		}
	})
}

func (w *world) end(p *producer, req *kmsg.EndTxnRequest) step {
	return one(p.client, req, func(r kmsg.Response) {
		resp := r.(*kmsg.EndTxnResponse)
		switch {
		case resp.ErrorCode != 0 || req.TransactionalID != *p.id:
		case resp.Version >= 5:
			p.renew(resp.ProducerID, resp.ProducerEpoch)
		default:
			p.open = map[place]bool{}
		}
	})
}

func (w *world) addPartitions() step {
	p := w.producer(true)
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	w.version(req, 0, 3)
	req.TransactionalID = w.txnID(p)
	req.ProducerID, req.ProducerEpoch = w.claim(p)
	for _, at := range w.places(1 + w.IntN(3)) {
		t := kmsg.NewAddPartitionsToTxnRequestTopic()
		t.Topic, t.Partitions = at.topic, []int32{at.partition}
		req.Topics = append(req.Topics, t)
	}
	return one(p.client, req, nil)
}

// places picks partitions of different topics.
func (w *world) places(n int) []place {
	seen := map[string]bool{}
	var out []place
	for range n {
		if at := w.place(); !seen[at.topic] {
			seen[at.topic] = true
			out = append(out, at)
		}
	}
	return out
}

func (w *world) addForBrokers() step {
	p := w.producer(true)
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	w.version(req, 4, 5)
	t := kmsg.NewAddPartitionsToTxnRequestTransaction()
	t.TransactionalID = w.txnID(p)
	t.ProducerID, t.ProducerEpoch = w.claim(p)
	t.VerifyOnly = w.chance(60)
	at := w.place()
	topic := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
	topic.Topic, topic.Partitions = at.topic, []int32{at.partition}
	t.Topics = append(t.Topics, topic)
	req.Transactions = append(req.Transactions, t)
	return one(p.client, req, nil)
}

func (w *world) addOffsets() step {
	p := w.producer(true)
	req := kmsg.NewPtrAddOffsetsToTxnRequest()
	w.anyVersion(req)
	req.TransactionalID = w.txnID(p)
	req.ProducerID, req.ProducerEpoch = w.claim(p)
	req.Group = w.groups[w.IntN(len(w.groups))].name
	if w.chance(2) {
		req.Group = ""
	}
	return one(p.client, req, nil)
}

func (w *world) txnOffsetCommit() step {
	p := w.producer(true)
	g := w.groups[w.IntN(len(w.groups))]
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	switch {
	case w.chance(15):
		w.anyVersion(req)
	case p.v2:
		w.version(req, 5, 5)
	default:
		w.version(req, 0, 4)
	}
	req.TransactionalID, req.Group = *p.id, g.name // no other one: docs/compat.md
	req.ProducerID, req.ProducerEpoch = w.claim(p)
	for _, o := range w.producers {
		if o != p && o.id != nil && o.pid == req.ProducerID {
			req.ProducerID, req.ProducerEpoch = p.pid, p.epoch // whose transaction may take them: docs/compat.md
		}
	}
	req.Generation, req.MemberID = -1, ""
	if req.Version >= 3 && w.chance(60) {
		req.Generation, req.MemberID, req.InstanceID = w.membership(g)
	}
	for _, at := range w.places(1 + w.IntN(2)) {
		t := kmsg.NewTxnOffsetCommitRequestTopic()
		t.Topic = at.topic
		q := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		q.Partition, q.Offset, q.Metadata = at.partition, int64(w.IntN(100)), w.metadata(g)
		t.Partitions = append(t.Partitions, q)
		req.Topics = append(req.Topics, t)
	}
	return one(p.client, req, func(r kmsg.Response) {
		for _, t := range r.(*kmsg.TxnOffsetCommitResponse).Topics {
			g.exists = g.exists || t.Partitions[0].ErrorCode == 0
		}
	})
}

// metadata is rarely too long, and never for a group that this would create on Apache Kafka only.
func (w *world) metadata(g *group) *string {
	switch n := w.IntN(40); {
	case n == 0 && g.exists:
		long := string(make([]byte, 5000))
		return &long
	case n == 1:
		return nil
	}
	s := pick(w, "", "a", "some metadata")
	return &s
}

func (w *world) endTxn() step {
	p := w.producer(true)
	req := kmsg.NewPtrEndTxnRequest()
	switch {
	case w.chance(10):
		w.anyVersion(req)
	case p.v2:
		w.version(req, 5, 5)
	default:
		w.version(req, 0, 4)
	}
	req.TransactionalID = w.txnID(p)
	req.ProducerID, req.ProducerEpoch = w.claim(p)
	req.Commit = w.chance(60)
	return w.end(p, req)
}

func (w *world) describeTransactions() step {
	req := kmsg.NewPtrDescribeTransactionsRequest()
	for _, p := range w.producers {
		if p.id != nil && w.chance(60) {
			req.TransactionalIDs = append(req.TransactionalIDs, *p.id)
		}
	}
	if w.chance(10) {
		req.TransactionalIDs = append(req.TransactionalIDs, w.prefix+"unknown")
	}
	return one(0, req, nil)
}

func (w *world) listTransactions() step {
	req := kmsg.NewPtrListTransactionsRequest()
	w.anyVersion(req)
	for _, s := range []string{"Ongoing", "Empty", "CompleteCommit", "CompleteAbort"} {
		if w.chance(40) {
			req.StateFilters = append(req.StateFilters, s)
		}
	}
	if w.chance(10) {
		req.StateFilters = append(req.StateFilters, "Nonsense")
	}
	if w.chance(20) {
		req.ProducerIDFilters = append(req.ProducerIDFilters, w.producer(true).pid)
	}
	req.DurationFilterMillis = -1
	return one(0, req, nil)
}

func (w *world) describeProducers() step {
	req := kmsg.NewPtrDescribeProducersRequest()
	for _, at := range w.places(2) {
		t := kmsg.NewDescribeProducersRequestTopic()
		t.Topic, t.Partitions = at.topic, []int32{at.partition}
		req.Topics = append(req.Topics, t)
	}
	return one(0, req, nil)
}

// writeMarkers ends what a partition knows of a producer, as an operator would: of a transactional id that is not used
// again.
func (w *world) writeMarkers() step {
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	w.anyVersion(req)
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID, m.ProducerEpoch = int64(800000000+w.IntN(3)), int16(w.IntN(3))
	m.Committed = w.chance(50)
	m.CoordinatorEpoch = w.starts // with which it is written here, whatever it says: docs/compat.md
	at := w.place()
	t := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
	t.Topic, t.Partitions = at.topic, []int32{at.partition}
	m.Topics = append(m.Topics, t)
	req.Markers = append(req.Markers, m)
	return one(0, req, nil)
}
