package broker

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/strandline-io/strandline/broker/journal"
	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/machine/group"
	"github.com/strandline-io/strandline/broker/record"
	"github.com/strandline-io/strandline/broker/segment"
	"github.com/strandline-io/strandline/broker/sequencer"
	"github.com/strandline-io/strandline/internal/failpoint"
	"github.com/strandline-io/strandline/internal/vfs"
)

// engine is everything below the connections: the machine, the journal under it, the partitions' files, the loop
// that drives them and the housekeeping beside it.
type engine struct {
	*sequencer.Sequencer
	journal journal.Journal
	store   *segment.Store
	keeper  *housekeeper // nil when there is no disk
}

// openEngine recovers what the data folder holds and starts the loop over it. Recovery reads the newest snapshot and
// the journal behind it, so its time does not depend on the amount of data (V6).
func openEngine(cfg Config) (*engine, error) {
	inbox := sequencer.NewInbox()
	if cfg.DataDir == "" {
		j := journal.NewMemory(journal.MemoryConfig{MaxUnitBytes: cfg.maxUnitBytes()}, inbox.JournalEvent)
		store, err := segment.Open(vfs.NewMem(), segment.Config{}, nil)
		if err != nil {
			return nil, errors.Join(err, j.Close())
		}
		e := &engine{journal: j, store: store}
		e.start(cfg, inbox, &recovery{machine: machine.New(cfg.machine())}, nil)
		return e, nil
	}
	disk := cfg.FS
	if disk == nil {
		disk = vfs.OS(cfg.DataDir)
	}
	if err := disk.MkdirAll("."); err != nil {
		return nil, fmt.Errorf("data folder %s: %w", cfg.DataDir, err)
	}
	if err := checkFolder(disk, cfg.DataDir); err != nil {
		return nil, err
	}
	r := &recovery{cfg: cfg.machine(), extents: make(map[machine.PartitionID][]segment.Extent)}
	r.reset()
	j, err := journal.OpenFile(journal.FileConfig{
		FS: disk, Dir: "journal", Durability: cfg.Durability, SegmentBytes: cfg.JournalSegmentBytes,
		MaxUnitBytes: cfg.maxUnitBytes(),
		Restore:      r.restore, Extents: r.place,
	}, r.replay, inbox.JournalEvent)
	if err != nil {
		return nil, r.openError(cfg, err)
	}
	failpoint.Hit("recovery.done")
	store, err := segment.Open(disk, segment.Config{}, r.lengths())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the partitions of %s: %w", cfg.DataDir, err), j.Close())
	}
	e := &engine{journal: j, store: store}
	e.keeper = newHousekeeper(cfg, e, r.shadow, r.snapshotSeq)
	e.start(cfg, inbox, r, e.keeper)
	return e, nil
}

// checkFolder refuses a folder that holds something and was never a broker's: most likely a wrong path was typed, such
// as the parent of the folder that was meant, and an empty broker would start beside what the user looks for.
func checkFolder(disk vfs.FS, dir string) error {
	names, err := disk.List(".")
	if err != nil {
		return fmt.Errorf("data folder %s: %w", dir, err)
	}
	if slices.Contains(names, "journal") {
		return nil
	}
	for _, name := range names {
		if !strings.HasPrefix(name, ".") && name != "lost+found" && name != clusterIDFile {
			return fmt.Errorf("the data folder %s holds %q and no broker's data: name a new or empty folder, or one that a broker made", dir, name)
		}
	}
	return nil
}

// start fills the board and runs the loop, whose first operation is the new incarnation.
func (e *engine) start(cfg Config, inbox *sequencer.Inbox, r *recovery, k *housekeeper) {
	board := sequencer.NewBoard(int32(e.journal.Incarnation()), func(id machine.PartitionID) *segment.Log {
		return e.store.NewLog(e.journal, uint32(id))
	})
	var topics []machine.TopicChange
	for _, t := range r.machine.Topics() {
		topics = append(topics, machine.TopicChange{Topic: t})
	}
	var updates []sequencer.Update
	for _, v := range r.machine.Views() {
		updates = append(updates, sequencer.Update{View: v, Extents: r.extents[v.Partition]})
	}
	board.Publish(topics, updates)
	sc := sequencer.Config{
		Machine: r.machine, Journal: e.journal, Inbox: inbox, Board: board, Durability: cfg.Durability,
		LastSeq: r.lastSeq, Clock: cfg.Now,
		EngineStartMs: sequencer.EngineStart(r.machine.LastNow(), cfg.Now().UnixMilli()),
	}
	var sealed []uint64
	if k != nil {
		// Before the loop runs: what it seals is told by it, and must not be listed as well.
		sealed = r.sealedSince(e.journal)
		sc.OnSealed, sc.OnDeleted = k.sealed, k.deleted
	}
	e.Sequencer = sequencer.Start(sc)
	// It can only fail if the loop has stopped already, which Done tells.
	_ = e.Submit(&sequencer.Operation{Op: machine.Op{Body: &machine.Incarnation{Number: e.journal.Incarnation()}}})
	failpoint.Hit("engine.incarnation")
	if k != nil {
		k.start(sealed)
	}
}

// Close ends the loop, its housekeeping and the files, in this order, and returns what ended the loop if it was not
// this call.
func (e *engine) Close() error {
	err := e.Sequencer.Close()
	if e.keeper != nil {
		e.keeper.stop()
	}
	return errors.Join(err, e.journal.Close(), e.store.Close())
}

// machine is the part of the configuration that steers decisions.
func (c Config) machine() machine.Config {
	return machine.Config{
		NodeID:            c.NodeID,
		NoAutoCreate:      c.NoAutoCreateTopics,
		DefaultPartitions: c.DefaultPartitions,
		Group:             group.Config{InitialRebalanceDelayMs: c.GroupInitialRebalanceDelayMs},
	}
}

// maxUnitBytes is what the largest Produce can become in the journal: its batches, and for each, however small, a copy
// of its header in the segment's footer, and its record.
func (c Config) maxUnitBytes() int64 { return 3*int64(c.MaxRequestBytes) + 16<<20 }

// recovery collects what opening the journal finds.
type recovery struct {
	cfg         machine.Config
	machine     *machine.Machine
	shadow      *machine.Machine // as of the snapshot: housekeeping continues from it
	snapshotSeq uint64
	lastSeq     uint64
	extents     map[machine.PartitionID][]segment.Extent
	headers     [][]byte
	ids         []machine.PartitionID
}

func (r *recovery) reset() {
	r.machine, r.shadow = machine.New(r.cfg), machine.New(r.cfg)
}

func (r *recovery) restore(seq uint64, state []byte) (err error) {
	if r.machine, err = machine.Restore(r.cfg, state); err != nil {
		return fmt.Errorf("snapshot at %d: %w", seq, err)
	}
	if r.shadow, err = machine.Restore(r.cfg, state); err != nil {
		return fmt.Errorf("snapshot at %d: %w", seq, err)
	}
	r.snapshotSeq, r.lastSeq = seq, seq
	return nil
}

func (r *recovery) replay(u journal.Stored) error {
	r.headers = r.headers[:0]
	for i := range u.Batches {
		r.headers = append(r.headers, u.Batches[i].Header)
	}
	if err := r.machine.Replay(u.Meta, r.headers); err != nil {
		return fmt.Errorf("unit %d in segment %d: %w", u.Seq, u.Segment, err)
	}
	r.lastSeq = u.Seq
	return r.place(u)
}

// place notes where a unit's batches lie.
func (r *recovery) place(u journal.Stored) (err error) {
	if len(u.Batches) == 0 {
		return nil
	}
	if r.ids, err = machine.BatchPartitions(u.Meta, r.ids[:0]); err != nil {
		return fmt.Errorf("unit %d in segment %d: %w", u.Seq, u.Segment, err)
	}
	return eachExtent(u, r.ids, func(id machine.PartitionID, e segment.Extent) {
		r.extents[id] = append(r.extents[id], e)
	})
}

// lengths is how far each partition's files reach, as journaled.
func (r *recovery) lengths() []segment.Length {
	shelved := r.machine.ShelvedLengths()
	lengths := make([]segment.Length, len(shelved))
	for i, l := range shelved {
		lengths[i] = segment.Length{
			Partition: uint32(l.Partition), FileBase: l.FileBase, FileBytes: l.FileBytes, EndOffset: l.EndOffset,
		}
	}
	return lengths
}

// sealedSince lists the segments that were complete before this start, oldest first.
func (r *recovery) sealedSince(j journal.Journal) []uint64 {
	var numbers []uint64
	for _, s := range j.Segments() {
		if s.Sealed {
			numbers = append(numbers, s.Number)
		}
	}
	return numbers
}

// openError says what to do about the commonest failure.
func (r *recovery) openError(cfg Config, err error) error {
	if errors.Is(err, vfs.ErrLocked) {
		dir := cfg.DataDir
		if abs, absErr := filepath.Abs(dir); absErr == nil {
			dir = abs
		}
		return fmt.Errorf("the data folder %s is in use by another broker: stop that one, or choose another folder: %w", dir, vfs.ErrLocked)
	}
	return fmt.Errorf("open the data folder %s: %w", cfg.DataDir, err)
}

// eachExtent calls f for every batch of a unit with the partition it belongs to.
func eachExtent(u journal.Stored, ids []machine.PartitionID, f func(machine.PartitionID, segment.Extent)) error {
	if len(ids) != len(u.Batches) {
		return fmt.Errorf("unit %d in segment %d names %d batches and holds %d: %w", u.Seq, u.Segment, len(ids), len(u.Batches), journal.ErrCorrupt)
	}
	for i, id := range ids {
		h, err := record.ParseHeader(u.Batches[i].Header)
		if err != nil {
			return fmt.Errorf("unit %d in segment %d: %w", u.Seq, u.Segment, err)
		}
		f(id, segment.Extent{
			BaseOffset: h.BaseOffset, MaxTimestamp: h.MaxTimestamp, Segment: u.Segment, Pos: u.Batches[i].Pos,
			LastDelta: h.LastOffsetDelta, Len: u.Batches[i].Len,
		})
	}
	return nil
}
