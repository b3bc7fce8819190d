// Package stream describes a topology: records, watermarks, end-of-stream and the operators between them. It runs
// nothing; package task does, and package streamtest in tests.
//
// Names are identity. The job's name is the consumer group, the prefix of its transactional ids, and with the names of
// streams and windows it makes the names of its topics: "<job>-<stream>" for KeyBy, "<job>-<stream>-splits" for files,
// "<job>-<store>-changelog", "<job>-checkpoint". A program started again under a name goes on where that job was, in
// whatever process and on whatever machine; a changed topology or other input under it is refused, and another name
// begins anew. Topics that FromTopic reads must exist, unless ToTopic of the same job fills them. Everything else is
// created at the first start.
//
// State lives in the cluster: positions, watermarks and counters in the checkpoint topic, stores in compacted changelog
// topics, both written in the transaction that carries the output. A process keeps nothing on disk.
package stream

import "context"

// Sink is a place outside Kafka that takes part in the job's transactions: two-phase, like package blob. One Sink
// value describes it; Open makes one writer per task.
type Sink interface {
	// Name is mandatory, stable and unique in the job.
	Name() string
	// Check is called once by the starter before any task runs: reachable? allowed? owned by this job and run? It
	// creates what may be created. An error stops the job and must say what to do.
	Check(ctx context.Context, job JobIdentity) error
	Open(ctx context.Context, task SinkTask) (SinkWriter, error)
}

// RunChecker is a Sink that can tell whether its place is the one that a run began with.
type RunChecker interface {
	// CheckRun is called instead of Check when committed transactions of the run have given the sink rows before. A place
	// that does not know the run is another one, or was emptied: that is an error, and nothing is created.
	CheckRun(ctx context.Context, job JobIdentity, rows int64) error
}

// JobIdentity names a job and the run that its starter recorded.
type JobIdentity struct {
	Job string
	Run string
}

// SinkTask names the task that a writer belongs to.
type SinkTask struct {
	JobIdentity
	Sink       string
	Task       string // "<stage>-<number>", stable over restarts and owners
	TaskNumber int
}

// SinkRecord is one record for a sink. Value is what the topology's last operator produced. TimestampMs is event
// time.
type SinkRecord struct {
	Key         []byte
	Value       any
	TimestampMs int64
	// RowSequence numbers the rows of one sink and task from 0, over restarts: it is kept in the task's checkpoint, so
	// a replayed row has its number again.
	RowSequence int64
}

// SinkWriter is one task's end of a sink. Calls never overlap. The life of one epoch is: Write*, Prepare, then the
// Kafka transaction that carries the token, then Commit with that token. After a failed or unknown transaction, and
// at the start, the writer is closed and a new one is opened and given Restore with the newest committed token.
type SinkWriter interface {
	// Restore continues from the token of the last committed transaction; nil at the very first start. It commits
	// whatever that token still holds pending, so it may take as long as Commit.
	Restore(ctx context.Context, token []byte) error
	// Write buffers and may stage in the background. An error of earlier staging surfaces here.
	Write(ctx context.Context, r SinkRecord) error
	// Prepare makes everything written so far durable and invisible, and returns the token that makes it visible.
	// A nil token with a nil error means that nothing is pending and nothing is open.
	Prepare(ctx context.Context, epoch int64) (token []byte, err error)
	// Commit makes visible what token lists as done. Repeatable; called only after the transaction that holds the
	// token was committed.
	Commit(ctx context.Context, token []byte) error
	// Finish marks everything open as done, to be included by the next Prepare: end of input, graceful stop.
	Finish()
	// WantsCommit reports that the writer would like a commit soon: a file is full, or old.
	WantsCommit(nowMs int64) bool
	// Pending reports whether the newest prepared token still holds anything that a Commit has not confirmed, or
	// open files that a later token must carry on.
	Pending() bool
	// Close drops everything not prepared. It does not touch what a token holds.
	Close() error
}
