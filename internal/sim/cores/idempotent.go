package cores

import (
	"math"

	"github.com/twmb/franz-go/pkg/kerr"
)

// sending is a batch on its way: made once, sent until it is answered.
type sending struct {
	batch   *batch
	number  int // counts the batches of its partition
	flying  bool
	dropped bool // nobody waits for it any more
}

// outbox holds a producer's unanswered batches, in the order of their making, and its sequences.
type outbox struct {
	queue []*sending
	next  map[place]int32
	made  map[place]int
}

func newOutbox() outbox { return outbox{next: map[place]int32{}, made: map[place]int{}} }

// ready returns the batch to send next: never one before an earlier one of its partition.
func (o *outbox) ready() *sending {
	for _, s := range o.queue {
		if !s.flying {
			return s
		}
	}
	return nil
}

// room tells whether another batch for a partition may fly: a broker remembers five, so the oldest that is not answered
// may have four behind it, answered or not.
func (o *outbox) room(at place) bool {
	for _, s := range o.queue {
		if s.batch.place == at {
			return o.made[at]-s.number < 5
		}
	}
	return true
}

func (o *outbox) isFirst(s *sending) bool {
	for _, q := range o.queue {
		if q.batch.place == s.batch.place {
			return q == s
		}
	}
	return false
}

func (o *outbox) remove(s *sending) { o.queue = slicesRemove(o.queue, s) }

// drop gives up what is not answered. It is not known what becomes of it.
func (o *outbox) drop() {
	for _, s := range o.queue {
		s.dropped = true
	}
	*o = newOutbox()
}

// make adds a batch of n values.
func (o *outbox) make(w *World, at place, sender int, tx *transaction, n int) *sending {
	b := &batch{place: at, first: o.next[at], transactional: tx != nil}
	if w.IntN(60) == 0 {
		b.verdict = kerr.InvalidRecord.Code // something is wrong with it, however often it is sent
	}
	for range n {
		b.values = append(b.values, w.write(at, sender, tx))
		b.values[len(b.values)-1].refused = b.verdict != 0
	}
	next := int64(b.first) + int64(n)
	if next > math.MaxInt32 {
		next -= math.MaxInt32 + 1
	}
	o.next[at] = int32(next)
	s := &sending{batch: b, number: o.made[at]}
	o.made[at]++
	o.queue = append(o.queue, s)
	return s
}

func (s *sending) acked(offset int64) {
	for i, v := range s.batch.values {
		v.acked = offset + int64(i)
	}
}

// judged is a batch as its connection hands it on: now and then judged under settings that are not the topic's any more.
func (w *World) judged(b *batch, mayStale bool) []*batch {
	c := *b
	c.stale = mayStale && !w.healed && w.IntN(30) == 0
	return []*batch{&c}
}

// idempotent is a producer without transactions, several batches in flight.
type idempotent struct {
	w      *World
	pid    int64
	asking bool
	sender int
	left   int
	wraps  bool  // begins near the end of the sequences
	waitMs int64 // nothing is sent before
	box    outbox
}

func newIdempotent(w *World) *idempotent {
	return &idempotent{w: w, pid: -1, left: 3 + w.IntN(12), wraps: w.IntN(8) == 0, box: newOutbox()}
}

func (p *idempotent) over() bool { return p.left == 0 && len(p.box.queue) == 0 && !p.asking }

func (p *idempotent) act(c *client) bool {
	if p.w.nowMs < p.waitMs {
		return false
	}
	if p.pid < 0 {
		if p.asking || p.over() {
			return false
		}
		p.asking = true
		c.send(&request{kind: kindInit, version: int16(p.w.IntN(6)), none: true, pid: -1, epoch: -1, timeoutMs: transactionMs}, p.named)
		return true
	}
	s := p.box.ready()
	if s == nil {
		at := pick(p.w, place{"a", 0}, place{"a", 1}, place{"b", 0})
		if p.left == 0 || !p.box.room(at) {
			return false
		}
		p.left--
		if _, ok := p.box.next[at]; !ok && p.wraps {
			p.box.next[at] = math.MaxInt32 - p.w.Int32N(6)
		}
		s = p.box.make(p.w, at, p.sender, nil, 1+p.w.IntN(3))
	}
	s.flying = true
	c.send(&request{kind: kindProduce, version: 3 + p.w.int16N(11), none: true, pid: p.pid, batches: p.w.judged(s.batch, !p.wraps)},
		func(a *reply) { p.answered(s, a) })
	return true
}

func (w *World) int16N(n int) int16 { return int16(w.IntN(n)) }

func (p *idempotent) named(a *reply) {
	p.asking = false
	if a == nil {
		return
	}
	if a.code() != 0 {
		p.w.fail("told: InitProducerId without a transactional id: code %d", a.code())
	}
	p.w.fresh(a.pid)
	p.pid, p.sender = a.pid, p.w.sender()
	p.w.plain = append(p.w.plain, credential{a.pid, 0})
}

func (p *idempotent) answered(s *sending, a *reply) {
	s.flying = false
	w := p.w
	switch {
	case a == nil, a.stale[0]:
	case a.code() == kerr.NotEnoughReplicas.Code:
		p.waitMs = w.nowMs + 100
	case a.code() == 0:
		s.acked(a.offsets[0])
		p.box.remove(s)
	case s.dropped:
	case a.code() == kerr.OutOfOrderSequenceNumber.Code && !p.box.isFirst(s):
		// One before it did not go in.
	case a.code() == kerr.InvalidRecord.Code:
		// What is given up leaves a gap: the producer begins anew.
		p.reset()
	case w.mode.forgetful || w.mode.hostile:
		p.reset()
	default:
		w.fail("told: producer %d: batch %d of %v hears code %d, everything before it is in", p.pid, s.batch.first, s.batch.place, a.code())
	}
}

func (p *idempotent) reset() {
	p.box.drop()
	p.pid = -1
}
