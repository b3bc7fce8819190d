package stream

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Build checks the topology and returns its plan, or all problems at once.
func (j *Job) Build() (*Plan, error) {
	p := &Plan{Job: j.name, CheckpointTopic: j.name + "-checkpoint"}
	for _, d := range j.drafts {
		if d.united == nil {
			p.Stages = append(p.Stages, d.stage())
		}
	}
	problems := slices.Clone(j.problems)
	if len(p.Stages) == 0 {
		problems = append(problems, errors.New("the topology is empty"))
	}
	if len(p.Stages) > MaxStages {
		problems = append(problems, fmt.Errorf("the topology has %d stages, allowed are %d", len(p.Stages), MaxStages))
	}
	problems = append(problems, p.finish()...)
	if len(problems) > 0 {
		return nil, fmt.Errorf("job %q cannot be built:\n%w", j.name, errors.Join(problems...))
	}
	return p, nil
}

// Unbound returns the topics whose partition counts the plan leaves to the cluster, sorted.
func (p *Plan) Unbound() []string {
	var names []string
	for _, t := range p.Topics {
		if t.Partitions == 0 {
			names = append(names, t.Name)
		}
	}
	return names
}

// Bind returns a plan with the partition counts that the cluster reports for the topics of Unbound; it refuses a count
// of 0, and inputs of one stage with different counts. A plan must be bound before it runs.
func (p *Plan) Bind(counts map[string]int) (*Plan, error) {
	bound := &Plan{Job: p.Job, CheckpointTopic: p.CheckpointTopic}
	for _, s := range p.Stages {
		c := *s
		c.Inputs, c.Outputs = slices.Clone(s.Inputs), slices.Clone(s.Outputs)
		for i := range c.Inputs {
			if c.Inputs[i].Partitions == 0 {
				c.Inputs[i].Partitions = counts[c.Inputs[i].Topic]
			}
		}
		for i := range c.Outputs {
			if c.Outputs[i].Partitions == 0 {
				c.Outputs[i].Partitions = counts[c.Outputs[i].Topic]
			}
		}
		bound.Stages = append(bound.Stages, &c)
	}
	problems := bound.finish()
	for _, topic := range bound.Unbound() {
		problems = append(problems, fmt.Errorf("topic %q has no partitions: create it first", topic))
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("job %q does not fit the cluster:\n%w", p.Job, errors.Join(problems...))
	}
	return bound, nil
}

// stage compiles a root draft.
func (d *draft) stage() *Stage {
	s := &Stage{Name: d.name, Sinks: d.sinks}
	outputs := map[*draftOutput]int{}
	sinks := map[string]int{}
	for i, out := range d.outputs {
		outputs[out] = i
		s.Outputs = append(s.Outputs, out.Output)
	}
	for i, sink := range d.sinks {
		sinks[sink.Name()] = i
	}
	for _, store := range d.stores {
		s.Stores = append(s.Stores, StoreSpec{Name: store, ChangelogTopic: d.job.name + "-" + store + "-changelog"})
	}
	for _, in := range d.inputs {
		s.Inputs = append(s.Inputs, in.Input)
	}
	if s.newProcessor = d.low; d.low != nil {
		return s
	}
	sources := slices.Clone(d.inputs)
	s.newProcessor = func(task TaskInfo) Processor {
		b := &build{task: task, made: map[any]any{}, outputs: outputs, sinks: sinks}
		g := &graph{}
		for _, in := range sources {
			g.handlers = append(g.handlers, in.source(b))
		}
		g.hooks = b.hooks
		slices.Reverse(g.hooks)
		return g
	}
	return s
}

// graph is the processor of a stage of typed operators.
type graph struct {
	handlers []handler // by input
	hooks    []hook    // upstream first
}

func (g *graph) OnRecord(ctx Context, m *Message) error { return g.handlers[m.Input](ctx, m) }

func (g *graph) OnWatermark(ctx Context, watermarkMs int64) (done bool, err error) {
	for _, h := range g.hooks {
		if done, err := h.onWatermark(ctx, watermarkMs); err != nil || !done {
			return false, err
		}
	}
	return true, nil
}

func (g *graph) OnEnd(ctx Context) (done bool, err error) { return g.OnWatermark(ctx, endOfTime) }

// endOfTime closes everything.
const endOfTime = 1<<63 - 1

// finish links stages to each other, orders them, derives task counts and topics, and returns what is wrong.
func (p *Plan) finish() []error {
	p.shareCounts()
	p.link()
	problems := p.order()
	for _, s := range p.Stages {
		problems = append(problems, s.countTasks()...)
	}
	problems = append(problems, p.checkLoaders()...)
	return append(problems, p.listTopics()...)
}

// shareCounts gives a topic's partition count, where one place declares it, to all places that use the topic.
func (p *Plan) shareCounts() {
	counts := map[string]int{}
	share := func(topic string, n *int) {
		if *n == 0 {
			*n = counts[topic]
		} else if counts[topic] == 0 {
			counts[topic] = *n
		}
	}
	for range 2 {
		for _, s := range p.Stages {
			for i := range s.Inputs {
				share(s.Inputs[i].Topic, &s.Inputs[i].Partitions)
			}
			for i := range s.Outputs {
				share(s.Outputs[i].Topic, &s.Outputs[i].Partitions)
			}
		}
	}
}

// link finds for each input the stages that write its topic.
func (p *Plan) link() {
	for _, s := range p.Stages {
		for i := range s.Inputs {
			s.Inputs[i].LoadedBy = nil
			for _, w := range p.Stages {
				for k := range w.Outputs {
					linkTo(&s.Inputs[i], w.Name, &w.Outputs[k])
				}
			}
		}
	}
}

func linkTo(in *Input, writer string, out *Output) {
	switch {
	case in.Topic != out.Topic:
	case in.Kind == InputIntermediate && out.Intermediate:
		in.UpstreamStage = writer
	case in.Kind == InputTopic && in.Bounded:
		out.Loads = true
		if !slices.Contains(in.LoadedBy, writer) {
			in.LoadedBy = append(in.LoadedBy, writer)
		}
	}
}

// checkLoaders refuses a bounded input whose loader never ends.
func (p *Plan) checkLoaders() []error {
	var problems []error
	for _, s := range p.Stages {
		for _, in := range s.Inputs {
			for _, loader := range in.LoadedBy {
				if l, _ := p.Stage(loader); !l.bounded() {
					problems = append(problems, fmt.Errorf("input %q is bounded, but stage %q, which fills topic %q, never ends: make its inputs bounded", in.Name, loader, in.Topic))
				}
			}
		}
	}
	return problems
}

// bounded reports whether all inputs of the stage end.
func (s *Stage) bounded() bool {
	for _, in := range s.Inputs {
		if !in.Bounded {
			return false
		}
	}
	return true
}

func (s *Stage) countTasks() []error {
	var problems []error
	s.Tasks = 0
	if len(s.Inputs) == 0 {
		return append(problems, fmt.Errorf("stage %q has no input", s.Name))
	}
	for _, in := range s.Inputs {
		switch {
		case in.Partitions == 0:
		case s.Tasks == 0:
			s.Tasks = in.Partitions
		case s.Tasks != in.Partitions:
			problems = append(problems, fmt.Errorf("stage %q reads %s, which must have equal partition counts: task n reads partition n of each", s.Name, s.describeInputs()))
			return problems
		}
	}
	for _, in := range s.Inputs {
		if in.Partitions == 0 {
			s.Tasks = 0
		}
	}
	return problems
}

func (s *Stage) describeInputs() string {
	var parts []string
	for _, in := range s.Inputs {
		parts = append(parts, fmt.Sprintf("%q (%d)", in.Name, in.Partitions))
	}
	return strings.Join(parts, ", ")
}

// order sorts the stages so that writers come before readers, keeping the order of declaration where it is free. A topic
// that is read as unbounded is no edge: a job may feed itself through one.
func (p *Plan) order() []error {
	done := map[string]bool{}
	rest := slices.Clone(p.Stages)
	var sorted []*Stage
	for len(rest) > 0 {
		i := slices.IndexFunc(rest, func(s *Stage) bool {
			return !slices.ContainsFunc(s.upstream(), func(name string) bool { return !done[name] })
		})
		if i < 0 {
			var names []string
			for _, s := range rest {
				names = append(names, s.Name)
			}
			return []error{fmt.Errorf("stages %s read from each other in a circle", strings.Join(names, ", "))}
		}
		done[rest[i].Name] = true
		p.endWithUpstream(rest[i])
		sorted = append(sorted, rest[i])
		rest = slices.Delete(rest, i, i+1)
	}
	p.Stages = sorted
	return nil
}

// endWithUpstream makes an intermediate input bounded if its writer is.
func (p *Plan) endWithUpstream(s *Stage) {
	for i := range s.Inputs {
		if in := &s.Inputs[i]; in.Kind == InputIntermediate {
			up, _ := p.Stage(in.UpstreamStage)
			in.Bounded = up.bounded()
		}
	}
}

func (s *Stage) upstream() []string {
	var names []string
	for _, in := range s.Inputs {
		if in.UpstreamStage != "" {
			names = append(names, in.UpstreamStage)
		}
		names = append(names, in.LoadedBy...)
	}
	return names
}

// listTopics collects the topics of all stages and refuses one topic in two incompatible roles.
func (p *Plan) listTopics() []error {
	var problems []error
	topics := map[string]TopicSpec{}
	add := func(t TopicSpec) {
		old, ok := topics[t.Name]
		switch {
		case !ok:
			topics[t.Name] = t
		case old.Kind != t.Kind && !(userTopic(old.Kind) && userTopic(t.Kind)):
			problems = append(problems, fmt.Errorf("topic %q has two roles: %v and %v", t.Name, old.Kind, t.Kind))
		case old.Partitions != t.Partitions && old.Partitions != 0 && t.Partitions != 0:
			problems = append(problems, fmt.Errorf("topic %q is given %d and %d partitions", t.Name, old.Partitions, t.Partitions))
		default:
			old.Kind = max(old.Kind, t.Kind)
			old.Partitions = max(old.Partitions, t.Partitions)
			topics[t.Name] = old
		}
	}
	tasks := 1
	for _, s := range p.Stages {
		tasks = max(tasks, s.Tasks)
		for _, in := range s.Inputs {
			kind := [...]TopicKind{InputTopic: KindSource, InputIntermediate: KindIntermediate, InputFile: KindSplits}[in.Kind]
			add(TopicSpec{Name: in.Topic, Kind: kind, Partitions: in.Partitions})
			if in.OnError.Action == DeadLetterOnError {
				add(TopicSpec{Name: in.OnError.DeadLetterTopic, Kind: KindDeadLetter, Partitions: 1})
			}
		}
		for _, out := range s.Outputs {
			kind := KindOutput
			if out.Intermediate {
				kind = KindIntermediate
			}
			add(TopicSpec{Name: out.Topic, Kind: kind, Partitions: out.Partitions})
		}
		for _, store := range s.Stores {
			add(TopicSpec{Name: store.ChangelogTopic, Kind: KindChangelog, Partitions: s.Tasks, Compacted: true})
		}
	}
	add(TopicSpec{Name: p.CheckpointTopic, Kind: KindCheckpoint, Partitions: tasks, Compacted: true})
	p.Topics = nil
	for _, t := range topics {
		if err := checkTopicName(t.Name); err != nil {
			problems = append(problems, err)
		}
		p.Topics = append(p.Topics, t)
	}
	slices.SortFunc(p.Topics, func(a, b TopicSpec) int { return strings.Compare(a.Name, b.Name) })
	return problems
}

func userTopic(k TopicKind) bool { return k == KindSource || k == KindOutput }

func (k TopicKind) String() string {
	return [...]string{"source", "output", "dead letter", "intermediate stream", "changelog", "checkpoint", "splits"}[k]
}
