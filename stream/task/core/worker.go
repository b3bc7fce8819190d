// Package core decides everything that one worker of a job does: events in, effects out, in the manner of etcd's
// raft.RawNode. It is pure: no clock, no I/O, no goroutine; the only foreign code it runs are the job's processors.
//
// The driver calls Step for one event at a time, then takes Effects and carries them out in order. Between two calls it
// may do anything; answers may come in any order.
package core

import (
	"github.com/strandline-io/strandline/stream"
)

// Config describes one worker. The zero value of every number means its default.
type Config struct {
	Plan *stream.Plan
	// Job is the job record that the starter wrote: run, ends of bounded topics, splits.
	Job *JobRecord
	// CommitIntervalMs: default 100, or 1000 if the plan has a sink. 1 to 3,600,000.
	CommitIntervalMs int64
	// ChunkResults is how many results one transaction may emit for a watermark or an end; default 10,000.
	ChunkResults int
	// MaxTxnRecords asks for a commit early; default 500,000.
	MaxTxnRecords int
	// MaxAborts is how many transactions in a row may fail before the worker stops; default 20.
	MaxAborts int
}

// Worker is the state of one worker. Its methods must not be called concurrently.
type Worker struct {
	cfg Config
}

// New returns a worker without tasks. The driver has called InitProducerId before its first Step.
func New(cfg Config) (*Worker, error) {
	return &Worker{cfg: cfg}, nil
}

// Step takes one event. nowMs is a monotonic clock in milliseconds; it must not go back.
func (w *Worker) Step(nowMs int64, e Event) {}

// Effects returns what is to be done, in order, and forgets it. The slice is valid until the next Step.
func (w *Worker) Effects() []Effect { return nil }

// WantsRecords says whether Records events may be sent now. It is false while a commit, a chunked close or a drop is
// under way.
func (w *Worker) WantsRecords() bool { return false }

// NextTickMs is when the next Tick is due, if nothing happens before.
func (w *Worker) NextTickMs() (nowMs int64, ok bool) { return 0, false }

// Status is a snapshot for progress displays and metrics.
func (w *Worker) Status() Status { return Status{} }

// Status is what a worker knows about itself.
type Status struct {
	Epoch   int64
	Commits int64
	Aborts  int64
	Tasks   []TaskStatus // sorted by stage, then number
}

// TaskStatus describes one owned task.
type TaskStatus struct {
	Task        Task
	State       string // "restoring", "active", "idle", "ended"
	WatermarkMs int64  // forwarded downstream; progress.None before the first
	Counters    Counters
}
