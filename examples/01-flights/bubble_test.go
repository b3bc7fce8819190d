package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/strandline-io/strandline/broker/brokertest"
	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/blob"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/task"
)

// TestInABubble runs broker, client and job under virtual time over an in-memory network, with two replicas.
func TestInABubble(t *testing.T) {
	store, err := blob.OpenStore("file:" + t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	plan, err := topology(bundled, "flights.ndjson", stream.Stop(), store)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		<-time.After(2 * 366 * day) // a bubble begins in 2000, and a broker takes no records from the future
		network := brokertest.NewNetwork()
		b := brokertest.Start(t, brokertest.On(network, "broker:9092"))
		cfg := task.Config{Kafka: kafka.Config{Brokers: []string{b.Addr()}, Dial: network.DialContext}}
		done := make(chan error, 2)
		var last task.Progress
		for replica := range 2 {
			c := cfg
			c.Replica = replica
			if replica == 0 {
				c.Progress = func(p task.Progress) { last = p }
			}
			go func() { done <- task.Run(t.Context(), plan, c) }()
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		rows, err := readRows(t.Context(), cfg.Kafka)
		if err != nil {
			t.Error(err)
		}
		if len(rows) != 6901 || !last.Finished {
			t.Errorf("%d rows, finished %v", len(rows), last.Finished)
		}
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
}
