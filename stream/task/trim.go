package task

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/task/core"
)

// trimDeadline bounds one DeleteRecords request.
const trimDeadline = 10 * time.Second

// trimmer deletes what all readers of an intermediate stream have passed: its one reader, the task, has committed an
// offset behind it. Topics are kept for ever otherwise, because event times may be years old. The loop owns it.
type trimmer struct {
	every   time.Duration // 0: never
	atMs    int64
	upTo    map[kafka.TopicPartition]int64 // committed, not yet trimmed
	running bool
}

// trimmed is the answer of a trim. A cluster that cannot do it is not asked again.
type trimmed struct{ off bool }

// committed notes the offsets of a committed transaction.
func (tr *trimmer) committed(plan *stream.Plan, offsets []core.GroupOffset) {
	if tr.every == 0 {
		return
	}
	for _, o := range offsets {
		st, ok := plan.Stage(o.Task.Stage)
		if !ok || o.Offset == 0 {
			continue
		}
		for _, in := range st.Inputs {
			if in.Kind == stream.InputIntermediate && in.Topic == o.Topic {
				tr.upTo[kafka.TopicPartition{Topic: o.Topic, Partition: int32(o.Partition)}] = o.Offset
			}
		}
	}
}

// trim starts a request if one is due.
func (w *worker) trim() {
	tr := &w.trimmer
	if tr.every == 0 || tr.running || len(tr.upTo) == 0 || w.nowMs() < tr.atMs {
		return
	}
	upTo := maps.Clone(tr.upTo)
	clear(tr.upTo)
	tr.running, tr.atMs = true, w.nowMs()+tr.every.Milliseconds()
	w.background.Add(1)
	go func() {
		defer w.background.Done()
		ctx, cancel := withDeadline(w.base, trimDeadline, "deleting records of intermediate streams")
		defer cancel()
		err := w.run.client.DeleteRecords(ctx, upTo)
		unserved := errors.Is(err, kafka.ErrNotServed)
		switch {
		case unserved:
			w.run.unserved.Do(func() {
				w.log.Info("this broker does not serve DeleteRecords; intermediate topics keep what is no longer needed")
			})
		case err != nil && !errors.Is(err, context.Canceled):
			w.log.Info("could not delete records that are no longer needed", "err", err)
		}
		w.box.post(trimmed{off: unserved || kafka.Refused(err)})
	}()
}
