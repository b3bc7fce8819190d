package producer

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/strandline-io/strandline/broker/record"
	"github.com/strandline-io/strandline/internal/mutant"
)

// Partition is what one partition knows of its producers.
type Partition struct {
	table   *Table
	id      uint32
	entries map[int64]*entry
	open    list
	aborted []Aborted
	refused map[int64]*refusal
}

// Check decides about a client's batch, rows 1 to 14 of kafka-eos.md A.4. Row 3 is the caller's: it asks the
// coordinator in the same step in which it appends, so that nothing can come between. Nothing changes.
func (p *Partition) Check(b Batch) Outcome {
	e := p.entries[b.ProducerID]
	if e == nil {
		// New, or forgotten: any sequence will do, except behind one that is still to come.
		return p.checkWaiting(b, nil)
	}
	if b.Epoch < e.epoch && !mutant.On("stale epoch may produce") {
		return stale(b.Epoch, e.epoch)
	}
	if mutant.On("no duplicate check") {
		return Outcome{}
	}
	if b.Epoch == e.epoch || mutant.On("duplicate found in another epoch") {
		if c := e.batches.find(b.FirstSequence, b.LastSequence); c != nil {
			return Outcome{Duplicate: true, BaseOffset: c.baseOffset(), TimestampMs: c.timestampMs}
		}
	}
	if o := p.checkWaiting(b, e); o.Code != 0 {
		return o
	}
	gap := mutant.On("gap in the sequence accepted") && b.Epoch == e.epoch && b.FirstSequence > e.batches.lastSequence()
	if want := expected(b, e); b.FirstSequence != want && !gap {
		return outOfOrder(b.FirstSequence, want)
	}
	if !b.Transactional && e.open() && !mutant.On("plain batch inside a transaction") {
		return Outcome{Code: kerr.InvalidTxnState.Code, Detail: fmt.Sprintf(
			"producer %d has an open transaction in this partition and sent a batch outside of it; end the transaction first", b.ProducerID)}
	}
	return Outcome{}
}

// checkWaiting refuses what would overtake an earlier batch that is still to come: rows 5 and 6.
func (p *Partition) checkWaiting(b Batch, e *entry) Outcome {
	if len(p.refused) > 0 && !mutant.On("refused batch overtaken") {
		if r := p.refused[b.ProducerID]; r != nil && r.epoch == b.Epoch && b.FirstSequence > r.lowest {
			return outOfOrder(b.FirstSequence, r.lowest)
		}
	}
	if b.Transactional && b.BumpsEpoch && b.FirstSequence != 0 && !mutant.On("transaction of version 2 begins anywhere") && (e == nil || e.batches.count == 0) {
		return outOfOrder(b.FirstSequence, 0)
	}
	return Outcome{}
}

// expected is the only sequence that may come next from a known producer: rows 7, 8, 10 and 11.
func expected(b Batch, e *entry) int32 {
	if b.Epoch != e.epoch {
		if mutant.On("new epoch need not begin at 0") {
			return b.FirstSequence
		}
		return 0
	}
	if mutant.On("sequences do not wrap") {
		return e.batches.lastSequence() + 1
	}
	return record.NextSequence(e.batches.lastSequence())
}

func stale(got, current int16) Outcome {
	return Outcome{Code: kerr.InvalidProducerEpoch.Code, Detail: fmt.Sprintf(
		"producer epoch %d is behind the partition's %d: a newer producer has taken over", got, current)}
}

func outOfOrder(got, want int32) Outcome {
	return Outcome{Code: kerr.OutOfOrderSequenceNumber.Code, Detail: fmt.Sprintf("sequence %d cannot go in, %d must come next", got, want)}
}

// InTransaction reports whether the producer has a transaction open here at exactly this epoch. If not, a
// transactional batch needs the coordinator's word.
func (p *Partition) InTransaction(producerID int64, epoch int16) bool {
	e := p.entries[producerID]
	return e != nil && e.epoch == epoch && e.open()
}

// Open reports whether the producer has a transaction open here, whatever its epoch.
func (p *Partition) Open(producerID int64) bool {
	e := p.entries[producerID]
	return e != nil && e.open()
}

// Known reports whether the producer has a place in the table: one that has none needs one (Table.Full).
func (p *Partition) Known(producerID int64) bool { return p.entries[producerID] != nil }

// Fenced reports that epoch is behind the producer's epoch here, and that one: row 2.
func (p *Partition) Fenced(producerID int64, epoch int16) (current int16, fenced bool) {
	e := p.entries[producerID]
	if e == nil || epoch >= e.epoch {
		return noEpoch, false
	}
	return e.epoch, true
}

// CheckMarker decides about a marker from a coordinator (kafka-eos.md A.5): 0, INVALID_PRODUCER_EPOCH or
// TRANSACTION_COORDINATOR_FENCED. Nothing changes.
func (p *Partition) CheckMarker(m Marker) (code int16, detail string) {
	e := p.entries[m.ProducerID]
	if e == nil {
		return 0, ""
	}
	if m.Epoch < e.epoch && !mutant.On("marker of a lower epoch accepted") {
		return kerr.InvalidProducerEpoch.Code, fmt.Sprintf("marker of epoch %d is behind the partition's %d", m.Epoch, e.epoch)
	}
	// At 32767 no higher epoch exists: a transaction that got there must still be able to end.
	if m.BumpsEpoch && m.Epoch == e.epoch && e.open() && m.Epoch != math.MaxInt16 {
		return kerr.InvalidProducerEpoch.Code, fmt.Sprintf("marker of epoch %d must exceed the open transaction's, it belongs to an earlier one", m.Epoch)
	}
	if m.CoordinatorEpoch < e.coordinatorEpoch && !mutant.On("marker of an older coordinator accepted") {
		return kerr.TransactionCoordinatorFenced.Code, fmt.Sprintf("marker of coordinator epoch %d is behind the partition's %d", m.CoordinatorEpoch, e.coordinatorEpoch)
	}
	return 0, ""
}

// ApplyBatch takes over an appended data batch of a producer: timestampMs is its max timestamp, engineMs the time of
// its unit. It returns a sum of what the producer's state has become.
func (p *Partition) ApplyBatch(b Batch, baseOffset, lastOffset, timestampMs, engineMs int64) (sum uint64) {
	e := p.entry(b.ProducerID)
	wasOpen := e.open()
	if !wasOpen {
		p.table.idle.remove(e)
	}
	e.adopt(b.Epoch)
	e.batches.push(cached{
		lastSequence: b.LastSequence,
		delta:        int32(lastOffset - baseOffset),
		lastOffset:   lastOffset,
		timestampMs:  timestampMs,
	})
	e.lastTimestampMs, e.touchedMs = timestampMs, engineMs
	switch {
	case wasOpen:
		// It keeps its place: the list is in the order of first offsets.
		if mutant.On("transaction begins at its last batch") {
			e.txnFirstOffset = baseOffset
		}
	case b.Transactional:
		e.txnFirstOffset = baseOffset
		p.open.pushBack(e)
	default:
		p.table.idle.pushBack(e)
	}
	p.Forget(b.ProducerID)
	return e.sum()
}

// ApplyMarker takes over an appended marker. A marker for an unknown producer makes it known, so that the epoch that
// it fences with survives. It returns a sum of what the producer's state has become.
func (p *Partition) ApplyMarker(m Marker, offset, timestampMs, engineMs int64) (sum uint64) {
	e := p.entry(m.ProducerID)
	if e.open() {
		p.open.remove(e)
	} else {
		p.table.idle.remove(e)
	}
	if e.open() && !m.Commit {
		stable := offset + 1
		if o := p.open.first; o != nil && !mutant.On("abort passes open transactions") {
			stable = o.txnFirstOffset
		}
		p.aborted = append(p.aborted, Aborted{ProducerID: m.ProducerID, FirstOffset: e.txnFirstOffset, LastOffset: offset, LastStable: stable})
	}
	e.txnFirstOffset = noOffset
	if !mutant.On("marker does not fence") {
		e.adopt(m.Epoch)
	}
	e.coordinatorEpoch = m.CoordinatorEpoch
	e.lastTimestampMs, e.touchedMs = timestampMs, engineMs
	p.table.idle.pushBack(e)
	p.Forget(m.ProducerID)
	return e.sum()
}

// entry finds or makes a producer's entry; a new one is idle.
func (p *Partition) entry(producerID int64) *entry {
	if e := p.entries[producerID]; e != nil {
		return e
	}
	e := &entry{id: producerID, partition: p, epoch: noEpoch, coordinatorEpoch: -1, lastTimestampMs: record.NoTimestamp, txnFirstOffset: noOffset}
	if p.entries == nil {
		p.entries = make(map[int64]*entry)
	}
	p.entries[producerID] = e
	p.table.count++
	p.table.idle.pushBack(e)
	return e
}

// FirstUnstable is the first offset of the oldest open transaction; ok is false without one.
func (p *Partition) FirstUnstable() (offset int64, ok bool) {
	if p.open.first == nil || mutant.On("stable offset passes open transactions") {
		return 0, false
	}
	return p.open.first.txnFirstOffset, true
}

// Aborted lists the aborted transactions, ascending by LastOffset. The slice is a prefix that is never written to
// again, also when more are added.
func (p *Partition) Aborted() []Aborted { return p.aborted[:len(p.aborted):len(p.aborted)] }

// ForgetAborted forgets the transactions that lie wholly below logStart. What Aborted has returned stays as it is.
func (p *Partition) ForgetAborted(logStart int64) {
	gone, _ := slices.BinarySearchFunc(p.aborted, logStart, func(a Aborted, offset int64) int { return cmp.Compare(a.LastOffset, offset) })
	if gone > 0 {
		p.aborted = slices.Clone(p.aborted[gone:])
	}
}

// Described is what DescribeProducers tells of a producer id. LastSequence, CoordinatorEpoch and TxnFirstOffset are -1 for none.
type Described struct {
	ID               int64
	Epoch            int16
	LastSequence     int32
	LastTimestampMs  int64
	CoordinatorEpoch int32
	TxnFirstOffset   int64 // of the open transaction
}

// Producers describes everybody whom the partition knows, ascending by id.
func (p *Partition) Producers() []Described {
	all := make([]Described, 0, len(p.entries))
	for _, e := range p.entries { // any order: sorted below
		all = append(all, Described{e.id, e.epoch, e.batches.lastSequence(), e.lastTimestampMs, e.coordinatorEpoch, e.txnFirstOffset})
	}
	slices.SortFunc(all, func(a, b Described) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// Remove forgets an idle producer. It reports false, and does nothing, for one that is unknown or has an open
// transaction.
func (p *Partition) Remove(producerID int64) bool {
	e := p.entries[producerID]
	if e == nil || e.open() {
		return false
	}
	p.table.idle.remove(e)
	p.table.count--
	delete(p.entries, producerID)
	return true
}

// Drop forgets everything: the partition is deleted.
func (p *Partition) Drop() {
	for _, e := range p.entries { // any order: the lists keep theirs
		if e.open() {
			p.open.remove(e)
		} else {
			p.table.idle.remove(e)
		}
		p.table.count--
	}
	for _, r := range p.refused { // any order, as above
		p.table.refused.remove(r)
	}
	p.entries, p.refused, p.aborted = nil, nil, nil
}
