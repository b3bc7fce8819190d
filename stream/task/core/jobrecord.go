package core

import "github.com/strandline-io/strandline/stream"

// JobRecord is what the first starter of a run fixed, in one transaction. It lives in partition 0 of the checkpoint
// topic under the key "job". See docs/formats/checkpoint.md.
type JobRecord struct {
	Version int             `json:"version"`
	Job     string          `json:"job"`
	Run     int64           `json:"run"`
	Stages  []StageRecord   `json:"stages"`
	Topics  []TopicRecord   `json:"topics"`
	Ends    []PartitionEnd  `json:"ends,omitempty"`
	Splits  []SplitsOfInput `json:"splits,omitempty"`
}

// StageRecord fixes a stage's task count.
type StageRecord struct {
	Name  string `json:"name"`
	Tasks int    `json:"tasks"`
}

// TopicRecord fixes a topic's identity.
type TopicRecord struct {
	Name       string `json:"name"`
	ID         string `json:"id"` // the topic id as text; "" where the cluster has none
	Partitions int    `json:"partitions"`
}

// SplitsOfInput fixes the splits of one file source; partition n is Splits[n].
type SplitsOfInput struct {
	Stream string         `json:"stream"`
	Splits []stream.Split `json:"splits"`
}
