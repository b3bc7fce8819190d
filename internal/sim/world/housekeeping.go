package world

import (
	"fmt"

	"github.com/strandline-io/strandline/broker/journal"
	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/segment"
	"github.com/strandline-io/strandline/broker/sequencer"
)

// keeper follows the loop at a distance as the broker's housekeeping does: it replays sealed segments into a second
// machine, moves batches to files, stores snapshots and frees what both have passed.
type keeper struct {
	p           *process
	c           *coroutine
	queue       []uint64
	shadow      *machine.Machine
	shadowSeq   uint64
	snapshotSeq uint64
	since       int // segments since the snapshot
	unshelved   []journal.SegmentInfo
	shelvedSeq  uint64
}

const (
	// maxJournalBytes is where produce is slowed.
	maxJournalBytes = 12 * segmentBytes
	// retryUs paces new attempts after trouble with the disk.
	retryUs = secondInUs
)

func (p *process) startKeeper(r *recovery) {
	k := &keeper{p: p, shadow: r.shadow, shadowSeq: r.snapshotSeq, snapshotSeq: r.snapshotSeq}
	for _, s := range p.journal.Segments() {
		if s.Sealed {
			k.queue = append(k.queue, s.Number)
		}
	}
	p.keeper = k
	k.c = p.w.newCoroutine("housekeeping", func(c *coroutine) { k.run() })
	k.c.onDisk = true
	p.coroutines = append(p.coroutines, k.c)
	p.w.after(0, func() {
		if !p.dead {
			k.c.resume()
			p.pump()
		}
	})
}

func (k *keeper) run() {
	for !k.p.dead {
		wait := int64(24 * 3600 * secondInUs)
		if err := k.work(); err != nil {
			k.p.w.tracef("housekeeping: %v", err)
			k.p.w.after(0, k.p.afterStep)
			wait = retryUs
		}
		k.c.await(wait, func() bool { return k.p.dead || wait > retryUs && len(k.queue) > 0 })
	}
}

func (k *keeper) work() error {
	for !k.p.dead && len(k.queue) > 0 {
		if err := k.follow(k.queue[0]); err != nil {
			return err
		}
		k.queue = k.queue[1:]
		if err := k.move(); err != nil {
			return err
		}
	}
	return k.move()
}

// follow replays a segment's heads into the shadow, which must agree with what the running machine was then (V8).
func (k *keeper) follow(number uint64) error {
	info, ok := k.info(number)
	if !ok {
		return nil
	}
	err := k.p.journal.Scan(number, func(u journal.Stored) error {
		if u.Seq <= k.shadowSeq {
			return nil
		}
		if err := k.shadow.Replay(u.Meta, headersOf(u)); err != nil {
			return fmt.Errorf("unit %d in segment %d: %w", u.Seq, number, err)
		}
		k.shadowSeq = u.Seq
		if want := k.p.w.hashes[u.Seq]; k.shadow.Hash() != want {
			k.p.w.fail("V8: the shadow has hash %x after unit %d, the machine had %x", k.shadow.Hash(), u.Seq, want)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if info.LastSeq > k.snapshotSeq {
		k.since++
	}
	k.unshelved = append(k.unshelved, info)
	return nil
}

func (k *keeper) info(number uint64) (journal.SegmentInfo, bool) {
	for _, s := range k.p.journal.Segments() {
		if s.Number == number {
			return s, true
		}
	}
	return journal.SegmentInfo{}, false
}

func (k *keeper) move() error {
	defer k.pressure()
	due := 4
	if k.p.w.mode.smallTail {
		due = 1
	}
	if len(k.unshelved) >= due {
		if err := k.shelve(); err != nil {
			return err
		}
	}
	if k.since >= due && k.shadowSeq > k.snapshotSeq {
		if err := k.p.journal.WriteSnapshot(k.shadowSeq, k.shadow.AppendSnapshot(nil)); err != nil {
			return err
		}
		k.p.w.stats.Snapshots++
		k.p.w.tracef("snapshot at %d", k.shadowSeq)
		k.snapshotSeq, k.since = k.shadowSeq, 0
	}
	k.p.journal.Trim(min(k.snapshotSeq, k.shelvedSeq))
	k.p.w.after(0, k.p.pump)
	return nil
}

// shelve copies batches into the partitions' files; readers move over when the new lengths are durable.
func (k *keeper) shelve() error {
	var batches []segment.Shelving
	for _, s := range k.unshelved {
		err := k.p.journal.Scan(s.Number, func(u journal.Stored) error {
			return eachExtent(u, func(id machine.PartitionID, e segment.Extent) {
				if k.p.board.Partition(id) != nil {
					batches = append(batches, segment.Shelving{Partition: uint32(id), Extent: e})
				}
			})
		})
		if err != nil {
			return err
		}
	}
	last := k.unshelved[len(k.unshelved)-1].LastSeq
	lengths, err := k.p.store.Shelve(k.p.journal, batches)
	if err != nil {
		return err
	}
	op := &machine.Shelved{}
	for _, l := range lengths {
		op.Partitions = append(op.Partitions, machine.ShelvedLength{
			Partition: machine.PartitionID(l.Partition), FileBase: l.FileBase, FileBytes: l.FileBytes, EndOffset: l.EndOffset,
		})
	}
	box := &signalBox{c: k.c}
	k.p.submit(&sequencer.Operation{Op: machine.Op{Body: op}, Box: box})
	for !box.there {
		if k.p.dead {
			return sequencer.ErrStopped
		}
		k.c.await(secondInUs, func() bool { return box.there || k.p.dead })
	}
	for _, l := range lengths {
		files := k.p.store.Files(l.Partition)
		k.p.board.Shelved(machine.PartitionID(l.Partition), func(old *segment.Log) *segment.Log { return old.WithShelved(files) })
	}
	k.p.w.stats.Shelvings++
	k.p.w.tracef("shelved up to %d", last)
	k.shelvedSeq = last
	k.unshelved = k.unshelved[:0]
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

func (k *keeper) pressure() {
	var bytes int64
	for _, s := range k.p.journal.Segments() {
		bytes += s.SizeBytes
	}
	if slow := bytes >= maxJournalBytes; slow != k.p.slow {
		k.p.slow = slow
		k.p.wakeLoop()
	}
}
