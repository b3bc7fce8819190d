package world

import (
	"context"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/progress"
	"github.com/strandline-io/strandline/stream/task/core"
)

// naiveBook is the bookkeeping of an intermediate partition as its definition says it: the lowest watermark of the tasks
// that have neither ended nor are idle, once all have spoken; it never falls.
type naiveBook struct {
	tasks      int
	watermarks map[string]int64
	idle       map[string]bool
	ended      map[string]bool
	out        int64
}

func newNaiveBook(tasks int) *naiveBook {
	return &naiveBook{tasks: tasks, watermarks: make(map[string]int64), idle: make(map[string]bool), ended: make(map[string]bool), out: progress.None}
}

func (b *naiveBook) apply(c progress.Control) {
	old, known := b.watermarks[c.Task]
	if b.ended[c.Task] {
		return
	}
	if c.Kind == progress.KindEndOfStream {
		b.ended[c.Task] = true
		if !known {
			b.watermarks[c.Task] = progress.None
		}
	} else {
		if !known {
			old = progress.None
		}
		b.watermarks[c.Task], b.idle[c.Task] = max(old, c.TimestampMs), c.Idle
	}
	if len(b.watermarks) < b.tasks || len(b.ended) == b.tasks {
		return
	}
	lowest, active := int64(0), 0
	for task, at := range b.watermarks { // a minimum: any order
		if b.ended[task] || b.idle[task] {
			continue
		}
		if active++; active == 1 || at < lowest {
			lowest = at
		}
	}
	if active > 0 {
		b.out = max(b.out, lowest)
	}
}

// checkCheckpoints follows every task over all of its commits, and returns their newest checkpoints.
func (j *streamJudge) checkCheckpoints() map[string]*core.Checkpoint {
	newest := make(map[string]*core.Checkpoint)
	for n := int32(0); ; n++ {
		records, ok := j.topics[kafka.TopicPartition{Topic: j.s.plan.CheckpointTopic, Partition: n}]
		if !ok {
			break
		}
		for _, r := range records {
			if string(r.Key) == core.JobRecordKey {
				continue
			}
			c, err := core.DecodeCheckpoint(r.Value)
			j.must(err)
			if old := newest[c.Task]; old != nil {
				j.checkFollows(old, c)
			} else if c.Commit != 1 {
				j.w.fail("commits: the first checkpoint of %s is of commit %d", c.Task, c.Commit)
			}
			newest[c.Task] = c
			j.checkInputs(c)
		}
	}
	for _, st := range j.s.plan.Stages {
		for n := range st.Tasks {
			c := newest[stream.TaskName(st.Name, n)]
			if c == nil && !j.s.shape.bounded {
				continue // it had nothing to commit before the end
			}
			if c == nil {
				j.w.fail("commits: task %s-%d has no checkpoint", st.Name, n)
			}
			if j.s.shape.bounded && !c.Ended {
				j.w.fail("end of stream: task %s has not ended in its newest checkpoint", c.Task)
			}
			j.checkOffsets(st, n, c)
		}
	}
	return newest
}

// checkFollows: nothing of a task goes back from one commit to the next, and each counts once.
func (j *streamJudge) checkFollows(old, c *core.Checkpoint) {
	switch {
	case c.Commit != old.Commit+1:
		j.w.fail("commits: task %s: commit %d follows commit %d", c.Task, c.Commit, old.Commit)
	case falls(old.Delivered, c.Delivered), falls(old.Out.Watermark, c.Out.Watermark), falls(old.Sent.Watermark, c.Sent.Watermark):
		j.w.fail("watermark: that of task %s falls in commit %d", c.Task, c.Commit)
	case old.Ended && !c.Ended:
		j.w.fail("end of stream: task %s takes its end back in commit %d", c.Task, c.Commit)
	}
	for i := range c.Inputs {
		if c.Inputs[i].Position.Offset < old.Inputs[i].Position.Offset {
			j.w.fail("commits: task %s: its position in %s goes back from %d to %d", c.Task, c.Inputs[i].Stream, old.Inputs[i].Position.Offset, c.Inputs[i].Position.Offset)
		}
	}
}

func falls(old, now *int64) bool { return old != nil && (now == nil || *now < *old) }

func valueOr(p *int64, none int64) int64 {
	if p == nil {
		return none
	}
	return *p
}

// checkInputs compares the bookkeeping of a checkpoint with what lies before its positions.
func (j *streamJudge) checkInputs(c *core.Checkpoint) {
	lowest := int64(1<<63 - 1)
	for i := range c.Inputs {
		in := &c.Inputs[i]
		at := progress.State{WatermarkMs: progress.None}
		if in.Book != nil {
			at = j.checkBook(c, in)
		} else {
			at.WatermarkMs = valueOr(in.Source.Watermark, progress.None)
			at.Ended, at.Idle = in.Source.Ended, in.Source.Idle
			j.checkSource(c, in)
		}
		if !at.Ended {
			lowest = min(lowest, at.WatermarkMs)
		}
	}
	if delivered := valueOr(c.Delivered, progress.None); !c.Ended && j.s.shape.idleMs == 0 && delivered > lowest {
		j.w.fail("watermark: task %s was told %d in commit %d, its inputs say %d", c.Task, delivered, c.Commit, lowest)
	}
}

func (j *streamJudge) checkBook(c *core.Checkpoint, in *core.InputCheckpoint) (s progress.State) {
	tp := kafka.TopicPartition{Topic: jobName + "-" + in.Stream, Partition: int32(in.Partition)}
	book := newNaiveBook(in.Book.Watermark.TotalTasks)
	for _, r := range j.topics[tp] {
		if r.Offset >= in.Position.Offset {
			break
		}
		kind, payload, err := progress.Parse(r.Value)
		j.must(err)
		if kind != progress.KindUser {
			control, err := progress.ParseControl(kind, payload)
			j.must(err)
			book.apply(control)
		}
	}
	s.WatermarkMs, s.Ended = valueOr(in.Book.Watermark.LastEmission, progress.None), len(in.Book.EndOfStream.Tasks) == book.tasks
	if s.WatermarkMs != book.out || len(in.Book.EndOfStream.Tasks) != len(book.ended) {
		j.w.fail("book: task %s in commit %d, position %d of %s: watermark %d and %d ends, what lies before it says %d and %d", c.Task, c.Commit,
			in.Position.Offset, tp, s.WatermarkMs, len(in.Book.EndOfStream.Tasks), book.out, len(book.ended))
	}
	return s
}

func (j *streamJudge) checkSource(c *core.Checkpoint, in *core.InputCheckpoint) {
	if j.s.shape.files || in.Stream == "between-in" {
		return
	}
	var n int
	for topic := range j.s.shape.sources {
		if in.Stream == topicStream(topic) {
			n = topic
		}
	}
	want := progress.None
	tp := kafka.TopicPartition{Topic: sourceTopic(n), Partition: int32(in.Partition)}
	for _, r := range j.topics[tp] {
		if r.Offset < min(in.Position.Offset, j.endOf(tp)) {
			want = max(want, r.TimestampMs-j.s.shape.disorderMs)
		}
	}
	if got := valueOr(in.Source.Watermark, progress.None); got != want {
		j.w.fail("watermark: task %s in commit %d, position %d of %s: %d, what lies before it says %d", c.Task, c.Commit, in.Position.Offset, in.Stream, got, want)
	}
}

// checkOffsets: the group's offsets are the checkpoint's.
func (j *streamJudge) checkOffsets(st *stream.Stage, n int, c *core.Checkpoint) {
	for i := range st.Inputs {
		in := &st.Inputs[i]
		tp := kafka.TopicPartition{Topic: in.Topic, Partition: int32(n)}
		offsets, err := retried(func() (map[kafka.TopicPartition]int64, error) {
			return j.client.CommittedOffsets(context.Background(), jobName, []kafka.TopicPartition{tp})
		})
		j.must(err)
		want := c.Inputs[i].Position.Offset
		if in.Kind == stream.InputFile {
			if want >= in.Files[n].Split.SizeBytes {
				want = 1
			} else {
				want = 0
			}
		}
		if got, ok := offsets[tp]; !ok || got != want {
			j.w.fail("offsets: the group has %d for %s, the checkpoint of %s says %d", got, tp, c.Task, want)
		}
	}
}
