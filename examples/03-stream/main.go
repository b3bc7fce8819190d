// Command 03-stream counts the clicks of each page and minute, each once, on the Kafka-protocol cluster that it is given.
package main

import (
	"context"
	"embed"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/task"
)

//go:embed clicks.txt
var files embed.FS // lines such as "2026-01-31T10:00:05Z /docs"; a shorter one stops the job with its number

func main() {
	if len(os.Args) < 2 || strings.HasPrefix(os.Args[1], "-") {
		log.Fatal("usage: 03-stream HOST:PORT …   (brokers of the cluster)")
	}
	job := stream.NewJob("clicks")
	clicks := stream.FromFile(job, "read", stream.FileSource{FS: files, Names: []string{"clicks.txt"},
		EventTime: func(line []byte) (int64, error) {
			t, err := time.Parse(time.RFC3339, string(line[:20]))
			return t.UnixMilli(), err
		}})
	byPage := stream.KeyBy(clicks, "by-page", 4, // partitions of the intermediate stream
		func(r stream.Record[stream.None, []byte]) (string, error) { return string(r.Value[21:]), nil },
		stream.Codecs[string, []byte]{Key: stream.String, Value: stream.Bytes})
	counts := stream.Aggregate(stream.Window(byPage, "minutes", stream.Tumbling(time.Minute)), func() int64 { return 0 },
		func(n int64, _ stream.Record[string, []byte]) (int64, error) { return n + 1, nil },
		stream.Codecs[string, int64]{Key: stream.String, Value: stream.Int64})
	rows := stream.MapValues(counts, func(p stream.Pane[int64]) (string, error) {
		return fmt.Sprintf("%s %d", time.UnixMilli(p.StartMs).UTC().Format("15:04"), p.Value), nil
	})
	stream.ToTopic(rows, "out", stream.TopicSink[string, string]{Topic: "clicks-per-minute", Partitions: 1,
		Codecs: stream.Codecs[string, string]{Key: stream.String, Value: stream.String}})
	var last task.Progress
	cfg := task.Config{Kafka: kafka.Config{Brokers: os.Args[1:]}, Progress: func(p task.Progress) { last = p }}
	if plan, err := job.Build(); err != nil {
		log.Fatal(err)
	} else if err := task.Run(context.Background(), plan, cfg); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d clicks are counted; everything was done already: %t\n", last.Stage("by-page").Counters.Records, last.EndedBefore)
}
