package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

const (
	// readerMaxWait is short: what a reader to an end waits for is a transaction's end, which wakes the fetch anyway.
	readerMaxWait           = 100 * time.Millisecond
	readerMaxBytes          = 16 << 20
	readerMaxPartitionBytes = 4 << 20
)

// ReadTo reads one partition, committed records only, from an offset until the position reaches end, and gives fn the
// records in order. It returns the position reached. It waits, within ctx, for transactions that are still open below
// end: so a caller that took end from EndOffsets(Uncommitted) after it saw a transaction decided sees all of it, also
// on a cluster that answers EndTxn before its markers are everywhere. An offset before the log start begins at the log
// start. An error of fn ends the read and is returned as it is.
func (c *Client) ReadTo(ctx context.Context, tp TopicPartition, from, end int64, fn func(Record) error) (int64, error) {
	var routes router
	lim := fetchLimits{maxWait: readerMaxWait, maxBytes: readerMaxBytes, maxPartitionBytes: readerMaxPartitionBytes, isolation: Committed}
	at := from
	for at < end {
		var b Batch
		err := retryMoved(ctx, func() error {
			found, err := c.look(ctx, &routes, []TopicPartition{tp})
			if err != nil {
				return err
			}
			rt, ok := found[tp]
			if !ok {
				return fmt.Errorf("kafka: %s has no leader: %w", tp, kerr.LeaderNotAvailable)
			}
			batches, err := c.fetchOnce(ctx, rt.leader, []position{{tp, rt, at}}, lim)
			if err != nil {
				routes.forget(tp)
				return err
			}
			if len(batches) != 1 {
				return fmt.Errorf("kafka: the fetch answer leaves out %s: %w", tp, kerr.LeaderNotAvailable)
			}
			b = batches[0]
			if b.Err != nil && moved(b.Err) {
				routes.forget(tp)
			}
			return b.Err
		})
		switch {
		case errors.Is(err, kerr.OffsetOutOfRange) && at < b.LogStartOffset:
			at = b.LogStartOffset
			continue
		case errors.Is(err, kerr.OffsetOutOfRange):
			return at, &OffsetRangeError{TopicPartition: tp, Position: at, LogStart: b.LogStartOffset}
		case err != nil:
			return at, err
		}
		for _, r := range b.Records {
			if r.Offset >= end {
				return end, nil
			}
			if err := fn(r); err != nil {
				return r.Offset, err
			}
		}
		at = b.NextOffset
	}
	return at, nil
}

// ReadAll reads a whole partition, as ReadTo does, up to its end of this moment. With Uncommitted that is the high
// watermark, and the read waits for what is open below it; with Committed it is the last stable offset, and it waits
// for nothing.
func (c *Client) ReadAll(ctx context.Context, tp TopicPartition, upTo Isolation, fn func(Record) error) (int64, error) {
	ends, err := c.EndOffsets(ctx, []TopicPartition{tp}, upTo)
	if err != nil {
		return 0, err
	}
	return c.ReadTo(ctx, tp, 0, ends[tp], fn)
}

// retryMoved repeats f while the network or a moving leader is in the way, until ctx ends.
func retryMoved(ctx context.Context, f func() error) error {
	for pause := retryPause; ; pause = min(2*pause, maxRetryPause) {
		err := f()
		if err == nil || errors.Is(err, kerr.OffsetOutOfRange) || ctx.Err() != nil {
			return err
		}
		if _, isCode := errors.AsType[*kerr.Error](err); isCode && !moved(err) {
			return err
		}
		if _, missing := errors.AsType[*MissingTopicError](err); missing {
			return err
		}
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("%w (gave up: %w)", err, context.Cause(ctx))
		case <-t.C:
		}
	}
}
