// Package core decides everything that one worker of a job does: events in, effects out, in the manner of etcd's
// raft.RawNode. It is pure: no clock, no I/O, no goroutine; the only foreign code it runs are the job's processors.
//
// The driver calls Step for one event at a time, then takes Effects and carries them out in order. Between two calls it
// may do anything; answers may come in any order.
package core

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/progress"
)

// Config describes one worker. The zero value of every number means its default.
type Config struct {
	// Plan must be bound: no topic without a partition count.
	Plan *stream.Plan
	// Job is the job record that the starter wrote: run, ends of bounded topics, splits.
	Job *JobRecord
	// CommitIntervalMs: default 100, or 1000 if the plan has a sink. 1 to 3,600,000.
	CommitIntervalMs int64
	// ChunkResults is how many results one transaction may emit for watermarks and ends; default 10,000.
	ChunkResults int
	// MaxTxnRecords asks for a commit early; default 500,000.
	MaxTxnRecords int
	// MaxAborts is how many transactions in a row may fail before the worker stops; default 20.
	MaxAborts int
}

// Defaults and limits.
const (
	DefaultCommitIntervalMs     = 100
	DefaultSinkCommitIntervalMs = 1000
	MaxCommitIntervalMs         = 3_600_000
	DefaultChunkResults         = 10_000
	DefaultMaxTxnRecords        = 500_000
	DefaultMaxAborts            = 20
	maxBackoffMs                = 5_000
	// maxTokenClears bounds the commits that wait for a sink to forget its last token after the end.
	maxTokenClears = 3
)

// phase is where the worker stands in the commit protocol.
type phase int8

const (
	phaseOpen     phase = iota // records may be processed
	phaseFlushing              // steps 1 and 2: waiting for Flushed and Prepared
	phaseEnding                // steps 3 and 4: waiting for TxnEnded
	phaseDropping              // waiting for Dropped
	phaseOver                  // Done or Stopped was given out
)

// Worker is the state of one worker. Its methods must not be called concurrently.
type Worker struct {
	cfg     Config
	run     string
	hasSink bool

	nowMs   int64
	effects []Effect
	outbox  []OutRecord // emitted, not yet in an effect
	writes  []SinkWrite
	ctx     callContext

	tasks []*task // owned, sorted by stage and number

	phase        phase
	epoch        int64
	lastCommitMs int64
	commitNow    bool // a commit is wanted before the interval
	txnRecords   int
	results      int // emitted for watermarks and ends in this transaction
	flushed      bool
	prepared     bool
	sinksPending bool // step 5 of the last commit is not confirmed
	joining      []*task
	// published: this Step gave out ApplyStores, so stores must not be read before the next one.
	published bool

	backlog  []Records // fetched, not yet processed, because a chunked close is under way
	deferred []Event   // restores that ended during a commit
	revoking []Task
	stopping bool

	seen    seenTasks
	recheck bool // ends of loaded inputs may have become known
	aborts  int  // in a row
	status  Status
}

// Status is what a worker knows about itself.
type Status struct {
	Epoch   int64
	Commits int64
	Aborts  int64
	// FirstError is the first record that a policy skipped or sent to a dead-letter topic; nil if none.
	FirstError error
	Tasks      []TaskStatus // sorted by stage, then number
}

// TaskStatus describes one owned task.
type TaskStatus struct {
	Task        Task
	State       string // "restoring", "active", "idle", "ended"
	WatermarkMs int64  // forwarded downstream; progress.None before the first
	Counters    Counters
}

// New returns a worker without tasks. The driver has called InitProducerId before its first Step.
func New(cfg Config) (*Worker, error) {
	w := &Worker{cfg: cfg, epoch: 1}
	if cfg.Plan == nil || cfg.Job == nil {
		return nil, errors.New("core: Config needs Plan and Job")
	}
	if unbound := cfg.Plan.Unbound(); len(unbound) > 0 {
		return nil, fmt.Errorf("core: the plan leaves the partition counts of %s open: bind it first", strings.Join(unbound, ", "))
	}
	for _, s := range cfg.Plan.Stages {
		w.hasSink = w.hasSink || len(s.Sinks) > 0
	}
	def := int64(DefaultCommitIntervalMs)
	if w.hasSink {
		def = DefaultSinkCommitIntervalMs
	}
	w.cfg.CommitIntervalMs = orDefault(cfg.CommitIntervalMs, def)
	w.cfg.ChunkResults = orDefault(cfg.ChunkResults, DefaultChunkResults)
	w.cfg.MaxTxnRecords = orDefault(cfg.MaxTxnRecords, DefaultMaxTxnRecords)
	w.cfg.MaxAborts = orDefault(cfg.MaxAborts, DefaultMaxAborts)
	if c := w.cfg; c.CommitIntervalMs < 1 || c.CommitIntervalMs > MaxCommitIntervalMs || c.ChunkResults < 1 || c.MaxTxnRecords < 1 || c.MaxAborts < 1 {
		return nil, fmt.Errorf("core: CommitIntervalMs %d must be 1 to %d; ChunkResults %d, MaxTxnRecords %d and MaxAborts %d at least 1",
			c.CommitIntervalMs, MaxCommitIntervalMs, c.ChunkResults, c.MaxTxnRecords, c.MaxAborts)
	}
	if err := cfg.Job.fits(cfg.Plan); err != nil {
		return nil, err
	}
	w.run = strconv.FormatInt(cfg.Job.Run, 10)
	w.seen = newSeenTasks(cfg.Plan)
	return w, nil
}

func orDefault[T int | int64](v, def T) T {
	if v == 0 {
		return def
	}
	return v
}

// Step takes one event. nowMs is a monotonic clock in milliseconds; it must not go back.
func (w *Worker) Step(nowMs int64, e Event) {
	if nowMs < w.nowMs {
		panic(fmt.Sprintf("BUG: time goes back from %d to %d", w.nowMs, nowMs))
	}
	w.nowMs = nowMs
	if w.phase == phaseOver {
		return
	}
	w.published = false
	w.handle(e)
	w.settle()
	w.emit()
}

// Effects returns what is to be done, in order, and forgets it. The slice is valid until the next Step.
func (w *Worker) Effects() []Effect {
	out := w.effects
	w.effects = nil
	return out
}

// WantsRecords says whether Records events may be sent now. It is false while a commit, a chunked close, a revoke or a
// drop is under way, and when the transaction is full.
func (w *Worker) WantsRecords() bool {
	return w.phase == phaseOpen && len(w.backlog) == 0 && len(w.revoking) == 0 && !w.stopping && !w.commitNow &&
		w.txnRecords < w.cfg.MaxTxnRecords && !w.closing()
}

// NextTickMs is when the next Tick is due, if nothing happens before: at once after a commit, because work may go on as
// soon as its effects are carried out.
func (w *Worker) NextTickMs() (nowMs int64, ok bool) {
	if w.phase == phaseOpen && w.published {
		return w.nowMs, true
	}
	if w.phase != phaseOpen || w.sinksPending || !w.dirty() {
		return 0, false
	}
	return w.lastCommitMs + w.cfg.CommitIntervalMs, true
}

// Status is a snapshot for progress displays and metrics.
func (w *Worker) Status() Status {
	s := w.status
	s.Epoch = w.epoch
	for _, t := range w.tasks {
		s.Tasks = append(s.Tasks, t.status())
	}
	return s
}

func (w *Worker) handle(e Event) {
	switch e := e.(type) {
	case Assigned:
		w.onAssigned(e)
	case Revoking:
		w.onRevoking(e)
	case RevokeExpired:
		w.onRevokeExpired()
	case Lost:
		w.onLost(e)
	case Restored:
		if !w.deferIfBusy(e) {
			w.onRestored(e)
		}
	case SinksOpened:
		if !w.deferIfBusy(e) {
			w.onSinksOpened(e)
		}
	case Records:
		w.onRecords(e)
	case FetchFailed:
		w.onFetchFailed(e)
	case Tick:
	case Flushed:
		w.onFlushed(e)
	case Prepared:
		w.onPrepared(e)
	case TxnEnded:
		w.onTxnEnded(e)
	case SinksCommitted:
		w.onSinksCommitted(e)
	case SinkWants:
		w.onSinkWants(e)
	case Failed:
		w.onFailed(e)
	case Dropped:
		w.onDropped(e)
	case CheckpointSeen:
		w.onCheckpointSeen(e)
	case Stopping:
		w.onStopping()
	default:
		panic(fmt.Sprintf("BUG: unknown event %T", e))
	}
}

// deferIfBusy keeps an event that may emit until the next transaction is open. During a drop it belongs to the past.
func (w *Worker) deferIfBusy(e Event) bool {
	if w.phase == phaseOpen {
		return false
	}
	if w.phase != phaseDropping {
		w.deferred = append(w.deferred, e)
	}
	return true
}

// settle does what is possible in an open transaction: deferred restores, chunked closes, fetched records, then the
// decisions to commit, to release and to leave.
func (w *Worker) settle() {
	if w.phase != phaseOpen {
		return
	}
	w.release()
	if !w.published && w.phase == phaseOpen {
		w.goOn()
		if w.phase != phaseOpen {
			return
		}
		if w.wantsCommit() {
			w.beginCommit()
			return
		}
		w.commitNow = w.commitNow && w.dirty()
	}
	w.leave()
}

// leaving is true while tasks are given back: nothing new is begun.
func (w *Worker) leaving() bool { return len(w.revoking) > 0 || w.stopping }

func (w *Worker) goOn() {
	if w.leaving() {
		return
	}
	for len(w.deferred) > 0 && w.phase == phaseOpen {
		e := w.deferred[0]
		w.deferred = w.deferred[1:]
		w.handle(e)
	}
	if w.recheck {
		w.recheckLoaded()
	}
	for _, t := range w.tasks {
		if t.closing && w.phase == phaseOpen && w.results < w.cfg.ChunkResults {
			w.advance(t)
		}
	}
	for len(w.backlog) > 0 && w.phase == phaseOpen && !w.closing() {
		r := w.backlog[0]
		w.backlog = w.backlog[1:]
		w.process(r)
	}
}

func (w *Worker) closing() bool {
	return slices.ContainsFunc(w.tasks, func(t *task) bool { return t.closing })
}

// push appends an effect behind everything emitted so far.
func (w *Worker) push(e Effect) {
	w.emit()
	w.effects = append(w.effects, e)
}

// emit turns what processors emitted into effects.
func (w *Worker) emit() {
	if len(w.outbox) > 0 {
		w.effects = append(w.effects, Produce{w.epoch, w.outbox})
		w.outbox = nil
	}
	if len(w.writes) > 0 {
		w.effects = append(w.effects, WriteSinks{w.epoch, w.writes})
		w.writes = nil
	}
}

// stop ends the worker with an error.
func (w *Worker) stop(err error) {
	if w.phase == phaseOver {
		return
	}
	w.outbox, w.writes = nil, nil
	w.phase = phaseOver
	w.effects = append(w.effects, Stopped{err})
}

func (w *Worker) find(id Task) *task {
	for _, t := range w.tasks {
		if t.id == id {
			return t
		}
	}
	return nil
}

func compareTasks(a, b *task) int {
	return cmpTask(a.id, b.id)
}

func cmpTask(a, b Task) int {
	if c := strings.Compare(a.Stage, b.Stage); c != 0 {
		return c
	}
	return a.Number - b.Number
}

func (t *task) status() TaskStatus {
	s := TaskStatus{Task: t.id, State: "active", WatermarkMs: t.out.WatermarkMs, Counters: t.counters}
	switch {
	case t.phase != taskRunning:
		s.State = "restoring"
		s.WatermarkMs = progress.None
	case t.out.Ended:
		s.State = "ended"
	case t.out.Idle:
		s.State = "idle"
	}
	return s
}
