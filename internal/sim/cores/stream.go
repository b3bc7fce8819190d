package cores

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"time"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/streamtest"
)

// The stream's world: a random topology over disordered input, run by the real task cores over streamtest's cluster with
// crashes, faults, lost answers, moved tasks and late markers. In the end topic and sink hold what one pass over all
// input gives, no record was late, and everything has ended.

type (
	number  = stream.Record[string, int64]
	numbers = stream.Stream[string, int64]
)

// operator is one step of a topology, and what it does to all records at once.
type operator struct {
	name   string
	attach func(numbers) numbers
	oracle func([]number) []number
}

const maxDisorderMs = 3000

var numberCodecs = stream.Codecs[string, int64]{Key: stream.String, Value: stream.Int64}

// streamRun is one seed.
type streamRun struct {
	*rand.Rand
	sources, partitions int
	operators           []operator
	sink                *streamtest.Sink
	runner              *streamtest.Runner
}

// refuser is the runner's test: what fails it ends the run.
type refuser struct{}

func (refuser) Helper() {}

func (refuser) Fatalf(format string, args ...any) {
	panic(violation{fmt.Errorf("live: "+format, args...)})
}

// runStream is one seed of the stream's world. accidents bounds crashes, faults and moves; 0 is as many as usual.
func runStream(seed uint64, accidents int, trace io.Writer) (r Result) {
	s := &streamRun{Rand: rand.New(rand.NewPCG(seed, 8))}
	defer func() {
		if p := recover(); p != nil {
			if v, ok := p.(violation); ok {
				r.Err = v.error
			} else {
				r.Err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
		}
	}()
	opts := streamtest.Options{
		Seed: seed, Workers: 1 + s.IntN(3), CrashEvery: 40, FaultEvery: 40, RebalanceEvery: 40, MaxAccidents: 1 + s.IntN(30),
		LateMarkers: s.IntN(2) == 0, ChunkResults: 1 + s.IntN(6), FetchRecords: 1 + s.IntN(6), CommitInterval: 10 * time.Millisecond,
	}
	if accidents > 0 {
		opts.MaxAccidents = min(opts.MaxAccidents, accidents)
	}
	want := s.build(opts)
	if trace != nil {
		fmt.Fprintf(trace, "%d sources of %d partitions%s\n%+v\n", s.sources, s.partitions, s.names(), opts)
	}
	s.runner.Run()
	r.Operations = opts.MaxAccidents
	r.Stats = Stats{Streams: 1, Results: len(want)}
	r.Err = s.check(want)
	r.Hash = s.sum()
	if trace != nil {
		for _, m := range s.runner.Topic("out") {
			fmt.Fprintf(trace, "out/%d at %d: %s=%x@%d\n", m.Partition, m.Offset, m.Key, m.Value, m.TimestampMs)
		}
	}
	return r
}

func (s *streamRun) names() (text string) {
	for _, o := range s.operators {
		text += " | " + o.name
	}
	return text
}

// build draws a topology, feeds it, and returns what one pass over all input gives.
func (s *streamRun) build(opts streamtest.Options) []number {
	job := stream.NewJob("random")
	s.sources, s.partitions = 1+s.IntN(2), 1+s.IntN(3)
	var sources []numbers
	for n := range s.sources {
		name := fmt.Sprintf("in%d", n)
		sources = append(sources, stream.FromTopic(job, name, stream.TopicSource[string, int64]{
			Topic: name, Partitions: s.partitions, Bounded: true, Codecs: numberCodecs, MaxDisorder: maxDisorderMs * time.Millisecond,
		}))
	}
	all := stream.Merge("all", sources[0], sources[1:]...)
	for n := range 1 + s.IntN(5) {
		o := s.operator(n)
		s.operators = append(s.operators, o)
		all = o.attach(all)
	}
	stream.ToTopic(all, "out", stream.TopicSink[string, int64]{Topic: "out", Partitions: 2, Codecs: numberCodecs})
	s.sink = streamtest.NewSink("rows")
	s.sink.RowsPerFile = s.IntN(4)
	stream.ToSink(all, stream.String, s.sink)
	plan, err := job.Build()
	if err != nil {
		panic(violation{err})
	}
	s.runner = streamtest.New(refuser{}, plan, opts)
	want := s.feed()
	for _, o := range s.operators {
		want = o.oracle(want)
	}
	return want
}

// feed writes random records whose disorder stays in bounds, and returns them.
func (s *streamRun) feed() (all []number) {
	for n := range s.sources {
		for p := range s.partitions {
			newest := int64(0)
			for range s.IntN(20) {
				newest += s.Int64N(2000)
				r := number{Key: fmt.Sprintf("k%d", s.IntN(9)), Value: s.Int64N(50), TimeMs: max(0, newest-s.Int64N(maxDisorderMs))}
				all = append(all, r)
				value, _ := stream.Int64.Append(nil, r.Value)
				s.runner.WriteTo(fmt.Sprintf("in%d", n), p, []byte(r.Key), value, r.TimeMs)
			}
		}
	}
	return all
}

// flat makes an operator of what it does to one record.
func flat(name string, f func(r number, emit func(number))) operator {
	return operator{
		name: name,
		attach: func(in numbers) numbers {
			return stream.FlatMap(in, func(r number, emit func(number) error) (err error) {
				f(r, func(r number) {
					if err == nil {
						err = emit(r)
					}
				})
				return err
			})
		},
		oracle: func(in []number) (out []number) {
			for _, r := range in {
				f(r, func(r number) { out = append(out, r) })
			}
			return out
		},
	}
}

// operator draws one. A window always stands behind its own re-keying, so that a key has one task.
func (s *streamRun) operator(n int) operator {
	c := s.Int64N(5)
	switch s.IntN(6) {
	case 0:
		return flat(fmt.Sprintf("add %d", c), func(r number, emit func(number)) {
			r.Value += c
			emit(r)
		})
	case 1:
		return flat(fmt.Sprintf("drop %d", c), func(r number, emit func(number)) {
			if r.Value%5 != c {
				emit(r)
			}
		})
	case 2:
		return flat("twice", func(r number, emit func(number)) {
			emit(r)
			r.Key += "'"
			emit(r)
		})
	}
	partitions := 1 + s.IntN(4)
	key := func(r number) (string, error) { return fmt.Sprintf("k%d", (r.Value+int64(len(r.Key))+c)%4), nil }
	rekeyed := flat("", func(r number, emit func(number)) {
		r.Key, _ = key(r)
		emit(r)
	}).oracle
	keyBy := func(in numbers) numbers {
		return stream.KeyBy(in, fmt.Sprintf("by%d", n), partitions, key, numberCodecs)
	}
	if s.IntN(2) == 0 {
		return operator{fmt.Sprintf("keyBy %d", partitions), keyBy, rekeyed}
	}
	sizeMs := int64(1+s.IntN(8)) * 1000
	return operator{
		fmt.Sprintf("keyBy %d window %d", partitions, sizeMs),
		func(in numbers) numbers {
			w := stream.Window(keyBy(in), fmt.Sprintf("store%d", n), stream.TumblingWindow{SizeMs: sizeMs})
			panes := stream.Aggregate(w, func() int64 { return 0 }, func(sum int64, r number) (int64, error) { return sum + r.Value, nil }, numberCodecs)
			return stream.MapValues(panes, func(p stream.Pane[int64]) (int64, error) { return p.Value, nil })
		},
		func(in []number) []number { return sumWindows(rekeyed(in), sizeMs) },
	}
}

func sumWindows(in []number, sizeMs int64) (out []number) {
	type pane struct {
		key   string
		endMs int64
	}
	sums := map[pane]int64{}
	for _, r := range in {
		sums[pane{r.Key, r.TimeMs - r.TimeMs%sizeMs + sizeMs}] += r.Value
	}
	for k, sum := range sums { // any order: what is compared is sorted
		out = append(out, number{Key: k.key, Value: sum, TimeMs: k.endMs - 1})
	}
	return out
}

func (s *streamRun) check(want []number) error {
	if err := s.runner.Err(); err != nil {
		return fmt.Errorf("stream:%s: %w", s.names(), err)
	}
	if !s.runner.Finished() {
		return fmt.Errorf("live:%s: the job has not finished", s.names())
	}
	text := func(key string, value, timeMs int64) string { return fmt.Sprintf("%s=%d@%d", key, value, timeMs) }
	var once, topic, rows []string
	for _, n := range want {
		once = append(once, text(n.Key, n.Value, n.TimeMs))
	}
	for _, m := range s.runner.Topic("out") {
		v, err := stream.Int64.Decode(m.Value)
		if err != nil {
			return fmt.Errorf("stream: a result of %x: %w", m.Value, err)
		}
		topic = append(topic, text(string(m.Key), v, m.TimestampMs))
	}
	for _, row := range s.sink.Place.Rows() {
		rows = append(rows, text(string(row.Key), row.Value.(int64), row.TimestampMs))
	}
	for _, all := range [...][]string{once, topic, rows} {
		slices.Sort(all)
	}
	if !slices.Equal(topic, once) {
		return fmt.Errorf("stream:%s: the topic holds %v, one pass gives %v", s.names(), topic, once)
	}
	if !slices.Equal(rows, once) {
		return fmt.Errorf("stream:%s: the sink holds %v, one pass gives %v", s.names(), rows, once)
	}
	if late := s.runner.Late(); late > 0 {
		return fmt.Errorf("stream:%s: %d records were late, the disorder is in bounds", s.names(), late)
	}
	return nil
}

// sum is the content of the committed results, in their order.
func (s *streamRun) sum() uint64 {
	h := fnv.New64a()
	for _, m := range s.runner.Topic("out") {
		var b [24]byte
		binary.BigEndian.PutUint64(b[:], uint64(m.Partition))
		binary.BigEndian.PutUint64(b[8:], uint64(m.Offset))
		binary.BigEndian.PutUint64(b[16:], uint64(m.TimestampMs))
		h.Write(append(append(b[:], m.Key...), m.Value...))
	}
	return h.Sum64()
}
