package core

import "github.com/strandline-io/strandline/stream"

// Task names a task: stage and number. The number is also the partition of every input, and the partition of the
// checkpoint topic and of its stores' changelogs.
type Task struct {
	Stage  string
	Number int
}

// Name is "<stage>-<number>".
func (t Task) Name() string { return stream.TaskName(t.Stage, t.Number) }

// Ownership is a task and the token under which this worker owns it. The driver gives every assignment of a task a
// token never used before, and ends it at revoke or loss.
type Ownership struct {
	Task  Task
	Token int64
}

// Event is something that happened outside. The driver hands events to Worker.Step one at a time.
type Event interface{ event() }

// Epochs: every transaction attempt of a worker has a number, its epoch, that only grows. Effects that belong to a
// transaction carry it, and their answers carry it back; the worker ignores answers of older epochs.

// Assigned gives tasks to the worker. Answered by a Restore effect for each.
type Assigned struct{ Tasks []Ownership }

// Revoking asks for tasks back. The worker commits what it has (all its tasks), and answers with Released when the
// driver may let the rebalance go on. The driver sends RevokeExpired when its deadline, below the rebalance timeout,
// passes first.
type Revoking struct{ Tasks []Task }

// RevokeExpired makes the worker give up the commit that a Revoking started: everything is aborted.
type RevokeExpired struct{}

// Lost says that tasks may be owned by somebody else already. Whatever is in flight is aborted.
type Lost struct{ Tasks []Task }

// Restored answers Restore. The driver has read, in this order (design: on Apache Kafka EndTxn answers before its
// markers are everywhere): OffsetFetch with require-stable for every input; then ListOffsets (read_uncommitted) of the
// task's checkpoint and changelog partitions; then both read_committed until the position reached those ends.
type Restored struct {
	Task  Task
	Token int64
	// Checkpoint is the newest value under the task's key; nil if there is none.
	Checkpoint []byte
	// Inputs has one entry per input of the stage, in order.
	Inputs []RestoredInput
	// Stores has one entry per store of the stage, in order: the content committed last.
	Stores []BaseStore
}

// RestoredInput is what the cluster knows about one input partition.
type RestoredInput struct {
	// GroupOffset is the committed offset of the group, -1 if there is none.
	GroupOffset int64
	// StartOffset is where a task without a position begins: ListOffsets earliest, 0 for a file.
	StartOffset int64
}

// BaseStore is the committed content of a task's store, lent to the worker until the task is released or dropped. It
// changes only by ApplyStores. The worker buffers writes above it.
type BaseStore interface {
	// Get returns bytes that stay unchanged until the next ApplyStores.
	Get(key []byte) (value []byte, ok bool, err error)
	// Range calls f in ascending key order for from <= key < to (nil: no end) until it returns false.
	Range(from, to []byte, f func(key, value []byte) bool) error
}

// SinksOpened answers OpenSinks: every writer is open and its Restore has returned, which also confirmed the Commit of
// the token that it was given.
type SinksOpened struct {
	Task  Task
	Token int64
}

// Records are the result of one successful fetch of one input partition, also when it held no record. They must not be
// sent while WantsRecords is false.
type Records struct {
	Task  Task
	Input int
	// Records are in offset order, committed only, without control records. For an intermediate stream values still
	// begin with the type byte.
	Records []stream.Message
	// Next is the fetch cursor after this fetch: control, aborted and compacted offsets count. For a file, the byte
	// position behind the last line, and the number of lines before it.
	Next Position
	// LastStableOffset and HighWatermark are the fetch answer's; for a file both are its size.
	LastStableOffset int64
	HighWatermark    int64
}

// Position is a fetch cursor. Line is 0 for topics; for files the number of lines before Offset.
type Position struct {
	Offset int64 `json:"offset"`
	Line   int64 `json:"line,omitempty"`
}

// FetchFailed says that an input could not be fetched: silence from now on is an outage, not idleness.
type FetchFailed struct {
	Task  Task
	Input int
}

// Tick lets time pass. The driver sends one at least every 100 ms, or at NextTickMs.
type Tick struct{}

// Flushed answers Flush: all records of the epoch are acknowledged.
type Flushed struct {
	Epoch int64
	// Ends holds, for every output partition written in the epoch, the offset after the last acknowledged record. It is
	// needed only for outputs with Loads; others may be left out.
	Ends []PartitionEnd
}

// PartitionEnd is an end offset: the first offset not included.
type PartitionEnd struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	EndOffset int64  `json:"end"`
}

// Prepared answers PrepareSinks: one token per sink asked for, nil where nothing is pending.
type Prepared struct {
	Epoch  int64
	Tokens []SinkToken
}

// SinkID is one task's end of one sink.
type SinkID struct {
	Task Task
	Sink string
}

// SinkToken is a token of a sink's Prepare.
type SinkToken struct {
	SinkID
	Token []byte
}

// TxnEnded answers EndTxn, or tells early that the transaction failed.
type TxnEnded struct {
	Epoch   int64
	Outcome Outcome
	Err     error // for Failed and Unknown
}

// Outcome is the end of a transaction.
type Outcome int8

// The outcomes. After Unknown the client must be dropped: InitProducerId, at restore, decides.
const (
	Committed Outcome = iota
	Aborted
	Unknown
)

// SinksCommitted answers CommitSinks: every Commit has returned.
type SinksCommitted struct{ Epoch int64 }

// SinkWants says that writers would like a commit soon (SinkWriter.WantsCommit).
type SinkWants struct{ Sinks []SinkID }

// Failed says that something of the current epoch failed before EndTxn: a produce, a flush, a sink's write or prepare.
// The transaction is aborted and everything restored; a drop that is under way begins again. With Fatal, the job stops instead: the error says what to do.
type Failed struct {
	Epoch int64
	Err   error
	Fatal bool
}

// Dropped answers DropEverything: clients, writers, stores and fetches are gone and InitProducerId has returned.
type Dropped struct{ Epoch int64 }

// CheckpointSeen is one committed record of the checkpoint topic, read from its beginning by every worker, for all
// tasks of the job. Needed before the worker can know that other stages have ended.
type CheckpointSeen struct{ Key, Value []byte }

// Stopping asks for a graceful end: commit, finish the sinks' open files, release all tasks, then Done.
type Stopping struct{}

func (Assigned) event()       {}
func (Revoking) event()       {}
func (RevokeExpired) event()  {}
func (Lost) event()           {}
func (Restored) event()       {}
func (SinksOpened) event()    {}
func (Records) event()        {}
func (FetchFailed) event()    {}
func (Tick) event()           {}
func (Flushed) event()        {}
func (Prepared) event()       {}
func (TxnEnded) event()       {}
func (SinksCommitted) event() {}
func (SinkWants) event()      {}
func (Failed) event()         {}
func (Dropped) event()        {}
func (CheckpointSeen) event() {}
func (Stopping) event()       {}
