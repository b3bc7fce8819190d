package stream

import "math"

// MaxTimeMs is the latest event time, in April 2262: Kafka clients that count nanoseconds carry none behind it, and turn a
// later one into another without a word. A record behind it is an error under its input's policy.
const MaxTimeMs = math.MaxInt64 / 1_000_000

// MaxRecordBytes bounds what a record that is sent to a topic takes: key, value, headers and overheadBytes, and
// headerOverheadBytes for each header. It is what a Kafka cluster takes by default.
const MaxRecordBytes = 1 << 20

const (
	overheadBytes       = 128 // at least a batch's header and the lengths in a record
	headerOverheadBytes = 12
)

// RecordBytes is what counts against MaxRecordBytes.
func RecordBytes(key, value []byte, headers []Header) int {
	n := overheadBytes + len(key) + len(value)
	for _, h := range headers {
		n += headerOverheadBytes + len(h.Key) + len(h.Value)
	}
	return n
}

// Record is one typed record inside a topology.
type Record[K, V any] struct {
	Key   K
	Value V
	// TimeMs is the event time, milliseconds since 1970 UTC, 0 to MaxTimeMs.
	TimeMs int64
	// NullKey and Null say that the record has no key, or no value (a tombstone); Key or Value is then the zero value.
	// A null stays a null through every operator that keeps the field.
	NullKey bool
	Null    bool
}

// With returns a record with the event time of r and another key and value.
func With[K, V, K2, V2 any](r Record[K, V], key K2, value V2) Record[K2, V2] {
	return Record[K2, V2]{Key: key, Value: value, TimeMs: r.TimeMs}
}

// None is the key type of streams without keys, as a file's lines are.
type None struct{}

// Header is a record header.
type Header struct {
	Key   string
	Value []byte
}

// Message is one raw record of an input, as a driver fetched it. Key and Value belong to the driver until the
// transaction that processed the message has ended, and nobody changes them.
type Message struct {
	// Input is the index in Stage.Inputs.
	Input     int
	Partition int
	// Offset is the record's offset in a topic, or the byte position of the line's first byte in a file.
	Offset int64
	// Line is the line's number in a file, from 1; 0 in a topic.
	Line int64
	// Key and Value are nil when null. For an intermediate stream, task core has already taken the type byte off.
	Key, Value []byte
	Headers    []Header
	// TimestampMs is the record's timestamp. A processor may replace it with the event time it knows: task core reads
	// it back after OnRecord to move the watermark of a source.
	TimestampMs int64
}

// Emission is what a processor sends to an output topic. The bytes belong to the receiver from the call on.
type Emission struct {
	// Key decides the partition (murmur2, as the Java client and kgo do). With a nil key all records of one task go to
	// one partition, which keeps their order.
	Key     []byte
	Value   []byte // nil is a tombstone
	Headers []Header
	// TimestampMs is the event time, 0 to MaxTimeMs.
	TimestampMs int64
}
