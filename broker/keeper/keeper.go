package keeper

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/strandline-io/strandline/broker/journal"
	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/segment"
	"github.com/strandline-io/strandline/broker/sequencer"
	"github.com/strandline-io/strandline/internal/failpoint"
	"github.com/strandline-io/strandline/internal/mutant"
)

const (
	// snapshotMinBytes: a snapshot is due when the journal behind the last one exceeds this and four times its size.
	snapshotMinBytes = 128 << 20
	snapshotFactor   = 4
	// retryEvery paces new attempts after trouble with the disk.
	retryEvery = time.Second
	// untilWoken is a pause that only news ends.
	untilWoken = time.Hour
)

// Env is what housekeeping needs of whoever runs it. Besides the file system only Record and Pause block.
type Env interface {
	// Record has the loop decide op and waits until that is durable. An error means that the loop has ended.
	Record(op *machine.Shelved) error
	// Pause waits until d is over, Wake is called or was called since the last Pause, or Stopping holds.
	Pause(d time.Duration)
	// Wake may be called from anywhere, at any time; it does not block.
	Wake()
	// Stopping says that Run is to return.
	Stopping() bool
	// SetSlow tells the loop whether Produce has to wait.
	SetSlow(slow bool)
	// Trouble is told of an error after which housekeeping tries again a little later.
	Trouble(err error)
}

// Config of a Keeper. Everything but Verify is required.
type Config struct {
	Env      Env
	Journal  journal.Journal
	Store    *segment.Store // the Keeper is the one that moves batches into it
	Board    *sequencer.Board
	Recovery *Recovery // housekeeping goes on from its snapshot
	// JournalMaxBytes bounds the journal: data is moved out of it at half of this, Produce waits at all of it. A snapshot
	// is due after a quarter of it, though after 128 MiB at the latest, and never before four times its own size.
	JournalMaxBytes int64
	// Verify compares the state that replay gives with the one that the loop had (V8); the loop's marks come by Marked.
	Verify bool
}

// Keeper follows the loop at a distance, one sealed journal segment after another: it replays the segment's heads into
// a second machine, moves batches to the partitions' own files, stores the second machine's state as a snapshot when one
// is due, and frees what both have passed. The loop never waits for it, except that Produce is slowed when the journal
// reaches its bound. Sealed, Deleted, Trimmed and Marked may be called from anywhere; the rest happens in Run.
type Keeper struct {
	cfg        Config
	env        Env
	machineCfg machine.Config

	mu    sync.Mutex // guards what others hand over
	queue []uint64   // sealed segments, oldest first
	gone  []machine.PartitionID
	short []machine.PartitionID // their log start has moved up
	marks []sequencer.Mark

	shadow      *machine.Machine
	shadowSeq   uint64 // the shadow has applied everything up to here
	snapshotSeq uint64
	snapshotLen int64
	sinceBytes  int64                 // journal bytes since the snapshot
	unshelved   []journal.SegmentInfo // replayed by the shadow, not yet moved, oldest first
	shelvedSeq  uint64
	slow        bool
	headers     [][]byte
}

// New returns a keeper whose queue holds the segments that are complete already. Create it before the loop runs: what
// the loop seals is told by it, and must not be listed as well.
func New(cfg Config) *Keeper {
	r := cfg.Recovery
	cfg.Recovery = nil // what it found belongs to the board and the loop now
	k := &Keeper{
		cfg: cfg, env: cfg.Env, machineCfg: r.cfg, shadow: r.shadow, shadowSeq: r.SnapshotSeq, snapshotSeq: r.SnapshotSeq,
	}
	for _, s := range cfg.Journal.Segments() {
		if s.Sealed {
			k.queue = append(k.queue, s.Number)
		}
	}
	for _, v := range r.Machine.Views() {
		if v.LogStart > 0 {
			k.short = append(k.short, v.Partition)
		}
	}
	k.Marked([]sequencer.Mark{{Seq: r.LastSeq, Hash: r.Machine.Hash()}})
	return k
}

// Sealed is told by the loop that segments are complete; what they hold must be published.
func (k *Keeper) Sealed(segments []uint64) {
	k.mu.Lock()
	k.queue = append(k.queue, segments...)
	k.mu.Unlock()
	k.env.Wake()
}

// Deleted is told by the loop that partitions are gone.
func (k *Keeper) Deleted(ids []machine.PartitionID) {
	k.mu.Lock()
	k.gone = append(k.gone, ids...)
	k.mu.Unlock()
	k.env.Wake()
}

// Trimmed is told by the loop that the log start of partitions has moved up, as is published.
func (k *Keeper) Trimmed(ids []machine.PartitionID) {
	k.mu.Lock()
	k.short = append(k.short, ids...)
	k.mu.Unlock()
	k.env.Wake()
}

// Run keeps house until Env says that it stops or the loop has ended; then it returns nil. An error is a bug that must
// stop the broker: a unit does not replay, or not to the state that the loop had (ErrDiverged). Nothing is freed then.
func (k *Keeper) Run() error {
	for !k.env.Stopping() {
		wait := untilWoken
		switch err := k.work(); {
		case err == nil:
		case errors.Is(err, sequencer.ErrStopped):
			return nil
		case errors.Is(err, ErrDiverged):
			return err
		default:
			// Trouble here is back-pressure, not an end: the journal keeps what is not moved.
			k.env.Trouble(err)
			wait = retryEvery
		}
		k.env.Pause(wait)
	}
	return nil
}

// work does everything that is to be done now.
func (k *Keeper) work() error {
	for !k.env.Stopping() {
		segment, gone, short := k.take()
		for i, id := range gone {
			if err := k.cfg.Store.Forget(uint32(id)); err != nil {
				k.forgetLater(gone[i:])
				return err
			}
		}
		var left []error // what cannot be removed now goes at the next start
		for _, id := range short {
			left = append(left, k.trim(id))
		}
		if err := errors.Join(left...); err != nil {
			return err
		}
		if segment == 0 {
			return k.move(k.atBound())
		}
		if err := k.follow(segment); err != nil {
			return err
		}
		k.pop()
		if err := k.move(false); err != nil {
			return err
		}
	}
	return nil
}

// take returns the oldest sealed segment (it stays queued until pop; 0 is none), the partitions to forget and those to trim.
func (k *Keeper) take() (segment uint64, gone, short []machine.PartitionID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	gone, k.gone = k.gone, nil
	short, k.short = k.short, nil
	if len(k.queue) > 0 {
		segment = k.queue[0]
	}
	return segment, gone, short
}

// trim removes a partition's files below its log start.
func (k *Keeper) trim(id machine.PartitionID) error {
	p := k.cfg.Board.Partition(id)
	if p == nil {
		return nil // deleted meanwhile
	}
	return k.cfg.Store.Trim(uint32(id), p.Load().LogStart, func(left segment.Files) {
		k.cfg.Board.Shelved(id, func(old *segment.Log) *segment.Log { return old.WithShelved(left) })
	})
}

// forgetLater puts back what could not be forgotten. It wakes nobody: what failed just now waits its time.
func (k *Keeper) forgetLater(gone []machine.PartitionID) {
	k.mu.Lock()
	k.gone = append(k.gone, gone...)
	k.mu.Unlock()
}

func (k *Keeper) pop() {
	k.mu.Lock()
	k.queue = k.queue[1:]
	k.mu.Unlock()
}

// follow replays a segment's heads into the shadow.
func (k *Keeper) follow(number uint64) error {
	info, ok := k.info(number)
	if !ok {
		return nil // freed before the restart that listed it
	}
	err := k.cfg.Journal.Scan(number, func(u journal.Stored) error {
		if u.Seq <= k.shadowSeq {
			return nil // in the snapshot, or replayed before an error
		}
		k.headers = appendHeaders(k.headers[:0], u)
		if err := k.shadow.Replay(u.Meta, k.headers); err != nil {
			return inUnit(u, fmt.Errorf("%w: it was applied when it was decided: %w", ErrDiverged, err))
		}
		k.shadowSeq = u.Seq
		return k.verify(u)
	})
	if err != nil {
		return err
	}
	if info.LastSeq > k.snapshotSeq {
		k.sinceBytes += info.SizeBytes
	}
	k.unshelved = append(k.unshelved, info)
	return nil
}

func (k *Keeper) info(number uint64) (journal.SegmentInfo, bool) {
	for _, s := range k.cfg.Journal.Segments() {
		if s.Number == number {
			return s, true
		}
	}
	return journal.SegmentInfo{}, false
}

// move shelves when enough has come together, so that each partition gets few large pieces; then snapshots and frees.
// With force it does both however little there is: at the journal's bound Produce waits for it, so that no further
// segment would come together. A quiet journal is left alone: its active segment is not sealed.
func (k *Keeper) move(force bool) error {
	defer k.pressure()
	var bytes int64
	for _, s := range k.unshelved {
		bytes += s.SizeBytes
	}
	if len(k.unshelved) > 0 && (force || bytes >= k.cfg.JournalMaxBytes/2) {
		if err := k.shelve(); err != nil {
			return err
		}
	}
	if err := k.snapshot(force); err != nil {
		return err
	}
	k.cfg.Journal.Trim(k.passed())
	return nil
}

// passed is up to where the journal is no longer needed.
func (k *Keeper) passed() uint64 { return min(k.snapshotSeq, k.shelvedSeq) }

// shelve copies the batches of all unshelved segments into the partitions' files and journals the new lengths; only
// when that record is durable do readers move over.
func (k *Keeper) shelve() error {
	last := k.unshelved[len(k.unshelved)-1]
	lengths, err := k.cfg.Store.Shelve(k.cfg.Journal, k.batches(last.Number))
	if err != nil {
		return err
	}
	op := &machine.Shelved{Partitions: make([]machine.ShelvedLength, len(lengths))}
	for i, l := range lengths {
		op.Partitions[i] = machine.ShelvedLength{
			Partition: machine.PartitionID(l.Partition), FileBase: l.FileBase, FileBytes: l.FileBytes, EndOffset: l.EndOffset,
		}
	}
	failpoint.Hit("shelve.synced")
	if err := k.env.Record(op); err != nil {
		return err
	}
	failpoint.Hit("shelve.recorded")
	for _, l := range lengths {
		files := k.cfg.Store.Files(l.Partition)
		k.cfg.Board.Shelved(machine.PartitionID(l.Partition), func(old *segment.Log) *segment.Log { return old.WithShelved(files) })
		if err := k.trim(machine.PartitionID(l.Partition)); err != nil {
			k.env.Trouble(err) // what is left behind goes at the next start
		}
	}
	k.shelvedSeq = last.LastSeq
	k.unshelved = k.unshelved[:0]
	return nil
}

// batches lists what lies in the journal up to a sealed segment, in the journal's order. Readers know it: a segment is
// sealed when all of it is durable, and what is durable is published before the segment is called sealed.
func (k *Keeper) batches(upTo uint64) []segment.Shelving {
	var all []segment.Shelving
	for _, t := range k.cfg.Board.Topics() {
		for _, id := range t.Partitions {
			p := k.cfg.Board.Partition(id)
			if p == nil {
				continue // deleted meanwhile
			}
			for _, e := range p.Load().Log.InJournal(upTo) {
				all = append(all, segment.Shelving{Partition: uint32(id), FileBytes: int64(t.Settings.SegmentBytes), Extent: e})
			}
		}
	}
	slices.SortFunc(all, func(a, b segment.Shelving) int {
		return cmp.Or(cmp.Compare(a.Segment, b.Segment), cmp.Compare(a.Pos, b.Pos))
	})
	return all
}

// snapshot stores the shadow's state when enough journal lies behind the last one, or if it is forced to.
func (k *Keeper) snapshot(force bool) error {
	due := force || k.sinceBytes >= max(k.snapshotBytes(), snapshotFactor*k.snapshotLen)
	if !due || k.shadowSeq == k.snapshotSeq {
		return nil
	}
	state := k.shadow.AppendSnapshot(nil)
	if err := k.verifySnapshot(state); err != nil {
		return err
	}
	seq := k.shadowSeq
	if mutant.On("snapshot one unit early") {
		seq++
	} else if mutant.On("snapshot one unit late") {
		seq--
	}
	if err := k.cfg.Journal.WriteSnapshot(seq, state); err != nil {
		return fmt.Errorf("write snapshot at %d: %w", k.shadowSeq, err)
	}
	k.snapshotSeq, k.snapshotLen, k.sinceBytes = k.shadowSeq, int64(len(state)), 0
	return nil
}

// snapshotBytes scales the minimum down with small journals, so that they are freed too.
func (k *Keeper) snapshotBytes() int64 { return min(snapshotMinBytes, k.cfg.JournalMaxBytes/4) }

// pressure slows produce while the journal is at its bound.
func (k *Keeper) pressure() {
	if slow := k.atBound(); slow != k.slow {
		k.slow = slow
		k.env.SetSlow(slow)
	}
}

// atBound says whether the sealed segments that housekeeping has not passed reach the journal's bound. Those that it
// has passed do not count: the journal frees them a little later and tells nobody. Nor does the active one, which
// housekeeping could not pass.
func (k *Keeper) atBound() bool {
	var bytes int64
	for _, s := range k.cfg.Journal.Segments() {
		if s.Sealed && s.LastSeq > k.passed() {
			bytes += s.SizeBytes
		}
	}
	return bytes >= k.cfg.JournalMaxBytes
}
