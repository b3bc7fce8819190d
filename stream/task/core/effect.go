package core

import "github.com/strandline-io/strandline/stream"

// Effect is something that the driver must do. Effects are carried out strictly in the order given; "answered by" names
// the event that reports the end. An effect without an answer is done when the driver has started it in order. When one
// of an epoch fails, the driver reports Failed (or TxnEnded) and carries out no later effect of that epoch except
// DropEverything.
type Effect interface{ effect() }

// Restore asks for everything that is known about a task. Answered by Restored. If the restore fails, the driver tries
// again or reports Failed with Fatal.
type Restore struct{ Ownership }

// OpenSinks opens one writer per sink of the task's stage and calls its Restore with the token (nil: none). Answered by
// SinksOpened. Writers of an earlier life of the task are closed before.
type OpenSinks struct {
	Ownership
	Tokens []SinkToken // one per sink, in the stage's order
}

// StartFetch begins fetching an input at From. The task is restored; Records may come. EndOffset is the end of a
// bounded input (-1: none, or not known yet): the driver need not fetch beyond it.
type StartFetch struct {
	Task      Task
	Input     int
	From      Position
	EndOffset int64
}

// StopFetch ends the fetching of an input: it has ended.
type StopFetch struct {
	Task  Task
	Input int
}

// Produce sends records with the worker's transactional producer, beginning the transaction if none is open. Records of
// one partition keep their order. Not answered; an error is reported as Failed.
type Produce struct {
	Epoch   int64
	Records []OutRecord
}

// OutRecord is one record to produce. Partition is decided. The bytes may be kept. A TimestampMs of -1 leaves the time to
// the driver's clock.
type OutRecord struct {
	Topic       string
	Partition   int
	Key, Value  []byte // nil is null
	Headers     []stream.Header
	TimestampMs int64
}

// WriteSinks hands records to the writers, in order. Not answered; an error is reported as Failed.
type WriteSinks struct {
	Epoch  int64
	Writes []SinkWrite
}

// SinkWrite is one record for a sink.
type SinkWrite struct {
	SinkID
	Record stream.SinkRecord
}

// FinishSinks calls Finish on the writers: their input has ended, or the worker stops.
type FinishSinks struct {
	Epoch int64
	Sinks []SinkID
}

// Flush waits until all records of the epoch are acknowledged. Answered by Flushed.
type Flush struct{ Epoch int64 }

// PrepareSinks calls Prepare(epoch) on the writers, within the prepare deadline. Answered by Prepared. It may run at the
// same time as Flush.
type PrepareSinks struct {
	Epoch int64
	Sinks []SinkID
}

// Commit is steps 3 and 4 of the commit protocol. Before: Flush and PrepareSinks of the epoch were answered. The driver
// 1. produces Changelog and Checkpoints (beginning the transaction if none is open) and waits until all are
// acknowledged; 2. sends TxnOffsetCommit for Offsets with member id and generation (AddOffsetsToTxn before it on
// transaction version 1), the generation being read while rebalances are blocked and only if all of Owned still hold
// their tokens; 3. EndTxn(commit). Answered by TxnEnded; a failure before 3 ends as Aborted, also when the driver sent no
// EndTxn. Outcome Unknown means that 3 was sent and its answer is not known.
type Commit struct {
	Epoch       int64
	Changelog   []OutRecord
	Checkpoints []OutRecord
	Offsets     []GroupOffset
	Owned       []Ownership
}

// GroupOffset is one partition of TxnOffsetCommit.
type GroupOffset struct {
	Task      Task
	Topic     string
	Partition int
	Offset    int64
}

// ApplyStores applies the buffered writes of the committed epoch to the base stores, together with the changelog offset
// after the acknowledged records of the epoch's Commit.Changelog. Not answered; it is done before the driver's next
// event.
type ApplyStores struct {
	Epoch  int64
	Stores []StoreWrites
}

// StoreWrites are the writes of one epoch to one task's store, sorted by key, one per key.
type StoreWrites struct {
	Task   Task
	Store  string
	Writes []StoreWrite
}

// StoreWrite sets a key, or deletes it if Value is nil.
type StoreWrite struct{ Key, Value []byte }

// CommitSinks calls Commit with each token, retrying in place. Before: the transaction that holds the tokens is
// committed. Answered by SinksCommitted. A result that is final ("another's") is reported as Failed with Fatal.
type CommitSinks struct {
	Epoch  int64
	Tokens []SinkToken
}

// DropEverything is the one way back. The driver aborts the open transaction if it can, closes the client, all writers,
// stores and fetches of all tasks, then makes a new client with InitProducerId, waiting AfterMs first. Answered by
// Dropped. Effects that follow belong to the new life; answers to Restore and OpenSinks of the old life must not be
// delivered any more.
type DropEverything struct {
	Epoch   int64 // of the life that begins
	AfterMs int64
	Reason  error
}

// Released says that the worker holds nothing of these tasks any more: writers and stores may be closed, and a
// rebalance that waits for them may go on.
type Released struct{ Tasks []Task }

// Done says that the worker has nothing left to do: the checkpoint topic shows every task of the job ended with no
// token pending, or Stopping is complete. Finished tells which.
type Done struct{ Finished bool }

// Stopped says that the job cannot go on. The driver drops everything, as in DropEverything but without a new client,
// and returns Err. No effect follows.
type Stopped struct{ Err error }

func (Restore) effect()        {}
func (OpenSinks) effect()      {}
func (StartFetch) effect()     {}
func (StopFetch) effect()      {}
func (Produce) effect()        {}
func (WriteSinks) effect()     {}
func (FinishSinks) effect()    {}
func (Flush) effect()          {}
func (PrepareSinks) effect()   {}
func (Commit) effect()         {}
func (ApplyStores) effect()    {}
func (CommitSinks) effect()    {}
func (DropEverything) effect() {}
func (Released) effect()       {}
func (Done) effect()           {}
func (Stopped) effect()        {}
