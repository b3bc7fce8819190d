package core

import (
	"fmt"
	"slices"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/progress"
)

// seenTasks is what the checkpoint topic says about all tasks of the job.
type seenTasks struct {
	index    map[string]int // task name → index in tasks
	tasks    []seenTask
	stages   map[string][]int // stage → its tasks
	finished int              // tasks ended with no token pending
}

type seenTask struct {
	ended, pending bool
	loaded         []PartitionEnd
}

func newSeenTasks(p *stream.Plan) seenTasks {
	s := seenTasks{index: map[string]int{}, stages: map[string][]int{}, tasks: make([]seenTask, p.TaskCount())}
	next := 0
	for _, stage := range p.Stages {
		for n := range stage.Tasks {
			s.index[stream.TaskName(stage.Name, n)] = next
			s.stages[stage.Name] = append(s.stages[stage.Name], next)
			next++
		}
	}
	return s
}

func (s *seenTasks) note(name string, ended, pending bool, loaded []PartitionEnd) {
	i, ok := s.index[name]
	if !ok {
		return
	}
	if s.tasks[i].finished() {
		s.finished--
	}
	s.tasks[i] = seenTask{ended, pending, slices.Clone(loaded)}
	if s.tasks[i].finished() {
		s.finished++
	}
}

func (t seenTask) finished() bool { return t.ended && !t.pending }

// end returns the end of a bounded input that the job fills itself: known once all tasks that fill it have ended.
func (s *seenTasks) end(in *stream.Input, partition int) int64 {
	end := int64(0)
	for _, stage := range in.LoadedBy {
		for _, i := range s.stages[stage] {
			if !s.tasks[i].ended {
				return -1
			}
			for _, e := range s.tasks[i].loaded {
				if e.Topic == in.Topic && e.Partition == partition {
					end = max(end, e.EndOffset)
				}
			}
		}
	}
	return end
}

func (w *Worker) onCheckpointSeen(e CheckpointSeen) {
	if string(e.Key) == JobRecordKey {
		w.seeJobRecord(e.Value)
		return
	}
	if e.Value == nil {
		w.seen.note(string(e.Key), false, false, nil)
		return
	}
	c, err := DecodeCheckpoint(e.Value)
	if err != nil {
		w.stop(fmt.Errorf("topic %s key %.100q: %w", w.cfg.Plan.CheckpointTopic, e.Key, err))
		return
	}
	if c.Run != w.cfg.Job.Run {
		return
	}
	w.seen.note(string(e.Key), c.Ended, c.pending(), c.Loaded)
	w.recheck = true
}

// seeJobRecord stops a worker that a reset has overtaken.
func (w *Worker) seeJobRecord(value []byte) {
	if value == nil {
		return
	}
	r, err := DecodeJobRecord(value)
	if err == nil && r.Run > w.cfg.Job.Run {
		err = &progress.RunError{Stream: w.cfg.Plan.CheckpointTopic, Have: w.cfg.Job.Run, Got: r.Run}
	}
	if err != nil {
		w.stop(err)
	}
}

// recheckLoaded ends inputs whose end has become known.
func (w *Worker) recheckLoaded() {
	w.recheck = false
	for _, t := range w.tasks {
		if t.phase == taskRunning && w.checkEnds(t) {
			t.touched = true
			w.advance(t)
		}
	}
}

// leave ends the worker when the whole job has ended.
func (w *Worker) leave() {
	if w.phase == phaseOpen && !w.sinksPending && w.seen.finished == len(w.seen.tasks) {
		w.over(true)
	}
}
