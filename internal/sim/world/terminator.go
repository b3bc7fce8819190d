package world

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// runTerminator begins transactions and lets an operator abort them, as kafka-transactions.sh does, partition by partition and
// without the coordinator. Then it commits: of what the operator was told to be aborted nothing is ever seen.
func (c *client) runTerminator() {
	w := c.w
	for round := range 6 {
		s := &session{c: c, id: c.name, rank: 1, v2: w.chance(60), current: func() bool { return true }}
		s.takeID()
		tx := w.beginTransaction(fmt.Sprintf("%s-%d", c.name, round))
		in := []destination{{topic: "plain", partition: 0}, {topic: "plain", partition: 1}}[w.IntN(2):]
		ok := s.produceAll(tx, in...)
		c.sleep(w.Int64N(secondInUs))
		aborted := false
		if ok && w.chance(80) {
			aborted = c.abortAll(s, tx, in)
		}
		c.sleep(w.Int64N(secondInUs))
		if ok && !s.end(tx, true) {
			c.tracef("%s cannot be ended", tx.name)
		}
		if aborted || tx.torn {
			tx.committed = false // the coordinator says so, and does not know
		}
		tx.aborted = tx.aborted || aborted
		c.sleep(w.Int64N(2 * secondInUs))
	}
}

// abortAll ends a transaction in all of its partitions, with one request, and reports whether that is sure.
func (c *client) abortAll(s *session, tx *transaction, in []destination) bool {
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID, m.ProducerEpoch = s.pid, s.epoch
	for _, d := range in {
		coordinator, open := c.openIn(d, s.pid)
		if !open {
			return false // its time was over, or a power cut has taken it
		}
		m.CoordinatorEpoch = max(m.CoordinatorEpoch, coordinator)
		m.Topics = append(m.Topics, kmsg.WriteTxnMarkersRequestMarkerTopic{Topic: d.topic, Partitions: []int32{d.partition}})
	}
	req.Markers = append(req.Markers, m)
	resp := c.ask(req, 1)
	if resp == nil {
		tx.torn = true // not known which of the two ends is first
		return false
	}
	for _, t := range resp.(*kmsg.WriteTxnMarkersResponse).Markers[0].Topics {
		if code := t.Partitions[0].ErrorCode; code != 0 {
			c.tracef("the marker is refused with code %d", code)
			tx.torn = true
			return false
		}
	}
	c.tracef("an operator has aborted %s", tx.name)
	tx.aborted = true
	return true
}

// openIn asks whether a producer has a transaction open in a partition, and which coordinator's marker was there last.
func (c *client) openIn(d destination, pid int64) (coordinator int32, open bool) {
	resp, _ := c.insist(func() kmsg.Request {
		req := kmsg.NewPtrDescribeProducersRequest()
		req.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: d.topic, Partitions: []int32{d.partition}}}
		return req
	}, 0)
	for _, p := range resp.(*kmsg.DescribeProducersResponse).Topics[0].Partitions[0].ActiveProducers {
		if p.ProducerID == pid {
			return max(p.CoordinatorEpoch, 0), p.CurrentTxnStartOffset >= 0
		}
	}
	return 0, false
}
