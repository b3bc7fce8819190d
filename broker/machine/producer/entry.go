package producer

import (
	"github.com/strandline-io/strandline/broker/record"
	"github.com/strandline-io/strandline/internal/mutant"
)

// entry is what a partition knows of one producer id (kafka-eos.md A.1).
type entry struct {
	id               int64
	partition        *Partition
	epoch            int16 // highest seen in data or marker
	coordinatorEpoch int32 // of the last marker's coordinator, -1 before the first
	lastTimestampMs  int64 // max timestamp of the last batch, or the last marker's
	touchedMs        int64 // engine time of the last batch or marker; drives expiry
	txnFirstOffset   int64 // of the open transaction, -1 without
	batches          window
	prev, next       *entry
}

func (e *entry) open() bool { return e.txnFirstOffset != noOffset }

// adopt takes over an epoch. Another epoch starts another sequence, so what is cached is worthless.
func (e *entry) adopt(epoch int16) {
	if e.epoch != epoch {
		e.epoch = epoch
		if !mutant.On("sequences outlive their epoch") {
			e.batches = window{}
		}
	}
}

// sum folds the entry into a number, for comparing a replayed state with the running one.
func (e *entry) sum() uint64 {
	const prime = 0x9E3779B97F4A7C15
	h := uint64(e.id)
	for _, v := range [...]uint64{
		uint64(e.epoch), uint64(e.coordinatorEpoch), uint64(e.lastTimestampMs), uint64(e.touchedMs),
		uint64(e.txnFirstOffset), uint64(e.batches.count), uint64(e.batches.lastSequence()),
	} {
		h = (h ^ v) * prime
		h ^= h >> 29
	}
	return h
}

// cached is one appended batch.
type cached struct {
	lastSequence int32
	delta        int32 // last offset - first offset, and last sequence - first sequence
	lastOffset   int64
	timestampMs  int64
}

func (c *cached) firstSequence() int32 { return record.FirstSequence(c.lastSequence, c.delta+1) }
func (c *cached) baseOffset() int64    { return c.lastOffset - int64(c.delta) }

// window holds a producer's newest batches, five at most: that many requests a client may have in flight.
type window struct {
	ring  [maxCachedBatches]cached
	start uint8 // oldest
	count uint8
}

func (w *window) push(c cached) {
	if w.count < maxCachedBatches && !(mutant.On("four batches remembered") && w.count == maxCachedBatches-1) {
		w.ring[(w.start+w.count)%maxCachedBatches] = c
		w.count++
		return
	}
	w.ring[(w.start+w.count)%maxCachedBatches] = c
	w.start = (w.start + 1) % maxCachedBatches
}

// at returns the i-th oldest.
func (w *window) at(i uint8) *cached { return &w.ring[(w.start+i)%maxCachedBatches] }

func (w *window) lastSequence() int32 {
	if w.count == 0 {
		return record.NoSequence
	}
	return w.at(w.count - 1).lastSequence
}

// find looks for exactly the batch [first, last], newest first: a retry mostly repeats the newest.
func (w *window) find(first, last int32) *cached {
	for i := w.count; i > 0; i-- {
		if c := w.at(i - 1); c.lastSequence == last && c.firstSequence() == first {
			return c
		}
	}
	return nil
}
