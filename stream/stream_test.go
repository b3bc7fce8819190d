package stream

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Values of Apache Kafka's own UtilsTest, and what its default partitioner makes of them.
func TestMurmur2(t *testing.T) {
	f := func(key string, want int32) {
		t.Helper()
		if got := int32(murmur2([]byte(key))); got != want {
			t.Fatalf("murmur2(%q) = %d, want %d", key, got, want)
		}
	}
	f("21", -973932308)
	f("foobar", -790332482)
	f("a-little-bit-long-string", -985981536)
	f("a-little-bit-longer-string", -1486304829)
	f("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971)
	f("abc", 479470107)
	if got := PartitionFor([]byte("foobar"), 10); got != 6 {
		t.Fatalf("partition of foobar of 10 is %d, want 6", got)
	}
}

var text = Codecs[string, string]{String, String}

func topicSource(topic string, partitions int, bounded bool) TopicSource[string, string] {
	return TopicSource[string, string]{Topic: topic, Partitions: partitions, Codecs: text, Bounded: bounded}
}

func same(r Record[string, string]) (string, error) { return r.Key, nil }

// All problems are reported at once.
func TestBuildReportsEverything(t *testing.T) {
	j := NewJob("my job")
	a := FromTopic(j, "a", topicSource("a/b", 2, false))
	b := FromTopic(j, "a", topicSource("b", 3, false))
	m := Merge("", a, b)
	k := KeyBy(m, "k", 0, same, text)
	Window(k, "w", Tumbling(time.Microsecond))
	ToTopic(m, "out", TopicSink[string, string]{Topic: "", Codecs: text})
	FromFile(j, "f", FileSource{FS: fstest.MapFS{}, Names: []string{"missing"}, OnError: DeadLetter("")})
	_, err := j.Build()
	if err == nil {
		t.Fatal("built")
	}
	for _, want := range []string{
		`job name "my job" holds " "`, `topic name "a/b" holds "/"`, `two stages are named "a"`, `two streams are named "a"`,
		`a stage has no name`, `"k" has 0 partitions`, `"w" has a size of 0 ms`, `"" is no topic name`,
		`file does not exist`, `dead letter`, `reads "a" (2), "a" (3), which must have equal partition counts`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
}

func TestBuildRefusals(t *testing.T) {
	f := func(want string, describe func(j *Job)) {
		t.Helper()
		j := NewJob("job")
		describe(j)
		if _, err := j.Build(); err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("got %v, want %q", err, want)
		}
	}
	f("the topology is empty", func(*Job) {})
	f("read from each other in a circle", func(j *Job) {
		a := FromTopic(j, "a", topicSource("a", 2, false))
		k := KeyBy(a, "k", 2, same, text)
		Merge("both", a, k)
	})
	f("never ends", func(j *Job) {
		ToTopic(FromTopic(j, "a", topicSource("a", 2, false)), "out", TopicSink[string, string]{Topic: "b", Partitions: 2, Codecs: text})
		FromTopic(j, "b", topicSource("b", 2, true))
	})
	f("has two roles: intermediate stream and output", func(j *Job) {
		a := FromTopic(j, "a", topicSource("a", 2, false))
		KeyBy(a, "k", 2, same, text)
		ToTopic(a, "out", TopicSink[string, string]{Topic: "job-k", Partitions: 2, Codecs: text})
	})
	f("is given 2 and 3 partitions", func(j *Job) {
		a := FromTopic(j, "a", topicSource("a", 2, false))
		ToTopic(a, "out", TopicSink[string, string]{Topic: "a", Partitions: 3, Codecs: text})
	})
	f("aggregated twice", func(j *Job) {
		w := Window(FromTopic(j, "a", topicSource("a", 2, false)), "w", Tumbling(time.Hour))
		for range 2 {
			Aggregate(w, func() int64 { return 0 }, func(n int64, _ Record[string, string]) (int64, error) { return n, nil }, Codecs[string, int64]{String, Int64})
		}
	})
	f("New is nil", func(j *Job) {
		Process(j, "low", LowLevel{Inputs: []LowLevelInput{{Name: "in", Topic: "in", Partitions: 1}}})
	})
	f("has no input", func(j *Job) {
		Process(j, "low", LowLevel{New: func(TaskInfo) Processor { return nil }})
	})
}

func TestPlan(t *testing.T) {
	j := NewJob("job")
	// Declared against the flow: the reader of the loaded topic comes first.
	flights := FromTopic(j, "flights", topicSource("raw", 0, true))
	k := KeyBy(flights, "by", 3, same, text, OnError(DeadLetter("dead")))
	w := Window(k, "days", Tumbling(24*time.Hour))
	Aggregate(w, func() int64 { return 0 }, func(n int64, _ Record[string, string]) (int64, error) { return n + 1, nil }, Codecs[string, int64]{String, Int64})
	ToTopic(w.Late(), "late", TopicSink[string, string]{Topic: "late", Codecs: text})
	lines := FromFile(j, "load", FileSource{FS: fstest.MapFS{"a": {Data: []byte("hi\n")}, "b": {}}, Names: []string{"a", "b"}})
	loaded := Map(lines, func(r Record[None, []byte]) (Record[string, string], error) { return With(r, "", string(r.Value)), nil })
	ToTopic(loaded, "raw", TopicSink[string, string]{Topic: "raw", Partitions: 4, Codecs: text})
	p, err := j.Build()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"late"}, p.Unbound()); diff != "" {
		t.Fatal(diff)
	}
	if _, err := p.Bind(map[string]int{}); err == nil || !strings.Contains(err.Error(), `topic "late" has no partitions`) {
		t.Fatalf("got %v", err)
	}
	if p, err = p.Bind(map[string]int{"late": 5}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range p.Stages {
		in := s.Inputs[0]
		got = append(got, strings.TrimSpace(strings.Join([]string{s.Name, itoa(s.Tasks), in.Topic, in.UpstreamStage, strings.Join(in.LoadedBy, ",")}, " ")))
		if !in.Bounded {
			t.Errorf("input %s is not bounded", in.Name)
		}
		if in.IdleTimeoutMs != 0 {
			t.Errorf("bounded input %s can become idle", in.Name)
		}
	}
	for _, topic := range p.Topics {
		got = append(got, topic.Name+" "+topic.Kind.String()+" "+itoa(topic.Partitions))
	}
	want := []string{
		"load 2 job-load-splits", "flights 4 raw  load", "by 3 job-by flights",
		"dead dead letter 1", "job-by intermediate stream 3", "job-checkpoint checkpoint 4", "job-days-changelog changelog 3",
		"job-load-splits splits 2", "late output 5", "raw output 4",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
	if split := p.Stages[0].Inputs[0].Files[0].Split; split.SizeBytes != 3 || split.SHA256 != "98ea6e4f216f2fb4b69fff9b3a44842c38686ca685f3f55dc48c5d3fb1107be4" {
		t.Fatalf("split %+v", split)
	}
}

func itoa(n int) string {
	b, _ := json.Marshal(n)
	return string(b)
}

func TestCodecs(t *testing.T) {
	check(t, String, "é", "é")
	check(t, Bytes, []byte{0, 1}, "\x00\x01")
	check(t, Int64, -2, "\xff\xff\xff\xff\xff\xff\xff\xfe")
	check(t, NoKey, None{}, "")
	check(t, JSON[map[string]int](), map[string]int{"a": 1}, `{"a":1}`)
	refused := func(err error) {
		t.Helper()
		if err == nil {
			t.Fatal("accepted")
		}
	}
	_, err := String.Decode([]byte{0xff})
	refused(err)
	_, err = Int64.Decode([]byte{1})
	refused(err)
	_, err = JSON[int]().Decode([]byte(`1 2`))
	refused(err)
}

func check[T any](t *testing.T, c Codec[T], v T, want string) {
	t.Helper()
	b, err := c.Append([]byte("x"), v)
	if err != nil || string(b) != "x"+want {
		t.Fatalf("encoded %q %v, want %q", b, err, want)
	}
	back, err := c.Decode(b[1:])
	if err != nil || cmp.Diff(v, back) != "" {
		t.Fatalf("decoded %v %v, want %v", back, err, v)
	}
}

// recorder is a Context that writes down what a processor does.
type recorder struct {
	Context
	emitted []Emission
}

func (r *recorder) Emit(_ int, e Emission) { r.emitted = append(r.emitted, e) }

func TestTombstonesPass(t *testing.T) {
	j := NewJob("job")
	in := FromTopic(j, "in", topicSource("in", 1, false))
	upper := MapValues(in, func(v string) (string, error) {
		if v == "" {
			return "", errors.New("called for a tombstone")
		}
		return strings.ToUpper(v), nil
	})
	kept := Filter(upper, func(r Record[string, string]) (bool, error) { return r.Null || r.Value != "B", nil })
	KeyBy(kept, "by", 1, same, text)
	p, err := j.Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, proc := &recorder{}, p.Stages[0].NewProcessor(TaskInfo{})
	for _, value := range [][]byte{[]byte("a"), []byte("b"), nil} {
		if err := proc.OnRecord(ctx, &Message{Key: []byte("k"), Value: value, TimestampMs: 7}); err != nil {
			t.Fatal(err)
		}
	}
	want := []Emission{{Key: []byte("k"), Value: []byte("A"), TimestampMs: 7}, {Key: []byte("k"), TimestampMs: 7}}
	if diff := cmp.Diff(want, ctx.emitted); diff != "" {
		t.Fatal(diff)
	}
}

func TestPanicsBecomeErrors(t *testing.T) {
	j := NewJob("job")
	Map(FromTopic(j, "in", topicSource("in", 1, false)), func(r Record[string, string]) (Record[string, string], error) {
		var m map[string]int
		//lint:ignore SA5000 the panic is the point
		m[r.Key] = 1
		return r, nil
	})
	p, err := j.Build()
	if err != nil {
		t.Fatal(err)
	}
	err = p.Stages[0].NewProcessor(TaskInfo{}).OnRecord(&recorder{}, &Message{Key: []byte("k"), Value: []byte("v")})
	var pe *PanicError
	if !errors.As(err, &pe) || !strings.Contains(pe.Location, "stream/stream_test.go:") || !strings.Contains(err.Error(), "nil map") {
		t.Fatalf("got %v", err)
	}
	err = p.Stages[0].NewProcessor(TaskInfo{}).OnRecord(&recorder{}, &Message{Key: []byte{0xff}, Value: []byte("v")})
	if err == nil || !strings.Contains(err.Error(), "key: not UTF-8") {
		t.Fatalf("got %v", err)
	}
	re := &RecordError{Task: "t-1", Stream: "s", File: "in.ndjson", Line: 12, Err: err}
	if !strings.HasPrefix(re.Error(), "in.ndjson:12: task t-1: ") || !errors.Is(re, err) {
		t.Fatalf("got %v", re)
	}
}
