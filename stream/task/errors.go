package task

import (
	"errors"
	"fmt"
	"time"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/kafka"
)

// ErrFenced says that another process has this one's replica number or its tasks. Only one of the two goes on.
var ErrFenced = kafka.ErrFenced

// StartDeadlineError says that brokers answered and yet a start took longer than Config.StartDeadline.
type StartDeadlineError struct {
	What     string
	Deadline time.Duration
	Err      error // what was being done then
}

func (e *StartDeadlineError) Error() string {
	return fmt.Sprintf("task: %s took longer than %v: %v: start it again, or raise StartDeadline", e.What, e.Deadline, e.Err)
}

func (e *StartDeadlineError) Unwrap() error { return e.Err }

// errStopDeadline ends a stop that took too long.
var errStopDeadline = errors.New("task: the graceful stop did not end within StopDeadline; what was not committed is done again at the next start")

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
		"fresh data, or give it the input it began with", e.Job, e.Stream, splits(e.Began), splits(e.Now))
}

func splits(s []stream.Split) string {
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

// ChangedFileError says that a file is no longer the split that the job reads.
type ChangedFileError struct {
	Name      string
	Want, Got string
}

func (e *ChangedFileError) Error() string {
	return fmt.Sprintf("file %s changed while the job was reading it: it was %s and is %s; put the original back and start again",
		e.Name, e.Want, e.Got)
}
