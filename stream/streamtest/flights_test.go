package streamtest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline-io/strandline/stream"
)

type flight struct {
	TimeMs int64
	From   string
	To     string
	Delay  int64
}

type delays struct{ Flights, Sum, Max int64 }

const hourMs = 3_600_000

// flightsJob is the shape of the first example: file → topic → re-key → windows → topic and sink.
func flightsJob(file string, sink *Sink) (*stream.Plan, error) {
	j := stream.NewJob("flights")
	lines := stream.FromFile(j, "load", stream.FileSource{
		FS: fstest.MapFS{"flights.ndjson": {Data: []byte(file)}}, Names: []string{"flights.ndjson"},
	})
	byTarget := stream.Map(lines, func(r stream.Record[stream.None, []byte]) (stream.Record[string, []byte], error) {
		var f flight
		err := json.Unmarshal(r.Value, &f)
		return stream.With(r, f.To, r.Value), err
	})
	stream.ToTopic(byTarget, "loaded", stream.TopicSink[string, []byte]{
		Topic: "raw", Partitions: 3, Codecs: stream.Codecs[string, []byte]{Key: stream.String, Value: stream.Bytes},
	})
	flights := stream.FromTopic(j, "flights", stream.TopicSource[string, flight]{
		Topic: "raw", Bounded: true, Codecs: stream.Codecs[string, flight]{Key: stream.String, Value: stream.JSON[flight]()},
		EventTime: func(r stream.Record[string, flight]) (int64, error) { return r.Value.TimeMs, nil },
	})
	byOrigin := stream.KeyBy(flights, "by-origin", 4,
		func(r stream.Record[string, flight]) (string, error) { return r.Value.From, nil },
		stream.Codecs[string, flight]{Key: stream.String, Value: stream.JSON[flight]()})
	perHour := stream.Aggregate(stream.Window(byOrigin, "per-hour", stream.Tumbling(time.Hour)),
		func() delays { return delays{} },
		func(d delays, r stream.Record[string, flight]) (delays, error) {
			return delays{d.Flights + 1, d.Sum + r.Value.Delay, max(d.Max, r.Value.Delay)}, nil
		},
		stream.Codecs[string, delays]{Key: stream.String, Value: stream.JSON[delays]()})
	stream.ToTopic(perHour, "delays", stream.TopicSink[string, stream.Pane[delays]]{
		Topic: "delays", Partitions: 2,
		Codecs: stream.Codecs[string, stream.Pane[delays]]{Key: stream.String, Value: stream.JSON[stream.Pane[delays]]()},
	})
	stream.ToSink(perHour, stream.String, sink)
	return j.Build()
}

// flightsInput makes n flights in order of time, and what the job must give for them.
func flightsInput(n int, seed uint64) (file string, want []string) {
	rng := rand.New(rand.NewPCG(seed, 2))
	sums := map[string]*stream.Pane[delays]{}
	var b strings.Builder
	timeMs := int64(0)
	for range n {
		timeMs += rng.Int64N(hourMs / 4)
		f := flight{timeMs, fmt.Sprintf("A%d", rng.IntN(7)), fmt.Sprintf("B%d", rng.IntN(5)), rng.Int64N(60)}
		line, _ := json.Marshal(f)
		b.Write(line)
		b.WriteByte('\n')
		start := timeMs - timeMs%hourMs
		key := fmt.Sprintf("%s %d", f.From, start)
		if sums[key] == nil {
			sums[key] = &stream.Pane[delays]{StartMs: start, EndMs: start + hourMs}
		}
		d := &sums[key].Value
		*d = delays{d.Flights + 1, d.Sum + f.Delay, max(d.Max, f.Delay)}
	}
	for key, pane := range sums {
		want = append(want, fmt.Sprintf("%s %+v", strings.Fields(key)[0], *pane))
	}
	slices.Sort(want)
	return b.String(), want
}

func checkFlights(t *testing.T, r *Runner, sink *Sink, want []string) {
	t.Helper()
	if r.Err() != nil {
		t.Fatalf("seed %d crash %d: %v", r.opts.Seed, r.opts.CrashAt, r.Err())
	}
	if !r.Finished() {
		t.Fatalf("seed %d crash %d: not finished: %s", r.opts.Seed, r.opts.CrashAt, r.describe())
	}
	var got []string
	for _, m := range r.Topic("delays") {
		var pane stream.Pane[delays]
		if err := json.Unmarshal(m.Value, &pane); err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %+v", m.Key, pane))
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("seed %d crash %d: topic (-want +got):\n%s", r.opts.Seed, r.opts.CrashAt, diff)
	}
	got = nil
	for _, row := range sink.Place.Rows() {
		got = append(got, fmt.Sprintf("%s %+v", row.Key, row.Value))
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("seed %d crash %d: sink (-want +got):\n%s", r.opts.Seed, r.opts.CrashAt, diff)
	}
}

func runFlights(t *testing.T, n int, opts Options, rowsPerFile int) *Runner {
	t.Helper()
	file, want := flightsInput(n, opts.Seed)
	sink := NewSink("blobs")
	sink.RowsPerFile = rowsPerFile
	plan, err := flightsJob(file, sink)
	if err != nil {
		t.Fatal(err)
	}
	r := New(t, plan, opts)
	r.Run()
	checkFlights(t, r, sink, want)
	return r
}

func TestFlightsWithoutAccidents(t *testing.T) {
	runFlights(t, 400, Options{}, 0)
	runFlights(t, 400, Options{Workers: 3, Seed: 7}, 5)
}

// A process dies at every single point at which it can.
func TestFlightsCrashAtEveryPoint(t *testing.T) {
	opts := Options{Workers: 2, CommitInterval: 30 * time.Millisecond, ChunkResults: 4}
	points := runFlights(t, 40, opts, 3).CrashPoints()
	for opts.CrashAt = 1; opts.CrashAt <= points; opts.CrashAt += seedShare {
		runFlights(t, 40, opts, 3)
	}
}

// Crashes, faults, lost answers, rebalances and zombies at random.
func TestFlightsWithAccidents(t *testing.T) {
	for seed := range uint64(120 / seedShare) {
		opts := Options{
			Seed: seed, Workers: 1 + int(seed%3), CrashEvery: 60, FaultEvery: 50, RebalanceEvery: 40, MaxAccidents: 40,
			ChunkResults: 1 + int(seed%5), FetchRecords: 1 + int(seed%9), CommitInterval: time.Millisecond * time.Duration(1+seed%50),
		}
		runFlights(t, 60, opts, int(seed%4))
	}
}
