package task

import (
	"errors"
	"fmt"
	"time"

	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/task/protocol"
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

// Errors of a start, and of topics that change under a job.
type (
	// MissingTopicError says that a topic that the job needs is not there.
	MissingTopicError = protocol.MissingTopicError
	// ChangedTopicError says that a topic is not the one, or has not the size, with which the job began.
	ChangedTopicError = protocol.ChangedTopicError
	// DifferentInputError says that a job that began with certain files is started with others.
	DifferentInputError = protocol.DifferentInputError
	// DifferentPlanError says that a job began with other stages.
	DifferentPlanError = protocol.DifferentPlanError
	// OrphanOffsetsError says that the group has offsets although there is no job record.
	OrphanOffsetsError = protocol.OrphanOffsetsError
	// OrphanCheckpointError says that the checkpoint topic holds checkpoints and no job record.
	OrphanCheckpointError = protocol.OrphanCheckpointError
)

// ChangedFileError says that a file is no longer the split that the job reads.
type ChangedFileError struct {
	Name      string
	Want, Got string
}

func (e *ChangedFileError) Error() string {
	return fmt.Sprintf("file %s changed while the job was reading it: it was %s and is %s; put the original back and start again",
		e.Name, e.Want, e.Got)
}
