package streamtest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline-io/strandline/stream"
)

// A file whose own stage has windows: a chunked close begins in the middle of a fetch, and whoever goes on must find the
// next line. Lines are "TIME KEY", of different lengths.
func TestFileWithWindowsCrashAtEveryPoint(t *testing.T) {
	var file strings.Builder
	var want []string
	for n := range 24 {
		key := strings.Repeat("k", 1+n%5)
		fmt.Fprintf(&file, "%d %s\r\n", n*400, key)
	}
	for start := 0; start < 24*400; start += 1000 {
		counts := map[string]int{}
		for n := range 24 {
			if n*400 >= start && n*400 < start+1000 {
				counts[strings.Repeat("k", 1+n%5)]++
			}
		}
		for key, n := range counts {
			want = append(want, fmt.Sprintf("%d %s %d", start+999, key, n))
		}
	}
	slices.Sort(want)
	run := func(crashAt int) int {
		r := New(t, fileWindows(t, file.String()), Options{ChunkResults: 1, FetchRecords: 7, CrashAt: crashAt, CommitInterval: 5 * time.Millisecond})
		r.Run()
		var got []string
		for _, m := range r.Topic("out") {
			n, err := stream.Int64.Decode(m.Value)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%d %s %d", m.TimestampMs, m.Key, n))
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" || !r.Finished() {
			t.Fatalf("crash at %d: finished %v, err %v (-want +got):\n%s", crashAt, r.Finished(), r.Err(), diff)
		}
		if c := r.Checkpoint("lines", 0).Counters; c.Records != 24 || c.Late != 0 {
			t.Fatalf("crash at %d: a line was read twice or in part: %+v", crashAt, c)
		}
		return r.CrashPoints()
	}
	for n, points := 1, run(0); n <= points; n += seedShare {
		run(n)
	}
}

func fileWindows(t *testing.T, content string) *stream.Plan {
	t.Helper()
	split := func(line []byte) (timeMs int64, key string, err error) {
		at, key, _ := strings.Cut(string(line), " ")
		timeMs, err = strconv.ParseInt(at, 10, 64)
		return timeMs, key, err
	}
	j := stream.NewJob("file")
	lines := stream.FromFile(j, "lines", stream.FileSource{
		FS: fstest.MapFS{"in.txt": {Data: []byte(content)}}, Names: []string{"in.txt"},
		EventTime: func(line []byte) (int64, error) {
			timeMs, _, err := split(line)
			return timeMs, err
		},
	})
	keyed := stream.Map(lines, func(r stream.Record[stream.None, []byte]) (stream.Record[string, int64], error) {
		_, key, err := split(r.Value)
		return stream.With(r, key, int64(1)), err
	})
	panes := stream.Aggregate(stream.Window(keyed, "counts", stream.Tumbling(time.Second)), func() int64 { return 0 },
		func(n int64, r stream.Record[string, int64]) (int64, error) { return n + r.Value, nil }, numberCodecs)
	counts := stream.MapValues(panes, func(p stream.Pane[int64]) (int64, error) { return p.Value, nil })
	stream.ToTopic(counts, "out", stream.TopicSink[string, int64]{Topic: "out", Partitions: 1, Codecs: numberCodecs})
	p, err := j.Build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestBadLineNamesFileAndLine(t *testing.T) {
	r := New(t, fileWindows(t, "1 a\n2 b\nx c\n"), Options{})
	r.Run()
	var re *stream.RecordError
	if !errors.As(r.Err(), &re) || re.File != "in.txt" || re.Line != 3 || !strings.Contains(r.Err().Error(), "in.txt:3: task lines-0") {
		t.Fatalf("got %v", r.Err())
	}
}

// careless does everything that a low-level task can do with a record, and then fails on some.
type careless struct{}

func (careless) OnRecord(ctx stream.Context, m *stream.Message) error {
	s := ctx.Store("seen")
	if err := s.Put(m.Value, []byte("1")); err != nil {
		return err
	}
	if err := s.Delete([]byte("good")); err != nil {
		return err
	}
	ctx.Emit(0, stream.Emission{Key: m.Key, Value: m.Value, TimestampMs: m.TimestampMs})
	ctx.WriteSink(0, stream.SinkRecord{Value: string(m.Value), TimestampMs: m.TimestampMs})
	ctx.CountLate()
	switch string(m.Value) {
	case "bad":
		return errors.New("bad")
	case "early":
		ctx.Emit(0, stream.Emission{TimestampMs: -1})
	case "unknown store":
		ctx.Store("none")
	case "good":
		return s.Put([]byte("good"), []byte("2"))
	}
	return nil
}

func (careless) OnWatermark(stream.Context, int64) (bool, error) { return true, nil }
func (careless) OnEnd(ctx stream.Context) (bool, error) {
	err := ctx.Store("seen").Range(nil, nil, func(key, value []byte) bool {
		ctx.Emit(0, stream.Emission{Value: []byte(fmt.Sprintf("%s=%s", key, value))})
		return true
	})
	return true, err
}

// What a failed record did before it failed is taken back: outputs, rows and their numbers, store, counters.
func TestFailedRecordLeavesNothing(t *testing.T) {
	sink := NewSink("rows")
	j := stream.NewJob("low")
	stream.Process(j, "low", stream.LowLevel{
		Inputs:  []stream.LowLevelInput{{Name: "in", Topic: "in", Partitions: 1, Bounded: true, OnError: stream.Skip()}},
		Outputs: []stream.LowLevelOutput{{Name: "out", Topic: "out", Partitions: 1}},
		Stores:  []string{"seen"}, Sinks: []stream.Sink{sink},
		New: func(stream.TaskInfo) stream.Processor { return careless{} },
	})
	p, err := j.Build()
	if err != nil {
		t.Fatal(err)
	}
	r := New(t, p, Options{CommitInterval: time.Millisecond, FetchRecords: 2})
	for _, value := range []string{"good", "bad", "early", "unknown store", "fine"} {
		r.Write("in", nil, []byte(value), 5)
	}
	r.Run()
	if r.Err() != nil || !r.Finished() {
		t.Fatal(r.Err())
	}
	var got []string
	for _, m := range r.Topic("out") {
		got = append(got, string(m.Value))
	}
	for _, row := range sink.Place.Rows() {
		got = append(got, fmt.Sprintf("row %d %v", row.RowSequence, row.Value))
	}
	got = append(got, fmt.Sprintf("%+v", r.Checkpoint("low", 0).Counters))
	want := []string{"good", "fine", "fine=1", "row 0 good", "row 1 fine", "{Records:5 Skipped:3 DeadLettered:0 Late:2 Emitted:5}"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
}
