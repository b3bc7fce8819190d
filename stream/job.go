package stream

import "fmt"

// Limits of a topology.
const (
	MaxNameBytes     = 100 // of a job, stage, stream, store or sink name
	MaxTasksPerStage = 10_000
	MaxStages        = 1_000
	DefaultLineBytes = 1 << 20
)

// Job collects a topology. It is used by one goroutine; Build checks everything at once.
type Job struct {
	name     string
	problems []error
	drafts   []*draft
	names    map[string]string // kind + name → taken
}

// NewJob begins a topology. The name is part of every topic, group and transactional id of the job: letters, digits,
// '_' and '-'.
func NewJob(name string) *Job {
	j := &Job{name: name, names: map[string]string{}}
	j.checkName("job", name)
	return j
}

func (j *Job) problem(format string, args ...any) {
	j.problems = append(j.problems, fmt.Errorf(format, args...))
}

func (j *Job) checkName(kind, name string) {
	if err := checkName(kind, name); err != nil {
		j.problems = append(j.problems, err)
	}
}

// take checks a name and that it is new among its kind.
func (j *Job) take(kind, name string) {
	j.checkName(kind, name)
	id := kind + " " + name
	if _, taken := j.names[id]; taken {
		j.problem("two %ss are named %q: names must be unique, because state is kept under them", kind, name)
	}
	j.names[id] = id
}

func checkName(kind, name string) error {
	if name == "" {
		return fmt.Errorf("a %s has no name: names are mandatory, because state is kept under them", kind)
	}
	if len(name) > MaxNameBytes {
		return fmt.Errorf("the %s name %.20q… has %d bytes, allowed are %d", kind, name, len(name), MaxNameBytes)
	}
	for _, c := range []byte(name) {
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
		if !ok {
			return fmt.Errorf("the %s name %q holds %q: allowed are letters, digits, '_' and '-'", kind, name, string(c))
		}
	}
	return nil
}

func checkTopicName(topic string) error {
	if topic == "" || topic == "." || topic == ".." || len(topic) > 249 {
		return fmt.Errorf("%q is no topic name: it needs 1 to 249 bytes", topic)
	}
	for _, c := range []byte(topic) {
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.'
		if !ok {
			return fmt.Errorf("the topic name %q holds %q: allowed are letters, digits, '.', '_' and '-'", topic, string(c))
		}
	}
	return nil
}

// draft is a stage that is being described. Merge unites drafts: the root then stands for all of them.
type draft struct {
	job     *Job
	name    string
	united  *draft // nil at a root
	inputs  []*draftInput
	outputs []*draftOutput
	sinks   []Sink
	stores  []string
	// low is set for a low-level stage, which has no typed operators.
	low func(TaskInfo) Processor
}

type draftInput struct {
	Input
	// source makes the typed operators behind the input, for one task.
	source func(*build) handler
}

type draftOutput struct {
	Output
}

// handler processes one raw record of an input.
type handler func(ctx Context, m *Message) error

// push hands one typed record to the next operator.
type push[K, V any] func(ctx Context, r Record[K, V]) error

func (j *Job) newDraft(name string) *draft {
	j.take("stage", name)
	d := &draft{job: j, name: name}
	j.drafts = append(j.drafts, d)
	return d
}

func (d *draft) root() *draft {
	for d.united != nil {
		d = d.united
	}
	return d
}

func unite(a, b *draft) *draft {
	a, b = a.root(), b.root()
	if a == b {
		return a
	}
	a.inputs = append(a.inputs, b.inputs...)
	a.outputs = append(a.outputs, b.outputs...)
	a.sinks = append(a.sinks, b.sinks...)
	a.stores = append(a.stores, b.stores...)
	b.united = a
	return a
}

// Stream is a stream of typed records inside a topology. Several operators may read one stream.
type Stream[K, V any] struct {
	job  *Job
	node *node[K, V]
}

// node is one operator's output: what reads it, as constructors that run once per task.
type node[K, V any] struct {
	draft     *draft
	consumers []func(*build) push[K, V]
}

func newStream[K, V any](j *Job, d *draft) Stream[K, V] {
	return Stream[K, V]{j, &node[K, V]{draft: d}}
}

func (s Stream[K, V]) draft() *draft { return s.node.draft.root() }

func (s Stream[K, V]) read(consumer func(*build) push[K, V]) {
	s.node.consumers = append(s.node.consumers, consumer)
}

// build makes the operators of one task. Every node is built once, consumers before producers.
type build struct {
	task    TaskInfo
	made    map[any]any
	hooks   []hook // in the order of building: downstream first
	outputs map[*draftOutput]int
	sinks   map[string]int
}

// hook is an operator that acts on watermarks.
type hook interface {
	onWatermark(ctx Context, watermarkMs int64) (done bool, err error)
}

func (n *node[K, V]) push(b *build) push[K, V] {
	if made, ok := b.made[n]; ok {
		return made.(push[K, V])
	}
	var all []push[K, V]
	for _, consumer := range n.consumers {
		all = append(all, consumer(b))
	}
	p := func(ctx Context, r Record[K, V]) error {
		for _, next := range all {
			if err := next(ctx, r); err != nil {
				return err
			}
		}
		return nil
	}
	if len(all) == 1 {
		p = all[0]
	}
	b.made[n] = push[K, V](p)
	return p
}
