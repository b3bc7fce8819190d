package cores

import (
	"encoding/binary"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/machine/producer"
	"github.com/strandline-io/strandline/broker/record"
)

// history is what clients did and were told.
type history struct {
	values    []*value // by id - 1
	txns      []*transaction
	producers int            // counts senders: a client under one producer id
	fresh     map[int64]bool // producer ids that were given to somebody without one
}

// value is one record that somebody wrote.
type value struct {
	id      uint64
	place   place
	sender  int
	tx      *transaction
	acked   int64 // the offset that was acknowledged, -1 without
	refused bool  // surely not written
}

// transaction is a client's view of one.
type transaction struct {
	id        string
	tried     bool // a commit was asked for
	lost      bool // and the connection with it
	committed bool
	aborted   bool // surely not committed
	values    []*value
	offset    int64 // committed with it for the group of its id, -1 without
}

func (w *World) write(at place, sender int, tx *transaction) *value {
	h := &w.history
	v := &value{id: uint64(len(h.values) + 1), place: at, sender: sender, tx: tx, acked: -1}
	h.values = append(h.values, v)
	if tx != nil {
		tx.values = append(tx.values, v)
	}
	return v
}

func (w *World) sender() int {
	w.history.producers++
	return w.history.producers
}

// fresh notes a producer id given to a producer that had none: never twice.
func (w *World) fresh(pid int64) {
	if w.history.fresh == nil {
		w.history.fresh = map[int64]bool{}
	}
	if w.history.fresh[pid] {
		w.fail("fenced: producer id %d is given out twice", pid)
	}
	w.history.fresh[pid] = true
}

// volatile tells whether a topic comes and goes: what was acknowledged there may be gone.
func volatile(at place) bool { return at.topic == "tmp" }

// appended is one batch in a partition's log.
type appended struct {
	at         int // units that it takes
	base, next int64
	bytes      []byte
}

// reader is a read_committed consumer of one partition.
type reader struct {
	at   int64
	seen []cell
}

type cell struct {
	offset int64
	value  uint64
}

// read lets a consumer fetch once.
func (w *World) read() {
	all := w.server.model.sortedParts()
	if len(all) == 0 {
		return
	}
	p := all[w.IntN(len(all))]
	r := w.readers[p.id]
	if r == nil {
		r = &reader{}
		w.readers[p.id] = r
	}
	r.fetch(w, p.id, w.server.published[p.id], 1+w.IntN(6))
}

// fetch reads up to limit batches below the stable offset of a published view, without what its aborted list names.
func (r *reader) fetch(w *World, id machine.PartitionID, v machine.View, limit int) {
	log := w.server.logs[id]
	from := slices.IndexFunc(log, func(b appended) bool { return b.next > r.at })
	if from < 0 || r.at >= v.LastStable {
		return
	}
	upTo := from
	for upTo < len(log) && upTo-from < limit && log[upTo].base < v.LastStable {
		upTo++
	}
	end := log[upTo-1].next
	aborted := producer.AbortedWithin(v.Aborted, r.at, end)
	gone := map[int64]bool{}
	for _, b := range log[from:upTo] {
		h, err := record.ParseHeader(b.bytes)
		if err != nil || h.BaseOffset != b.base || !record.CheckCRC(b.bytes) {
			w.fail("readers: partition %d holds a damaged batch at %d: %w", id, b.base, err)
		}
		for len(aborted) > 0 && aborted[0].FirstOffset <= h.LastOffset() {
			gone[aborted[0].ProducerID] = true
			aborted = aborted[1:]
		}
		switch {
		case h.Control():
			m, err := record.ParseMarker(b.bytes)
			if err != nil {
				w.fail("readers: partition %d holds a damaged marker at %d: %w", id, b.base, err)
			}
			if !m.Commit {
				delete(gone, h.ProducerID)
			}
		case !h.Transactional() || !gone[h.ProducerID]:
			it := record.Records(b.bytes[record.HeaderSize:], h.RecordCount)
			for k := (record.Record{}); it.Next(&k); {
				r.seen = append(r.seen, cell{b.base + int64(k.OffsetDelta), binary.BigEndian.Uint64(k.Value)})
			}
		}
	}
	r.at = end
}

// check judges the whole.
func (w *World) check() {
	s := w.server
	s.checkViews()
	for _, t := range s.model.sortedIDs() {
		if t.state == txnOngoing {
			w.fail("live: the transaction of %s stays open", t.id)
		}
	}
	visible := map[uint64][]int64{}
	for _, p := range s.model.sortedParts() {
		v := s.published[p.id]
		if v.LastStable != v.HighWatermark || v.HighWatermark != p.end {
			w.fail("live: partition %d is stable up to %d of %d of %d in the end", p.id, v.LastStable, v.HighWatermark, p.end)
		}
		w.checkPartition(p, v, visible)
	}
	w.checkOffsets()
	s.checkReplay()
	if !w.mode.hostile {
		w.checkHistory(visible)
	}
}

// checkPartition: a late reader and one that went along see what the model says, in its order.
func (w *World) checkPartition(p *modelPart, v machine.View, visible map[uint64][]int64) {
	var want []cell
	last := map[int]uint64{}
	for _, b := range p.log {
		if b.marker || b.txn != nil && !b.txn.committed {
			continue
		}
		for i, v := range b.batch.values {
			want = append(want, cell{b.base + int64(i), v.id})
			visible[v.id] = append(visible[v.id], b.base+int64(i))
			if last[v.sender] > v.id && !w.mode.forgetful && !w.mode.hostile {
				w.fail("readers: partition %d shows value %d of sender %d behind %d, which was sent later", p.id, v.id, v.sender, last[v.sender])
			}
			last[v.sender] = max(last[v.sender], v.id)
		}
	}
	late := &reader{}
	late.fetch(w, p.id, v, 1<<30)
	if !slices.Equal(late.seen, want) {
		w.fail("readers: a consumer of partition %d sees %v, want %v", p.id, late.seen, want)
	}
	if r := w.readers[p.id]; r != nil {
		for r.at < v.LastStable {
			r.fetch(w, p.id, v, 1+w.IntN(6))
		}
		if !slices.Equal(r.seen, want) {
			w.fail("readers: a consumer that went along partition %d has seen %v, want %v", p.id, r.seen, want)
		}
	}
	w.stats.Read += len(want)
}

// checkOffsets asks for every group's offsets once more: none is pending, and all are as decided.
func (w *World) checkOffsets() {
	groups := []string{"g"}
	for _, t := range w.history.txns {
		if g := "o-" + t.id; !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	for _, g := range groups {
		q := &request{kind: kindFetch, version: 9, group: g, stable: true, parts: []place{{"a", 0}, {"a", 1}, {"b", 0}, {"tmp", 0}}}
		w.server.step(q)
		if a := w.server.model.fetch(q); slices.Contains(a.codes, kerr.UnstableOffsetCommit.Code) {
			w.fail("live: offsets of group %s stay pending", g)
		}
	}
	w.server.sync(len(w.server.units))
}

// checkHistory: what clients were told is true.
func (w *World) checkHistory(visible map[uint64][]int64) {
	for _, v := range w.history.values {
		at := visible[v.id]
		switch {
		case volatile(v.place):
		case len(at) > 1 && !w.mode.forgetful:
			w.fail("told: value %d of %v is visible at %v", v.id, v.place, at)
		case v.refused && len(at) > 0:
			w.fail("told: value %d of %v was refused and is visible at %v", v.id, v.place, at)
		case v.acked >= 0 && (v.tx == nil || v.tx.committed) && !slices.Contains(at, v.acked):
			w.fail("told: value %d of %v was acknowledged at %d, it is visible at %v", v.id, v.place, v.acked, at)
		}
	}
	newest := map[string]*transaction{} // last transaction with offsets that was surely committed
	for _, t := range w.history.txns {
		shown, fixed := 0, 0
		for _, v := range t.values {
			if volatile(v.place) {
				continue
			}
			fixed++
			if len(visible[v.id]) > 0 {
				shown++
			}
		}
		switch {
		case t.committed && shown != fixed:
			w.fail("told: a transaction of %s was committed with %d values, %d are visible", t.id, fixed, shown)
		case (t.aborted || !t.tried) && shown > 0:
			w.fail("told: a transaction of %s was not committed, %d values are visible", t.id, shown)
		case shown > 0 && shown != fixed:
			w.fail("told: a transaction of %s has %d values, of which %d are visible", t.id, fixed, shown)
		}
		if t.committed && t.offset >= 0 {
			newest[t.id] = t
		}
		w.stats.Commits += btoi(t.committed)
		w.stats.Aborts += btoi(t.aborted)
	}
	for _, t := range w.history.txns {
		g := w.server.model.groups["o-"+t.id]
		if g == nil || t.offset < 0 {
			continue
		}
		committed := g.at(place{"a", 0}).committed
		if (t.aborted || !t.tried) && committed == t.offset {
			w.fail("told: offset %d of %s was committed, its transaction was not", t.offset, t.id)
		}
		if n := newest[t.id]; n != nil && committed < n.offset {
			w.fail("told: offset %d of %s was committed with its transaction, the group has %d", n.offset, t.id, committed)
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
