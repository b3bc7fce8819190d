// Package producer decides, for one partition, whether a batch may go in: sequences, duplicates, fencing, open
// transactions, and from these the last stable offset and the list of aborted transactions (kafka-eos.md A, C.4, C.5).
//
// Check and CheckMarker only look; ApplyBatch, ApplyMarker and Remove are the only ways in which durable state moves,
// in a running broker and in replay alike. Nothing here is safe for overlapping calls.
package producer

// Aborted is one aborted transaction of a partition: its data lies in [FirstOffset, LastOffset), its abort marker
// at LastOffset. LastStable is the partition's last stable offset right after the marker (kafka-eos.md C.5).
type Aborted struct {
	ProducerID  int64
	FirstOffset int64
	LastOffset  int64
	LastStable  int64
}

// Batch is what the decision about a client's data batch depends on. ProducerID is at least 0.
type Batch struct {
	ProducerID    int64
	Epoch         int16
	FirstSequence int32
	LastSequence  int32
	Transactional bool
	// BumpsEpoch is set for clients of transaction version 2, whose epoch rises with every transaction, so that each
	// starts at sequence 0 (KIP-890).
	BumpsEpoch bool
}

// Outcome is what Check decided. Code 0 without Duplicate means: append it and call ApplyBatch. With Duplicate the
// batch is in the log already, at BaseOffset, and nothing must be written.
type Outcome struct {
	Code        int16 // Kafka error code, 0 for none
	Detail      string
	Duplicate   bool
	BaseOffset  int64
	TimestampMs int64 // the appended batch's max timestamp
}

// Marker is the end of a producer's transaction in the partition.
type Marker struct {
	ProducerID       int64
	Epoch            int16
	CoordinatorEpoch int32
	Commit           bool
	// BumpsEpoch says that a transaction of version 2 ends: the marker's epoch must exceed that of the data (KIP-1228).
	BumpsEpoch bool
}

const (
	maxCachedBatches = 5
	noEpoch          = int16(-1)
	noOffset         = int64(-1)
)
