package task

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/strandline-io/strandline/internal/failpoint"
	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/state"
	"github.com/strandline-io/strandline/stream/task/core"
	"github.com/strandline-io/strandline/stream/task/protocol"
)

// worker is one loop. Its goroutine owns every field but box, tokens and what says otherwise.
type worker struct {
	run  *runner
	cfg  Config
	plan *stream.Plan
	log  *slog.Logger
	slot string // the transactional id, and the member's instance id

	core    *core.Worker
	box     *mailbox
	member  *kafka.Member
	fetcher *kafka.Fetcher
	files   *fileReaders
	sinks   *sinkWriters
	stores  *protocol.Stores
	tokens  *protocol.Tokens

	base       context.Context // ends with the worker
	life       *life
	endLife    atomic.Pointer[context.CancelFunc] // the current life's, for others than the loop
	started    time.Time
	tickAtMs   int64          // when core gets its next Tick at the latest
	background sync.WaitGroup // drops under way

	inputs   map[kafka.TopicPartition]inputOf
	fetchOf  map[kafka.TopicPartition]uint64
	fetches  uint64 // the newest fetch token
	slices   slicer
	trimmer  trimmer
	offsets  []core.GroupOffset // of the commit under way
	held     map[core.Task]bool // tasks that the worker has not given back
	revoking *revoke
	finished bool
	done     bool
	err      error
	joined   chan struct{} // closed when the group has answered for the first time
	joinOnce sync.Once
	closed   chan struct{} // closed when the loop has ended: callbacks wait no more
}

// stopping says that the context was cancelled.
type stopping struct{}

// inputOf says which input of which task a partition is.
type inputOf struct {
	task  core.Task
	input int
	kind  stream.InputKind
}

func newWorker(r *runner, n int) (*worker, error) {
	c, err := core.New(core.Config{Plan: r.plan, Job: r.record, CommitIntervalMs: r.cfg.CommitInterval.Milliseconds()})
	if err != nil {
		return nil, err
	}
	slot := fmt.Sprintf("%s-%d-%d", r.plan.Job, r.cfg.Replica, n)
	w := &worker{
		run: r, cfg: r.cfg, plan: r.plan, slot: slot,
		log:  r.cfg.Logger.With("job", r.plan.Job, "txn_id", slot),
		core: c, box: newMailbox(), tokens: protocol.NewTokens(),
		inputs: make(map[kafka.TopicPartition]inputOf), fetchOf: make(map[kafka.TopicPartition]uint64),
		held: make(map[core.Task]bool), closed: make(chan struct{}), joined: make(chan struct{}), started: time.Now(),
	}
	for _, st := range r.plan.Stages {
		for i, in := range st.Inputs {
			for p := range st.Tasks {
				tp := kafka.TopicPartition{Topic: in.Topic, Partition: int32(p)}
				w.inputs[tp] = inputOf{core.Task{Stage: st.Name, Number: p}, i, in.Kind}
			}
		}
	}
	w.trimmer = trimmer{every: max(0, r.cfg.TrimInterval), upTo: make(map[kafka.TopicPartition]int64)}
	w.sinks = newSinkWriters(w)
	w.stores = protocol.NewStores(r.plan, r.topicIDs, func(name string) (state.Store, error) { return r.cfg.NewStore(name, r.cfg.MaxStoreBytes) })
	w.files = newFileReaders(w.box.wake)
	return w, nil
}

// loop runs until the job is finished, the context is cancelled and the worker stopped, or something fails for good.
func (w *worker) loop(ctx context.Context) error {
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	w.base = base
	w.live(newLife(base, 1))
	if err := w.begin(); err != nil {
		w.shutDown(cancel)
		return err
	}
	// A stop comes through the mailbox like everything else, and its deadline also ends what the loop may wait in.
	defer context.AfterFunc(ctx, func() { w.box.post(stopping{}) })()
	deadline := time.AfterFunc(time.Hour, func() {
		w.box.post(fatal{errStopDeadline})
		w.interrupt()
	})
	deadline.Stop()
	defer deadline.Stop()
	defer context.AfterFunc(ctx, func() { deadline.Reset(w.cfg.StopDeadline) })()
	w.work()
	w.shutDown(cancel)
	return w.err
}

// work handles messages first, then records, and lets time pass between them.
func (w *worker) work() {
	tick := time.NewTimer(0)
	defer tick.Stop()
	for !w.done {
		if w.nowMs() >= w.tickAtMs {
			w.tick()
			continue
		}
		if w.takeMessage() || w.takeRecords() {
			continue
		}
		tick.Reset(time.Duration(w.nextTickMs()-w.nowMs()) * time.Millisecond)
		var ready <-chan struct{}
		if w.core.WantsRecords() {
			ready = w.fetcher.Ready()
		}
		select {
		case <-w.box.signal:
		case <-ready:
		case <-tick.C:
			w.tick()
		}
	}
}

// begin joins the group first and takes the transactional id once it is a member: whoever held the slot before is fenced
// in the group by the time its id is, so it cannot take the id back (see takeSlot). It takes the id beside the loop: however
// long that takes, the group's callbacks are answered, and whoever the group refuses ends without having taken it.
func (w *worker) begin() error {
	var err error
	if w.fetcher, err = w.run.client.NewFetcher(kafka.FetchConfig{TopicIDs: w.run.topicIDs}); err != nil {
		return err
	}
	if w.member, err = w.join(); err != nil {
		return err
	}
	first := w.life
	w.background.Go(func() {
		select {
		case <-w.joined:
		case <-first.ctx.Done():
			return
		}
		failpoint.Hit("slot.joined")
		w.startLife(first, 0)
	})
	return nil
}

// shutDown ends everything of the worker, in the order in which it depends on each other.
func (w *worker) shutDown(cancel context.CancelFunc) {
	w.tokens.EndAll()
	close(w.closed)
	cancel()
	w.life.end()
	w.background.Wait()
	for _, s := range w.sinks.takeAll() {
		s.close()
	}
	w.files.removeAll()
	w.files.wait()
	if w.fetcher != nil {
		w.fetcher.Close()
	}
	if w.member != nil {
		w.leave()
	}
}

// leaveDeadline bounds what the end of a worker waits for the group.
const leaveDeadline = 5 * time.Second

// leave takes the worker out of the group, so that the rest of the job, or the next start with another number of
// processes, need not wait for its session to expire: a static member does not leave by itself.
func (w *worker) leave() {
	ctx, cancel := withDeadline(context.Background(), leaveDeadline, "leaving the group")
	defer cancel()
	if err := w.member.Leave(ctx); err != nil {
		w.log.Info("could not leave the group, the session will expire", "err", err)
	}
}

// live makes l the current life.
func (w *worker) live(l *life) {
	w.life = l
	w.endLife.Store(&l.cancel)
}

// interrupt ends the current life from outside of the loop, which may be waiting in it. Whoever does so posts a message
// that makes core drop everything, or ends the worker.
func (w *worker) interrupt() { (*w.endLife.Load())() }

// afterInterrupt makes core drop everything if the life was ended from outside and core has not done so by itself.
func (w *worker) afterInterrupt() {
	if w.life.ctx.Err() != nil {
		w.step(core.Failed{Epoch: w.core.Status().Epoch, Err: errInterrupted})
	}
}

// errInterrupted is the reason of a drop whose cause was a deadline of the group.
var errInterrupted = errors.New("task: the group's deadline passed")

// maxTickMs is how long core may go without a Tick.
const maxTickMs = 100

func (w *worker) tick() {
	w.tickAtMs = w.nowMs() + maxTickMs
	w.sinks.poll()
	w.trim()
	w.step(core.Tick{})
}

func (w *worker) nextTickMs() int64 {
	if at, ok := w.core.NextTickMs(); ok {
		return min(at, w.tickAtMs)
	}
	return w.tickAtMs
}

func (w *worker) nowMs() int64 { return time.Since(w.started).Milliseconds() }

// step gives core one event and carries out what it decides.
func (w *worker) step(e core.Event) {
	if w.done {
		return
	}
	w.core.Step(w.nowMs(), e)
	for _, effect := range append([]core.Effect(nil), w.core.Effects()...) {
		if w.done {
			return
		}
		w.carryOut(effect)
	}
}

func (w *worker) fail(err error) {
	if w.err == nil {
		w.err = w.explained(err)
	}
	w.done = true
}

// takeMessage handles the next message of the mailbox.
func (w *worker) takeMessage() bool {
	msg, ok := w.box.take()
	if !ok {
		return false
	}
	switch m := msg.(type) {
	case answer:
		if m.life != w.life.number {
			break
		}
		if e, ok := m.event.(core.TxnEnded); ok && e.Outcome == core.Committed {
			w.life.inTxn = false
			w.trimmer.committed(w.plan, w.offsets)
			w.trim()
		}
		w.step(m.event)
	case checkpointMsg:
		w.step(core.CheckpointSeen{Key: []byte(m.key), Value: m.value})
	case reborn:
		if m.life != w.life {
			m.p.Close()
			break
		}
		failpoint.Hit("slot.taken")
		w.life.start(m.p)
		w.step(core.Dropped{Epoch: m.epoch})
	case trimmed:
		w.trimmer.running = false
		if m.off {
			w.trimmer.every = 0
		}
	case stopping:
		w.step(core.Stopping{})
	case fatal:
		w.fail(m.err)
	case assigned:
		w.onAssigned(m)
	case *revoke:
		w.onRevoke(m)
	case revokeExpired:
		w.onRevokeExpired(m)
	case *lost:
		w.onLost(m)
	default:
		panic(fmt.Sprintf("BUG: message %T", msg))
	}
	return true
}

// takeRecords gives core records of a fetch or of a file, if it wants them.
func (w *worker) takeRecords() bool {
	if !w.core.WantsRecords() || w.sinks.full() {
		return false
	}
	if w.slices.holds() {
		w.takeSlice()
		return true
	}
	if e, err, ok := w.files.take(); ok {
		if err != nil {
			w.fail(err)
			return true
		}
		tp := w.partitionOf(e.Task, e.Input)
		w.slices.put(e, tp, w.fetchOf[tp], func() {})
		w.takeSlice()
		return true
	}
	b, ok := w.fetcher.Take()
	if !ok {
		return false
	}
	in, known := w.inputs[b.TopicPartition]
	if known && w.fetchOf[b.TopicPartition] == b.Token && b.Err == nil && b.Unreachable == nil {
		w.slices.put(core.Records{
			Task: in.task, Input: in.input, Records: messages(in.input, b.Records), Next: core.Position{Offset: b.NextOffset},
			LastStableOffset: b.LastStableOffset, HighWatermark: b.HighWatermark,
		}, b.TopicPartition, b.Token, func() { w.fetcher.Release(b) })
		w.takeSlice()
		return true
	}
	defer w.fetcher.Release(b)
	switch {
	case !known || w.fetchOf[b.TopicPartition] != b.Token:
	case b.Err != nil:
		w.fetchFailed(b)
	default:
		w.step(core.FetchFailed{Task: in.task, Input: in.input})
	}
	return true
}

// fetchFailed ends the worker, unless the group knows better: then everything is restored, if the task is still ours.
func (w *worker) fetchFailed(b kafka.Batch) {
	gone, ok := errors.AsType[*kafka.OffsetRangeError](b.Err)
	if !ok {
		w.fail(w.fetchError(b))
		return
	}
	l, epoch := w.life, w.core.Status().Epoch
	l.run(func(ctx context.Context) {
		ctx, cancel := withDeadline(ctx, slotDeadline, "asking why records are gone")
		defer cancel()
		w.failed(l, epoch, protocol.Gone(ctx, w.run.client, w.plan.Job, gone))
	})
}

func (w *worker) fetchError(b kafka.Batch) error {
	if missing, ok := errors.AsType[*kafka.MissingTopicError](b.Err); ok {
		return &MissingTopicError{Job: w.plan.Job, Topic: missing.Topic, Began: true}
	}
	if again, ok := errors.AsType[*kafka.RecreatedTopicError](b.Err); ok {
		return &ChangedTopicError{Job: w.plan.Job, Topic: again.Topic, What: "id", Began: again.WantID, Now: again.GotID}
	}
	return fmt.Errorf("task: reading %s: %w", b.TopicPartition, b.Err)
}

func messages(input int, rs []kafka.Record) []stream.Message {
	out := make([]stream.Message, len(rs))
	for i, r := range rs {
		out[i] = stream.Message{
			Input: input, Partition: int(r.Partition), Offset: r.Offset, Key: r.Key, Value: r.Value, TimestampMs: r.TimestampMs,
		}
		for _, h := range r.Headers {
			out[i].Headers = append(out[i].Headers, stream.Header{Key: h.Key, Value: h.Value})
		}
	}
	return out
}
