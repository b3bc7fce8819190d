package core

import (
	"fmt"
	"slices"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/progress"
)

type taskPhase int8

const (
	taskRestoring taskPhase = iota // Restore was given out
	taskOpening                    // OpenSinks was given out
	taskRunning
)

// task is one owned task. After a drop a new value takes its place.
type task struct {
	id    Task
	token int64
	stage *stream.Stage
	info  stream.TaskInfo
	phase taskPhase

	proc    stream.Processor
	inputs  []*input
	states  []progress.State // scratch for Combine
	stores  []*overlay
	sinks   []*sinkState
	loaded  []PartitionEnd // ends of what the task wrote to topics that the job reads as bounded
	commits int64

	// deliveredMs is the watermark that the processor was told. closing: it, or the end, is told in chunks and not
	// done. out is what the task may tell downstream, sent what it has told.
	deliveredMs int64
	closing     bool
	out, sent   progress.State
	counters    Counters

	// touched asks for a commit. moved says that a position changed over things that need none by themselves.
	touched, moved bool
}

// input is one input partition of a task.
type input struct {
	spec     *stream.Input
	position Position
	started  bool  // StartFetch was given out
	moved    bool  // since the last commit
	end      int64 // -1: none, or not known yet
	source   *progress.Source
	book     *progress.Book
}

// sinkState is one task's end of one sink.
type sinkState struct {
	name      string
	rows      int64
	token     []byte // newest prepared
	confirmed bool   // its Commit has returned
	dirty     bool   // written to since the last Prepare
	wants     bool   // asked for a commit
	finish    bool   // its open files are to be done with the next Prepare
	clears    int
}

func (in *input) state() progress.State {
	if in.book != nil {
		return in.book.State()
	}
	return in.source.State()
}

// groupOffset is what TxnOffsetCommit says: the position, or for a split whether it is done.
func (in *input) groupOffset() int64 {
	if in.spec.Kind != stream.InputFile {
		return in.position.Offset
	}
	if in.position.Offset >= in.end {
		return 1
	}
	return 0
}

func (w *Worker) newTask(o Ownership) *task {
	stage, ok := w.cfg.Plan.Stage(o.Task.Stage)
	if !ok || o.Task.Number < 0 || o.Task.Number >= stage.Tasks {
		panic(fmt.Sprintf("BUG: task %s is not in the plan", o.Task.Name()))
	}
	t := &task{
		id: o.Task, token: o.Token, stage: stage, deliveredMs: progress.None,
		info: stream.TaskInfo{Job: w.cfg.Plan.Job, Run: w.run, Stage: stage.Name, Number: o.Task.Number},
	}
	t.out.WatermarkMs, t.sent.WatermarkMs = progress.None, progress.None
	for i := range stage.Inputs {
		t.inputs = append(t.inputs, w.newInput(&stage.Inputs[i], t.id.Number))
	}
	t.states = make([]progress.State, len(t.inputs))
	for _, s := range stage.Sinks {
		t.sinks = append(t.sinks, &sinkState{name: s.Name()})
	}
	return t
}

func (w *Worker) newInput(spec *stream.Input, partition int) *input {
	in := &input{spec: spec, end: -1}
	switch {
	case spec.Kind == stream.InputIntermediate:
		upstream, _ := w.cfg.Plan.Stage(spec.UpstreamStage)
		in.book = progress.NewBook(spec.Name, partition, w.cfg.Job.Run, upstream.Tasks)
		return in
	case spec.Kind == stream.InputFile:
		in.end = spec.Files[partition].Split.SizeBytes
	case spec.Bounded && len(spec.LoadedBy) == 0:
		in.end, _ = w.cfg.Job.end(spec.Topic, partition)
	case spec.Bounded:
		in.end = w.seen.end(spec, partition)
	}
	in.source = progress.NewSource(spec.MaxDisorderMs, spec.IdleTimeoutMs)
	return in
}

func (w *Worker) onAssigned(e Assigned) {
	for _, o := range e.Tasks {
		if w.find(o.Task) != nil {
			panic(fmt.Sprintf("BUG: task %s is assigned twice", o.Task.Name()))
		}
		w.tasks = append(w.tasks, w.newTask(o))
	}
	slices.SortFunc(w.tasks, compareTasks)
	if w.phase == phaseDropping {
		return
	}
	for _, o := range e.Tasks {
		w.push(Restore{o})
	}
}

func (w *Worker) onRestored(e Restored) {
	t := w.find(e.Task)
	if t == nil || t.token != e.Token || t.phase != taskRestoring {
		return
	}
	if err := w.restore(t, e); err != nil {
		w.stop(fmt.Errorf("task %s: %w", t.id.Name(), err))
		return
	}
	if len(t.sinks) == 0 {
		w.start(t)
		return
	}
	t.phase = taskOpening
	open := OpenSinks{Ownership: Ownership{t.id, t.token}}
	for _, s := range t.sinks {
		open.Tokens = append(open.Tokens, SinkToken{SinkID{t.id, s.name}, s.token})
	}
	w.push(open)
}

func (w *Worker) onSinksOpened(e SinksOpened) {
	t := w.find(e.Task)
	if t == nil || t.token != e.Token || t.phase != taskOpening {
		return
	}
	for _, s := range t.sinks {
		s.confirmed = true
	}
	w.start(t)
}

// restore sets the task to its newest checkpoint, or to its beginning.
func (w *Worker) restore(t *task, e Restored) error {
	if len(e.Inputs) != len(t.inputs) || len(e.Stores) != len(t.stage.Stores) {
		panic(fmt.Sprintf("BUG: task %s restored with %d inputs and %d stores, it has %d and %d",
			t.id.Name(), len(e.Inputs), len(e.Stores), len(t.inputs), len(t.stage.Stores)))
	}
	for _, base := range e.Stores {
		t.stores = append(t.stores, newOverlay(base))
	}
	if e.Checkpoint != nil {
		c, err := DecodeCheckpoint(e.Checkpoint)
		if err != nil {
			return err
		}
		if c.Run > w.cfg.Job.Run {
			return &progress.RunError{Stream: w.cfg.Plan.CheckpointTopic, Partition: t.id.Number, Have: w.cfg.Job.Run, Got: c.Run}
		}
		if c.Run == w.cfg.Job.Run {
			return t.load(c, e.Inputs)
		}
	} else if err := t.refuseLoneOffsets(w, e.Inputs); err != nil {
		return err
	}
	for i, in := range t.inputs {
		in.position.Offset = e.Inputs[i].StartOffset
		in.moved = true
	}
	t.touched = true // so that its position is recorded before anything can move it
	return nil
}

// refuseLoneOffsets stops where the group knows a position and the checkpoint topic does not.
func (t *task) refuseLoneOffsets(w *Worker, inputs []RestoredInput) error {
	for i, in := range t.inputs {
		if inputs[i].GroupOffset >= 0 {
			return fmt.Errorf("the group has the committed offset %d for topic %s partition %d, but topic %s has no checkpoint of the task: was the checkpoint topic deleted, or the job's name used before? Restore it, or reset the job, which begins from the start",
				inputs[i].GroupOffset, in.spec.Topic, t.id.Number, w.cfg.Plan.CheckpointTopic)
		}
	}
	return nil
}

// start begins or goes on: it tells the processor its watermark again, and evaluates completion without waiting for a
// message, because the one that completed it may lie before the restored position.
func (w *Worker) start(t *task) {
	t.phase = taskRunning
	if t.out.Ended {
		return
	}
	t.proc = t.stage.NewProcessor(t.info)
	t.closing = t.deliveredMs != progress.None
	w.checkEnds(t)
	w.advance(t)
	if w.phase != phaseOpen {
		return
	}
	for i, in := range t.inputs {
		if !in.state().Ended {
			in.started = true
			w.push(StartFetch{t.id, i, in.position, in.end})
		}
	}
}

// checkEnds ends the inputs whose cursor has reached their end.
func (w *Worker) checkEnds(t *task) (changed bool) {
	for i, in := range t.inputs {
		if in.source == nil || in.source.State().Ended {
			continue
		}
		if in.end < 0 && in.spec.Bounded {
			in.end = w.seen.end(in.spec, t.id.Number)
		}
		if in.end >= 0 && in.position.Offset >= in.end && in.source.End() {
			changed = true
			w.stopFetch(t, i)
		}
	}
	return changed
}

func (w *Worker) stopFetch(t *task, i int) {
	if t.inputs[i].started {
		t.inputs[i].started = false
		w.push(StopFetch{t.id, i})
	}
}

// advance tells the processor how far its inputs are: a watermark, or the end. Chunked, it sets closing and asks for a
// commit; the call is repeated in the next transaction.
func (w *Worker) advance(t *task) {
	if t.out.Ended {
		return
	}
	for i, in := range t.inputs {
		t.states[i] = in.state()
	}
	s := progress.Combine(t.states)
	t.out.Idle = s.Idle
	if s.Ended {
		w.deliver(t, true)
		return
	}
	if s.WatermarkMs > t.deliveredMs && !t.closing {
		t.deliveredMs = s.WatermarkMs
		t.touched = true
		t.closing = true
	}
	if t.closing {
		w.deliver(t, false)
		// A watermark that rose behind a chunked close is told next.
		if !t.closing && w.phase == phaseOpen && s.WatermarkMs > t.deliveredMs {
			w.advance(t)
		}
	}
}

func (w *Worker) deliver(t *task, end bool) {
	c := w.call(t)
	var done bool
	var err error
	if end {
		done, err = t.proc.OnEnd(c)
	} else {
		done, err = t.proc.OnWatermark(c, t.deliveredMs)
	}
	if err == nil {
		err = c.err
	}
	if err != nil {
		w.stop(fmt.Errorf("task %s: watermark %d: %w", t.id.Name(), t.deliveredMs, err))
		return
	}
	t.closing = !done
	if !done {
		t.touched = true
		w.commitNow = true
		return
	}
	if !end {
		t.out.WatermarkMs = t.deliveredMs
		return
	}
	t.out.Ended, t.out.Idle = true, false
	t.touched = true
	w.commitNow = true
	for _, s := range t.sinks {
		s.finish = true
	}
}

func (w *Worker) onFetchFailed(e FetchFailed) {
	if t := w.find(e.Task); t != nil && t.inputs[e.Input].source != nil {
		t.inputs[e.Input].source.Failed()
	}
}
