package protocol

import (
	"sync"

	"github.com/strandline-io/strandline/internal/mutant"
	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/task/core"
)

// Tokens holds the tokens under which tasks are owned, and the membership that goes with them. It is read by commits
// and ended by the group's callbacks, so it has a lock.
type Tokens struct {
	mu         sync.Mutex
	last       int64
	tokens     map[core.Task]int64
	membership kafka.Membership
}

// NewTokens returns an empty set.
func NewTokens() *Tokens { return &Tokens{tokens: make(map[core.Task]int64)} }

// Give makes tokens that were never used before.
func (o *Tokens) Give(m kafka.Membership, tasks []core.Task) []core.Ownership {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.membership = m
	out := make([]core.Ownership, len(tasks))
	for i, t := range tasks {
		o.last++
		o.tokens[t] = o.last
		out[i] = core.Ownership{Task: t, Token: o.last}
	}
	return out
}

// End ends the tokens of tasks.
func (o *Tokens) End(tasks []core.Task) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, t := range tasks {
		delete(o.tokens, t)
	}
}

// EndAll ends all tokens.
func (o *Tokens) EndAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.tokens)
}

// Hold returns the membership if every one of owned still holds its token.
func (o *Tokens) Hold(owned []core.Ownership) (kafka.Membership, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, own := range owned {
		if o.tokens[own.Task] != own.Token && !mutant.On("commit after a revoke with the new generation") {
			return kafka.Membership{}, false
		}
	}
	return o.membership, true
}

// StageInputs is what the group's balancer needs of a plan.
func StageInputs(p *stream.Plan) []kafka.StageInputs {
	var stages []kafka.StageInputs
	for _, st := range p.Stages {
		in := kafka.StageInputs{Stage: st.Name, Tasks: int32(st.Tasks)}
		for _, i := range st.Inputs {
			in.Topics = append(in.Topics, i.Topic)
		}
		stages = append(stages, in)
	}
	return stages
}

// TasksOf lists the tasks of which all inputs are assigned.
func TasksOf(p *stream.Plan, assigned []kafka.TopicPartition) []core.Task {
	have := make(map[kafka.TopicPartition]bool, len(assigned))
	for _, tp := range assigned {
		have[tp] = true
	}
	var tasks []core.Task
	for _, st := range p.Stages {
		for n := range st.Tasks {
			all := true
			for _, in := range st.Inputs {
				all = all && have[kafka.TopicPartition{Topic: in.Topic, Partition: int32(n)}]
			}
			if all {
				tasks = append(tasks, core.Task{Stage: st.Name, Number: n})
			}
		}
	}
	return tasks
}
