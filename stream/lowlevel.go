package stream

import "time"

// LowLevel describes a stage whose tasks are written by hand, after Samza's StreamTask.
type LowLevel struct {
	Inputs  []LowLevelInput
	Outputs []LowLevelOutput
	Stores  []string
	Sinks   []Sink
	// New makes the processor of one task; called again after every restore.
	New func(TaskInfo) Processor
}

// LowLevelInput is one topic that a low-level stage reads. The fields are those of TopicSource; event time is what the
// processor sets in Message.TimestampMs, else the record's timestamp.
type LowLevelInput struct {
	Name        string
	Topic       string
	Partitions  int
	Bounded     bool
	MaxDisorder time.Duration
	IdleTimeout time.Duration
	OnError     Policy
}

// LowLevelOutput is one topic that a low-level stage writes.
type LowLevelOutput struct {
	Name       string
	Topic      string
	Partitions int
}

// Process adds a low-level stage.
func Process(j *Job, name string, spec LowLevel) {
	d := j.newDraft(name)
	if spec.New == nil {
		j.problem("stage %q: New is nil", name)
	}
	d.low = spec.New
	for _, in := range spec.Inputs {
		j.take("stream", in.Name)
		if err := checkTopicName(in.Topic); err != nil {
			j.problem("input %q: %w", in.Name, err)
		}
		j.checkPartitions("input", in.Name, in.Partitions)
		j.checkPolicy(in.Name, in.OnError)
		j.checkDuration(in.Name, "MaxDisorder", in.MaxDisorder)
		d.inputs = append(d.inputs, &draftInput{Input: Input{
			Name: in.Name, Topic: in.Topic, Partitions: in.Partitions, Kind: InputTopic, Bounded: in.Bounded,
			MaxDisorderMs: in.MaxDisorder.Milliseconds(), IdleTimeoutMs: idleTimeoutMs(in.IdleTimeout, in.Bounded),
			OnError: in.OnError,
		}})
	}
	for _, out := range spec.Outputs {
		j.take("output", out.Name)
		if err := checkTopicName(out.Topic); err != nil {
			j.problem("output %q: %w", out.Name, err)
		}
		j.checkPartitions("output", out.Name, out.Partitions)
		d.outputs = append(d.outputs, &draftOutput{Output{Name: out.Name, Topic: out.Topic, Partitions: out.Partitions}})
	}
	for _, store := range spec.Stores {
		j.take("store", store)
		d.stores = append(d.stores, store)
	}
	for _, sink := range spec.Sinks {
		j.take("sink", sink.Name())
		d.sinks = append(d.sinks, sink)
	}
}
