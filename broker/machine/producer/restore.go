package producer

import (
	"fmt"
	"iter"
)

// Entry is a producer's whole durable state in one partition, for snapshots.
type Entry struct {
	Partition        uint32
	ProducerID       int64
	Epoch            int16
	CoordinatorEpoch int32
	LastTimestampMs  int64
	TouchedMs        int64
	TxnFirstOffset   int64         // -1 without an open transaction
	Batches          []CachedBatch // oldest first, five at most
}

// CachedBatch is one remembered batch of an Entry.
type CachedBatch struct {
	LastSequence int32
	Delta        int32 // last offset - first offset
	LastOffset   int64
	TimestampMs  int64
}

// Idle yields the producers without an open transaction, the one that was idle for the longest first. The Entry's
// Batches are valid until the next one is yielded.
func (t *Table) Idle() iter.Seq[Entry] { return t.idle.all() }

// OpenEntries yields the partition's producers with an open transaction, lowest first offset first, as Idle does.
func (p *Partition) OpenEntries() iter.Seq[Entry] { return p.open.all() }

func (l *list) all() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		var batches [maxCachedBatches]CachedBatch
		for e := l.first; e != nil; e = e.next {
			for i := range e.batches.count {
				c := e.batches.at(i)
				batches[i] = CachedBatch{LastSequence: c.lastSequence, Delta: c.delta, LastOffset: c.lastOffset, TimestampMs: c.timestampMs}
			}
			if !yield(Entry{
				Partition: e.partition.id, ProducerID: e.id, Epoch: e.epoch, CoordinatorEpoch: e.coordinatorEpoch,
				LastTimestampMs: e.lastTimestampMs, TouchedMs: e.touchedMs, TxnFirstOffset: e.txnFirstOffset,
				Batches: batches[:e.batches.count],
			}) {
				return
			}
		}
	}
}

// Restore puts an entry back, behind those of its list that are there. Entries come in the order in which Idle or
// OpenEntries yielded them; anything else is an error.
func (p *Partition) Restore(e Entry) error {
	if p.entries[e.ProducerID] != nil {
		return fmt.Errorf("producer %d of partition %d comes twice", e.ProducerID, p.id)
	}
	if len(e.Batches) > maxCachedBatches {
		return fmt.Errorf("producer %d of partition %d has %d batches, at most %d are kept", e.ProducerID, p.id, len(e.Batches), maxCachedBatches)
	}
	if last := p.open.last; last != nil && e.TxnFirstOffset != noOffset && e.TxnFirstOffset <= last.txnFirstOffset {
		return fmt.Errorf("producer %d of partition %d has its transaction at offset %d, not behind %d", e.ProducerID, p.id, e.TxnFirstOffset, last.txnFirstOffset)
	}
	if last := p.table.idle.last; last != nil && e.TxnFirstOffset == noOffset && e.TouchedMs < last.touchedMs {
		return fmt.Errorf("producer %d of partition %d was touched at %d, before its predecessor's %d", e.ProducerID, p.id, e.TouchedMs, last.touchedMs)
	}
	for _, b := range e.Batches {
		if b.LastSequence < 0 || b.Delta < 0 || b.LastOffset < int64(b.Delta) {
			return fmt.Errorf("producer %d of partition %d has a batch of delta %d that ends at offset %d, sequence %d", e.ProducerID, p.id, b.Delta, b.LastOffset, b.LastSequence)
		}
	}
	n := p.entry(e.ProducerID)
	n.epoch, n.coordinatorEpoch = e.Epoch, e.CoordinatorEpoch
	n.lastTimestampMs, n.touchedMs, n.txnFirstOffset = e.LastTimestampMs, e.TouchedMs, e.TxnFirstOffset
	for _, b := range e.Batches {
		n.batches.push(cached{lastSequence: b.LastSequence, delta: b.Delta, lastOffset: b.LastOffset, timestampMs: b.TimestampMs})
	}
	if n.open() {
		p.table.idle.remove(n)
		p.open.pushBack(n)
	}
	return nil
}

// RestoreAborted puts the aborted transactions back. The partition owns the slice then.
func (p *Partition) RestoreAborted(a []Aborted) error {
	for i := range a {
		if a[i].FirstOffset > a[i].LastOffset || (i > 0 && a[i].LastOffset <= a[i-1].LastOffset) {
			return fmt.Errorf("aborted transaction %d of partition %d spans offsets %d to %d, not behind its predecessor", i, p.id, a[i].FirstOffset, a[i].LastOffset)
		}
	}
	p.aborted = a
	return nil
}
