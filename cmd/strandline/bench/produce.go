package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Produce writes records and measures until the last is acknowledged.
func Produce(ctx context.Context, c Config) (Result, error) {
	if err := c.validate(); err != nil {
		return Result{}, err
	}
	c = c.orDefaults()
	topic, remove, err := c.topic(ctx, "produce")
	if err != nil {
		return Result{}, err
	}
	defer remove()
	return c.produceTo(ctx, topic)
}

func (c Config) produceTo(ctx context.Context, topic string) (Result, error) {
	opts, err := c.producerOpts(topic)
	if err != nil {
		return Result{}, err
	}
	value := payload(c.SizeBytes)
	each := c.Records / int64(c.Producers)
	histograms := make([]histogram, c.Producers)
	errs := make([]error, c.Producers)
	clients := make([]*kgo.Client, c.Producers)
	for i := range clients {
		if clients[i], err = kgo.NewClient(opts...); err != nil {
			return Result{}, err
		}
		defer clients[i].Close()
		// The first record brings metadata and the producer id, which are not what is measured.
		if err := clients[i].ProduceSync(ctx, &kgo.Record{Value: value}).FirstErr(); err != nil {
			return Result{}, fmt.Errorf("produce to %v: %w", c.Brokers, err)
		}
	}
	start := time.Now()
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() { errs[i] = c.producer(ctx, clients[i], each, value, &histograms[i], start) })
	}
	wg.Wait()
	took := time.Since(start)
	if err := join(errs); err != nil {
		return Result{}, err
	}
	var h histogram
	for i := range histograms {
		h.merge(&histograms[i])
	}
	n := each * int64(c.Producers)
	return newResult("produce", n, n*int64(c.SizeBytes), took, &h), nil
}

// producer sends n records, at the rate's moments if there is one.
func (c Config) producer(ctx context.Context, client *kgo.Client, n int64, value []byte, h *histogram, start time.Time) error {
	var mu sync.Mutex // guards h and failed
	var failed error
	var interval time.Duration
	if c.Rate > 0 {
		interval = time.Duration(int64(time.Second) * int64(c.Producers) / c.Rate)
	}
	for i := range n {
		due := time.Now()
		if interval > 0 {
			due = start.Add(time.Duration(i) * interval)
			if err := waitUntil(ctx, due); err != nil {
				return err
			}
		}
		client.Produce(ctx, &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
			took := time.Since(due)
			mu.Lock()
			defer mu.Unlock()
			if err != nil && failed == nil {
				failed = err
			}
			h.add(took)
		})
	}
	if err := client.Flush(ctx); err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	return failed
}

// waitUntil sleeps until a moment, in steps that a timer can keep.
func waitUntil(ctx context.Context, due time.Time) error {
	wait := time.Until(due)
	if wait <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
