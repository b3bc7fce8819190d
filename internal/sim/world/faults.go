package world

import (
	"github.com/strandline-io/strandline/internal/vfs"
)

// fault lets one thing go wrong and plans the next.
func (w *World) fault() {
	if w.healed {
		return
	}
	w.after(50*msInUs+w.Int64N(1500*msInUs), w.fault)
	switch n := w.IntN(20); {
	case n < 4:
		w.crash("kill", false)
	case n < 8:
		w.crash("power loss", true)
	case n < 11:
		// Within one of the next calls, of whoever is at work then.
		w.disk.CrashAfter(1 + w.IntN(60))
		w.tracef("fault: the process will die within a call of the disk")
	case n < 12:
		w.disk.FailNext(vfs.OpSync, w.IntN(10), errInjected)
		w.tracef("fault: a sync will fail")
	case n < 13:
		op := []vfs.Op{vfs.OpWrite, vfs.OpAllocate, vfs.OpCreate, vfs.OpRename, vfs.OpRemove, vfs.OpSyncDir}[w.IntN(6)]
		w.disk.FailNext(op, w.IntN(10), errInjected)
		w.tracef("fault: call %d will fail", op)
	case n < 15:
		w.disk.SetCapacity(w.disk.UsedBytes() + w.Int64N(200<<10))
		w.tracef("fault: the disk is nearly full")
		w.after(w.Int64N(3*secondInUs), func() { w.disk.SetCapacity(-1) })
	case n < 16:
		jump := w.Int64N(2*3600*1000) - 3600*1000
		w.wallMs += jump
		w.tracef("fault: the wall clock jumps by %d ms", jump)
	default:
		w.net = network{losePercent: w.IntN(10), slowPercent: w.IntN(30), slowUs: 1 + w.Int64N(3*secondInUs)}
		w.tracef("fault: network %+v", w.net)
		w.after(w.Int64N(3*secondInUs), func() { w.net = network{} })
	}
}

// crash ends the process at once and starts it again later.
func (w *World) crash(how string, power bool) {
	w.stats.Crashes++
	if p := w.process; p != nil {
		w.process = nil
		p.die()
	}
	if power && (!w.mode.write || w.mode.lossy) {
		w.stats.PowerLosses++
		seed := w.Uint64()
		if w.chance(50) {
			w.disk = w.disk.PowerLossTorn(seed, 512)
		} else {
			w.disk = w.disk.PowerLoss(seed)
		}
		if w.mode.lossy {
			w.forget()
		}
	} else {
		how = "kill"
		w.disk = w.disk.ProcessCrash()
	}
	w.tracef("crash by %s", how)
	w.net = network{}
	down := w.Int64N(secondInUs)
	if !w.healed && w.chance(20) {
		w.disk.CrashAfter(1 + w.IntN(40)) // within the recovery, or soon after
	}
	w.after(down, func() {
		if w.process == nil {
			w.boot()
		}
	})
}

// forget is what a power loss does to the memory of the checks where replies left before the sync.
func (w *World) forget() {
	clear(w.seen)
}

// heal ends all faults. From now on everything must come to its end.
func (w *World) heal() {
	w.healed = true
	w.net = network{}
	w.disk.SetCapacity(-1)
	w.crash("kill", false) // what was planned to fail is forgotten with the process
	w.tracef("healed")
	w.after(healedForUs, func() {
		w.fail("ends: after %d s without faults not everything has ended: %s", healedForUs/secondInUs, w.waiting())
	})
}
