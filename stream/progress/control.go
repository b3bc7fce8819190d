// Package progress reconciles watermarks and ends of input: over the partitions and upstream tasks of intermediate
// streams (Book), over the silence and the records of a source (Source), and over the inputs of a task (Combine). It
// also holds the control messages that carry them, after Samza's control-message design. It is pure.
package progress

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// None is the watermark before the first one.
const None int64 = math.MinInt64

// Kind is the first byte of every non-null value in an intermediate stream.
type Kind byte

// The kinds. A value that is null altogether is a user's tombstone.
const (
	KindUser        Kind = 0
	KindWatermark   Kind = 1
	KindEndOfStream Kind = 2
)

// Limits of a control message. They hold for what is read and for what is written.
const (
	MaxControlBytes  = 16 << 10
	MaxTaskNameBytes = 512
	MaxTaskCount     = 1_000_000
	controlVersion   = 1
)

var (
	// ErrCorrupt marks a value that is no user message and no control message.
	ErrCorrupt = errors.New("corrupt value in an intermediate stream")
	// ErrNewerVersion marks a control message that only a newer program can read.
	ErrNewerVersion = errors.New("control message of a newer version")
)

// Control is a control message: what one upstream task tells every partition of an intermediate stream.
type Control struct {
	Kind Kind // KindWatermark or KindEndOfStream
	// Task is the upstream task's name, TaskCount how many tasks write the stream; 0 if the message does not say.
	Task      string
	TaskCount int
	// Run is the run of the job that the message belongs to; 0 if the message does not say.
	Run int64
	// TimestampMs is the watermark: every later record of the task has at least this time. None only if Idle.
	TimestampMs int64
	// Idle says that the task waits for an input that is silent: it does not hold the watermark until it speaks again.
	Idle bool
	// Stream is the stream's name, set for KindEndOfStream.
	Stream string
}

type controlJSON struct {
	Version   *int64  `json:"version"`
	TaskName  *string `json:"taskName"`
	TaskCount *int64  `json:"taskCount,omitempty"`
	Timestamp *int64  `json:"timestamp,omitempty"`
	StreamID  *string `json:"streamId,omitempty"`
	RunID     *string `json:"runId,omitempty"`
	Idle      bool    `json:"idle,omitempty"`

	// The spelling of Samza's first code; the other wins where both appear.
	OldTaskName  *string `json:"task-name,omitempty"`
	OldTaskCount *int64  `json:"task-count,omitempty"`
	OldStreamID  *string `json:"stream-id,omitempty"`
	OldRunID     *string `json:"run-id,omitempty"`
}

// Append appends the message's value: type byte and JSON.
func (c Control) Append(dst []byte) []byte {
	version := int64(controlVersion)
	j := controlJSON{Version: &version, TaskName: &c.Task, Idle: c.Idle}
	if c.TaskCount > 0 {
		n := int64(c.TaskCount)
		j.TaskCount = &n
	}
	if c.Run > 0 {
		run := strconv.FormatInt(c.Run, 10)
		j.RunID = &run
	}
	if c.Kind == KindEndOfStream {
		j.StreamID = &c.Stream
	} else if c.TimestampMs != None {
		j.Timestamp = &c.TimestampMs
	}
	b, err := json.Marshal(j)
	if err != nil {
		panic("BUG: control message: " + err.Error())
	}
	return append(append(dst, byte(c.Kind)), b...)
}

// AppendUser appends a user value: type byte and payload. A null payload is not wrapped at all.
func AppendUser(dst, payload []byte) []byte {
	return append(append(dst, byte(KindUser)), payload...)
}

// Parse splits a non-null value of an intermediate stream. The payload aliases value.
func Parse(value []byte) (kind Kind, payload []byte, err error) {
	if len(value) == 0 {
		return 0, nil, fmt.Errorf("%w: it is empty, not even a type byte", ErrCorrupt)
	}
	if Kind(value[0]) > KindEndOfStream {
		return 0, nil, fmt.Errorf("%w: its type byte is %d, known are 0 (user), 1 (watermark) and 2 (end of stream)", ErrCorrupt, value[0])
	}
	return Kind(value[0]), value[1:], nil
}

// ParseControl reads the payload of a control message. Unknown fields are ignored.
func ParseControl(kind Kind, payload []byte) (Control, error) {
	if len(payload) > MaxControlBytes {
		return Control{}, fmt.Errorf("%w: a control message of %d bytes, allowed are %d", ErrCorrupt, len(payload), MaxControlBytes)
	}
	if !bytes.HasPrefix(bytes.TrimLeft(payload, " \t\r\n"), []byte("{")) {
		return Control{}, fmt.Errorf("%w: a control message is a JSON object, got %.60q", ErrCorrupt, payload)
	}
	var j controlJSON
	if err := json.Unmarshal(payload, &j); err != nil {
		return Control{}, fmt.Errorf("%w: %.60q: %w", ErrCorrupt, payload, err)
	}
	if j.Version != nil && *j.Version > controlVersion {
		return Control{}, fmt.Errorf("%w: version %d, this program reads up to %d: update the reading program first", ErrNewerVersion, *j.Version, controlVersion)
	}
	c, err := j.control(kind)
	if err != nil {
		return Control{}, fmt.Errorf("%w: %.200q: %w", ErrCorrupt, payload, err)
	}
	return c, nil
}

func (j *controlJSON) control(kind Kind) (Control, error) {
	c := Control{Kind: kind, Idle: j.Idle, TimestampMs: None}
	if j.Version != nil && *j.Version < 1 {
		return c, fmt.Errorf("version is %d", *j.Version)
	}
	if task := first(j.TaskName, j.OldTaskName); task != nil {
		c.Task = *task
	}
	if c.Task == "" || len(c.Task) > MaxTaskNameBytes {
		return c, fmt.Errorf("taskName has %d bytes, allowed are 1 to %d", len(c.Task), MaxTaskNameBytes)
	}
	if n := first(j.TaskCount, j.OldTaskCount); n != nil {
		if *n < 1 || *n > MaxTaskCount {
			return c, fmt.Errorf("taskCount is %d, allowed are 1 to %d", *n, MaxTaskCount)
		}
		c.TaskCount = int(*n)
	}
	if run := first(j.RunID, j.OldRunID); run != nil {
		n, err := strconv.ParseInt(*run, 10, 64)
		if err != nil || n < 1 {
			return c, fmt.Errorf("runId is %.40q, not a positive number", *run)
		}
		c.Run = n
	}
	if stream := first(j.StreamID, j.OldStreamID); stream != nil && kind == KindEndOfStream {
		c.Stream = *stream
	}
	if kind != KindWatermark {
		return c, nil
	}
	if j.Timestamp != nil {
		c.TimestampMs = *j.Timestamp
	}
	if c.TimestampMs == None && !c.Idle {
		return c, errors.New("a watermark without a timestamp")
	}
	return c, nil
}

func first[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}
