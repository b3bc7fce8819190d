package task

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/strandline-io/strandline/internal/failpoint"
	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/task/core"
	"github.com/strandline-io/strandline/stream/task/protocol"
)

const (
	// maxSinkBacklog is how many writes may wait for one writer before the worker takes no more records.
	maxSinkBacklog = 20_000
	// commitTries is how often Commit of a token is tried. A writer repeats calls to its store itself; what it gives up
	// on will hardly pass soon.
	commitTries = 3
	commitPause = time.Second
	// sinkRestoreDeadline bounds a Restore, which may have to publish; restoreTries how often it is tried.
	sinkRestoreDeadline = 2 * time.Minute
	restoreTries        = 5
)

// sinkWriters are the open writers of a worker. The loop owns the set; each writer has a goroutine that alone calls it,
// so that calls never overlap and a slow one holds no loop.
type sinkWriters struct {
	w       *worker
	writers map[core.SinkID]*sinkWriter
}

func newSinkWriters(w *worker) *sinkWriters {
	return &sinkWriters{w: w, writers: make(map[core.SinkID]*sinkWriter)}
}

// sinkWriter runs calls of one writer in order.
type sinkWriter struct {
	id     core.SinkID
	writer stream.SinkWriter
	life   *life
	quit   context.CancelFunc
	ctx    context.Context
	ended  chan struct{}

	mu      sync.Mutex
	queue   []func(ctx context.Context)
	backlog int // writes that wait
	polled  bool
	signal  chan struct{}
}

// open opens the writers of a task and restores them.
func (s *sinkWriters) open(e core.OpenSinks) {
	l := s.w.life
	for _, old := range s.take(e.Task) {
		old.close()
	}
	var opened []*sinkWriter
	st, _ := s.w.plan.Stage(e.Task.Stage)
	for i, sink := range st.Sinks {
		sw := newSinkWriter(l, core.SinkID{Task: e.Task, Sink: sink.Name()})
		s.writers[sw.id] = sw
		opened = append(opened, sw)
		token := e.Tokens[i].Token
		sw.run(func(ctx context.Context) { sw.restore(ctx, s.w, sink, token) })
	}
	l.run(func(ctx context.Context) {
		if waitAll(ctx, opened) {
			s.w.answer(l, core.SinksOpened{Task: e.Task, Token: e.Token})
		}
	})
}

func newSinkWriter(l *life, id core.SinkID) *sinkWriter {
	sw := &sinkWriter{id: id, life: l, signal: make(chan struct{}, 1), ended: make(chan struct{})}
	sw.ctx, sw.quit = context.WithCancel(l.ctx)
	go sw.loop()
	return sw
}

// restore opens the writer and lets it continue from a token, a few times if its store is away.
func (sw *sinkWriter) restore(ctx context.Context, w *worker, sink stream.Sink, token []byte) {
	pause := restorePause
	for try := 1; ; try++ {
		err := sw.tryRestore(ctx, w, sink, token)
		if err == nil || ctx.Err() != nil {
			return
		}
		if protocol.Final(err) || try == restoreTries {
			w.box.post(fatal{fmt.Errorf("sink %q of task %s: %w", sw.id.Sink, sw.id.Task.Name(), err)})
			<-ctx.Done()
			return
		}
		w.log.Warn("cannot restore a sink yet", "sink", sw.id.Sink, "task", sw.id.Task.Name(), "err", err)
		if !sleep(ctx, pause) {
			return
		}
		pause = min(2*pause, maxRestorePause)
	}
}

func (sw *sinkWriter) tryRestore(ctx context.Context, w *worker, sink stream.Sink, token []byte) error {
	ctx, cancel := withDeadline(ctx, sinkRestoreDeadline, "restoring sink "+sw.id.Sink)
	defer cancel()
	writer, err := sink.Open(ctx, stream.SinkTask{
		JobIdentity: stream.JobIdentity{Job: w.plan.Job, Run: protocol.RunName(w.run.record)},
		Sink:        sw.id.Sink, Task: sw.id.Task.Name(), TaskNumber: sw.id.Task.Number,
	})
	if err != nil {
		return err
	}
	if err := writer.Restore(ctx, token); err != nil {
		return errors.Join(err, writer.Close())
	}
	failpoint.Hit("restore.sink")
	sw.writer = writer
	return nil
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// waitAll waits until every writer has done what was asked before.
func waitAll(ctx context.Context, writers []*sinkWriter) bool {
	for _, sw := range writers {
		done := make(chan struct{})
		sw.run(func(context.Context) { close(done) })
		select {
		case <-done:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// run queues a call.
func (sw *sinkWriter) run(f func(ctx context.Context)) {
	sw.mu.Lock()
	sw.queue = append(sw.queue, f)
	sw.mu.Unlock()
	select {
	case sw.signal <- struct{}{}:
	default:
	}
}

func (sw *sinkWriter) loop() {
	defer close(sw.ended)
	for {
		sw.mu.Lock()
		var f func(context.Context)
		if len(sw.queue) > 0 {
			f, sw.queue[0] = sw.queue[0], nil
			sw.queue = sw.queue[1:]
		}
		sw.mu.Unlock()
		if sw.ctx.Err() != nil {
			break
		}
		if f != nil {
			f(sw.ctx)
			continue
		}
		select {
		case <-sw.signal:
		case <-sw.ctx.Done():
		}
	}
	if sw.writer != nil {
		_ = sw.writer.Close() // what it drops was never promised
	}
}

// close ends the writer after the call that runs now.
func (sw *sinkWriter) close() {
	sw.quit()
	<-sw.ended
}

// take removes the writers of a task from the set.
func (s *sinkWriters) take(t core.Task) []*sinkWriter {
	var out []*sinkWriter
	for id, sw := range s.writers {
		if id.Task == t {
			out = append(out, sw)
			delete(s.writers, id)
		}
	}
	return out
}

// takeAll removes all writers from the set.
func (s *sinkWriters) takeAll() []*sinkWriter {
	var out []*sinkWriter
	for _, sw := range s.writers {
		out = append(out, sw)
	}
	clear(s.writers)
	return out
}

// full reports whether some writer has fallen so far behind that no more records should be taken.
func (s *sinkWriters) full() bool {
	for _, sw := range s.writers {
		sw.mu.Lock()
		full := sw.backlog >= maxSinkBacklog
		sw.mu.Unlock()
		if full {
			return true
		}
	}
	return false
}

func (s *sinkWriters) get(id core.SinkID) *sinkWriter {
	sw, ok := s.writers[id]
	if !ok {
		panic(fmt.Sprintf("BUG: sink %s of %s is not open", id.Sink, id.Task.Name()))
	}
	return sw
}

// write hands records to the writers, in order.
func (s *sinkWriters) write(e core.WriteSinks) {
	byWriter := make(map[*sinkWriter][]stream.SinkRecord)
	for _, x := range e.Writes {
		sw := s.get(x.SinkID)
		byWriter[sw] = append(byWriter[sw], x.Record)
	}
	for sw, records := range byWriter {
		sw.mu.Lock()
		sw.backlog += len(records)
		sw.mu.Unlock()
		sw.run(func(ctx context.Context) {
			defer func() {
				sw.mu.Lock()
				sw.backlog -= len(records)
				sw.mu.Unlock()
				s.w.box.wake()
			}()
			for _, r := range records {
				if err := sw.writer.Write(ctx, r); err != nil {
					s.w.failed(sw.life, e.Epoch, fmt.Errorf("sink %q of task %s: %w", sw.id.Sink, sw.id.Task.Name(), err))
					return
				}
			}
			s.ask(sw)
		})
	}
}

// ask passes on that a writer would like a commit.
func (s *sinkWriters) ask(sw *sinkWriter) {
	if sw.writer.WantsCommit(s.w.cfg.Now().UnixMilli()) {
		s.w.answer(sw.life, core.SinkWants{Sinks: []core.SinkID{sw.id}})
	}
}

// poll asks all writers that have nothing else to do whether they want a commit: files grow old without records.
func (s *sinkWriters) poll() {
	for _, sw := range s.writers {
		sw.mu.Lock()
		ask := len(sw.queue) == 0 && !sw.polled
		sw.polled = sw.polled || ask
		sw.mu.Unlock()
		if !ask {
			continue
		}
		sw.run(func(context.Context) {
			sw.mu.Lock()
			sw.polled = false
			sw.mu.Unlock()
			s.ask(sw)
		})
	}
}

func (s *sinkWriters) finish(ids []core.SinkID) {
	for _, id := range ids {
		sw := s.get(id)
		sw.run(func(context.Context) { sw.writer.Finish() })
	}
}

// prepare is step 2 of the commit protocol, for all writers at the same time.
func (s *sinkWriters) prepare(e core.PrepareSinks) {
	l := s.w.life
	tokens := make([]core.SinkToken, len(e.Sinks))
	errs := make([]error, len(e.Sinks))
	var writers []*sinkWriter
	for i, id := range e.Sinks {
		sw := s.get(id)
		writers = append(writers, sw)
		sw.run(func(ctx context.Context) {
			ctx, cancel := withDeadline(ctx, s.w.cfg.PrepareDeadline, "Prepare of sink "+id.Sink)
			defer cancel()
			token, err := sw.writer.Prepare(ctx, e.Epoch)
			tokens[i] = core.SinkToken{SinkID: id, Token: token}
			if err != nil {
				errs[i] = fmt.Errorf("sink %q of task %s: %w", id.Sink, id.Task.Name(), err)
			}
		})
	}
	l.run(func(ctx context.Context) {
		if !waitAll(ctx, writers) {
			return
		}
		if err := errors.Join(errs...); err != nil {
			s.w.failed(l, e.Epoch, err)
			return
		}
		failpoint.Hit("commit.prepared")
		s.w.answer(l, core.Prepared{Epoch: e.Epoch, Tokens: tokens})
	})
}

// commit is step 5: the transaction is committed, so it can only be repeated or end the job with the token kept.
func (s *sinkWriters) commit(e core.CommitSinks) {
	l := s.w.life
	var writers []*sinkWriter
	errs := make([]error, len(e.Tokens))
	for i, t := range e.Tokens {
		sw := s.get(t.SinkID)
		if !slices.Contains(writers, sw) {
			writers = append(writers, sw)
		}
		sw.run(func(ctx context.Context) { errs[i] = sw.commit(ctx, t.Token) })
	}
	l.run(func(ctx context.Context) {
		if !waitAll(ctx, writers) {
			return
		}
		if err := errors.Join(errs...); err != nil {
			s.w.box.post(fatal{err})
			return
		}
		failpoint.Hit("commit.published")
		s.w.answer(l, core.SinksCommitted{Epoch: e.Epoch})
	})
}

func (sw *sinkWriter) commit(ctx context.Context, token []byte) error {
	var err error
	for try := range commitTries {
		if try > 0 && !sleep(ctx, commitPause) {
			break
		}
		if err = sw.writer.Commit(ctx, token); err == nil || ctx.Err() != nil {
			return nil // a life that ends restores the token again
		}
		if protocol.Final(err) {
			break
		}
	}
	return fmt.Errorf("sink %q of task %s: its rows are safe and will be published at the next start: %w",
		sw.id.Sink, sw.id.Task.Name(), err)
}
