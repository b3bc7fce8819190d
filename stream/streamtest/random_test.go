package streamtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline-io/strandline/stream"
)

type (
	number  = stream.Record[string, int64]
	numbers = stream.Stream[string, int64]
)

// step is one operator of a random topology, and what it does to all records at once.
type step struct {
	name   string
	attach func(numbers) numbers
	oracle func([]number) []number
}

var numberCodecs = stream.Codecs[string, int64]{Key: stream.String, Value: stream.Int64}

func each(records []number, f func(number, func(number) error) error) []number {
	var out []number
	for _, r := range records {
		_ = f(r, func(r number) error {
			out = append(out, r)
			return nil
		})
	}
	return out
}

// randomStep returns an operator. A window always stands behind its own re-keying, so that a key has one task.
func randomStep(rng *rand.Rand, n int) step {
	c := int64(rng.IntN(5))
	flat := func(name string, f func(number, func(number) error) error) step {
		return step{name, func(s numbers) numbers { return stream.FlatMap(s, f) }, func(in []number) []number { return each(in, f) }}
	}
	partitions := 1 + rng.IntN(4)
	key := func(r number) (string, error) { return fmt.Sprintf("k%d", (r.Value+int64(len(r.Key))+c)%4), nil }
	keyBy := func(s numbers) numbers { return stream.KeyBy(s, fmt.Sprintf("by%d", n), partitions, key, numberCodecs) }
	rekey := func(in []number) []number {
		return each(in, func(r number, emit func(number) error) error {
			r.Key, _ = key(r)
			return emit(r)
		})
	}
	switch rng.IntN(5) {
	case 0:
		return flat(fmt.Sprintf("add %d", c), func(r number, emit func(number) error) error {
			r.Value += c
			return emit(r)
		})
	case 1:
		return flat(fmt.Sprintf("drop %d", c), func(r number, emit func(number) error) error {
			if r.Value%5 == c {
				return nil
			}
			return emit(r)
		})
	case 2:
		return flat("twice", func(r number, emit func(number) error) error {
			if err := emit(r); err != nil {
				return err
			}
			r.Key += "'"
			return emit(r)
		})
	case 3:
		return step{fmt.Sprintf("keyBy %d", partitions), keyBy, rekey}
	}
	sizeMs := int64(1+rng.IntN(8)) * 1000
	return step{
		fmt.Sprintf("keyBy %d window %d", partitions, sizeMs),
		func(s numbers) numbers {
			w := stream.Window(keyBy(s), fmt.Sprintf("store%d", n), stream.TumblingWindow{SizeMs: sizeMs})
			panes := stream.Aggregate(w, func() int64 { return 0 }, func(sum int64, r number) (int64, error) { return sum + r.Value, nil }, numberCodecs)
			return stream.MapValues(panes, func(p stream.Pane[int64]) (int64, error) { return p.Value, nil })
		},
		func(in []number) []number { return sumWindows(rekey(in), sizeMs) },
	}
}

func sumWindows(in []number, sizeMs int64) []number {
	type windowKey struct {
		key   string
		endMs int64
	}
	sums := map[windowKey]int64{}
	for _, r := range in {
		sums[windowKey{r.Key, r.TimeMs - r.TimeMs%sizeMs + sizeMs}] += r.Value
	}
	var out []number
	for k, sum := range sums {
		out = append(out, number{Key: k.key, Value: sum, TimeMs: k.endMs - 1})
	}
	return out
}

// Random topologies over disordered input, with every kind of accident: the committed output is what one pass over all
// input gives.
func TestRandomTopologies(t *testing.T) {
	for seed := range uint64(120 / seedShare) {
		randomTopology(t, seed)
	}
}

func randomTopology(t *testing.T, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 4))
	j := stream.NewJob("random")
	partitions := 1 + rng.IntN(3)
	const disorderMs = 3000
	var sources []numbers
	for n := range 1 + rng.IntN(2) {
		sources = append(sources, stream.FromTopic(j, fmt.Sprintf("in%d", n), stream.TopicSource[string, int64]{
			Topic: fmt.Sprintf("in%d", n), Partitions: partitions, Bounded: true, Codecs: numberCodecs, MaxDisorder: disorderMs * time.Millisecond,
		}))
	}
	s := stream.Merge("all", sources[0], sources[1:]...)
	var steps []step
	for n := range 1 + rng.IntN(6) {
		st := randomStep(rng, n)
		steps = append(steps, st)
		s = st.attach(s)
	}
	stream.ToTopic(s, "out", stream.TopicSink[string, int64]{Topic: "out", Partitions: 2, Codecs: numberCodecs})
	sink := NewSink("rows")
	sink.RowsPerFile = rng.IntN(4)
	stream.ToSink(s, stream.String, sink)
	plan, err := j.Build()
	if err != nil {
		t.Fatal(err)
	}
	opts := Options{
		Seed: seed, Workers: 1 + rng.IntN(3), CrashEvery: 50, FaultEvery: 50, RebalanceEvery: 50, MaxAccidents: 30,
		LateMarkers: seed%2 == 1, ChunkResults: 1 + rng.IntN(6), FetchRecords: 1 + rng.IntN(6), CommitInterval: 10 * time.Millisecond,
	}
	r := New(t, plan, opts)
	want := feed(r, rng, len(sources), partitions, disorderMs)
	names := ""
	for _, st := range steps {
		names += " | " + st.name
		want = st.oracle(want)
	}
	r.Run()
	if r.Err() != nil || !r.Finished() {
		t.Fatalf("seed %d%s: err %v finished %v%s", seed, names, r.Err(), r.Finished(), r.describe())
	}
	checkNumbers(t, fmt.Sprintf("seed %d%s", seed, names), r, sink, want)
}

// feed writes random records whose disorder stays in bounds, and returns them.
func feed(r *Runner, rng *rand.Rand, sources, partitions int, disorderMs int64) []number {
	var all []number
	for n := range sources {
		for p := range partitions {
			newest := int64(0)
			for range rng.IntN(25) {
				newest += rng.Int64N(2000)
				rec := number{Key: fmt.Sprintf("k%d", rng.IntN(9)), Value: rng.Int64N(50), TimeMs: max(0, newest-rng.Int64N(disorderMs))}
				all = append(all, rec)
				value, _ := stream.Int64.Append(nil, rec.Value)
				r.WriteTo(fmt.Sprintf("in%d", n), p, []byte(rec.Key), value, rec.TimeMs)
			}
		}
	}
	return all
}

func checkNumbers(t *testing.T, what string, r *Runner, sink *Sink, want []number) {
	t.Helper()
	text := func(key string, value, timeMs int64) string { return fmt.Sprintf("%s=%d@%d", key, value, timeMs) }
	wantText, topic, rows := []string{}, []string{}, []string{}
	for _, n := range want {
		wantText = append(wantText, text(n.Key, n.Value, n.TimeMs))
	}
	for _, m := range r.Topic("out") {
		v, err := stream.Int64.Decode(m.Value)
		if err != nil {
			t.Fatal(err)
		}
		topic = append(topic, text(string(m.Key), v, m.TimestampMs))
	}
	for _, row := range sink.Place.Rows() {
		rows = append(rows, text(string(row.Key), row.Value.(int64), row.TimestampMs))
	}
	for _, s := range [][]string{wantText, topic, rows} {
		slices.Sort(s)
	}
	if diff := cmp.Diff(wantText, topic); diff != "" {
		t.Fatalf("%s: topic (-want +got):\n%s", what, diff)
	}
	if diff := cmp.Diff(wantText, rows); diff != "" {
		t.Fatalf("%s: sink (-want +got):\n%s", what, diff)
	}
	for _, s := range r.plan.Stages {
		for n := range s.Tasks {
			if late := r.Checkpoint(s.Name, n).Counters.Late; late != 0 {
				t.Fatalf("%s: task %s-%d counted %d late records, the disorder is in bounds", what, s.Name, n, late)
			}
		}
	}
}
