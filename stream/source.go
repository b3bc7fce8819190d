package stream

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"
)

// DefaultIdleTimeout is the silence after which an unbounded source partition no longer holds the watermark.
const DefaultIdleTimeout = 30 * time.Second

// TopicSource describes a topic that a job reads.
type TopicSource[K, V any] struct {
	Topic string
	// Partitions is the topic's partition count, the number of tasks. 0 leaves it to the cluster (Plan.Bind).
	Partitions int
	Codecs     Codecs[K, V]
	// Bounded reads to the end that the topic has at the job's first start; if other stages of the job fill the topic,
	// to the end of what they wrote.
	Bounded bool
	// EventTime returns a record's event time, milliseconds since 1970, not negative. nil takes the record's timestamp.
	EventTime func(Record[K, V]) (timeMs int64, err error)
	// MaxDisorder is how far a record's event time may lie behind the newest one of its partition without being late.
	MaxDisorder time.Duration
	// IdleTimeout: 0 is DefaultIdleTimeout, negative never. A bounded input is never idle: it ends.
	IdleTimeout time.Duration
	OnError     Policy
}

// FromTopic reads a topic. name names the stream and the stage that begins with it.
func FromTopic[K, V any](j *Job, name string, src TopicSource[K, V]) Stream[K, V] {
	d := j.newDraft(name)
	j.take("stream", name)
	if err := checkTopicName(src.Topic); err != nil {
		j.problem("source %q: %w", name, err)
	}
	if src.Codecs.Key == nil || src.Codecs.Value == nil {
		j.problem("source %q: a codec is missing", name)
	}
	j.checkPartitions("source", name, src.Partitions)
	j.checkPolicy(name, src.OnError)
	j.checkDuration(name, "MaxDisorder", src.MaxDisorder)
	s := newStream[K, V](j, d)
	in := &draftInput{Input: Input{
		Name: name, Topic: src.Topic, Partitions: src.Partitions, Kind: InputTopic, Bounded: src.Bounded,
		MaxDisorderMs: src.MaxDisorder.Milliseconds(), IdleTimeoutMs: idleTimeoutMs(src.IdleTimeout, src.Bounded),
		OnError: src.OnError,
	}}
	in.source = func(b *build) handler {
		return decoding(src.Codecs, src.EventTime, s.node.push(b))
	}
	d.inputs = append(d.inputs, in)
	return s
}

// decoding turns raw records into typed ones with their event time.
func decoding[K, V any](c Codecs[K, V], eventTime func(Record[K, V]) (int64, error), next push[K, V]) handler {
	return func(ctx Context, m *Message) error {
		r := Record[K, V]{TimeMs: m.TimestampMs, NullKey: m.Key == nil, Null: m.Value == nil}
		var err error
		if !r.NullKey {
			if r.Key, err = c.Key.Decode(m.Key); err != nil {
				return fmt.Errorf("key: %w", err)
			}
		}
		if !r.Null {
			if r.Value, err = c.Value.Decode(m.Value); err != nil {
				return fmt.Errorf("value: %w", err)
			}
		}
		if eventTime != nil {
			if r.TimeMs, err = eventTime(r); err != nil {
				return fmt.Errorf("event time: %w", err)
			}
		}
		if r.TimeMs < 0 {
			return fmt.Errorf("event time %d is before 1970", r.TimeMs)
		}
		m.TimestampMs = r.TimeMs
		return next(ctx, r)
	}
}

// FileSource describes bounded files of lines. Each file is one split and is read by one task.
type FileSource struct {
	// FS and Names say where the files are: os.DirFS, an embed.FS, a test's fstest.MapFS. Their content is hashed once
	// by FromFile; a run recognises its files by hash, size and name.
	FS    fs.FS
	Names []string
	// EventTime returns a line's event time; nil gives every line time 0, which suits a stage that only loads.
	EventTime   func(line []byte) (timeMs int64, err error)
	MaxDisorder time.Duration
	// MaxLineBytes bounds a line without its end: default DefaultLineBytes. A longer one is an error under OnError.
	MaxLineBytes int
	OnError      Policy
}

// FromFile reads files line by line: lines end at "\n", a "\r" before it is dropped, an empty line is a record too, a
// last line needs no end. name names the stream and the stage.
func FromFile(j *Job, name string, src FileSource) Stream[None, []byte] {
	d := j.newDraft(name)
	j.take("stream", name)
	j.checkPolicy(name, src.OnError)
	j.checkDuration(name, "MaxDisorder", src.MaxDisorder)
	if len(src.Names) == 0 {
		j.problem("source %q names no file", name)
	}
	in := &draftInput{Input: Input{
		Name: name, Topic: j.name + "-" + name + "-splits", Partitions: len(src.Names), Kind: InputFile, Bounded: true,
		MaxDisorderMs: src.MaxDisorder.Milliseconds(), OnError: src.OnError, MaxLineBytes: src.MaxLineBytes,
	}}
	if in.MaxLineBytes == 0 {
		in.MaxLineBytes = DefaultLineBytes
	}
	for _, file := range src.Names {
		split, err := SplitOf(src.FS, file)
		if err != nil {
			j.problem("source %q: %w", name, err)
		}
		in.Files = append(in.Files, File{src.FS, split})
	}
	s := newStream[None, []byte](j, d)
	eventTime := func(r Record[None, []byte]) (int64, error) {
		if src.EventTime == nil {
			return 0, nil
		}
		return src.EventTime(r.Value)
	}
	in.source = func(b *build) handler {
		h := decoding(Codecs[None, []byte]{NoKey, Bytes}, eventTime, s.node.push(b))
		return func(ctx Context, m *Message) error {
			if len(m.Value) > in.MaxLineBytes {
				return fmt.Errorf("the line has %d bytes or more, allowed are %d", len(m.Value), in.MaxLineBytes)
			}
			return h(ctx, m)
		}
	}
	d.inputs = append(d.inputs, in)
	return s
}

// SplitOf reads a file once and returns its identity.
func SplitOf(fsys fs.FS, name string) (Split, error) {
	if fsys == nil {
		return Split{}, errors.New("FS is nil")
	}
	f, err := fsys.Open(name)
	if err != nil {
		return Split{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err != nil {
		return Split{}, fmt.Errorf("reading %s: %w", name, err)
	}
	return Split{Name: name, SizeBytes: n, SHA256: hex.EncodeToString(h.Sum(nil))}, nil
}

func idleTimeoutMs(d time.Duration, bounded bool) int64 {
	if d < 0 || bounded {
		return 0
	}
	if d == 0 {
		d = DefaultIdleTimeout
	}
	return max(1, d.Milliseconds())
}

func (j *Job) checkPolicy(name string, p Policy) {
	if p.Action != DeadLetterOnError {
		return
	}
	if err := checkTopicName(p.DeadLetterTopic); err != nil {
		j.problem("input %q: dead letter: %w", name, err)
	}
}

func (j *Job) checkPartitions(kind, name string, n int) {
	if n < 0 || n > MaxTasksPerStage {
		j.problem("%s %q has %d partitions, allowed are 1 to %d (0: ask the cluster)", kind, name, n, MaxTasksPerStage)
	}
}

func (j *Job) checkDuration(name, what string, d time.Duration) {
	if d < 0 {
		j.problem("input %q: %s is %v, it must not be negative", name, what, d)
	}
}
