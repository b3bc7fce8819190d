// Package journal is the write-ahead log: one sequence of atomic units for all partitions, grouped into few writes
// and syncs, and the snapshots that shorten its replay. Nothing above it may know that there are files.
package journal

import "errors"

// ErrCorrupt marks damage: bytes that were durable and are not what was written. It comes wrapped with file and
// offset. It is never returned for a torn tail, which recovery cuts.
var ErrCorrupt = errors.New("journal damaged")

// Durability says which moment releases replies.
type Durability uint8

const (
	// DurabilityFsync: after fdatasync; survives power loss.
	DurabilityFsync Durability = iota
	// DurabilityWrite: after write(2); survives kill -9, not power loss (as Apache Kafka's defaults).
	DurabilityWrite
)

// Unit is one atomic entry. Meta is opaque to the journal. Each batch is a record batch of at least 61 bytes whose
// own CRC covers it from byte 21 on; the unit's CRC covers Meta and each batch's first 21 bytes.
type Unit struct {
	Meta    []byte
	Batches [][]byte
}

// Placed says where a unit will lie. Batch i starts at BatchPos plus the lengths of the batches before it.
type Placed struct {
	Seq      uint64 // dense, from 1
	Segment  uint64 // number of the journal segment
	BatchPos int64
}

// Stored is a unit found again. With heads only, each batch is cut to its 61-byte header and Pos/Len say where the
// whole one lies. All slices are valid until the callback returns.
type Stored struct {
	Seq     uint64
	Segment uint64
	Meta    []byte
	Batches []StoredBatch
}

// StoredBatch is one batch of a stored unit.
type StoredBatch struct {
	Header []byte // first 61 bytes
	Pos    int64
	Len    int32
}

// Event is what a journal tells its owner, in order, from its own goroutines; the callback must not block and must
// not call back into the journal.
type Event struct {
	Kind    EventKind
	Seq     uint64 // Written, Synced: everything up to here
	Segment uint64 // Sealed
	Err     error  // Failed
}

// EventKind says what happened.
type EventKind uint8

const (
	// Written: the bytes of all units up to Seq are with the operating system; their buffers may be reused.
	Written EventKind = iota + 1
	// Synced: all units up to Seq survive power loss.
	Synced
	// Sealed: Segment is complete, synced, and will not change.
	Sealed
	// Failed: a write or sync failed. Nothing after it will succeed; the owner must stop for good.
	Failed
	// SpaceChanged: what Space or Reserve answer may have changed. Err is why no space could be had, if so.
	SpaceChanged
)

// Journal is an open journal. Append and Close belong to one owner; the reading methods may be called from anywhere.
type Journal interface {
	// Append submits units as one group: one write, one sync, all batches in order. Placement is decided at once.
	// Slices must stay unchanged until the Written event that covers them. At most two groups may be outstanding
	// (submitted, not yet Written or Synced as the durability demands): see Room. A unit over the configured limit,
	// a batch under 61 bytes or an Append without Room is a bug of the caller and panics. After a failure Append
	// writes nothing and returns nil. The result is the caller's.
	Append(units []Unit) []Placed
	// Sync asks for a prompt Synced event for everything appended so far. It is for units that must survive power
	// loss also under DurabilityWrite, where syncs otherwise come late; under DurabilityFsync it changes nothing.
	Sync()
	// Space says how large a group (see UnitBytes) may be appended without asking the file system for more, and
	// whether the journal is down to its reserve because no more could be had: then only what frees space should
	// be appended. It changes only with Append and with events.
	Space() (freeBytes int64, low bool)
	// Reserve makes room for a group of sizeBytes, which may exceed a segment. False means that it is not there
	// yet: a SpaceChanged event follows when the attempt has ended, well or badly. An Append larger than what
	// Space answers asks the file system itself, and fails the journal if there is nothing.
	Reserve(sizeBytes int64) bool
	// Incarnation is the number of this opening of the journal: raised by each, durable, never reused.
	Incarnation() uint32
	// Room reports whether another group may be submitted now. It changes only with Append and with events.
	Room() bool
	// ReadAt reads bytes of a segment that is held (see Hold) into p, whole or with an error.
	ReadAt(segment uint64, p []byte, pos int64) error
	// Hold keeps a segment readable until the release is called; ok is false if it is already freed.
	Hold(segment uint64) (release func(), ok bool)
	// Scan calls f for each unit of a sealed segment in order, heads only.
	Scan(segment uint64, f func(Stored) error) error
	// Trim frees the segments whose units all are at or below seq and which nobody holds, now or later.
	Trim(seq uint64)
	// Segments lists what is there, oldest first.
	Segments() []SegmentInfo
	// WriteSnapshot stores the state as of seq, synced, under a temporary name first.
	WriteSnapshot(seq uint64, state []byte) error
	// Close waits for what was appended and syncs it.
	Close() error
}

// SegmentInfo describes one segment. LastSeq is 0 while it is active.
type SegmentInfo struct {
	Number    uint64
	FirstSeq  uint64
	LastSeq   uint64
	SizeBytes int64
	Sealed    bool
}
