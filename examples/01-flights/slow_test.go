package main

import (
	"fmt"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/strandline-io/strandline/broker/brokertest"
	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/task"
)

// A function of the user's may take much longer for what one fetch or file holds than a transaction may: the work is cut.
func TestSlowFunctionsDoNotOutliveTransactions(t *testing.T) {
	const records, quick, perRecord = 5000, 4500, 60 * time.Millisecond // a transaction may take ten seconds
	var file []byte
	for i := range records {
		file = fmt.Appendf(file, "%d\n", i)
	}
	calls := 0
	j := stream.NewJob("slow")
	lines := stream.FromFile(j, "load", stream.FileSource{FS: fstest.MapFS{"numbers": {Data: file}}, Names: []string{"numbers"}})
	values := stream.Map(lines, func(r stream.Record[stream.None, []byte]) (stream.Record[string, []byte], error) {
		if calls++; calls > quick {
			<-time.After(perRecord)
		}
		return stream.With(r, string(r.Value), r.Value), nil
	})
	stream.ToTopic(values, "out", stream.TopicSink[string, []byte]{
		Topic: "slow-out", Partitions: 1, Codecs: stream.Codecs[string, []byte]{Key: stream.String, Value: stream.Bytes},
	})
	plan, err := j.Build()
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		network := brokertest.NewNetwork()
		b := brokertest.Start(t, brokertest.On(network, "broker:9092"))
		err := task.Run(t.Context(), plan, task.Config{Kafka: kafka.Config{Brokers: []string{b.Addr()}, Dial: network.DialContext}})
		if err != nil {
			t.Error(err)
		}
		if calls != records {
			t.Errorf("%d records were worked on %d times", records, calls)
		}
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
}
