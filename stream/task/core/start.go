package core

import (
	"slices"

	"github.com/strandline-io/strandline/stream"
)

// AllFinished reports whether every task of the plan has ended in the run and given its sinks everything. Checkpoints are
// the newest ones by task name.
func AllFinished(p *stream.Plan, run int64, checkpoints map[string]*Checkpoint) bool {
	for _, s := range p.Stages {
		for n := range s.Tasks {
			c := checkpoints[stream.TaskName(s.Name, n)]
			if c == nil || c.Run != run || !c.Ended || c.pending() {
				return false
			}
		}
	}
	return true
}

// BoundednessChanged finds the first topic of the plan that the run has read as bounded and the plan reads without an end,
// or the other way round. The record fixes the ends of topics that others fill; a topic that the job fills itself counts
// as bounded once a task has come to its end. began tells how the run reads the input called name.
func BoundednessChanged(p *stream.Plan, r *JobRecord, checkpoints map[string]*Checkpoint) (name string, began, changed bool) {
	for _, s := range p.Stages {
		for i := range s.Inputs {
			in := &s.Inputs[i]
			if in.Kind != stream.InputTopic {
				continue
			}
			fixed := slices.ContainsFunc(r.Ends, func(e PartitionEnd) bool { return e.Topic == in.Topic })
			switch {
			case fixedEnd(in) && !fixed && in.Partitions > 0:
				return in.Name, false, true
			case !in.Bounded && (fixed || endedInput(s, in.Name, r.Run, checkpoints)):
				return in.Name, true, true
			}
		}
	}
	return "", false, false
}

func endedInput(s *stream.Stage, name string, run int64, checkpoints map[string]*Checkpoint) bool {
	for n := range s.Tasks {
		c := checkpoints[stream.TaskName(s.Name, n)]
		if c == nil || c.Run != run {
			continue
		}
		for _, in := range c.Inputs {
			if in.Stream == name && in.Source != nil && in.Source.Ended {
				return true
			}
		}
	}
	return false
}
