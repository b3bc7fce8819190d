package core

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/strandline-io/strandline/stream"
)

// JobRecordKey is the record's key in partition 0 of the checkpoint topic.
const JobRecordKey = "job"

const jobRecordVersion = 1

// JobRecord is what the first starter of a run fixed, in one transaction. It lives in partition 0 of the checkpoint
// topic under JobRecordKey. See docs/formats/checkpoint.md.
type JobRecord struct {
	Version int             `json:"version"`
	Job     string          `json:"job"`
	Run     int64           `json:"run"` // from 1; only a reset raises it
	Stages  []StageRecord   `json:"stages"`
	Topics  []TopicRecord   `json:"topics"`
	Ends    []PartitionEnd  `json:"ends,omitempty"`
	Splits  []SplitsOfInput `json:"splits,omitempty"`
}

// StageRecord fixes a stage's task count and its inputs, stores and sinks by name.
type StageRecord struct {
	Name   string   `json:"name"`
	Tasks  int      `json:"tasks"`
	Inputs []string `json:"inputs"`
	Stores []string `json:"stores,omitempty"`
	Sinks  []string `json:"sinks,omitempty"`
}

// TopicRecord fixes a topic's identity.
type TopicRecord struct {
	Name       string `json:"name"`
	ID         string `json:"id,omitempty"` // the topic id as text; "" where the cluster has none
	Partitions int    `json:"partitions"`
}

// SplitsOfInput fixes the splits of one file source; partition n is Splits[n].
type SplitsOfInput struct {
	Stream string         `json:"stream"`
	Splits []stream.Split `json:"splits"`
}

// NewJobRecord returns the record of a first start: topics are all topics of the plan with their ids, after they were
// created; ends are the end offsets of the bounded topics that the job does not fill itself (NeedsEnds).
func NewJobRecord(p *stream.Plan, run int64, topics []TopicRecord, ends []PartitionEnd) *JobRecord {
	r := &JobRecord{Version: jobRecordVersion, Job: p.Job, Run: run, Topics: slices.Clone(topics), Ends: slices.Clone(ends)}
	for _, s := range p.Stages {
		stage := StageRecord{Name: s.Name, Tasks: s.Tasks}
		for _, in := range s.Inputs {
			stage.Inputs = append(stage.Inputs, in.Name)
			if in.Kind == stream.InputFile {
				splits := SplitsOfInput{Stream: in.Name}
				for _, f := range in.Files {
					splits.Splits = append(splits.Splits, f.Split)
				}
				r.Splits = append(r.Splits, splits)
			}
		}
		for _, store := range s.Stores {
			stage.Stores = append(stage.Stores, store.Name)
		}
		for _, sink := range s.Sinks {
			stage.Sinks = append(stage.Sinks, sink.Name())
		}
		r.Stages = append(r.Stages, stage)
	}
	return r
}

// NeedsEnds lists the topics whose ends the first start fixes, sorted as the plan lists topics.
func NeedsEnds(p *stream.Plan) []stream.TopicSpec {
	var out []stream.TopicSpec
	for _, t := range p.Topics {
		for _, s := range p.Stages {
			if slices.ContainsFunc(s.Inputs, func(in stream.Input) bool { return in.Topic == t.Name && fixedEnd(&in) }) {
				out = append(out, t)
				break
			}
		}
	}
	return out
}

func fixedEnd(in *stream.Input) bool {
	return in.Kind == stream.InputTopic && in.Bounded && len(in.LoadedBy) == 0
}

// Encode returns the record's value.
func (r *JobRecord) Encode() []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic("BUG: job record: " + err.Error())
	}
	return b
}

// DecodeJobRecord reads a job record. Unknown fields are ignored, another version is refused.
func DecodeJobRecord(b []byte) (*JobRecord, error) {
	var r JobRecord
	if err := decodeJSON(b, &r); err != nil {
		return nil, fmt.Errorf("job record: %w", err)
	}
	if r.Version != jobRecordVersion {
		return nil, fmt.Errorf("job record: %w: version %d, this program reads %d: run the program that wrote it, or a newer one", ErrCheckpoint, r.Version, jobRecordVersion)
	}
	if r.Run < 1 {
		return nil, fmt.Errorf("job record: %w: run %d", ErrCheckpoint, r.Run)
	}
	return &r, nil
}

func (r *JobRecord) end(topic string, partition int) (int64, bool) {
	for _, e := range r.Ends {
		if e.Topic == topic && e.Partition == partition {
			return e.EndOffset, true
		}
	}
	return -1, false
}

// fits checks that the record holds what the plan needs.
func (r *JobRecord) fits(p *stream.Plan) error {
	if r.Job != p.Job || r.Run < 1 {
		return fmt.Errorf("core: the job record is of job %q run %d, the plan of job %q", r.Job, r.Run, p.Job)
	}
	for _, t := range NeedsEnds(p) {
		for n := range t.Partitions {
			if _, ok := r.end(t.Name, n); !ok {
				return fmt.Errorf("core: the job record has no end for topic %s partition %d, which the plan reads as bounded", t.Name, n)
			}
		}
	}
	return nil
}
