package stream

import (
	"errors"
	"fmt"
)

// Policy says what happens to a record that cannot be decoded or whose processing fails. Control messages of
// intermediate streams are under no policy: one that cannot be read always stops the job.
type Policy struct {
	Action PolicyAction
	// DeadLetterTopic is where DeadLetter sends the record: same key and value, in the same transaction, with headers
	// that name error, task, stream, partition and offset. What would exceed MaxRecordBytes is cut, see HeaderCut.
	DeadLetterTopic string
}

// PolicyAction is the kind of a Policy.
type PolicyAction int8

// The actions. The zero value stops.
const (
	StopOnError PolicyAction = iota
	SkipOnError
	DeadLetterOnError
)

// Stop ends the job with an error that names the record. It is the default.
func Stop() Policy { return Policy{} }

// Skip counts the record and goes on behind it.
func Skip() Policy { return Policy{Action: SkipOnError} }

// DeadLetter sends the record to topic, counts it and goes on behind it.
func DeadLetter(topic string) Policy {
	return Policy{Action: DeadLetterOnError, DeadLetterTopic: topic}
}

// The headers of a dead letter.
const (
	HeaderError     = "strandline.error"
	HeaderTask      = "strandline.task"
	HeaderStream    = "strandline.stream"
	HeaderPartition = "strandline.partition"
	HeaderOffset    = "strandline.offset"
	HeaderFile      = "strandline.file"
	HeaderLine      = "strandline.line"
	// HeaderCut is there if the record was too large for a dead letter, and says how long key and value were (a line that
	// is longer than allowed is not read to its end). Headers of the record itself go first, then bytes of value and key.
	HeaderCut = "strandline.cut"
)

// RecordError says which record failed where. Err is the codec's or the user's error, or a *PanicError.
type RecordError struct {
	Job       string
	Task      string
	Stream    string
	Partition int
	Offset    int64
	File      string // for a file source
	Line      int64
	Err       error
}

func (e *RecordError) Error() string {
	where := fmt.Sprintf("stream %s partition %d offset %d", e.Stream, e.Partition, e.Offset)
	mend := "mend the code that refuses it"
	if e.File != "" {
		where = fmt.Sprintf("%s:%d", e.File, e.Line)
		mend = "mend it and start over fresh data"
	}
	return fmt.Sprintf("%s: task %s: %v (%s, or go on with the input's policy set to skip)", where, e.Task, e.Err, mend)
}

// Unwrap returns Err.
func (e *RecordError) Unwrap() error { return e.Err }

// ErrStore marks errors of a store's content. They stop the job whatever the policy.
var ErrStore = errors.New("store damaged")

// PanicError is a recovered panic of user code.
type PanicError struct {
	Value any
	// Location is file:line of the code that panicked.
	Location string
	Stack    []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic at %s: %v", e.Location, e.Value) }
