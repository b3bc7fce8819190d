// Package keeper is what a broker does beside its loop: recovery before it, housekeeping behind it. The code reads as it
// runs, one step after another; it blocks only in the file system and in its Env, so that a broker runs it in a goroutine
// and the simulation, the very same, in a coroutine.
package keeper

import (
	"fmt"

	"github.com/strandline-io/strandline/broker/journal"
	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/record"
	"github.com/strandline-io/strandline/broker/segment"
	"github.com/strandline-io/strandline/broker/sequencer"
)

// Recovery collects what opening a journal finds: Restore, Place and Replay are what the journal calls meanwhile (see
// journal.FileConfig). It reads the newest snapshot and the heads of what is in the journal, so its time does not depend
// on the amount of data (V6).
type Recovery struct {
	// Machine has applied every unit up to LastSeq.
	Machine *machine.Machine
	LastSeq uint64
	// SnapshotSeq is the newest unit of the snapshot that it began with; 0 is none.
	SnapshotSeq uint64

	cfg     machine.Config
	shadow  *machine.Machine // as of the snapshot: housekeeping goes on from it
	extents map[machine.PartitionID][]segment.Extent
	headers [][]byte
	ids     []machine.PartitionID
}

// NewRecovery returns the recovery of an empty folder.
func NewRecovery(cfg machine.Config) *Recovery {
	return &Recovery{
		Machine: machine.New(cfg), cfg: cfg, shadow: machine.New(cfg),
		extents: make(map[machine.PartitionID][]segment.Extent),
	}
}

// Restore begins with a snapshot. An error wraps machine.ErrCorrupt.
func (r *Recovery) Restore(seq uint64, state []byte) (err error) {
	if r.Machine, err = machine.Restore(r.cfg, state); err != nil {
		return fmt.Errorf("snapshot at %d: %w", seq, err)
	}
	if r.shadow, err = machine.Restore(r.cfg, state); err != nil {
		return fmt.Errorf("snapshot at %d: %w", seq, err)
	}
	r.SnapshotSeq, r.LastSeq = seq, seq
	return nil
}

// Replay applies a unit behind the snapshot and notes where its batches lie.
func (r *Recovery) Replay(u journal.Stored) error {
	r.headers = appendHeaders(r.headers[:0], u)
	if err := r.Machine.Replay(u.Meta, r.headers); err != nil {
		return inUnit(u, err)
	}
	r.LastSeq = u.Seq
	return r.Place(u)
}

// Place notes where a unit's batches lie.
func (r *Recovery) Place(u journal.Stored) (err error) {
	if len(u.Batches) == 0 {
		return nil
	}
	if r.ids, err = machine.BatchPartitions(u.Meta, r.ids[:0]); err != nil {
		return inUnit(u, err)
	}
	if len(r.ids) != len(u.Batches) {
		return inUnit(u, fmt.Errorf("it names %d batches and holds %d: %w", len(r.ids), len(u.Batches), journal.ErrCorrupt))
	}
	for i, id := range r.ids {
		h, err := record.ParseHeader(u.Batches[i].Header)
		if err != nil {
			return inUnit(u, err)
		}
		r.extents[id] = append(r.extents[id], segment.Extent{
			BaseOffset: h.BaseOffset, MaxTimestamp: h.MaxTimestamp, Segment: u.Segment, Pos: u.Batches[i].Pos,
			LastDelta: h.LastOffsetDelta, Len: u.Batches[i].Len,
		})
	}
	return nil
}

// Lengths is how far each partition's files reach, as journaled, for segment.Open.
func (r *Recovery) Lengths() []segment.Length {
	shelved := r.Machine.ShelvedLengths()
	lengths := make([]segment.Length, len(shelved))
	for i, l := range shelved {
		lengths[i] = segment.Length{
			Partition: uint32(l.Partition), FileBase: l.FileBase, FileBytes: l.FileBytes, EndOffset: l.EndOffset,
		}
	}
	return lengths
}

// Board publishes what was found, all of which is durable.
func (r *Recovery) Board(j journal.Journal, store *segment.Store) *sequencer.Board {
	board := sequencer.NewBoard(int32(j.Incarnation()), func(id machine.PartitionID) *segment.Log {
		return store.NewLog(j, uint32(id))
	})
	var topics []machine.TopicChange
	for _, t := range r.Machine.Topics() {
		topics = append(topics, machine.TopicChange{Topic: t})
	}
	var updates []sequencer.Update
	for _, v := range r.Machine.Views() {
		updates = append(updates, sequencer.Update{View: v, Extents: r.extents[v.Partition]})
	}
	board.Publish(topics, updates)
	board.SetFeatures(r.Machine.Features())
	return board
}

func appendHeaders(dst [][]byte, u journal.Stored) [][]byte {
	for i := range u.Batches {
		dst = append(dst, u.Batches[i].Header)
	}
	return dst
}

// inUnit says where err came up.
func inUnit(u journal.Stored, err error) error {
	return fmt.Errorf("unit %d in segment %d: %w", u.Seq, u.Segment, err)
}
