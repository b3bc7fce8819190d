package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Transactions writes Records in transactions of PerTxn from Producers clients with a transactional id each. A
// transaction's latency runs from its begin to the answer of its commit.
func Transactions(ctx context.Context, c Config) (Result, error) {
	if err := c.validate(); err != nil {
		return Result{}, err
	}
	c = c.orDefaults()
	topic, remove, err := c.topic(ctx, "txn")
	if err != nil {
		return Result{}, err
	}
	defer remove()
	return c.transactionsTo(ctx, topic)
}

func (c Config) transactionsTo(ctx context.Context, topic string) (Result, error) {
	value := payload(c.SizeBytes)
	each := max(1, c.Records/int64(c.Producers)/int64(c.PerTxn))
	histograms := make([]histogram, c.Producers)
	errs := make([]error, c.Producers)
	clients := make([]*kgo.Client, c.Producers)
	prefix := fmt.Sprintf("bench-%08x", rand.Uint32())
	for i := range clients {
		opts, err := c.producerOpts(topic)
		if err != nil {
			return Result{}, err
		}
		opts = append(opts, kgo.TransactionalID(fmt.Sprintf("%s-%d", prefix, i)), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
		if clients[i], err = kgo.NewClient(opts...); err != nil {
			return Result{}, err
		}
		defer clients[i].Close()
		if err := transaction(ctx, clients[i], c.PerTxn, value); err != nil {
			return Result{}, fmt.Errorf("transaction on %v: %w", c.Brokers, err)
		}
	}
	start := time.Now()
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			for range each {
				begun := time.Now()
				if errs[i] = transaction(ctx, clients[i], c.PerTxn, value); errs[i] != nil {
					return
				}
				histograms[i].add(time.Since(begun))
			}
		})
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
	txns := each * int64(c.Producers)
	records := txns * int64(c.PerTxn)
	r := newResult("txn", records, records*int64(c.SizeBytes), took, &h)
	r.Transactions, r.TxnPerS = txns, float64(txns)/took.Seconds()
	return r, nil
}

func transaction(ctx context.Context, client *kgo.Client, n int, value []byte) error {
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	for range n {
		client.Produce(ctx, &kgo.Record{Value: value}, nil)
	}
	if err := client.Flush(ctx); err != nil {
		return err
	}
	return client.EndTransaction(ctx, kgo.TryCommit)
}
