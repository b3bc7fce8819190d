package machine

import "testing"

// lose takes everything back from a unit on, as a power cut does where answers leave before the sync, and starts the next run.
func (w *world) lose(from int, next *Incarnation) {
	w.t.Helper()
	w.journal = w.journal[:from:from]
	w.m, w.shadow = New(w.cfg), New(otherConfig)
	for i, u := range w.journal {
		for _, m := range []*Machine{w.m, w.shadow} {
			if err := m.Replay(u.Meta, nil); err != nil {
				w.t.Fatalf("unit %d: %v", i, err)
			}
		}
	}
	w.do(next)
}

// An epoch that was given out and forgotten is not given to anybody else: neither to the next owner of the transactional id,
// nor to the one before, who is not known to be fenced any more, by EndTxn or when its time is up.
func TestForgottenEpochIsNotGivenAgain(t *testing.T) {
	for _, nextForgets := range []bool{true, false} { // what the run before did counts
		for _, restart := range []bool{false, true} {
			w := newWorld(t, Config{})
			w.topic("t", 1)
			w.do(&Incarnation{Number: 2, Forgets: true})
			for _, id := range []string{"next", "former", "late", "known"} {
				w.run("init id=" + id)
			}
			known := len(w.journal)
			w.expect("init id=next", "pid=0 epoch=1")
			w.expect("init id=former", "pid=1 epoch=1")
			w.expect("init id=late", "pid=2 epoch=1")
			w.lose(known, &Incarnation{Number: 3, Forgets: nextForgets})
			if restart {
				w.restart() // without having given anything out: still nothing of before is trusted
			}
			w.expect("init id=next", "pid=1000 epoch=0")
			w.expect("init id=next", "pid=1000 epoch=1")
			w.expect("end id=former pid=1", "pid=1001 epoch=0")
			w.expect("end id=former pid=1", "pid=1001 epoch=0")
			w.expect("end id=former pid=1001", "pid=1001 epoch=1")
			w.run("add id=late pid=2 t/0")
			w.tick(60_000)
			w.expect("end id=late pid=2", "pid=1002 epoch=0")
			w.expect("init id=known pid=3 epoch=0", "pid=1003 epoch=0")
			w.expect("init id=known pid=3 epoch=0", "pid=1003 epoch=0")
		}
	}
}

// A run that answers when everything is synced forgets nothing.
func TestSyncedEpochsGoOn(t *testing.T) {
	w := newWorld(t, Config{})
	w.expect("init", "pid=0 epoch=0")
	w.restart()
	w.expect("init", "pid=0 epoch=1")
	w.do(&Incarnation{Number: 3, Forgets: true})
	w.expect("init", "pid=0 epoch=2")
	w.do(&Incarnation{Number: 4})
	w.restart()
	w.expect("init", "pid=1000 epoch=0")
	w.restart()
	w.expect("init", "pid=1000 epoch=1")
}
