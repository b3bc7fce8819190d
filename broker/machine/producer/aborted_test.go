package producer

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestAbortedWithin compares the selection with all that overlap what is read (kafka-eos.md C.5), for every range of random
// histories; then it reads as clients do, batch by batch: what was aborted is left out, and nothing else.
func TestAbortedWithin(t *testing.T) {
	for seed := range uint64(200) {
		h := abortedHistory(rand.New(rand.NewPCG(seed, 0)))
		all := h.p.Aborted()
		if !slices.IsSortedFunc(all, func(a, b Aborted) int { return cmp.Compare(a.LastOffset, b.LastOffset) }) {
			t.Fatalf("seed %d: the index is not in the order of its markers: %+v", seed, all)
		}
		end := int64(len(h.log))
		for from := range end {
			for upper := from + 1; upper <= end; upper++ {
				want := slices.DeleteFunc(slices.Clone(all), func(a Aborted) bool { return a.LastOffset < from || a.FirstOffset >= upper })
				slices.SortFunc(want, func(a, b Aborted) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
				got := AbortedWithin(all, from, upper)
				if !slices.Equal(got, want) {
					t.Fatalf("seed %d: of %+v in [%d,%d) are selected %+v, want %+v", seed, all, from, upper, got, want)
				}
				if stable, open := h.p.FirstUnstable(); !open || upper <= stable {
					h.read(t, got, from, upper)
				}
			}
		}
	}
}

// abortedLog is a partition and, by offset, who wrote there and what became of it.
type abortedLog struct {
	p   *Partition
	log []logged
}

type logged struct {
	producer        int64
	marker, aborted bool // aborted: data that no client may see; of a marker, its kind
}

// abortedHistory lets four producers open, fill and end transactions in any order, some of them empty.
func abortedHistory(r *rand.Rand) *abortedLog {
	h := &abortedLog{p: NewTable(Config{}).NewPartition(1)}
	next := map[int64]int32{}
	for range 24 {
		id, offset := r.Int64N(4), int64(len(h.log))
		if r.IntN(3) > 0 {
			b := Batch{ProducerID: id, FirstSequence: next[id], LastSequence: next[id], Transactional: true}
			next[id]++
			h.p.ApplyBatch(b, offset, offset, 0, 0)
			h.log = append(h.log, logged{producer: id})
			continue
		}
		commit := r.IntN(2) == 0
		for i := len(h.log) - 1; !commit && i >= 0 && (h.log[i].producer != id || !h.log[i].marker); i-- {
			h.log[i].aborted = h.log[i].aborted || h.log[i].producer == id
		}
		h.p.ApplyMarker(Marker{ProducerID: id, Commit: commit}, offset, 0, 0)
		h.log = append(h.log, logged{id, true, !commit})
	}
	return h
}

// read goes through [from, upper) as kafka-eos.md C.5 says that clients do.
func (h *abortedLog) read(t *testing.T, list []Aborted, from, upper int64) {
	t.Helper()
	out := map[int64]bool{}
	for offset := from; offset < upper; offset++ {
		for len(list) > 0 && list[0].FirstOffset <= offset {
			out[list[0].ProducerID] = true
			list = list[1:]
		}
		switch l := h.log[offset]; {
		case l.marker && l.aborted:
			delete(out, l.producer)
		case !l.marker && out[l.producer] != l.aborted:
			t.Fatalf("from %d to %d: offset %d is left out: %v, was aborted: %v", from, upper, offset, out[l.producer], l.aborted)
		}
	}
}
