package streamtest

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/task/core"
)

// cluster is as much of a Kafka cluster as the commit protocol can tell apart: logs with open, committed and aborted
// transactions and their markers, group offsets that are pending while their transaction is open, and fencing.
type cluster struct {
	topics  map[string][]*partition
	offsets map[offsetKey]int64
	slots   map[string]*slot
	// With lateMarkers, transactions that are decided and not seen everywhere yet, oldest first.
	lateMarkers bool
	ending      []*txn
}

type offsetKey struct {
	topic     string
	partition int
}

type partition struct{ log []entry }

type entry struct {
	record core.OutRecord
	txn    *txn // nil outside transactions
	marker bool
}

type txnState int8

const (
	txnOpen txnState = iota
	txnCommitted
	txnAborted
)

// txn is one transaction. Its state is decided at once; a partition in unmarked has not seen it.
type txn struct {
	state    txnState
	touched  []*partition
	unmarked []*partition
	pending  map[offsetKey]int64
}

// slot is a transactional id.
type slot struct {
	epoch int
	open  *txn
	last  *txn // the one before
}

var errFenced = errors.New("producer fenced: another instance has the transactional id")

func newCluster() *cluster {
	return &cluster{topics: map[string][]*partition{}, offsets: map[offsetKey]int64{}, slots: map[string]*slot{}}
}

func (c *cluster) create(topic string, partitions int) {
	for len(c.topics[topic]) < partitions {
		c.topics[topic] = append(c.topics[topic], &partition{})
	}
}

func (c *cluster) partition(topic string, n int) *partition {
	if n < 0 || n >= len(c.topics[topic]) {
		panic(fmt.Sprintf("BUG: no partition %d of topic %q", n, topic))
	}
	return c.topics[topic][n]
}

// initProducer aborts what the id has open and fences older instances.
func (c *cluster) initProducer(id string) (epoch int) {
	s := c.slots[id]
	if s == nil {
		s = &slot{}
		c.slots[id] = s
	}
	c.end(s, false)
	c.complete(s.last)
	s.epoch++
	return s.epoch
}

func (c *cluster) live(id string, epoch int) (*slot, error) {
	if s := c.slots[id]; s.epoch == epoch {
		return s, nil
	}
	return nil, errFenced
}

func (c *cluster) produce(id string, epoch int, records []core.OutRecord) error {
	s, err := c.live(id, epoch)
	if err != nil {
		return err
	}
	if s.open == nil {
		c.complete(s.last) // until then the answer is CONCURRENT_TRANSACTIONS
		s.open = &txn{pending: map[offsetKey]int64{}}
	}
	for _, r := range records {
		p := c.partition(r.Topic, r.Partition)
		p.log = append(p.log, entry{record: r, txn: s.open})
		if !slices.Contains(s.open.touched, p) {
			s.open.touched = append(s.open.touched, p)
		}
	}
	return nil
}

func (c *cluster) sendOffsets(id string, epoch int, offsets []core.GroupOffset) error {
	s, err := c.live(id, epoch)
	if err != nil {
		return err
	}
	for _, o := range offsets {
		s.open.pending[offsetKey{o.Topic, o.Partition}] = o.Offset
	}
	return nil
}

// end ends the slot's open transaction, if there is one.
func (c *cluster) end(s *slot, commit bool) {
	t := s.open
	if t == nil {
		return
	}
	s.open, s.last = nil, t
	t.state = txnAborted
	if commit {
		t.state = txnCommitted
	}
	t.unmarked = slices.Clone(t.touched)
	c.ending = append(c.ending, t)
	if !c.lateMarkers {
		c.complete(t)
	}
}

// complete lets a decided transaction be seen everywhere.
func (c *cluster) complete(t *txn) {
	for t != nil && slices.Contains(c.ending, t) {
		c.mark(t, func(int) int { return 0 })
	}
}

// mark lets one more partition see a decided transaction, or the group.
func (c *cluster) mark(t *txn, random func(int) int) {
	i := random(len(t.unmarked) + 1)
	if t.pending == nil && i == len(t.unmarked) {
		i = 0
	}
	if i < len(t.unmarked) {
		p := t.unmarked[i]
		t.unmarked = slices.Delete(t.unmarked, i, i+1)
		p.log = append(p.log, entry{txn: t, marker: true})
	} else {
		if t.state == txnCommitted {
			maps.Copy(c.offsets, t.pending)
		}
		t.pending = nil
	}
	if len(t.unmarked) == 0 && t.pending == nil {
		c.ending = slices.DeleteFunc(c.ending, func(e *txn) bool { return e == t })
	}
}

func (c *cluster) endTxn(id string, epoch int, commit bool) error {
	s, err := c.live(id, epoch)
	if err == nil {
		c.end(s, commit)
	}
	return err
}

// stableOffset is OffsetFetch with require-stable: not ok while a transaction holds a pending offset.
func (c *cluster) stableOffset(topic string, n int) (offset int64, ok bool) {
	k := offsetKey{topic, n}
	for _, s := range c.slots {
		for _, t := range [...]*txn{s.open, s.last} {
			if t == nil {
				continue
			}
			if _, pending := t.pending[k]; pending {
				return 0, false
			}
		}
	}
	if offset, ok := c.offsets[k]; ok {
		return offset, true
	}
	return -1, true
}

func (p *partition) highWatermark() int64 { return int64(len(p.log)) }

func (p *partition) lastStableOffset() int64 {
	for i, e := range p.log {
		if e.txn != nil && (e.txn.state == txnOpen || slices.Contains(e.txn.unmarked, p)) {
			return int64(i)
		}
	}
	return p.highWatermark()
}

// read returns up to limit committed records from an offset on, and the cursor behind them. It counts markers and
// aborted records as a fetch cursor does.
func (p *partition) read(from int64, limit int) (records []stream.Message, next int64) {
	end := p.lastStableOffset()
	for next = from; next < end && len(records) < limit; next++ {
		e := p.log[next]
		if e.marker || e.txn != nil && e.txn.state == txnAborted {
			continue
		}
		records = append(records, stream.Message{
			Offset: next, Key: e.record.Key, Value: e.record.Value, Headers: e.record.Headers, TimestampMs: max(0, e.record.TimestampMs),
		})
	}
	return records, next
}
