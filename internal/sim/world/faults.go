package world

import (
	"fmt"
	"slices"

	"github.com/strandline-io/strandline/internal/vfs"
)

// faultKind is one thing that can go wrong, and how often beside others.
type faultKind struct {
	weight int
	do     func(w *World)
}

// faultKinds are what can go wrong. A run has some of them only: rare things come together more often that way.
var faultKinds = []faultKind{
	{4, func(w *World) { w.crash("kill", false) }},
	{4, func(w *World) { w.crash("power loss", true) }},
	{3, (*World).dieWithinACall},
	{2, (*World).failSync},
	{1, (*World).failCall},
	{2, (*World).fillDisk},
	{1, func(w *World) { w.jumpClock(w.Int64N(2*3600*1000) - 3600*1000) }},
	{2, (*World).pauseBroker},
	{2, (*World).pauseClient},
	{3, (*World).disturbNetwork},
	{2, (*World).partitionNetwork},
}

// planFaults draws when something goes wrong; what it is, each fault draws from a source of its own.
func (w *World) planFaults(kinds []faultKind) {
	end := int64(faultsForUs)
	if w.opts.FaultsMs > 0 {
		end = min(end, w.opts.FaultsMs*msInUs)
	}
	w.after(end, w.heal)
	for i := range kinds {
		if w.chance(70) {
			for range kinds[i].weight {
				w.mode.faults = append(w.mode.faults, i)
			}
		}
	}
	if w.mode.calm || len(w.mode.faults) == 0 {
		return
	}
	w.schedule(end, 50*msInUs, 1500*msInUs, func() { kinds[w.mode.faults[w.IntN(len(w.mode.faults))]].do(w) })
}

// schedule plans to call do now and then until end, at least least apart, each time with a source of random numbers of its
// own, and not those times that the options leave out.
func (w *World) schedule(end, least, upTo int64, do func()) {
	r := w.stream("faults")
	at := r.Int64N(secondInUs)
	for n := 1; at < end; n++ {
		own := w.stream("fault")
		if !slices.Contains(w.opts.WithoutFaults, n) {
			w.faults = append(w.faults, n)
			w.after(at, func() {
				if !w.healed {
					w.Rand = own
					w.tracef("fault %d", n)
					do()
				}
			})
		}
		at += least + r.Int64N(upTo)
	}
}

// dieWithinACall is a crash within one of the next calls of the disk, of whoever is at work then.
func (w *World) dieWithinACall() {
	w.disk.CrashAfter(1 + w.IntN(60))
	w.tracef("the process will die within a call of the disk")
}

// failSync makes a sync fail: the pages are clean then, and not on the disk.
func (w *World) failSync() {
	w.disk.FailNext(vfs.OpSync, w.IntN(10), errInjected)
	w.tracef("a sync will fail")
}

func (w *World) failCall() {
	op := []vfs.Op{vfs.OpWrite, vfs.OpAllocate, vfs.OpCreate, vfs.OpRename, vfs.OpRemove, vfs.OpSyncDir}[w.IntN(6)]
	w.disk.FailNext(op, w.IntN(10), errInjected)
	w.tracef("a call of kind %d will fail", op)
}

func (w *World) fillDisk() {
	w.disk.SetCapacity(w.disk.UsedBytes() + w.Int64N(200<<10))
	w.tracef("the disk is nearly full")
	w.after(w.Int64N(3*secondInUs), func() { w.disk.SetCapacity(-1) })
}

func (w *World) jumpClock(ms int64) {
	w.wallMs += ms
	w.wallJumpedMs += max(ms, 0)
	if ms < 0 {
		w.jumpsBack++
	}
	w.tracef("the wall clock jumps by %d ms", ms)
}

// pauseBroker stops the process for a while, as a debugger or a starved machine does. Its clocks go on meanwhile, and
// the wall clock may be set.
func (w *World) pauseBroker() {
	p := w.process
	if p == nil {
		return
	}
	us := w.Int64N(2 * transactionMs * msInUs)
	if w.chance(60) {
		us = w.Int64N(secondInUs)
	}
	p.pausedUs = w.nowUs + us
	w.tracef("the broker stands still for %d ms", us/msInUs)
	if w.chance(30) {
		w.jumpClock(w.Int64N(60_000) - 30_000)
	}
}

// pauseClient makes a zombie of a client: it wakes up when others have gone on.
func (w *World) pauseClient() {
	var all []*coroutine
	for _, c := range w.coroutines {
		if c.client && !c.done {
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		return
	}
	c := all[w.IntN(len(all))]
	us := w.Int64N(2 * transactionMs * msInUs)
	c.pausedUs = w.nowUs + us
	w.tracef("%s stands still for %d ms", c.name, us/msInUs)
}

func (w *World) disturbNetwork() {
	n := network{losePercent: w.IntN(10), slowPercent: w.IntN(30), slowUs: 1 + w.Int64N(3*secondInUs)}
	w.setNetwork(n, w.Int64N(3*secondInUs))
	w.tracef("network %+v", w.net)
}

// partitionNetwork cuts some clients off, one way or both: requests may arrive whose replies do not.
func (w *World) partitionNetwork() {
	n := network{cutPercent: 1 + w.IntN(100), cutSeed: w.Uint64()}
	switch w.IntN(4) {
	case 0:
		n.cutRequests = true
	case 1:
		n.cutRequests, n.cutReplies = true, true
	default:
		n.cutReplies = true
	}
	w.setNetwork(n, w.Int64N(5*secondInUs))
	w.tracef("network %+v", w.net)
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
	clear(w.history.cells)
	for _, v := range w.history.values {
		v.offset = -1
	}
	for _, tx := range w.history.txns {
		// What was acknowledged of an open transaction may be lost; its client goes on and commits the rest.
		tx.torn = tx.torn || !tx.committed && !tx.aborted
	}
}

// heal ends all faults. From now on everything must come to its end.
func (w *World) heal() {
	w.healed = true
	w.net = network{}
	w.disk.SetCapacity(-1)
	for _, c := range w.coroutines {
		c.pausedUs = min(c.pausedUs, w.nowUs)
	}
	if w.jobs != nil {
		w.jobs.heal()
	}
	w.crash("kill", false) // what was planned to fail is forgotten with the process
	w.tracef("healed")
	w.after(healedForUs, func() {
		w.fail("ends: after %d s without faults not everything has ended: %s", healedForUs/secondInUs, w.waiting())
	})
}

func (m mode) String() string {
	return fmt.Sprintf("write %t, lossy %t, calm %t, small tail %t, codec %s, append time %t, faults %v", m.write, m.lossy, m.calm,
		m.smallTail, m.codec, m.appendTime, m.faults)
}
