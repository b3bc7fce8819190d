package protocol

import (
	"errors"
	"fmt"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/state"
)

// MissingTopicError says that a topic that the job needs is not there. For a topic that the job reads and nobody in it
// writes, it is to be created first; for any other, something deleted it since the job began.
type MissingTopicError struct {
	Job, Topic string
	// Began says that the job has run before, with the topic.
	Began bool
}

func (e *MissingTopicError) Error() string {
	if !e.Began {
		return fmt.Sprintf("job %q reads topic %q, which does not exist: create it first", e.Job, e.Topic)
	}
	return fmt.Sprintf("job %q has run with topic %q, which does not exist any more: its data is gone; restore the topic's broker, "+
		"or run the job under another name to begin anew", e.Job, e.Topic)
}

// ChangedTopicError says that a topic is not the one, or has not the size, with which the job began.
type ChangedTopicError struct {
	Job, Topic string
	What       string // "id" or "partition count"
	Began, Now string
}

func (e *ChangedTopicError) Error() string {
	if e.What == "id" {
		return fmt.Sprintf("topic %q was deleted and created again since job %q began (id %s, now %s), so the job's offsets mean other "+
			"records: run the job under another name", e.Topic, e.Job, e.Began, e.Now)
	}
	return fmt.Sprintf("topic %q has %s %s, job %q began with %s: keys would change their task; run the job under another name",
		e.Topic, e.What, e.Now, e.Job, e.Began)
}

// DifferentInputError says that a job that began with certain files is started with others. Results of both would be
// mixed under one name.
type DifferentInputError struct {
	Job, Stream string
	Began, Now  []stream.Split
}

func (e *DifferentInputError) Error() string {
	return fmt.Sprintf("job %q began with another input for %q: it read %s, now it is given %s; run it under another name, or over "+
		"fresh data, or give it the input it began with", e.Job, e.Stream, DescribeSplits(e.Began), DescribeSplits(e.Now))
}

// DescribeSplits names files for messages.
func DescribeSplits(s []stream.Split) string {
	if len(s) == 0 {
		return "nothing"
	}
	text := fmt.Sprintf("%s (%d bytes, sha256 %.12s…)", s[0].Name, s[0].SizeBytes, s[0].SHA256)
	if len(s) > 1 {
		text += fmt.Sprintf(" and %d more files", len(s)-1)
	}
	return text
}

// DifferentPlanError says that a job began with other stages.
type DifferentPlanError struct {
	Job, What  string
	Began, Now string
}

func (e *DifferentPlanError) Error() string {
	return fmt.Sprintf("job %q began with %s %s and now has %s: its state does not fit; run the changed topology under another name",
		e.Job, e.What, e.Began, e.Now)
}

// OrphanOffsetsError says that the group has offsets although there is no job record: the checkpoint topic is gone.
type OrphanOffsetsError struct {
	Job, Topic      string
	CheckpointTopic string
}

func (e *OrphanOffsetsError) Error() string {
	return fmt.Sprintf("group %q has committed offsets (topic %q), but topic %q holds no record of the job: its checkpoints were deleted "+
		"or belong to another cluster; restore the topic, or delete the group to begin anew", e.Job, e.Topic, e.CheckpointTopic)
}

// OrphanCheckpointError says that the checkpoint topic holds checkpoints and no job record.
type OrphanCheckpointError struct {
	Job, Task       string
	CheckpointTopic string
}

func (e *OrphanCheckpointError) Error() string {
	return fmt.Sprintf("topic %q holds a checkpoint of task %q and no record of job %q: the record was deleted; restore the topic, or "+
		"delete it together with the group and the job's other topics to begin anew", e.CheckpointTopic, e.Task, e.Job)
}

// Final reports whether an error stays however often the work is repeated.
func Final(err error) bool {
	if errors.Is(err, kafka.ErrFenced) || kafka.Refused(err) {
		return true
	}
	if _, ok := errors.AsType[*kafka.TransactionTimeoutError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*state.FullError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*MissingTopicError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*ChangedTopicError](err); ok {
		return true
	}
	// Sinks say it themselves: of a record that can never be written, of a store that will not change its mind.
	if bad, ok := errors.AsType[interface {
		error
		BadRecord() bool
	}](err); ok && bad.BadRecord() {
		return true
	}
	stays, ok := errors.AsType[interface {
		error
		Permanent() bool
	}](err)
	return ok && stays.Permanent()
}
