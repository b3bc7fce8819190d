package stream

import (
	"io/fs"
	"strconv"
)

// Plan is a checked topology, ready to run: what package task, and a test under streamtest, carry out. It is immutable
// and safe to share.
type Plan struct {
	Job string
	// Stages are ordered: a stage comes after all stages that it reads from.
	Stages []*Stage
	// Topics are all topics of the job, sorted by name.
	Topics []TopicSpec
	// CheckpointTopic is the name of the checkpoint topic: compacted, one partition per task number.
	CheckpointTopic string
}

// Stage is a part of the topology between topics. It has one task per partition of its inputs, which are
// co-partitioned: task n reads partition n of each.
type Stage struct {
	Name  string
	Tasks int
	// Inputs are ordered as they were declared; Message.Input is an index of it. Outputs likewise for Context.Emit,
	// Sinks for Context.WriteSink.
	Inputs  []Input
	Outputs []Output
	Sinks   []Sink
	Stores  []StoreSpec

	newProcessor func(TaskInfo) Processor
}

// NewProcessor makes the processor of one task, with recovery from panics around it.
func (s *Stage) NewProcessor(task TaskInfo) Processor { return guarded{s.newProcessor(task)} }

// Input is one input stream of a stage.
type Input struct {
	// Name is the stream's name, the streamId of control messages and checkpoints.
	Name       string
	Topic      string
	Partitions int
	Kind       InputKind
	// UpstreamStage is the stage that writes an intermediate stream; "" for sources.
	UpstreamStage string
	// Bounded inputs end. A topic's end is fixed at the first start, except when LoadedBy names the stages of this job
	// that fill it: then by their last transactions.
	Bounded  bool
	LoadedBy []string
	// MaxDisorderMs is how far behind the newest event time a record of a source may be.
	MaxDisorderMs int64
	// IdleTimeoutMs is the silence after which a source counts as idle; 0 means never.
	IdleTimeoutMs int64
	OnError       Policy
	// Files and MaxLineBytes are set for InputFile: partition n is Files[n]. Topic then is the internal topic with one
	// record per split, which makes the group assign it and fence its readers.
	Files        []File
	MaxLineBytes int
}

// InputKind is the kind of an input.
type InputKind int8

// The input kinds.
const (
	InputTopic InputKind = iota
	InputIntermediate
	InputFile
)

// File is one bounded file: where its bytes are, and the split that identifies it.
type File struct {
	FS    fs.FS
	Split Split
}

// Split identifies a bounded file by content.
type Split struct {
	Name      string `json:"name"`
	SizeBytes int64  `json:"size"`
	SHA256    string `json:"sha256"` // lower-case hex
}

// Output is one output topic of a stage.
type Output struct {
	Name       string
	Topic      string
	Partitions int
	// Intermediate outputs carry type bytes, and control messages to every partition.
	Intermediate bool
	// Loads says that another stage of the job reads the topic as bounded: its tasks record the end offsets they wrote.
	Loads bool
}

// StoreSpec is one keyed store of a stage, with one part per task.
type StoreSpec struct {
	Name           string
	ChangelogTopic string
}

// TopicKind says what a topic is for.
type TopicKind int8

// The topic kinds. The job creates all but KindSource; KindOutput and KindDeadLetter may exist before.
const (
	KindSource TopicKind = iota
	KindOutput
	KindDeadLetter
	KindIntermediate
	KindChangelog
	KindCheckpoint
	KindSplits
)

// TopicSpec is a topic that the job needs.
type TopicSpec struct {
	Name string
	Kind TopicKind
	// Partitions is 0 for a source or an output whose count the cluster decides.
	Partitions int
	Compacted  bool
}

// TaskName returns "<stage>-<number>".
func TaskName(stage string, number int) string { return stage + "-" + strconv.Itoa(number) }

// Stage returns the stage with that name.
func (p *Plan) Stage(name string) (*Stage, bool) {
	for _, s := range p.Stages {
		if s.Name == name {
			return s, true
		}
	}
	return nil, false
}

// TaskCount is the number of tasks of all stages.
func (p *Plan) TaskCount() int {
	n := 0
	for _, s := range p.Stages {
		n += s.Tasks
	}
	return n
}
