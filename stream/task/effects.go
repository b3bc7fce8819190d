package task

import (
	"context"
	"errors"
	"fmt"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/task/core"
	"github.com/strandline-io/strandline/stream/task/protocol"
)

// carryOut does what core decided. What may wait runs in the life and answers through the mailbox.
func (w *worker) carryOut(effect core.Effect) {
	switch e := effect.(type) {
	case core.Restore:
		w.restore(e.Ownership)
	case core.OpenSinks:
		w.sinks.open(e)
	case core.StartFetch:
		w.startFetch(e)
	case core.StopFetch:
		w.stopFetch(e.Task, e.Input)
	case core.Produce:
		if err := w.produce(e.Epoch, e.Records); err != nil {
			w.failed(w.life, e.Epoch, err)
		}
	case core.WriteSinks:
		w.sinks.write(e)
	case core.FinishSinks:
		w.sinks.finish(e.Sinks)
	case core.Flush:
		w.flush(e.Epoch)
	case core.PrepareSinks:
		w.sinks.prepare(e)
	case core.Commit:
		w.commit(e)
	case core.ApplyStores:
		w.applyStores(e)
	case core.CommitSinks:
		w.sinks.commit(e)
	case core.DropEverything:
		clear(w.fetchOf)
		w.drop(e)
	case core.Released:
		w.released(e.Tasks)
	case core.Done:
		w.finished, w.done = e.Finished, true
	case core.Stopped:
		w.fail(e.Err)
	default:
		panic(fmt.Sprintf("BUG: effect %T", effect))
	}
}

// answer reports an event of life l to the loop.
func (w *worker) answer(l *life, e core.Event) { w.box.post(answer{l.number, e}) }

// failed reports that something of an epoch failed. Errors that no repetition mends end the worker.
func (w *worker) failed(l *life, epoch int64, err error) {
	if l.ctx.Err() != nil {
		return // the life is being dropped, that is why it failed
	}
	if protocol.Final(err) {
		w.box.post(fatal{err})
		return
	}
	w.answer(l, core.Failed{Epoch: epoch, Err: err})
}

// explained adds to an error of fencing what to do about it.
func (w *worker) explained(err error) error {
	if !errors.Is(err, ErrFenced) {
		return err
	}
	return fmt.Errorf("task: slot %q of job %q has been taken: %w (another process runs as replica %d too: give each process its own "+
		"number, task.Config.Replica; or this one was away so long that its successor went on)",
		w.slot, w.plan.Job, err, w.cfg.Replica)
}

// partitionOf is the partition behind an input of a task.
func (w *worker) partitionOf(t core.Task, input int) kafka.TopicPartition {
	st, _ := w.plan.Stage(t.Stage)
	return kafka.TopicPartition{Topic: st.Inputs[input].Topic, Partition: int32(t.Number)}
}

func (w *worker) startFetch(e core.StartFetch) {
	st, _ := w.plan.Stage(e.Task.Stage)
	in := st.Inputs[e.Input]
	w.fetches++
	tp := w.partitionOf(e.Task, e.Input)
	w.fetchOf[tp] = w.fetches
	if in.Kind == stream.InputFile {
		w.files.add(e, in)
		return
	}
	w.fetcher.Add(tp, e.From.Offset, w.fetches)
}

func (w *worker) stopFetch(t core.Task, input int) {
	st, _ := w.plan.Stage(t.Stage)
	in := st.Inputs[input]
	tp := w.partitionOf(t, input)
	delete(w.fetchOf, tp)
	if in.Kind == stream.InputFile {
		w.files.remove(t, input)
		return
	}
	w.fetcher.Remove(tp)
}

// produce sends records, beginning the transaction with the first. It may wait for room in the producer's buffer, which
// ends with the life.
func (w *worker) produce(epoch int64, records []core.OutRecord) error {
	l := w.life
	if len(records) == 0 {
		return nil
	}
	if !l.inTxn {
		if err := l.producer.Begin(); err != nil {
			return err
		}
		l.inTxn = true
	}
	for _, r := range records {
		tp := kafka.TopicPartition{Topic: r.Topic, Partition: int32(r.Partition)}
		kr := kafka.Record{TopicPartition: tp, Key: r.Key, Value: r.Value, TimestampMs: r.TimestampMs}
		for _, h := range r.Headers {
			kr.Headers = append(kr.Headers, kafka.Header{Key: h.Key, Value: h.Value})
		}
		l.producer.Produce(l.ctx, kr, func(offset int64, err error) {
			if err == nil {
				l.acked(epoch, tp, offset)
			}
		})
	}
	return nil
}

// flush waits for the acknowledgements of an epoch.
func (w *worker) flush(epoch int64) {
	l := w.life
	l.run(func(ctx context.Context) {
		ctx, cancel := withDeadline(ctx, w.cfg.TransactionTimeout, "waiting for the acknowledgements of a transaction")
		defer cancel()
		if err := l.producer.Flush(ctx); err != nil {
			w.failed(l, epoch, err)
			return
		}
		w.answer(l, core.Flushed{Epoch: epoch, Ends: partitionEnds(l.ends(epoch))})
	})
}

func partitionEnds(ends map[kafka.TopicPartition]int64) []core.PartitionEnd {
	out := make([]core.PartitionEnd, 0, len(ends))
	for tp, end := range ends {
		out = append(out, core.PartitionEnd{Topic: tp.Topic, Partition: int(tp.Partition), EndOffset: end})
	}
	return out
}

// commit is steps 3 and 4 of the commit protocol.
func (w *worker) commit(e core.Commit) {
	l := w.life
	w.offsets = e.Offsets
	if err := w.stores.CheckRoom(e.Changelog); err != nil {
		w.fail(err)
		return
	}
	if err := errors.Join(w.produce(e.Epoch, e.Changelog), w.produce(e.Epoch, e.Checkpoints)); err != nil {
		w.answer(l, core.TxnEnded{Epoch: e.Epoch, Outcome: core.Aborted, Err: err})
		return
	}
	l.run(func(ctx context.Context) {
		ctx, cancel := withDeadline(ctx, w.cfg.TransactionTimeout, "the commit of a transaction")
		defer cancel()
		ended, err := protocol.Commit(ctx, l.producer, w.tokens, e)
		if err != nil && l.ctx.Err() == nil {
			w.box.post(fatal{err})
			return
		}
		w.answer(l, ended)
	})
}

// applyStores brings the stores up to the transaction that was committed.
func (w *worker) applyStores(e core.ApplyStores) {
	ends := w.life.ends(e.Epoch)
	for _, s := range e.Stores {
		if err := w.stores.Apply(s, ends, w.cfg.Now().UnixMilli()); err != nil {
			w.fail(fmt.Errorf("task: store %s of task %s: %w", s.Store, s.Task.Name(), err))
			return
		}
	}
}
