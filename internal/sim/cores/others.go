package cores

import (
	"github.com/strandline-io/strandline/broker/machine"
)

// administrator asks and does what belongs to nobody else: a topic that comes and goes, verifications, offsets, how far
// the journal was emptied, records of producers without a producer id.
type administrator struct {
	w     *World
	plain int // records on their way
}

func (d *administrator) over() bool { return d.plain == 0 }

func (d *administrator) act(c *client) bool {
	w := d.w
	if w.healed || w.IntN(4) > 0 {
		return false
	}
	nothing := func(*reply) {}
	tmp := []place{{topic: "tmp"}}
	switch w.IntN(13) {
	case 10:
		c.send(&request{kind: kindTransactions, id: pick(w, "t0", "t1", "t2")}, nothing)
	case 11, 12:
		c.send(&request{kind: kindProducers, parts: []place{pick(w, place{"a", 0}, place{"b", 0}, place{"tmp", 0})}}, nothing)
	case 0:
		c.send(&request{kind: kindCreateTopic, version: 7, parts: tmp, count: 1 + w.Int32N(2)}, nothing)
	case 1:
		c.send(&request{kind: kindGrowTopic, version: w.int16N(4), parts: tmp, count: 1 + w.Int32N(3)}, nothing)
	case 2:
		c.send(&request{kind: kindDeleteTopic, version: 1 + w.int16N(5), parts: tmp}, nothing)
	case 3, 4:
		r := w.speakAs("t0", "t1", "t2")
		r.kind, r.version, r.parts = kindVerify, 4+w.int16N(2), []place{{"a", 0}, {"b", w.Int32N(2)}}
		c.send(r, nothing)
	case 5, 6:
		g := pick(w, "g", "o-t0", "o-t1")
		c.send(&request{kind: kindFetch, version: 8 + w.int16N(2), group: g, stable: w.IntN(2) == 0, parts: []place{{"a", 0}, {"a", 1}, {"tmp", 0}}}, nothing)
	case 7:
		w.server.step(&request{kind: kindShelved, shelved: w.shelved()})
	default:
		d.write(c)
	}
	return true
}

// write sends records without a producer: nobody knows a duplicate of them, so they are sent once.
func (d *administrator) write(c *client) {
	w := d.w
	at := pick(w, place{"a", 0}, place{"b", 0})
	b := &batch{place: at, first: -1, values: []*value{w.write(at, w.sender(), nil)}}
	d.plain++
	c.send(&request{kind: kindProduce, version: 3 + w.int16N(11), none: true, pid: -1, epoch: -1, batches: []*batch{b}}, func(a *reply) {
		d.plain--
		if a != nil && a.code() == 0 {
			b.values[0].acked = a.offsets[0]
		}
	})
}

// shelved says that files hold more of some partitions, and of one that is gone.
func (w *World) shelved() []machine.ShelvedLength {
	all := []machine.ShelvedLength{{Partition: 4_000_000, EndOffset: 1}}
	for _, p := range w.server.model.sortedParts() {
		if w.IntN(2) == 0 && p.end > p.shelved {
			all = append(all, machine.ShelvedLength{Partition: p.id, FileBytes: 100, EndOffset: p.shelved + 1 + w.Int64N(p.end-p.shelved)})
		}
	}
	return all
}

// speakAs begins a request with a producer id that was given to one of some ids, mostly the newest one.
func (w *World) speakAs(ids ...string) *request {
	r := &request{id: pick(w, ids...), pid: w.Int64N(5)}
	if all := w.known[r.id]; len(all) > 0 {
		c := all[len(all)-1]
		if w.IntN(3) == 0 {
			c = all[w.IntN(len(all))]
		}
		r.pid, r.epoch = c.pid, c.epoch
	}
	return r
}

// hostile speaks as others, a little wrong in every way.
type hostile struct{ w *World }

func (h *hostile) over() bool { return true }

func (h *hostile) act(c *client) bool {
	w := h.w
	if w.healed {
		return false
	}
	r := w.speakAs("t0", "t1", "t2")
	if w.IntN(4) == 0 {
		r.epoch += w.int16N(3) - 1
	}
	if w.IntN(20) == 0 {
		r.pid++
	}
	group := pick(w, "g", "h", "o-t0")
	switch w.IntN(11) {
	case 9:
		r.kind, r.version, r.commit = kindMarkers, 1+w.int16N(2), w.IntN(2) == 0
		r.number = uint32(max(0, w.server.model.leader+1-w.Int32N(6)/2))
		r.parts = []place{{"a", w.Int32N(2)}, {pick(w, "b", "tmp"), 0}}
	case 10:
		r = &request{kind: pick(w, kindDeleteOffsets, kindDeleteOffsets, kindDeleteGroup), group: group, parts: []place{{"a", 0}}}
		if g := w.server.model.unsettled(place{"a", 0}); g != "" && r.kind == kindDeleteOffsets {
			r.group = g
		}
	case 0:
		r.kind, r.version, r.timeoutMs = kindInit, w.int16N(6), pick(w, int32(0), 500, 5000, 70_000)
		if w.IntN(2) == 0 {
			r.pid, r.epoch = -1, -1
		}
	case 1:
		r.kind, r.version = kindAdd, w.int16N(6)
		r.parts = []place{{"a", w.Int32N(3)}, {pick(w, "b", "tmp"), w.Int32N(2)}}
	case 2:
		r.kind, r.version, r.group = kindAddOffsets, w.int16N(5), group
	case 3:
		w.commits++
		r.kind, r.version, r.group, r.generation = kindTxnCommit, w.int16N(6), group, -1
		r.positions = []position{{place{"a", w.Int32N(3)}, w.commits}}
	case 4, 5:
		r.kind, r.version, r.commit = kindEnd, w.int16N(6), w.IntN(2) == 0
	case 6:
		w.commits++
		r = &request{kind: kindCommit, version: 2 + w.int16N(8), group: group, generation: -1, positions: []position{{place{"a", 0}, w.commits}}}
		if len(w.members) > 0 && w.IntN(2) == 0 {
			m := w.members[w.IntN(len(w.members))]
			r.group, r.member, r.generation = "g", m.id, m.generation-w.Int32N(2)
		}
	default:
		h.write(r)
	}
	c.send(r, func(a *reply) {
		if r.kind == kindInit && a != nil && a.code() == 0 {
			w.known[r.id] = append(w.known[r.id], credential{a.pid, a.epoch})
		}
	})
	if r.kind == kindDeleteOffsets { // and what is left?
		c.send(&request{kind: kindFetch, version: 9, group: r.group, stable: true, parts: r.parts}, func(*reply) {})
	}
	return true
}

// write makes a Produce of one or two batches.
func (h *hostile) write(r *request) {
	w := h.w
	r.kind, r.version = kindProduce, 3+w.int16N(11)
	newer := w.IntN(12) == 0 // outside of its transactions, the epoch rises in a single partition
	if newer {
		r.epoch++
	}
	if len(w.plain) > 0 && w.IntN(4) == 0 {
		c := w.plain[w.IntN(len(w.plain))]
		r.pid, r.epoch, r.none = c.pid, c.epoch+w.int16N(2), w.IntN(2) == 0
	}
	for range 1 + w.IntN(2) {
		at := place{pick(w, "a", "b", "tmp"), w.Int32N(2)}
		b := &batch{place: at, first: w.Int32N(6), transactional: w.IntN(4) > 0, stale: w.IntN(16) == 0}
		if p := w.server.model.find(at); p != nil && w.IntN(2) == 0 {
			if e := p.entries[r.pid]; e != nil && len(e.batches) > 0 {
				b.first = e.batches[w.IntN(len(e.batches))].last + w.Int32N(2)
				b.first = max(b.first, 0)
			}
		}
		if newer {
			b.first, b.transactional = 0, false
		}
		sender := w.sender()
		for range 1 + w.IntN(3) {
			b.values = append(b.values, w.write(at, sender, nil))
		}
		r.batches = append(r.batches, b)
	}
}
