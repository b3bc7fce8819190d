package stream

// Map turns every record into one of another kind. f sees nulls as they are; an error is handled by the policy of the
// input that the record came from.
func Map[K, V, K2, V2 any](s Stream[K, V], f func(Record[K, V]) (Record[K2, V2], error)) Stream[K2, V2] {
	return FlatMap(s, func(r Record[K, V], emit func(Record[K2, V2]) error) error {
		out, err := f(r)
		if err != nil {
			return err
		}
		return emit(out)
	})
}

// MapValues turns every value into one of another type. A tombstone stays a tombstone without a call.
func MapValues[K, V, W any](s Stream[K, V], f func(V) (W, error)) Stream[K, W] {
	return Map(s, func(r Record[K, V]) (Record[K, W], error) {
		out := Record[K, W]{Key: r.Key, NullKey: r.NullKey, Null: r.Null, TimeMs: r.TimeMs}
		var err error
		if !r.Null {
			out.Value, err = f(r.Value)
		}
		return out, err
	})
}

// Filter keeps the records for which keep says true.
func Filter[K, V any](s Stream[K, V], keep func(Record[K, V]) (bool, error)) Stream[K, V] {
	return FlatMap(s, func(r Record[K, V], emit func(Record[K, V]) error) error {
		if ok, err := keep(r); err != nil || !ok {
			return err
		}
		return emit(r)
	})
}

// FlatMap turns every record into any number of records. emit must be called only during the call, and its error be
// returned.
func FlatMap[K, V, K2, V2 any](s Stream[K, V], f func(r Record[K, V], emit func(Record[K2, V2]) error) error) Stream[K2, V2] {
	out := newStream[K2, V2](s.job, s.draft())
	s.read(func(b *build) push[K, V] {
		next := out.node.push(b)
		return func(ctx Context, r Record[K, V]) error {
			return f(r, func(r2 Record[K2, V2]) error { return next(ctx, r2) })
		}
	})
	return out
}

// Merge unites streams in one stage called name: its inputs are the inputs of all, they must have the same partition
// count, and its watermark is the lowest of them.
func Merge[K, V any](name string, first Stream[K, V], others ...Stream[K, V]) Stream[K, V] {
	d := first.draft()
	for _, s := range others {
		d = unite(d, s.draft())
	}
	first.job.take("stage", name)
	d.name = name
	out := newStream[K, V](first.job, d)
	through := func(b *build) push[K, V] { return out.node.push(b) }
	first.read(through)
	for _, s := range others {
		s.read(through)
	}
	return out
}

// InputOption changes the input that KeyBy makes.
type InputOption func(*Input)

// OnError sets the policy for records that fail in the stage behind an intermediate stream, which KeyBy begins; default
// Stop. The policy of the source before it, such as TopicSource.OnError, does not reach there.
func OnError(p Policy) InputOption { return func(in *Input) { in.OnError = p } }

// KeyBy sends every record, by its new key, to one of partitions partitions of an intermediate stream, which the next
// stage reads. name names the stream and that stage. Event times, tombstones and the order per upstream task and
// partition are kept; watermarks and the end of the stream travel along.
//
// A record for which key fails is under the policy of the input that it came from: TopicSource.OnError or FileSource.OnError,
// or OnError of the KeyBy before. One that fails behind, in the operators that read the result, is under OnError among opts.
func KeyBy[K, V, K2 any](s Stream[K, V], name string, partitions int, key func(Record[K, V]) (K2, error), c Codecs[K2, V], opts ...InputOption) Stream[K2, V] {
	j := s.job
	d := j.newDraft(name)
	j.take("stream", name)
	if partitions < 1 || partitions > MaxTasksPerStage {
		j.problem("intermediate stream %q has %d partitions, allowed are 1 to %d", name, partitions, MaxTasksPerStage)
	}
	if c.Key == nil || c.Value == nil {
		j.problem("intermediate stream %q: a codec is missing", name)
	}
	topic := j.name + "-" + name
	out := &draftOutput{Output{Name: name, Topic: topic, Partitions: partitions, Intermediate: true}}
	up := s.draft()
	up.outputs = append(up.outputs, out)
	s.read(func(b *build) push[K, V] {
		send := encoding(b, out, c)
		return func(ctx Context, r Record[K, V]) error {
			k, err := key(r)
			if err != nil {
				return err
			}
			return send(ctx, Record[K2, V]{Key: k, Value: r.Value, Null: r.Null, TimeMs: r.TimeMs})
		}
	})
	in := &draftInput{Input: Input{Name: name, Topic: topic, Partitions: partitions, Kind: InputIntermediate}}
	for _, opt := range opts {
		opt(&in.Input)
	}
	j.checkPolicy(name, in.OnError)
	next := newStream[K2, V](j, d)
	in.source = func(b *build) handler { return decoding(c, nil, next.node.push(b)) }
	d.inputs = append(d.inputs, in)
	return next
}

// TopicSink describes a topic that a job writes.
type TopicSink[K, V any] struct {
	Topic string
	// Partitions is the topic's partition count. 0 leaves it to the cluster (Plan.Bind).
	Partitions int
	Codecs     Codecs[K, V]
}

// ToTopic writes every record to a topic, partitioned by key, with its event time as timestamp. name names the output.
func ToTopic[K, V any](s Stream[K, V], name string, sink TopicSink[K, V]) {
	j := s.job
	j.take("output", name)
	if err := checkTopicName(sink.Topic); err != nil {
		j.problem("output %q: %w", name, err)
	}
	if sink.Codecs.Key == nil || sink.Codecs.Value == nil {
		j.problem("output %q: a codec is missing", name)
	}
	j.checkPartitions("output", name, sink.Partitions)
	out := &draftOutput{Output{Name: name, Topic: sink.Topic, Partitions: sink.Partitions}}
	d := s.draft()
	d.outputs = append(d.outputs, out)
	s.read(func(b *build) push[K, V] { return encoding(b, out, sink.Codecs) })
}

// encoding emits typed records to an output.
func encoding[K, V any](b *build, out *draftOutput, c Codecs[K, V]) push[K, V] {
	number := b.outputs[out]
	return func(ctx Context, r Record[K, V]) error {
		e := Emission{TimestampMs: r.TimeMs}
		var err error
		if !r.NullKey {
			if e.Key, err = c.Key.Append([]byte{}, r.Key); err != nil {
				return err
			}
		}
		if !r.Null {
			if e.Value, err = c.Value.Append([]byte{}, r.Value); err != nil {
				return err
			}
		}
		ctx.Emit(number, e)
		return nil
	}
}

// ToSink writes every record's value, as it is, to a sink, with its key encoded by key.
func ToSink[K, V any](s Stream[K, V], key Codec[K], sink Sink) {
	j := s.job
	if sink == nil {
		j.problem("a sink is nil")
		return
	}
	name := sink.Name()
	j.take("sink", name)
	d := s.draft()
	d.sinks = append(d.sinks, sink)
	s.read(func(b *build) push[K, V] {
		number := b.sinks[name]
		return func(ctx Context, r Record[K, V]) error {
			out := SinkRecord{TimestampMs: r.TimeMs}
			var err error
			if !r.NullKey {
				if out.Key, err = key.Append([]byte{}, r.Key); err != nil {
					return err
				}
			}
			if !r.Null {
				out.Value = r.Value
			}
			ctx.WriteSink(number, out)
			return nil
		}
	})
}
