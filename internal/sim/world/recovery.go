package world

import (
	"fmt"

	"github.com/strandline-io/strandline/broker/journal"
	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/record"
	"github.com/strandline-io/strandline/broker/segment"
	"github.com/strandline-io/strandline/broker/sequencer"
)

// recovery collects what opening the journal finds, as the broker's engine does.
type recovery struct {
	machine, shadow      *machine.Machine
	lastSeq, snapshotSeq uint64
	extents              map[machine.PartitionID][]segment.Extent
}

func newRecovery() *recovery {
	return &recovery{
		machine: machine.New(machineConfig), shadow: machine.New(machineConfig),
		extents: make(map[machine.PartitionID][]segment.Extent),
	}
}

func (r *recovery) restore(seq uint64, state []byte) (err error) {
	if r.machine, err = machine.Restore(machineConfig, state); err != nil {
		return err
	}
	r.shadow, err = machine.Restore(machineConfig, state)
	r.snapshotSeq, r.lastSeq = seq, seq
	return err
}

func (r *recovery) replay(u journal.Stored) error {
	if err := r.machine.Replay(u.Meta, headersOf(u)); err != nil {
		return fmt.Errorf("unit %d in segment %d: %w", u.Seq, u.Segment, err)
	}
	r.lastSeq = u.Seq
	return r.place(u)
}

func headersOf(u journal.Stored) [][]byte {
	headers := make([][]byte, len(u.Batches))
	for i := range u.Batches {
		headers[i] = u.Batches[i].Header
	}
	return headers
}

func (r *recovery) place(u journal.Stored) error {
	return eachExtent(u, func(id machine.PartitionID, e segment.Extent) { r.extents[id] = append(r.extents[id], e) })
}

// eachExtent calls f for every batch of a unit with the partition it belongs to.
func eachExtent(u journal.Stored, f func(machine.PartitionID, segment.Extent)) error {
	if len(u.Batches) == 0 {
		return nil
	}
	ids, err := machine.BatchPartitions(u.Meta, nil)
	if err != nil {
		return err
	}
	if len(ids) != len(u.Batches) {
		return fmt.Errorf("unit %d names %d batches and holds %d: %w", u.Seq, len(ids), len(u.Batches), journal.ErrCorrupt)
	}
	for i, id := range ids {
		h, err := record.ParseHeader(u.Batches[i].Header)
		if err != nil {
			return err
		}
		f(id, segment.Extent{
			BaseOffset: h.BaseOffset, MaxTimestamp: h.MaxTimestamp, Segment: u.Segment, Pos: u.Batches[i].Pos,
			LastDelta: h.LastOffsetDelta, Len: u.Batches[i].Len,
		})
	}
	return nil
}

func (r *recovery) lengths() []segment.Length {
	var all []segment.Length
	for _, l := range r.machine.ShelvedLengths() {
		all = append(all, segment.Length{
			Partition: uint32(l.Partition), FileBase: l.FileBase, FileBytes: l.FileBytes, EndOffset: l.EndOffset,
		})
	}
	return all
}

// publish fills an empty board.
func (r *recovery) publish(board *sequencer.Board) {
	var topics []machine.TopicChange
	for _, t := range r.machine.Topics() {
		topics = append(topics, machine.TopicChange{Topic: t})
	}
	var updates []sequencer.Update
	for _, v := range r.machine.Views() {
		updates = append(updates, sequencer.Update{View: v, Extents: r.extents[v.Partition]})
	}
	board.Publish(topics, updates)
}
