package stream_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/streamtest"
)

// A job is described, built into a plan, and run: here by a test, in virtual time and without a cluster.
func ExampleNewJob() {
	text := stream.Codecs[string, string]{Key: stream.String, Value: stream.String}
	j := stream.NewJob("shout")
	words := stream.FromTopic(j, "read", stream.TopicSource[string, string]{Topic: "words", Partitions: 1, Bounded: true, Codecs: text})
	loud := stream.MapValues(words, func(word string) (string, error) { return strings.ToUpper(word) + "!", nil })
	stream.ToTopic(loud, "write", stream.TopicSink[string, string]{Topic: "shouts", Partitions: 1, Codecs: text})
	plan, err := j.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	r := streamtest.New(new(testing.T), plan, streamtest.Options{}) // in a test, its own t
	r.Write("words", []byte("k"), []byte("hello"), 0)
	r.Run()
	for _, m := range r.Topic("shouts") {
		fmt.Printf("%s %s\n", m.Key, m.Value)
	}
	fmt.Println("finished:", r.Finished())
	// Output:
	// k HELLO!
	// finished: true
}

// Lines are keyed by their word, which sends them over an intermediate stream, and counted per word and minute.
func ExampleKeyBy() {
	j := stream.NewJob("count")
	lines := stream.FromFile(j, "read", stream.FileSource{
		FS: fstest.MapFS{"in.txt": {Data: []byte("10:00:01 ant\n10:00:07 bee\n10:00:59 ant\n10:01:00 ant\n")}}, Names: []string{"in.txt"},
		EventTime: func(line []byte) (int64, error) {
			t, err := time.Parse(time.DateTime, "2026-01-31 "+string(line[:8]))
			return t.UnixMilli(), err
		},
	})
	byWord := stream.KeyBy(lines, "by-word", 2,
		func(r stream.Record[stream.None, []byte]) (string, error) { return string(r.Value[9:]), nil },
		stream.Codecs[string, []byte]{Key: stream.String, Value: stream.Bytes},
		stream.OnError(stream.Skip())) // for what fails behind; what fails before is under FileSource.OnError
	counts := stream.Aggregate(stream.Window(byWord, "minutes", stream.Tumbling(time.Minute)), func() int64 { return 0 },
		func(n int64, _ stream.Record[string, []byte]) (int64, error) { return n + 1, nil },
		stream.Codecs[string, int64]{Key: stream.String, Value: stream.Int64})
	stream.ToTopic(counts, "write", stream.TopicSink[string, stream.Pane[int64]]{Topic: "counts", Partitions: 1,
		Codecs: stream.Codecs[string, stream.Pane[int64]]{Key: stream.String, Value: stream.JSON[stream.Pane[int64]]()}})
	plan, err := j.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	r := streamtest.New(new(testing.T), plan, streamtest.Options{})
	r.Run()
	for _, m := range r.Topic("counts") {
		fmt.Printf("%s %s\n", m.Key, m.Value)
	}
	// Unordered output:
	// ant {"start_ms":1769853600000,"end_ms":1769853660000,"value":2}
	// ant {"start_ms":1769853660000,"end_ms":1769853720000,"value":1}
	// bee {"start_ms":1769853600000,"end_ms":1769853660000,"value":1}
}
