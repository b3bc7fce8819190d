package broker

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/strandline-io/strandline/broker/journal"
	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/segment"
	"github.com/strandline-io/strandline/broker/sequencer"
	"github.com/strandline-io/strandline/internal/failpoint"
)

// housekeeper follows the loop at a distance, one sealed journal segment after another: it replays the segment's heads
// into a second machine, moves batches to the partitions' own files, stores the second machine's state as a snapshot
// when one is due, and frees what both have passed. It is one goroutine; the loop never waits for it, except that
// produce is slowed when the journal reaches its bound.
type housekeeper struct {
	cfg    Config
	engine *engine
	log    *slog.Logger

	mu    sync.Mutex // guards what others hand over
	queue []uint64
	gone  []machine.PartitionID

	wake chan struct{}
	quit chan struct{}
	done chan struct{}

	shadow      *machine.Machine
	shadowSeq   uint64 // the shadow has applied everything up to here
	snapshotSeq uint64
	snapshotLen int64
	sinceBytes  int64                 // journal bytes since the snapshot
	unshelved   []journal.SegmentInfo // replayed by the shadow, not yet moved, oldest first
	shelvedSeq  uint64
	slow        bool
	headers     [][]byte
	ids         []machine.PartitionID
}

const (
	// snapshotMinBytes: a snapshot is due when the journal behind the last one exceeds this and four times its size.
	snapshotMinBytes = 128 << 20
	snapshotFactor   = 4
	// retryEvery paces new attempts after trouble with the disk.
	retryEvery = time.Second
)

func newHousekeeper(cfg Config, e *engine, shadow *machine.Machine, seq uint64) *housekeeper {
	return &housekeeper{
		cfg: cfg, engine: e, log: cfg.Logger,
		wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
		shadow: shadow, shadowSeq: seq, snapshotSeq: seq,
	}
}

// start runs the goroutine; segments are those that were complete already.
func (k *housekeeper) start(segments []uint64) {
	k.mu.Lock()
	k.queue = append(segments, k.queue...)
	k.mu.Unlock()
	go k.run()
	k.signal()
}

func (k *housekeeper) stop() {
	close(k.quit)
	<-k.done
}

// sealed is told by the loop that segments are complete.
func (k *housekeeper) sealed(segments []uint64) {
	k.mu.Lock()
	k.queue = append(k.queue, segments...)
	k.mu.Unlock()
	k.signal()
}

// deleted is told by the loop that partitions are gone.
func (k *housekeeper) deleted(ids []machine.PartitionID) {
	k.mu.Lock()
	k.gone = append(k.gone, ids...)
	k.mu.Unlock()
	k.signal()
}

func (k *housekeeper) signal() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

func (k *housekeeper) run() {
	defer close(k.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait := time.Hour
		if err := k.work(); err != nil {
			if errors.Is(err, sequencer.ErrStopped) {
				return
			}
			// Trouble here is back-pressure, not an end: the journal keeps what is not moved.
			k.log.Error("moving data out of the journal failed; it will be tried again", "error", err)
			wait = retryEvery
		}
		timer.Reset(wait)
		select {
		case <-k.quit:
			return
		case <-k.wake:
		case <-timer.C:
		}
	}
}

// work does everything that is to be done now.
func (k *housekeeper) work() error {
	for {
		select {
		case <-k.quit:
			return nil
		default:
		}
		segment, gone := k.take()
		for i, id := range gone {
			if err := k.engine.store.Forget(uint32(id)); err != nil {
				k.deleted(gone[i:])
				return err
			}
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
}

// take returns the oldest sealed segment (it stays queued until pop; 0 is none) and the partitions to forget.
func (k *housekeeper) take() (segment uint64, gone []machine.PartitionID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	gone, k.gone = k.gone, nil
	if len(k.queue) > 0 {
		segment = k.queue[0]
	}
	return segment, gone
}

func (k *housekeeper) pop() {
	k.mu.Lock()
	k.queue = k.queue[1:]
	k.mu.Unlock()
}

// follow replays a segment's heads into the shadow.
func (k *housekeeper) follow(number uint64) error {
	info, ok := k.info(number)
	if !ok {
		return nil // freed before the restart that listed it
	}
	err := k.engine.journal.Scan(number, func(u journal.Stored) error {
		if u.Seq <= k.shadowSeq {
			return nil // in the snapshot, or replayed before an error
		}
		k.headers = k.headers[:0]
		for i := range u.Batches {
			k.headers = append(k.headers, u.Batches[i].Header)
		}
		if err := k.shadow.Replay(u.Meta, k.headers); err != nil {
			return fmt.Errorf("unit %d in segment %d: %w", u.Seq, number, err)
		}
		k.shadowSeq = u.Seq
		return nil
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

func (k *housekeeper) info(number uint64) (journal.SegmentInfo, bool) {
	for _, s := range k.engine.journal.Segments() {
		if s.Number == number {
			return s, true
		}
	}
	return journal.SegmentInfo{}, false
}

// move shelves when enough has come together, so that each partition gets few large pieces; then snapshots and frees.
// With force it does both however little there is: at the journal's bound Produce waits for it, so that no further
// segment would come together. A quiet journal is left alone: its active segment is not sealed.
func (k *housekeeper) move(force bool) error {
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
	k.engine.journal.Trim(k.passed())
	return nil
}

// passed is up to where the journal is no longer needed.
func (k *housekeeper) passed() uint64 { return min(k.snapshotSeq, k.shelvedSeq) }

// shelve copies the batches of all unshelved segments into the partitions' files and journals the new lengths; only
// when that record is durable do readers move over.
func (k *housekeeper) shelve() error {
	board := k.engine.Board()
	var batches []segment.Shelving
	for _, s := range k.unshelved {
		err := k.engine.journal.Scan(s.Number, func(u journal.Stored) (err error) {
			if k.ids, err = machine.BatchPartitions(u.Meta, k.ids[:0]); err != nil {
				return err
			}
			return eachExtent(u, k.ids, func(id machine.PartitionID, e segment.Extent) {
				if board.Partition(id) != nil { // else deleted meanwhile
					batches = append(batches, segment.Shelving{Partition: uint32(id), Extent: e})
				}
			})
		})
		if err != nil {
			return fmt.Errorf("read journal segment %d: %w", s.Number, err)
		}
	}
	lengths, err := k.engine.store.Shelve(k.engine.journal, batches)
	if err != nil {
		return err
	}
	failpoint.Hit("shelve.synced")
	if err := k.record(lengths); err != nil {
		return err
	}
	failpoint.Hit("shelve.recorded")
	for _, l := range lengths {
		files := k.engine.store.Files(l.Partition)
		board.Shelved(machine.PartitionID(l.Partition), func(old *segment.Log) *segment.Log { return old.WithShelved(files) })
	}
	k.shelvedSeq = k.unshelved[len(k.unshelved)-1].LastSeq
	k.unshelved = k.unshelved[:0]
	return nil
}

// record journals the lengths and waits until they are durable.
func (k *housekeeper) record(lengths []segment.Length) error {
	op := &machine.Shelved{Partitions: make([]machine.ShelvedLength, len(lengths))}
	for i, l := range lengths {
		op.Partitions[i] = machine.ShelvedLength{
			Partition: machine.PartitionID(l.Partition), FileBase: l.FileBase, FileBytes: l.FileBytes, EndOffset: l.EndOffset,
		}
	}
	box := make(signalBox, 1)
	if err := k.engine.Submit(&sequencer.Operation{Op: machine.Op{Body: op}, Box: box}); err != nil {
		return err
	}
	select {
	case <-box:
		return nil
	case <-k.engine.Done():
		return sequencer.ErrStopped
	}
}

// signalBox is a mailbox that only tells that a reply came.
type signalBox chan struct{}

// Deliver tells.
func (b signalBox) Deliver([]machine.Reply) { b <- struct{}{} }

// snapshot stores the shadow's state when enough journal lies behind the last one, or if it is forced to.
func (k *housekeeper) snapshot(force bool) error {
	due := force || k.sinceBytes >= max(k.snapshotBytes(), snapshotFactor*k.snapshotLen)
	if !due || k.shadowSeq == k.snapshotSeq {
		return nil
	}
	state := k.shadow.AppendSnapshot(nil)
	if err := k.engine.journal.WriteSnapshot(k.shadowSeq, state); err != nil {
		return fmt.Errorf("write snapshot at %d: %w", k.shadowSeq, err)
	}
	k.snapshotSeq, k.snapshotLen, k.sinceBytes = k.shadowSeq, int64(len(state)), 0
	return nil
}

// snapshotBytes scales the minimum down with small journals, so that they are freed too.
func (k *housekeeper) snapshotBytes() int64 { return min(snapshotMinBytes, k.cfg.JournalMaxBytes/4) }

// pressure slows produce while the journal is at its bound.
func (k *housekeeper) pressure() {
	if slow := k.atBound(); slow != k.slow {
		k.slow = slow
		k.engine.SetSlow(slow)
	}
}

// atBound says whether the sealed segments that housekeeping has not passed reach the journal's bound. Those that it
// has passed do not count: the journal frees them a little later and tells nobody. Nor does the active one, which
// housekeeping could not pass.
func (k *housekeeper) atBound() bool {
	var bytes int64
	for _, s := range k.engine.journal.Segments() {
		if s.Sealed && s.LastSeq > k.passed() {
			bytes += s.SizeBytes
		}
	}
	return bytes >= k.cfg.JournalMaxBytes
}
