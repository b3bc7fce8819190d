package streamtest

import (
	"errors"
	"fmt"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/task/core"
)

func (p *process) openSinks(e core.OpenSinks) {
	stage, _ := p.r.plan.Stage(e.Task.Stage)
	for i, sink := range stage.Sinks {
		id := core.SinkID{Task: e.Task, Sink: sink.Name()}
		if old := p.writers[id]; old != nil {
			old.Close()
		}
		w, err := sink.Open(ctx, stream.SinkTask{
			JobIdentity: stream.JobIdentity{Job: p.r.plan.Job, Run: fmt.Sprint(p.r.job.Run)},
			Sink:        sink.Name(), Task: e.Task.Name(), TaskNumber: e.Task.Number,
		})
		if err == nil {
			err = w.Restore(ctx, e.Tokens[i].Token)
		}
		if err != nil {
			p.r.fail(fmt.Errorf("sink %s: %w", sink.Name(), err))
			return
		}
		p.writers[id] = w
	}
	p.answer(core.SinksOpened{Task: e.Task, Token: e.Token})
}

func (p *process) sinkEffect(e core.Effect) {
	switch e := e.(type) {
	case core.WriteSinks:
		for _, write := range e.Writes {
			if err := p.writers[write.SinkID].Write(ctx, write.Record); err != nil {
				p.failSink(e.Epoch, write.SinkID, err)
				return
			}
		}
	case core.FinishSinks:
		for _, id := range e.Sinks {
			p.writers[id].Finish()
		}
	case core.PrepareSinks:
		p.prepare(e)
	case core.CommitSinks:
		for _, token := range e.Tokens {
			if p.r.mayCrash(p) {
				return
			}
			if err := p.writers[token.SinkID].Commit(ctx, token.Token); err != nil {
				p.r.fail(fmt.Errorf("sink %s: %w", token.Sink, err))
				return
			}
		}
		p.answer(core.SinksCommitted{Epoch: e.Epoch})
	default:
		panic(fmt.Sprintf("BUG: unknown effect %T", e))
	}
}

func (p *process) prepare(e core.PrepareSinks) {
	out := core.Prepared{Epoch: e.Epoch}
	for _, id := range e.Sinks {
		if p.r.mayCrash(p) {
			return
		}
		if p.r.faulty() {
			p.failSink(e.Epoch, id, errors.New("injected fault"))
			return
		}
		token, err := p.writers[id].Prepare(ctx, e.Epoch)
		if err != nil {
			p.failSink(e.Epoch, id, err)
			return
		}
		out.Tokens = append(out.Tokens, core.SinkToken{SinkID: id, Token: token})
	}
	p.answer(out)
}

func (p *process) failSink(epoch int64, id core.SinkID, err error) {
	p.failed = epoch
	p.answer(core.Failed{Epoch: epoch, Err: fmt.Errorf("sink %s of task %s: %w", id.Sink, id.Task.Name(), err)})
}

// wants reports the writers that would like a commit.
func (p *process) wants() []core.SinkID {
	var ids []core.SinkID
	for _, id := range p.sinkIDs() {
		if p.writers[id].WantsCommit(p.r.nowMs) {
			ids = append(ids, id)
		}
	}
	return ids
}
