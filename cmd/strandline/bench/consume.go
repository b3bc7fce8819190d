package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Consume reads a topic from its start. Without a topic it fills one first, with transactions if read_committed is
// asked for; the filling is not measured.
func Consume(ctx context.Context, c Config) (Result, error) {
	if err := c.validate(); err != nil {
		return Result{}, err
	}
	c = c.orDefaults()
	topic, remove, err := c.topic(ctx, "consume")
	if err != nil {
		return Result{}, err
	}
	defer remove()
	if c.Topic == "" {
		fill := c.produceTo
		if c.Committed {
			fill = c.transactionsTo
		}
		if _, err := fill(ctx, topic); err != nil {
			return Result{}, fmt.Errorf("fill %s: %w", topic, err)
		}
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxBytes(50 << 20),
		kgo.FetchMaxPartitionBytes(10 << 20),
	}
	if c.Committed {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return Result{}, err
	}
	defer client.Close()
	var records, bytes int64
	start := time.Now()
	for records < c.Records {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return Result{}, fmt.Errorf("%d of %d records read from %s: %w", records, c.Records, topic, err)
		}
		if err := fetches.Err0(); err != nil {
			return Result{}, err
		}
		for _, e := range fetches.Errors() {
			return Result{}, fmt.Errorf("fetch %s/%d: %w", e.Topic, e.Partition, e.Err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if records < c.Records { // the filling has a record more, for its warm-up
				records++
				bytes += int64(len(r.Value))
			}
		})
	}
	return newResult("consume", records, bytes, time.Since(start), nil), nil
}
