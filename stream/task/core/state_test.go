package core

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline-io/strandline/internal/alloc"
	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/progress"
)

// Random writes, rollbacks and commits: the overlay over a base reads as one map.
func TestOverlayEqualsMap(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 7))
		base, model := mapStore{}, map[string]string{}
		o := newOverlay(base)
		key := func() string { return fmt.Sprintf("k%02d", rng.IntN(20)) }
		change := func(into map[string]string) {
			k := key()
			if rng.IntN(3) == 0 {
				o.set([]byte(k), nil)
				delete(into, k)
				return
			}
			v := fmt.Sprint(rng.IntN(1000))
			o.set([]byte(k), []byte(v))
			into[k] = v
		}
		for range 60 {
			o.begin()
			after := map[string]string{}
			for k, v := range model {
				after[k] = v
			}
			for range rng.IntN(4) {
				change(after)
			}
			if rng.IntN(3) == 0 {
				o.rollback()
			} else {
				o.end()
				model = after
			}
			if rng.IntN(8) == 0 {
				for _, w := range o.list() {
					if w.Value == nil {
						delete(base, string(w.Key))
					} else {
						base[string(w.Key)] = string(w.Value)
					}
				}
				o.clear()
			}
			compareOverlay(t, seed, o, model, key(), key(), rng.IntN(25))
		}
	}
}

func compareOverlay(t *testing.T, seed uint64, o *overlay, model map[string]string, from, to string, limit int) {
	t.Helper()
	got, _, err := o.Get([]byte(from))
	if err != nil || string(got) != model[from] {
		t.Fatalf("seed %d: Get %s = %q %v, want %q", seed, from, got, err, model[from])
	}
	var have, want []string
	end := []byte(to)
	if limit > 20 {
		end = nil
	}
	if err := o.Range([]byte(from), end, func(key, value []byte) bool {
		have = append(have, string(key)+"="+string(value))
		return len(have) < limit
	}); err != nil {
		t.Fatal(err)
	}
	for k, v := range model {
		if k >= from && (end == nil || k < to) {
			want = append(want, k+"="+v)
		}
	}
	slices.Sort(want)
	want = want[:min(len(want), max(1, limit))]
	if diff := cmp.Diff(want, have); len(want)+len(have) > 0 && diff != "" {
		t.Fatalf("seed %d: Range %s %s limit %d (-want +got):\n%s", seed, from, end, limit, diff)
	}
}

// The bytes of docs/formats/checkpoint.md.
func TestCheckpointBytes(t *testing.T) {
	delivered, last := int64(9), int64(7)
	c := Checkpoint{
		Version: 1, Task: "by-0", Run: 1, Commit: 3, Delivered: &delivered, Out: StateCheckpoint{Watermark: &last}, Sent: StateCheckpoint{Idle: true},
		Inputs: []InputCheckpoint{{
			Stream: "by", Position: Position{Offset: 42},
			Book: &progress.BookCheckpoint{
				Run:         1,
				EndOfStream: progress.EndOfStreamCheckpoint{StreamID: "by", TotalTasks: 2, Tasks: []string{"in-1"}},
				Watermark:   progress.WatermarkCheckpoint{StreamID: "by", TotalTasks: 2, TasksToEventTime: map[string]int64{"in-0": 7}, LastEmission: &last},
			},
		}},
		Sinks: []SinkCheckpoint{{Sink: "blobs", Token: []byte("T1"), Rows: 5}}, Counters: Counters{Records: 40, Late: 1},
	}
	want := `{"version":1,"task":"by-0","run":1,"commit":3,"inputs":[{"stream":"by","partition":0,"position":{"offset":42},` +
		`"book":{"partition":0,"run":1,"endOfStream":{"streamId":"by","totalTasks":2,"tasks":["in-1"]},` +
		`"watermark":{"streamId":"by","totalTasks":2,"tasksToEventTime":{"in-0":7},"timestampOfLastEmission":7}}}],` +
		`"delivered":9,"out":{"watermark":7},"sent":{"idle":true},"sinks":[{"sink":"blobs","token":"VDE=","rows":5}],"counters":{"records":40,"late":1}}`
	if got := string(c.Encode()); got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	back, err := DecodeCheckpoint([]byte(want))
	if err != nil || cmp.Diff(&c, back) != "" {
		t.Fatalf("%v %s", err, cmp.Diff(&c, back))
	}
}

// Whatever lies in the checkpoint topic, a worker restores from it or stops with an error.
func FuzzRestore(f *testing.F) {
	f.Add([]byte(`{"version":1,"task":"by-0","run":1,"commit":3,"inputs":[{"stream":"by","partition":0,"position":{"offset":42},"book":{"run":1,"endOfStream":{"streamId":"by","totalTasks":1,"tasks":["in-0"]},"watermark":{"streamId":"by","totalTasks":1,"tasksToEventTime":{"in-0":7}}}}]}`))
	f.Add([]byte(`{"version":1,"task":"by-0","run":1,"inputs":[{"stream":"by","book":{}}],"delivered":-9223372036854775808}`))
	f.Add([]byte(`null`))
	j := stream.NewJob("job")
	in := stream.FromTopic(j, "in", stream.TopicSource[string, string]{Topic: "in", Partitions: 1, Codecs: text})
	stream.KeyBy(in, "by", 1, func(r stream.Record[string, string]) (string, error) { return r.Value, nil }, text)
	p, err := j.Build()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		w, err := New(Config{Plan: p, Job: NewJobRecord(p, 1, nil, nil)})
		if err != nil {
			t.Fatal(err)
		}
		w.Step(0, Assigned{[]Ownership{{byTask, 1}}})
		w.Step(0, Restored{Task: byTask, Token: 1, Checkpoint: append([]byte{}, value...), Inputs: []RestoredInput{{GroupOffset: -1}}})
		w.Step(0, CheckpointSeen{Key: []byte("in-0"), Value: value})
		w.Step(0, CheckpointSeen{Key: []byte(JobRecordKey), Value: value})
		w.Step(1000, Tick{})
	})
}

// What is accepted of a checkpoint or a job record is written again to the same bytes, once it has been written by us.
func FuzzCheckpoint(f *testing.F) {
	last := int64(7)
	f.Add((&Checkpoint{Version: 1, Task: "by-0", Run: 1, Commit: 3, Delivered: &last, Loaded: []PartitionEnd{{Topic: "t", EndOffset: 4}},
		Inputs: []InputCheckpoint{{Stream: "by", Source: &StateCheckpoint{Watermark: &last}}},
		Sinks:  []SinkCheckpoint{{Sink: "blobs", Token: []byte("T1"), Rows: 5}}}).Encode())
	f.Add([]byte(`{"version":1,"inputs":[{"position":{"offset":-1}}]}`))
	f.Add([]byte(`{"VERSION":1,"version":2,"sinks":[{"token":"!"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var c *Checkpoint
		var err error
		alloc.Within(t, len(data), 256, func() { c, err = DecodeCheckpoint(data) })
		if err != nil {
			mustBeUnreadable(t, err)
			return
		}
		once := c.Encode()
		again, err := DecodeCheckpoint(once)
		if err != nil || !bytes.Equal(again.Encode(), once) {
			t.Fatalf("%q is written %s, then %v", data, once, err)
		}
	})
}

func FuzzJobRecord(f *testing.F) {
	f.Add((&JobRecord{Version: 1, Job: "job", Run: 2, Stages: []StageRecord{{Name: "in", Tasks: 1, Inputs: []string{"in"}}},
		Topics: []TopicRecord{{"t", "id", 3}}, Ends: []PartitionEnd{{Topic: "t", EndOffset: 9}}}).Encode())
	f.Add([]byte(`{"version":1,"run":0}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r *JobRecord
		var err error
		alloc.Within(t, len(data), 256, func() { r, err = DecodeJobRecord(data) })
		if err != nil {
			mustBeUnreadable(t, err)
			return
		}
		once := r.Encode()
		again, err := DecodeJobRecord(once)
		if err != nil || !bytes.Equal(again.Encode(), once) {
			t.Fatalf("%q is written %s, then %v", data, once, err)
		}
	})
}

func mustBeUnreadable(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, ErrCheckpoint) {
		t.Fatalf("%v does not wrap ErrCheckpoint", err)
	}
}

func startPlan(t *testing.T, content string, tasks int) *stream.Plan {
	t.Helper()
	j := stream.NewJob("job")
	lines := stream.FromFile(j, "load", stream.FileSource{FS: fstest.MapFS{"a.txt": {Data: []byte(content)}}, Names: []string{"a.txt"}})
	stream.KeyBy(lines, "by", tasks, func(r stream.Record[stream.None, []byte]) (string, error) { return string(r.Value), nil },
		stream.Codecs[string, []byte]{Key: stream.String, Value: stream.Bytes})
	p, err := j.Build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func topicsOf(p *stream.Plan, id string) []TopicRecord {
	var out []TopicRecord
	for _, topic := range p.Topics {
		out = append(out, TopicRecord{topic.Name, id + topic.Name, topic.Partitions})
	}
	return out
}

func TestAllFinished(t *testing.T) {
	p := startPlan(t, "x", 2)
	done := func(run int64, token []byte) map[string]*Checkpoint {
		out := map[string]*Checkpoint{}
		for _, s := range p.Stages {
			for n := range s.Tasks {
				c := &Checkpoint{Version: 1, Task: stream.TaskName(s.Name, n), Run: run, Ended: true, Sinks: []SinkCheckpoint{{Sink: "s", Token: token}}}
				out[c.Task] = c
			}
		}
		return out
	}
	f := func(checkpoints map[string]*Checkpoint, want bool) {
		t.Helper()
		if got := AllFinished(p, 3, checkpoints); got != want {
			t.Errorf("got %t, want %t", got, want)
		}
	}
	f(nil, false)
	f(done(3, nil), true)
	f(done(2, nil), false)
	f(done(3, []byte("T")), false)
	one := done(3, nil)
	one[stream.TaskName("by", 1)].Ended = false
	f(one, false)
	delete(one, stream.TaskName("by", 1))
	f(one, false)
}

// A topic that a run reads to an end stays that way, and one without end too.
func TestBoundednessIsFixed(t *testing.T) {
	plan := func(bounded, loaded bool) *stream.Plan {
		t.Helper()
		j := stream.NewJob("job")
		text := stream.Codecs[string, []byte]{Key: stream.String, Value: stream.Bytes}
		if loaded {
			lines := stream.FromFile(j, "load", stream.FileSource{FS: fstest.MapFS{"a.txt": {Data: []byte("x")}}, Names: []string{"a.txt"}})
			keyed := stream.Map(lines, func(r stream.Record[stream.None, []byte]) (stream.Record[string, []byte], error) {
				return stream.With(r, "k", r.Value), nil
			})
			stream.ToTopic(keyed, "loaded", stream.TopicSink[string, []byte]{Topic: "events", Partitions: 2, Codecs: text})
		}
		in := stream.FromTopic(j, "in", stream.TopicSource[string, []byte]{Topic: "events", Partitions: 2, Bounded: bounded, Codecs: text})
		stream.ToTopic(in, "out", stream.TopicSink[string, []byte]{Topic: "out", Partitions: 1, Codecs: text})
		p, err := j.Build()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	f := func(began, now *stream.Plan, ended, wasBounded, changed bool) {
		t.Helper()
		var ends []PartitionEnd
		for _, topic := range NeedsEnds(began) {
			for n := range topic.Partitions {
				ends = append(ends, PartitionEnd{Topic: topic.Name, Partition: n, EndOffset: 7})
			}
		}
		c := &Checkpoint{Version: 1, Task: "in-0", Run: 1, Inputs: []InputCheckpoint{{Stream: "in", Source: &StateCheckpoint{Ended: ended}}}}
		name, bounded, got := BoundednessChanged(now, NewJobRecord(began, 1, topicsOf(began, ""), ends), map[string]*Checkpoint{"in-0": c})
		if got != changed || got && (name != "in" || bounded != wasBounded) {
			t.Errorf("got %q, %t, %t, want %t, %t", name, bounded, got, wasBounded, changed)
		}
	}
	for _, bounded := range []bool{true, false} {
		f(plan(bounded, false), plan(bounded, false), bounded, bounded, false)
		f(plan(bounded, true), plan(bounded, true), bounded, bounded, false)
	}
	f(plan(true, false), plan(false, false), false, true, true)
	f(plan(false, false), plan(true, false), false, false, true)
	f(plan(true, true), plan(false, true), true, true, true)
}

// A token that never goes away does not keep a job alive for ever.
func TestTokenAfterEnd(t *testing.T) {
	s, ended := &sinkState{name: "s", token: []byte("T"), confirmed: true}, &task{id: Task{"by", 0}}
	ended.out.Ended = true
	for n := 1; ; n++ {
		err := s.take([]byte("T"), ended)
		if err != nil {
			if n != maxTokenClears || !strings.Contains(err.Error(), "Prepare must return nil") {
				t.Fatalf("after %d tries: %v", n, err)
			}
			return
		}
		if n > maxTokenClears {
			t.Fatal("no end")
		}
	}
}
