package world

import (
	"errors"
	"time"

	"github.com/strandline-io/strandline/broker/journal"
	"github.com/strandline-io/strandline/broker/keeper"
	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/segment"
	"github.com/strandline-io/strandline/broker/sequencer"
)

// housekeeper runs the broker's keeper in a coroutine.
type housekeeper struct {
	*keeper.Keeper
	p     *process
	c     *coroutine
	woken bool
}

// maxJournalBytes is where Produce waits; data leaves the journal at half of it. The small one keeps housekeeping at the
// bound.
const (
	maxJournalBytes      = 8 * segmentBytes
	smallMaxJournalBytes = 2 * segmentBytes
)

// newHousekeeper makes the keeper, to be started when there is a loop.
func (p *process) newHousekeeper(r *keeper.Recovery) {
	k := &housekeeper{p: p}
	k.c = p.w.newCoroutine("housekeeping", func(c *coroutine) {
		if err := k.Run(); err != nil {
			p.w.failInside("V8: %v", err)
			p.stop(err)
		}
	})
	k.c.onDisk = true
	p.coroutines = append(p.coroutines, k.c)
	bound := int64(maxJournalBytes)
	if p.w.mode.smallTail {
		bound = smallMaxJournalBytes
	}
	k.Keeper = keeper.New(keeper.Config{
		Env: k, Journal: keptJournal{p.journal, p}, Store: p.store, Board: p.board, Recovery: r, JournalMaxBytes: bound,
		Verify: !p.w.opts.ReadersOnly,
	})
	p.keeper = k
}

func (k *housekeeper) start() {
	k.p.w.after(0, func() {
		if !k.p.dead {
			k.c.resume()
			k.p.pump()
		}
	})
}

// keptJournal tells the world what housekeeping does to the journal.
type keptJournal struct {
	*journal.Stepped
	p *process
}

func (j keptJournal) WriteSnapshot(seq uint64, state []byte) error {
	err := j.Stepped.WriteSnapshot(seq, state)
	if err == nil {
		j.p.w.stats.Snapshots++
		j.p.w.tracef("snapshot at %d", seq)
	}
	return err
}

func (j keptJournal) Trim(seq uint64) {
	j.Stepped.Trim(seq)
	j.p.w.after(0, j.p.pump)
}

// Record implements keeper.Env.
func (k *housekeeper) Record(op *machine.Shelved) error {
	box := &signalBox{c: k.c}
	k.p.submit(&sequencer.Operation{Op: machine.Op{Body: op}, Box: box})
	for !box.there {
		if k.p.dead {
			return sequencer.ErrStopped
		}
		k.c.await(secondInUs, func() bool { return box.there || k.p.dead })
	}
	k.p.w.stats.Shelvings++
	k.p.w.tracef("shelved %d partitions", len(op.Partitions))
	return nil
}

// signalBox is a mailbox that only tells that a reply came.
type signalBox struct {
	c     *coroutine
	there bool
}

func (b *signalBox) Deliver([]machine.Reply) {
	b.there = true
	b.c.signal()
}

// Pause implements keeper.Env.
func (k *housekeeper) Pause(d time.Duration) {
	k.c.await(d.Microseconds(), func() bool { return k.woken || k.p.dead })
	k.woken = false
}

// Wake implements keeper.Env.
func (k *housekeeper) Wake() {
	k.woken = true
	k.c.signal()
}

// Stopping implements keeper.Env.
func (k *housekeeper) Stopping() bool { return k.p.dead }

// SetSlow implements keeper.Env.
func (k *housekeeper) SetSlow(slow bool) {
	k.p.slow = slow
	k.p.wakeLoop()
}

// Trouble implements keeper.Env. The bytes were written by a disk that may lose them and never damages them.
func (k *housekeeper) Trouble(err error) {
	if errors.Is(err, journal.ErrCorrupt) || errors.Is(err, segment.ErrCorrupt) {
		k.p.w.fail("damage: housekeeping finds damage where there is none: %v", err)
	}
	k.p.w.tracef("housekeeping: %v", err)
	k.p.w.after(0, k.p.afterStep)
}
