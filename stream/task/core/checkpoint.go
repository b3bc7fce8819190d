package core

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/strandline-io/strandline/internal/mutant"
	"github.com/strandline-io/strandline/stream/progress"
)

const (
	checkpointVersion = 1
	// MaxCheckpointBytes bounds a checkpoint that is read.
	MaxCheckpointBytes = 64 << 20
)

// ErrCheckpoint marks a checkpoint or job record that cannot be read.
var ErrCheckpoint = errors.New("unreadable checkpoint")

// Checkpoint is everything about a task that a transaction commits with its outputs. See docs/formats/checkpoint.md.
type Checkpoint struct {
	Version int               `json:"version"`
	Task    string            `json:"task"`
	Run     int64             `json:"run"`
	Commit  int64             `json:"commit"` // counts the task's commits from 1
	Inputs  []InputCheckpoint `json:"inputs"`
	// Delivered is the watermark that the processor was told, Out what the task may tell downstream (behind a chunked
	// close it lags), Sent what it has told.
	Delivered *int64          `json:"delivered,omitempty"`
	Out       StateCheckpoint `json:"out"`
	Sent      StateCheckpoint `json:"sent"`
	// Ended: the processor has done its end. Only sink tokens may be left.
	Ended    bool             `json:"ended,omitempty"`
	Sinks    []SinkCheckpoint `json:"sinks,omitempty"`
	Loaded   []PartitionEnd   `json:"loaded,omitempty"`
	Counters Counters         `json:"counters"`
}

// InputCheckpoint is the position and the bookkeeping of one input partition. Source is set for sources, Book for
// intermediate streams.
type InputCheckpoint struct {
	Stream    string                   `json:"stream"`
	Partition int                      `json:"partition"`
	Position  Position                 `json:"position"`
	Source    *StateCheckpoint         `json:"source,omitempty"`
	Book      *progress.BookCheckpoint `json:"book,omitempty"`
}

// StateCheckpoint is a progress.State; an absent watermark is none.
type StateCheckpoint struct {
	Watermark *int64 `json:"watermark,omitempty"`
	Idle      bool   `json:"idle,omitempty"`
	Ended     bool   `json:"ended,omitempty"`
}

// SinkCheckpoint is one sink of a task: the newest prepared token, and the number of the next row.
type SinkCheckpoint struct {
	Sink  string `json:"sink"`
	Token []byte `json:"token,omitempty"`
	Rows  int64  `json:"rows"`
}

// Counters count records of a task over its whole life, exactly once: they are part of its checkpoint.
type Counters struct {
	Records      int64 `json:"records"` // processed, skipped or sent to the dead letters
	Skipped      int64 `json:"skipped,omitempty"`
	DeadLettered int64 `json:"deadLettered,omitempty"`
	Late         int64 `json:"late,omitempty"`
	Emitted      int64 `json:"emitted,omitempty"`
}

func (c *Checkpoint) pending() bool {
	for _, s := range c.Sinks {
		if s.Token != nil {
			return true
		}
	}
	return false
}

// Encode returns the checkpoint's value in the checkpoint topic; the key is the task's name.
func (c *Checkpoint) Encode() []byte {
	b, err := json.Marshal(c)
	if err != nil {
		panic("BUG: checkpoint: " + err.Error())
	}
	return b
}

// DecodeCheckpoint reads a checkpoint. Unknown fields are ignored, a newer version is refused.
func DecodeCheckpoint(b []byte) (*Checkpoint, error) {
	var c Checkpoint
	if err := decodeJSON(b, &c); err != nil {
		return nil, err
	}
	if c.Version != checkpointVersion {
		return nil, fmt.Errorf("%w: version %d, this program reads %d: run the program that wrote it, or a newer one", ErrCheckpoint, c.Version, checkpointVersion)
	}
	for _, in := range c.Inputs {
		if in.Position.Offset < 0 || in.Position.Line < 0 {
			return nil, fmt.Errorf("%w: stream %.100q has the position %d, line %d", ErrCheckpoint, in.Stream, in.Position.Offset, in.Position.Line)
		}
	}
	return &c, nil
}

func decodeJSON(b []byte, v any) error {
	if len(b) > MaxCheckpointBytes {
		return fmt.Errorf("%w: %d bytes, allowed are %d", ErrCheckpoint, len(b), MaxCheckpointBytes)
	}
	if len(b) == 0 || b[0] != '{' {
		return fmt.Errorf("%w: no JSON object: %.60q", ErrCheckpoint, b)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%w: %.60q: %w", ErrCheckpoint, b, err)
	}
	return nil
}

func toCheckpoint(s progress.State) StateCheckpoint {
	c := StateCheckpoint{Idle: s.Idle, Ended: s.Ended}
	if s.WatermarkMs != progress.None {
		c.Watermark = &s.WatermarkMs
	}
	return c
}

func (c StateCheckpoint) state() progress.State {
	s := progress.State{WatermarkMs: progress.None, Idle: c.Idle, Ended: c.Ended}
	if c.Watermark != nil {
		s.WatermarkMs = *c.Watermark
	}
	return s
}

func (t *task) checkpoint(run int64) *Checkpoint {
	c := &Checkpoint{
		Version: checkpointVersion, Task: t.id.Name(), Run: run, Commit: t.commits, Out: toCheckpoint(t.out),
		Sent: toCheckpoint(t.sent), Ended: t.out.Ended, Loaded: t.loaded, Counters: t.counters,
	}
	if t.deliveredMs != progress.None {
		delivered := t.deliveredMs
		c.Delivered = &delivered
	}
	for _, in := range t.inputs {
		ic := InputCheckpoint{Stream: in.spec.Name, Partition: t.id.Number, Position: in.position}
		if in.book != nil {
			book := in.book.Checkpoint()
			ic.Book = &book
		} else {
			source := toCheckpoint(in.source.State())
			ic.Source = &source
		}
		c.Inputs = append(c.Inputs, ic)
	}
	for _, s := range t.sinks {
		c.Sinks = append(c.Sinks, SinkCheckpoint{s.name, s.token, s.rows})
	}
	return c
}

// load is the inverse of checkpoint.
func (t *task) load(c *Checkpoint, known []RestoredInput) error {
	if c.Task != t.id.Name() || len(c.Inputs) != len(t.inputs) || len(c.Sinks) != len(t.sinks) {
		return fmt.Errorf("%w: it is of task %.100q with %d inputs and %d sinks, the topology has %d and %d: it changed; reset the job or run it under another name",
			ErrCheckpoint, c.Task, len(c.Inputs), len(c.Sinks), len(t.inputs), len(t.sinks))
	}
	t.commits, t.counters, t.loaded = c.Commit, c.Counters, c.Loaded
	t.out, t.sent = c.Out.state(), c.Sent.state()
	if c.Delivered != nil {
		t.deliveredMs = *c.Delivered
	}
	for i, in := range t.inputs {
		if err := t.loadInput(in, c.Inputs[i], c.Run); err != nil {
			return err
		}
		if have, want := known[i].GroupOffset, in.groupOffset(); have >= 0 && have != want {
			return fmt.Errorf("the group's committed offset for topic %s partition %d is %d, the checkpoint says %d: somebody changed one of them; set the group's offset back to the checkpoint's, or delete it, or reset the job",
				in.spec.Topic, t.id.Number, have, want)
		}
	}
	for i, s := range t.sinks {
		if c.Sinks[i].Sink != s.name {
			return fmt.Errorf("%w: it has sink %.100q, the topology %q: reset the job or run it under another name", ErrCheckpoint, c.Sinks[i].Sink, s.name)
		}
		s.token, s.rows, s.confirmed = c.Sinks[i].Token, c.Sinks[i].Rows, c.Sinks[i].Token == nil
		if mutant.On("row sequence not restored") {
			s.rows = 0
		}
	}
	return nil
}

func (t *task) loadInput(in *input, c InputCheckpoint, run int64) error {
	if c.Stream != in.spec.Name || c.Partition != t.id.Number || (c.Book == nil) != (in.book == nil) || (c.Source == nil) != (in.source == nil) {
		return fmt.Errorf("%w: it has stream %.100q, the topology %q: reset the job or run it under another name", ErrCheckpoint, c.Stream, in.spec.Name)
	}
	in.position = c.Position
	if in.source != nil {
		in.source = progress.RestoreSource(c.Source.state(), in.spec.MaxDisorderMs, in.spec.IdleTimeoutMs)
		return nil
	}
	if mutant.On("bookkeeping not restored") {
		return nil
	}
	book, err := progress.RestoreBook(*c.Book, in.spec.Name, t.id.Number, run, in.book.Expected())
	if err != nil {
		return err
	}
	in.book = book
	return nil
}
