package streamtest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/strandline-io/strandline/stream"
)

// counting is the job of the scripts: two source topics, merged, re-keyed, counted per 10 s, to a topic and a sink; late
// records go to a topic of their own, bad ones to the dead letters.
func counting(bounded bool) func(*testing.T) Job {
	return func(t *testing.T) Job {
		t.Helper()
		j := stream.NewJob("count")
		text := stream.Codecs[string, string]{Key: stream.String, Value: stream.String}
		source := func(name string) stream.Stream[string, string] {
			return stream.FromTopic(j, name, stream.TopicSource[string, string]{
				Topic: name, Partitions: 2, Codecs: text, Bounded: bounded, IdleTimeout: 30 * time.Second,
				MaxDisorder: time.Second, OnError: stream.DeadLetter("dead"),
			})
		}
		in := stream.Map(stream.Merge("in", source("a"), source("b")), func(r stream.Record[string, string]) (stream.Record[string, string], error) {
			if r.Value == "bad" {
				return r, errors.New("a bad word")
			}
			if r.Value == "panic" {
				panic("cannot bear it")
			}
			return r, nil
		})
		words := stream.KeyBy(in, "words", 2, func(r stream.Record[string, string]) (string, error) { return r.Value, nil }, text)
		w := stream.Window(words, "counts", stream.Tumbling(10*time.Second))
		counts := stream.Aggregate(w, func() int64 { return 0 },
			func(n int64, _ stream.Record[string, string]) (int64, error) { return n + 1, nil },
			stream.Codecs[string, int64]{Key: stream.String, Value: stream.Int64})
		out := stream.MapValues(counts, func(p stream.Pane[int64]) (string, error) { return strings.Repeat("I", int(p.Value)), nil })
		stream.ToTopic(out, "out", stream.TopicSink[string, string]{Topic: "out", Partitions: 1, Codecs: text})
		stream.ToTopic(w.Late(), "late", stream.TopicSink[string, string]{Topic: "late", Partitions: 1, Codecs: text})
		sink := NewSink("rows")
		stream.ToSink(out, stream.String, sink)
		plan, err := j.Build()
		if err != nil {
			t.Fatal(err)
		}
		return Job{plan, []*Sink{sink}}
	}
}

func TestUnboundedScripts(t *testing.T) { RunScripts(t, "testdata/unbounded-*.txt", counting(false)) }
func TestBoundedScripts(t *testing.T)   { RunScripts(t, "testdata/bounded-*.txt", counting(true)) }
