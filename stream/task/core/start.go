package core

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/strandline-io/strandline/stream"
)

// StartFacts are what a starter has found out, inside its transaction as producer "<job>-start": a starter that was
// fenced reads again instead of writing.
type StartFacts struct {
	// Record is the value under JobRecordKey; nil if there is none.
	Record []byte
	// Topics are the topics of the plan that existed before this starter created any; missing ones are left out.
	Topics []TopicRecord
	// Checkpoints are the newest values of all task keys of the checkpoint topic, by key; GroupOffsets how many
	// committed offsets the group has.
	Checkpoints  map[string][]byte
	GroupOffsets int
}

// StartKind is what a starter should do.
type StartKind int8

// The kinds of start.
const (
	// StartFresh: create the missing topics and write a job record with run 1.
	StartFresh StartKind = iota
	// StartContinue: run with Record.
	StartContinue
	// StartFinished: this very input is done; nothing is to be run.
	StartFinished
)

// Start is the decision.
type Start struct {
	Kind   StartKind
	Record *JobRecord // nil for StartFresh
}

// ErrRefused marks a start that is refused; the error says why and what to do.
var ErrRefused = errors.New("the job cannot start")

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrRefused, fmt.Errorf(format, args...))
}

// DecideStart decides between a first start, going on, and having finished, or refuses.
func DecideStart(p *stream.Plan, f StartFacts) (Start, error) {
	if f.Record == nil {
		if f.GroupOffsets > 0 || len(f.Checkpoints) > 0 {
			return Start{}, refuse("job %q has no job record in topic %s, but there are %d checkpoints and %d committed offsets of its group: the checkpoint topic was deleted or damaged; restore it, or delete the group's offsets and the job's topics to begin anew",
				p.Job, p.CheckpointTopic, len(f.Checkpoints), f.GroupOffsets)
		}
		return Start{Kind: StartFresh}, nil
	}
	r, err := DecodeJobRecord(f.Record)
	if err != nil {
		return Start{}, err
	}
	want := NewJobRecord(p, r.Run, r.Topics, r.Ends)
	if err := errors.Join(sameStages(r, want), sameSplits(r, want), sameTopics(r, p, f.Topics)); err != nil {
		return Start{}, err
	}
	cs, err := decodeAll(f.Checkpoints)
	if err != nil {
		return Start{}, err
	}
	if name, bounded, changed := BoundednessChanged(p, r, cs); changed {
		return Start{}, refuse("input %q is bounded: %t, run %d began with %t: reset the job or use another job name", name, !bounded, r.Run, bounded)
	}
	if err := r.fits(p); err != nil {
		return Start{}, refuse("%w", err)
	}
	if AllFinished(p, r.Run, cs) {
		return Start{StartFinished, r}, nil
	}
	return Start{StartContinue, r}, nil
}

func sameStages(have, want *JobRecord) error {
	if have.Job != want.Job {
		return refuse("the checkpoint topic belongs to job %q, not %q", have.Job, want.Job)
	}
	for _, s := range want.Stages {
		i := slices.IndexFunc(have.Stages, func(h StageRecord) bool { return h.Name == s.Name })
		if i < 0 {
			return refuse("stage %q is new in job %q: the state of a run belongs to its topology; reset the job or use another job name", s.Name, want.Job)
		}
		h := have.Stages[i]
		if h.Tasks != s.Tasks {
			return refuse("stage %q has %d tasks, run %d began with %d: the partition count of its input changed; reset the job or use another job name", s.Name, s.Tasks, have.Run, h.Tasks)
		}
		if !slices.Equal(h.Inputs, s.Inputs) || !slices.Equal(h.Stores, s.Stores) || !slices.Equal(h.Sinks, s.Sinks) {
			return refuse("stage %q has inputs %q, stores %q and sinks %q, run %d began with %q, %q and %q: reset the job or use another job name",
				s.Name, s.Inputs, s.Stores, s.Sinks, have.Run, h.Inputs, h.Stores, h.Sinks)
		}
	}
	if len(have.Stages) != len(want.Stages) {
		return refuse("job %q has %d stages, run %d began with %d: reset the job or use another job name", want.Job, len(want.Stages), have.Run, len(have.Stages))
	}
	return nil
}

func sameSplits(have, want *JobRecord) error {
	for _, s := range want.Splits {
		i := slices.IndexFunc(have.Splits, func(h SplitsOfInput) bool { return h.Stream == s.Stream })
		if i < 0 || len(have.Splits[i].Splits) != len(s.Splits) {
			return refuse("source %q has %d files, run %d of job %q began with another number: another input needs another job name or data folder, or a reset", s.Stream, len(s.Splits), have.Run, want.Job)
		}
		for n, split := range s.Splits {
			if h := have.Splits[i].Splits[n]; h != split {
				return refuse("source %q file %d is %s (%d bytes, sha256 %.12s), run %d of job %q began with %s (%d bytes, sha256 %.12s): another input needs another job name or data folder, or a reset",
					s.Stream, n, split.Name, split.SizeBytes, split.SHA256, have.Run, want.Job, h.Name, h.SizeBytes, h.SHA256)
			}
		}
	}
	return nil
}

// sameTopics refuses a topic that is missing, was created anew, or has another partition count.
func sameTopics(have *JobRecord, p *stream.Plan, found []TopicRecord) error {
	for _, t := range p.Topics {
		i := slices.IndexFunc(have.Topics, func(h TopicRecord) bool { return h.Name == t.Name })
		k := slices.IndexFunc(found, func(h TopicRecord) bool { return h.Name == t.Name })
		switch {
		case i < 0:
			return refuse("topic %s is not in the job record of run %d: the topology changed; reset the job or use another job name", t.Name, have.Run)
		case k < 0:
			return refuse("topic %s is missing, run %d had it: it was deleted; restore it, or reset the job", t.Name, have.Run)
		case found[k].ID != have.Topics[i].ID && found[k].ID != "" && have.Topics[i].ID != "":
			return refuse("topic %s has the id %s, run %d began with %s: it was deleted and created anew, so offsets mean nothing any more; reset the job", t.Name, found[k].ID, have.Run, have.Topics[i].ID)
		case found[k].Partitions != have.Topics[i].Partitions:
			return refuse("topic %s has %d partitions, run %d began with %d: keys have moved; reset the job", t.Name, found[k].Partitions, have.Run, have.Topics[i].Partitions)
		}
	}
	return nil
}

func decodeAll(checkpoints map[string][]byte) (map[string]*Checkpoint, error) {
	out := make(map[string]*Checkpoint, len(checkpoints))
	for _, task := range slices.Sorted(maps.Keys(checkpoints)) {
		c, err := DecodeCheckpoint(checkpoints[task])
		if err != nil {
			return nil, fmt.Errorf("task %s: %w", task, err)
		}
		out[task] = c
	}
	return out, nil
}

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
