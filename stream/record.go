package stream

// Record is one typed record inside a topology.
type Record[K, V any] struct {
	Key   K
	Value V
	// TimeMs is the event time, milliseconds since 1970 UTC, never negative.
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
	// TimestampMs is the event time, never negative.
	TimestampMs int64
}
