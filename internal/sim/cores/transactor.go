package cores

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
)

// transactor is an instance of a transactional producer. Another instance of its id may take over while it works: then
// it is fenced and stops, unless it is the newest itself and only its time was up.
type transactor struct {
	w    *World
	id   string
	bump bool // transaction version 2: the epoch rises with every transaction, partitions join by themselves

	phase      phase
	credential credential
	given      bool // name the producer id at the next InitProducerId (KIP-360)
	sender     int
	left       int
	waitMs     int64 // nothing is sent before
	busy       bool  // a request that nothing may overtake is on its way
	dead       bool
	box        outbox

	tx       *transaction
	plan     []place
	offsets  bool
	position int64   // the offset that it commits, 0 before
	member   *member // in whose name, as it was told some time; nil is nobody's
	commit   bool
	abort    bool // something went wrong: only an abort will do
	joined   bool // version 1: partitions, then the group, were added
	grouped  bool
	settled  bool // offsets were sent
	began    bool // something was sent under this transaction
	gaps     bool // something of it may still be on its way when it ends
}

type phase uint8

const (
	phaseInit phase = iota
	phaseIdle
	phaseWork
	phaseEnd
)

func newTransactor(w *World, id string) *transactor {
	t := &transactor{w: w, id: id, bump: w.IntN(2) == 0, left: 1 + w.IntN(6), box: newOutbox()}
	t.waitMs = w.nowMs + int64(w.IntN(3)*w.IntN(8000))
	t.credential = credential{-1, -1}
	return t
}

func (t *transactor) over() bool {
	return t.dead || t.left == 0 && t.phase <= phaseIdle && !t.busy && len(t.box.queue) == 0
}

func (t *transactor) act(c *client) bool {
	if t.over() || t.busy || t.w.nowMs < t.waitMs {
		return false
	}
	switch t.phase {
	case phaseInit:
		t.init(c)
	case phaseIdle:
		t.begin()
	case phaseWork:
		return t.work(c)
	case phaseEnd:
		t.end(c)
	}
	return true
}

func (t *transactor) ask(c *client, r *request, done func(*reply)) {
	t.busy = true
	r.id, r.pid, r.epoch = t.id, t.credential.pid, t.credential.epoch
	c.send(r, func(a *reply) {
		t.busy = false
		if !t.dead {
			done(a)
		}
	})
}

// later comes back after a while.
func (t *transactor) later() { t.waitMs = t.w.nowMs + 100 }

func (t *transactor) init(c *client) {
	t.w.newest[t.id] = t
	r := &request{kind: kindInit, version: t.w.int16N(6), timeoutMs: 1000 + t.w.Int32N(transactionMs)}
	if t.given {
		r.version = 3 + t.w.int16N(3)
	}
	given := t.given && t.credential.pid >= 0
	t.ask(c, r, t.owned)
	if !given {
		r.pid, r.epoch = -1, -1
	}
}

func (t *transactor) owned(a *reply) {
	switch {
	case a == nil:
	case a.code() == 0:
		if a.epoch == 0 && a.pid != t.credential.pid {
			t.w.takeFresh(t.id, a.pid)
		}
		t.own(credential{a.pid, a.epoch})
		t.given, t.phase = false, phaseIdle
	case t.w.newest[t.id] != t:
		t.dead = true
	default:
		t.given = false
		t.later()
	}
}

// own takes over a producer id and epoch; another epoch begins another sequence.
func (t *transactor) own(c credential) {
	if c != t.credential {
		t.credential, t.sender = c, t.w.sender()
		t.box.drop()
	}
	t.w.known[t.id] = append(t.w.known[t.id], c)
}

func (t *transactor) begin() {
	w := t.w
	t.left--
	t.tx = &transaction{id: t.id, offset: -1}
	w.history.txns = append(w.history.txns, t.tx)
	t.plan = nil
	for range w.IntN(5) {
		at := pick(w, place{"a", 0}, place{"a", 1}, place{"b", 0})
		if w.IntN(12) == 0 {
			at = place{"tmp", w.Int32N(2)}
		}
		t.plan = append(t.plan, at)
	}
	t.offsets, t.commit = w.IntN(3) == 0, w.IntN(4) > 0
	t.abort, t.joined, t.grouped, t.settled, t.began, t.gaps = false, t.bump || len(t.plan) == 0, t.bump, false, false, false
	t.phase, t.position = phaseWork, 0
}

func (t *transactor) work(c *client) bool {
	if t.abort {
		t.phase = phaseEnd
		return true
	}
	if !t.joined {
		t.join(c)
		return true
	}
	s := t.box.ready()
	if s == nil && len(t.plan) > 0 && t.box.room(t.plan[0]) {
		s = t.box.make(t.w, t.plan[0], t.sender, t.tx, 1+t.w.IntN(3))
		t.plan = t.plan[1:]
	}
	switch {
	case s != nil:
		t.produce(c, s)
	case len(t.box.queue) > 0:
		return false
	case t.offsets && !t.grouped:
		t.ask(c, &request{kind: kindAddOffsets, version: t.w.int16N(4), group: t.group()}, func(a *reply) {
			t.grouped = t.passed(a)
		})
	case t.offsets && !t.settled:
		t.sendOffsets(c)
	default:
		t.phase = phaseEnd
	}
	return true
}

func (t *transactor) group() string { return "o-" + t.id }

func (t *transactor) join(c *client) {
	parts := slices.Clone(t.plan)
	slices.SortFunc(parts, func(a, b place) int { return int(a.partition-b.partition) + 8*(int(a.topic[0])-int(b.topic[0])) })
	parts = slices.Compact(parts)
	t.began = true
	t.ask(c, &request{kind: kindAdd, version: t.w.int16N(4), parts: parts}, func(a *reply) { t.joined = t.passed(a) })
}

// passed tells whether a step of the transaction was taken; if it never can be, the transaction is over.
func (t *transactor) passed(a *reply) bool {
	if a == nil {
		return false
	}
	for _, code := range a.codes {
		switch code {
		case 0:
		case kerr.ConcurrentTransactions.Code:
			t.later()
			return false
		case kerr.ProducerFenced.Code, kerr.InvalidProducerEpoch.Code, kerr.InvalidProducerIDMapping.Code:
			t.fenced()
			return false
		default:
			t.abort = true
			return false
		}
	}
	return true
}

func (t *transactor) produce(c *client, s *sending) {
	w := t.w
	s.flying = true
	t.began = true
	r := &request{kind: kindProduce, version: 3 + w.int16N(9), id: t.id, pid: t.credential.pid, epoch: t.credential.epoch, batches: w.judged(s.batch, true)}
	if t.bump {
		r.version = 12 + w.int16N(2)
	}
	tx := t.tx
	c.send(r, func(a *reply) { t.produced(tx, s, a) })
}

func (t *transactor) produced(tx *transaction, s *sending, a *reply) {
	w := t.w
	s.flying = false
	if a != nil && a.code() == 0 && !a.stale[0] {
		s.acked(a.offsets[0])
		t.box.remove(s)
		return
	}
	if a == nil || t.dead || s.dropped || tx != t.tx || a.stale[0] {
		return
	}
	switch code := a.code(); {
	case code == kerr.NotEnoughReplicas.Code, code == kerr.ConcurrentTransactions.Code:
		t.later()
	case code == kerr.InvalidProducerEpoch.Code, code == kerr.InvalidProducerIDMapping.Code:
		t.fenced()
	case code == kerr.OutOfOrderSequenceNumber.Code && !t.box.isFirst(s):
	case code == kerr.OutOfOrderSequenceNumber.Code && !t.abort && !w.mode.forgetful && !w.mode.hostile && !volatile(s.batch.place):
		w.fail("told: %s: batch %d of %v hears code %d, everything before it is in", t.id, s.batch.first, s.batch.place, code)
	default:
		t.abort = true
	}
}

func (t *transactor) sendOffsets(c *client) {
	w := t.w
	if t.position == 0 {
		w.commits++
		t.position = w.commits
		if t.member = nil; t.bump && len(w.members) > 0 && w.IntN(2) == 0 {
			t.member = w.members[w.IntN(len(w.members))]
		}
	}
	t.began = true
	r := &request{kind: kindTxnCommit, version: w.int16N(5), group: t.group(), generation: -1, positions: []position{{place{"a", 0}, t.position}}}
	if t.bump {
		r.version = 5
	}
	if m := t.member; m != nil {
		r.group, r.member, r.generation, r.instance = "g", m.id, m.generation, m.instance
	} else {
		t.tx.offset = t.position
	}
	t.ask(c, r, func(a *reply) { t.settled = t.passed(a) })
}

func (t *transactor) end(c *client) {
	t.gaps = t.gaps || len(t.box.queue) > 0
	for _, s := range t.box.queue {
		s.dropped = true
	}
	t.box.queue = nil
	if t.abort {
		t.commit = t.commit && t.tx.tried
	}
	if !t.began {
		t.tx.aborted = true
		t.finish()
		return
	}
	r := &request{kind: kindEnd, version: t.w.int16N(5), commit: t.commit}
	if t.bump {
		r.version = 5
	}
	t.tx.tried = t.tx.tried || t.commit
	t.ask(c, r, t.ended)
}

func (t *transactor) ended(a *reply) {
	switch {
	case a == nil:
		t.tx.lost = true
	case a.code() == 0:
		t.tx.committed, t.tx.aborted = t.commit, !t.commit
		if t.bump {
			t.own(credential{a.pid, a.epoch})
		}
		t.finish()
	case a.code() == kerr.ConcurrentTransactions.Code:
		t.later()
	case a.code() == kerr.InvalidTxnState.Code:
		t.tx.aborted = !t.tx.tried || !t.tx.lost
		t.gaps = true
		t.finish()
	default:
		t.fenced()
	}
}

// finish goes on with the next transaction. If something of this one may still be on its way, a new epoch keeps it out.
func (t *transactor) finish() {
	t.phase = phaseIdle
	if t.gaps && !t.bump || t.w.IntN(8) == 0 {
		t.phase, t.given = phaseInit, t.w.IntN(2) == 0
	}
}

// fenced: the epoch is not ours any more.
func (t *transactor) fenced() {
	t.tx.aborted = !t.tx.tried || !t.tx.lost
	t.box.drop()
	if t.w.newest[t.id] != t {
		t.dead = true
		return
	}
	t.phase, t.given = phaseInit, t.w.IntN(2) == 0
}

// takeFresh notes the producer id of a transactional id, which several instances may learn.
func (w *World) takeFresh(id string, pid int64) {
	for _, c := range w.known[id] {
		if c.pid == pid {
			return
		}
	}
	w.fresh(pid)
}
