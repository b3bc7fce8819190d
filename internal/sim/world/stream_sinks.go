package world

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/task/core"
	"github.com/strandline-io/strandline/stream/task/protocol"
)

// Deadlines of a driver over those that the sink has itself.
const (
	sinkPrepareDeadline = 8 * time.Second
	sinkRestoreDeadline = 60 * time.Second
)

// sinkLine runs the calls of one writer in order, each of which may pause.
type sinkLine struct {
	id     core.SinkID
	life   *workerLife
	ctx    context.Context
	cancel context.CancelFunc
	writer stream.SinkWriter
	queue  []func(ctx context.Context)
	polled bool
	quit   bool
	gone   bool
	c      *coroutine
	closer *coroutine // waits until it is gone
}

func (p *worker) openLine(id core.SinkID) *sinkLine {
	s := &sinkLine{id: id, life: p.life}
	s.ctx, s.cancel = p.runtime.Context(p.life.ctx, 0)
	s.c = p.spawn("sink-"+id.Task.Name(), func(c *client) {
		for !s.quit {
			if len(s.queue) == 0 {
				c.await(secondInUs, func() bool { return s.quit || len(s.queue) > 0 })
				continue
			}
			f := s.queue[0]
			s.queue = s.queue[1:]
			f(s.ctx)
		}
		if s.writer != nil {
			_ = s.writer.Close()
		}
		s.gone = true
		if s.closer != nil {
			s.closer.signal()
		}
	})
	p.writers[id] = s
	return s
}

func (s *sinkLine) run(f func(ctx context.Context)) {
	s.queue = append(s.queue, f)
	s.c.signal()
}

// takeWriters removes the writers of a task, or all, from the set.
func (p *worker) takeWriters(of *core.Task) []*sinkLine {
	var out []*sinkLine
	for id, s := range p.writers {
		if of == nil || id.Task == *of {
			out = append(out, s)
			delete(p.writers, id)
		}
	}
	slices.SortFunc(out, compareLine)
	return out
}

func compareLine(a, b *sinkLine) int {
	return cmp.Or(compareTask(a.id.Task, b.id.Task), cmp.Compare(a.id.Sink, b.id.Sink))
}

// closeWriters ends writers after the call that each is in.
func (p *worker) closeWriters(c *client, all []*sinkLine) {
	for _, s := range all {
		s.quit = true
		s.cancel()
		s.closer = c.coroutine
		s.c.signal()
		for !s.gone {
			c.await(secondInUs, func() bool { return s.gone })
		}
	}
}

func (p *worker) openSinks(e core.OpenSinks) {
	l := p.life
	old := p.takeWriters(&e.Task)
	st, _ := p.plan.Stage(e.Task.Stage)
	left := len(st.Sinks)
	for i, sink := range st.Sinks {
		s := p.openLine(core.SinkID{Task: e.Task, Sink: sink.Name()})
		token := e.Tokens[i].Token
		s.run(func(ctx context.Context) {
			if i == 0 {
				p.closeWriters(&client{coroutine: s.c}, old)
			}
			if p.restoreSink(ctx, s, sink, token) {
				if left--; left == 0 {
					p.answer(l, core.SinksOpened{Task: e.Task, Token: e.Token})
				}
			}
		})
	}
}

func (p *worker) restoreSink(ctx context.Context, s *sinkLine, sink stream.Sink, token []byte) bool {
	for {
		err := p.tryRestoreSink(ctx, s, sink, token)
		switch {
		case err == nil:
			return true
		case ctx.Err() != nil:
			return false
		case protocol.Final(err):
			p.fatal(fmt.Errorf("sink %s of task %s: %w", s.id.Sink, s.id.Task.Name(), err))
			return false
		}
		s.c.sleep(workerRestoreRetryUs)
	}
}

func (p *worker) tryRestoreSink(ctx context.Context, s *sinkLine, sink stream.Sink, token []byte) error {
	ctx, cancel := p.runtime.Context(ctx, sinkRestoreDeadline)
	defer cancel()
	writer, err := sink.Open(ctx, stream.SinkTask{
		JobIdentity: stream.JobIdentity{Job: p.plan.Job, Run: protocol.RunName(p.record)},
		Sink:        s.id.Sink, Task: s.id.Task.Name(), TaskNumber: s.id.Task.Number,
	})
	if err != nil {
		return err
	}
	if err := writer.Restore(ctx, token); err != nil {
		p.main.tracef("%s cannot restore yet: %v", s.c.name, err)
		return errors.Join(err, writer.Close())
	}
	s.writer = writer
	return nil
}

func (p *worker) writeSinks(e core.WriteSinks) {
	var lines []*sinkLine
	records := make(map[*sinkLine][]stream.SinkRecord)
	for _, x := range e.Writes {
		s := p.writers[x.SinkID]
		if len(records[s]) == 0 {
			lines = append(lines, s)
		}
		records[s] = append(records[s], x.Record)
	}
	for _, s := range lines {
		s.run(func(ctx context.Context) {
			for _, r := range records[s] {
				if err := s.writer.Write(ctx, r); err != nil {
					p.failed(s.life, e.Epoch, err)
					return
				}
			}
			p.askSink(s)
		})
	}
}

func (p *worker) askSink(s *sinkLine) {
	if s.writer.WantsCommit(p.w.wall()) {
		p.answer(s.life, core.SinkWants{Sinks: []core.SinkID{s.id}})
	}
}

func (p *worker) pollSinks() {
	for _, s := range p.sortedLines() {
		if s.writer != nil && len(s.queue) == 0 && !s.polled {
			s.polled = true
			s.run(func(context.Context) {
				s.polled = false
				p.askSink(s)
			})
		}
	}
}

func (p *worker) sortedLines() []*sinkLine {
	var out []*sinkLine
	for _, s := range p.writers {
		out = append(out, s)
	}
	slices.SortFunc(out, compareLine)
	return out
}

func (p *worker) finishSinks(ids []core.SinkID) {
	for _, id := range ids {
		s := p.writers[id]
		s.run(func(context.Context) { s.writer.Finish() })
	}
}

func (p *worker) prepareSinks(e core.PrepareSinks) {
	l := p.life
	tokens := make([]core.SinkToken, len(e.Sinks))
	left := len(e.Sinks)
	for i, id := range e.Sinks {
		s := p.writers[id]
		s.run(func(ctx context.Context) {
			ctx, cancel := p.runtime.Context(ctx, sinkPrepareDeadline)
			defer cancel()
			token, err := s.writer.Prepare(ctx, e.Epoch)
			if err != nil {
				p.failed(l, e.Epoch, err)
				return
			}
			tokens[i] = core.SinkToken{SinkID: id, Token: token}
			if left--; left == 0 {
				p.answer(l, core.Prepared{Epoch: e.Epoch, Tokens: tokens})
			}
		})
	}
}

// commitTries is how often a Commit is tried before the process gives up; its store repeats calls by itself.
const commitTries = 3

func (p *worker) commitSinks(e core.CommitSinks) {
	l := p.life
	left := len(e.Tokens)
	for _, t := range e.Tokens {
		s := p.writers[t.SinkID]
		s.run(func(ctx context.Context) {
			for try := 1; ; try++ {
				err := s.writer.Commit(ctx, t.Token)
				if err == nil {
					break
				}
				if ctx.Err() != nil {
					return
				}
				if protocol.Final(err) || try == commitTries {
					p.fatal(fmt.Errorf("sink %s of task %s: %w", s.id.Sink, s.id.Task.Name(), err))
					return
				}
				s.c.sleep(secondInUs)
			}
			if left--; left == 0 {
				p.answer(l, core.SinksCommitted{Epoch: e.Epoch})
			}
		})
	}
}
