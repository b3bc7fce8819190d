package machine

import (
	"fmt"
	"testing"

	"github.com/strandline-io/strandline/broker/machine/producer"
	"github.com/strandline-io/strandline/broker/machine/txn"
)

// short lets producers and transactional ids expire after a second.
var short = Config{Producer: producer.Config{ExpirationMs: 1000}, Txn: txn.Config{IDExpirationMs: 1000}}

// overRestarts runs a test as it is, and with a start out of a snapshot, out of the journal, or of both in turn, wherever it asks
// for one.
func overRestarts(t *testing.T, test func(w *world, restart func())) {
	for name, restart := range map[string]func(*world){
		"running": func(*world) {}, "snapshot": (*world).restart, "journal": (*world).recover,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, short)
			test(w, func() { restart(w) })
		})
	}
}

// TestIdleProducersExpire: a partition forgets a producer producer.id.expiration.ms after its last batch or marker (A.8). What
// comes then is the start of something unknown: any sequence, but 0 where a transaction of version 2 begins (A.4, rows 6 and 9).
func TestIdleProducersExpire(t *testing.T) {
	overRestarts(t, func(w *world, restart func()) {
		w.topic("t", 1)
		w.run("init plain")
		w.expect("produce plain t/0:0:a", "offset 0")
		w.tick(600)
		restart()
		w.expect("produce plain t/0:1:b", "offset 1") // the clock starts anew
		w.tick(999)
		restart()
		w.expect("produce plain t/0:1:b", "offset 1") // a duplicate; it refreshes nothing
		w.expect("produce plain t/0:7:c", "OUT_OF_ORDER_SEQUENCE_NUMBER")
		w.tick(1)
		restart()
		if n := w.m.producers.Len(); n != 0 {
			w.t.Fatalf("%d producers are remembered, want none", n)
		}
		w.expect("produce plain t/0:7:c", "offset 2")
		w.expect("produce plain t/0:1:b", "OUT_OF_ORDER_SEQUENCE_NUMBER")
		w.run("init")
		w.expect("produce pid="+w.m.pid("pay")+" t/0:3:d", "OUT_OF_ORDER_SEQUENCE_NUMBER")
		w.expect("produce pid="+w.m.pid("pay")+" t/0:0:d", "offset 3")
	})
}

// pid is the producer id of a transactional id, as scripts have it.
func (m *Machine) pid(id string) string {
	e, _ := m.txns.Get(id)
	return formatInt(e.ProducerID)
}

// TestOpenTransactionsDoNotExpire: neither the producer in its partitions nor the transactional id, however long the transaction
// may take; the marker starts both clocks.
func TestOpenTransactionsDoNotExpire(t *testing.T) {
	overRestarts(t, func(w *world, restart func()) {
		w.topic("t", 1)
		w.run("init v=4 timeout=900000")
		w.expect("add v=3 t/0", "ok")
		w.expect("produce v=10 t/0:0:a", "offset 0")
		w.tick(800_000)
		restart()
		w.expect("produce v=10 t/0:0:a", "offset 0") // its duplicates are known
		w.expect("produce v=10 t/0:2:c", "OUT_OF_ORDER_SEQUENCE_NUMBER")
		w.expect("produce v=10 t/0:1:b", "offset 1")
		w.expect("end v=3 commit", "ok")
		w.tick(999)
		restart()
		w.expect("end v=3 commit", "ok")
		if _, known := w.m.txns.Get("pay"); !known || w.m.producers.Len() != 1 {
			w.t.Fatal("forgotten too early")
		}
		w.tick(1)
		restart()
		if _, known := w.m.txns.Get("pay"); known || w.m.producers.Len() != 0 {
			w.t.Fatal("still remembered")
		}
	})
}

// TestIdleTransactionalIDsExpire: who goes on afterwards hears INVALID_PRODUCER_ID_MAPPING from everything (B.10), and gets
// another producer id when it asks for one.
func TestIdleTransactionalIDsExpire(t *testing.T) {
	overRestarts(t, func(w *world, restart func()) {
		w.topic("t", 1)
		w.expect("init", "pid=0 epoch=0")
		w.expect("produce t/0:0:a", "offset 0")
		w.expect("end commit", "pid=0 epoch=1")
		w.tick(600)
		w.expect("init pid=0 epoch=1", "pid=0 epoch=2") // the clock starts anew
		w.tick(999)
		restart()
		w.expect("describe pay", "pay Empty pid=0 epoch=2 timeout=60000 open-for=-1")
		w.tick(1)
		restart()
		w.expect("describe pay", "TRANSACTIONAL_ID_NOT_FOUND")
		for _, command := range []string{"produce", "produce v=11", "produce v=10"} {
			w.expect(command+" epoch=2 t/0:0:b", "INVALID_PRODUCER_ID_MAPPING")
		}
		for _, command := range []string{
			"add epoch=2 t/0", "offsets epoch=2 g", "txncommit epoch=2 group=g t/0=1", "end epoch=2 commit", "end v=3 epoch=2 commit",
		} {
			w.expect(command, "INVALID_PRODUCER_ID_MAPPING")
		}
		w.run("init pid=0 epoch=2")
		if w.m.pid("pay") == "0" {
			w.t.Error("the producer id is given again")
		}
	})
}

// TestWallClockJumpsExpireNobody: a wall clock that is set forward or back changes what records show, not who is idle.
func TestWallClockJumpsExpireNobody(t *testing.T) {
	const year = 365 * 24 * 3600 * 1000
	for _, jump := range []int64{year, -year} {
		overRestarts(t, func(w *world, restart func()) {
			w.topic("t", 1)
			w.run("init plain")
			w.expect("produce plain t/0:0:a", "offset 0")
			w.run("init")
			w.now.WallMs += jump
			w.tick(999)
			restart()
			w.tick(0)
			w.expect("produce plain t/0:2:c", "OUT_OF_ORDER_SEQUENCE_NUMBER")
			if _, known := w.m.txns.Get("pay"); !known {
				w.t.Errorf("a jump of %d ms expires the transactional id", jump)
			}
			w.tick(1)
			if _, known := w.m.txns.Get("pay"); known || w.m.producers.Len() != 0 {
				w.t.Errorf("a jump of %d ms keeps what has expired", jump)
			}
		})
	}
}

// TestLowerBoundsShrinkWhatIsThere: a start with tighter bounds forgets the longest idle, not what has an open transaction, and
// counts them.
func TestLowerBoundsShrinkWhatIsThere(t *testing.T) {
	w := newWorld(t, Config{})
	w.topic("t", 1)
	for i := range 6 {
		w.run(fmt.Sprintf("init id=x%d timeout=900000", i))
		w.run(fmt.Sprintf("produce id=x%d pid=%d t/0:0:a", i, i))
		if i > 0 {
			w.run(fmt.Sprintf("end id=x%d pid=%d commit", i, i))
		}
		w.tick(10)
	}
	w.cfg = Config{Producer: producer.Config{MaxEntries: 3}, Txn: txn.Config{MaxIDs: 2}}
	w.restart()
	w.tick(0)
	if want := (Counts{EvictedProducerIDs: 3, EvictedTransactionalIDs: 4}); w.counts != want {
		t.Errorf("counted %+v, want %+v", w.counts, want)
	}
	var left []string
	for e := range w.m.txns.Open() {
		left = append(left, e.ID)
	}
	for e := range w.m.txns.Idle() {
		left = append(left, e.ID)
	}
	if fmt.Sprint(left) != "[x0 x5]" || w.m.producers.Len() != 3 {
		t.Errorf("%d producers and the ids %q are left, want 3 and [x0 x5]", w.m.producers.Len(), left)
	}
	w.expect("produce id=x0 t/0:1:b", "offset 11")
	w.expect("end id=x0 commit", "pid=0 epoch=1")
	w.run("init id=new")
	if w.counts.EvictedTransactionalIDs != 5 {
		t.Errorf("%d transactional ids were evicted, want one more", w.counts.EvictedTransactionalIDs)
	}
}
