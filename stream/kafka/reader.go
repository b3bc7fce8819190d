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
	at := from
	for at < end {
		b, err := c.readOnce(ctx, &routes, tp, at)
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

// readOnce is one fetch of one partition, repeated while the network or a moving leader is in the way.
func (c *Client) readOnce(ctx context.Context, routes *router, tp TopicPartition, at int64) (b Batch, err error) {
	lim := fetchLimits{maxWait: readerMaxWait, maxBytes: readerMaxBytes, maxPartitionBytes: readerMaxPartitionBytes, isolation: Committed}
	err = repeat(ctx, c.link, onTheWay, func() (err error) {
		b, err = c.fetchFrom(ctx, routes, tp, at, lim)
		if err != nil {
			return err
		}
		return b.Err
	})
	return b, err
}

// Fetch asks once for what a partition holds from an offset on, committed only, as a Fetcher does again and again. An error
// of the Batch ends the partition; any other is about this request.
func (c *Client) Fetch(ctx context.Context, tp TopicPartition, from int64, maxBytes int32) (Batch, error) {
	lim := fetchLimits{maxWait: readerMaxWait, maxBytes: maxBytes, maxPartitionBytes: maxBytes, isolation: Committed}
	b, err := c.fetchFrom(ctx, &c.routes, tp, from, lim)
	if err == nil && b.Err != nil && moved(b.Err) {
		return b, b.Err
	}
	return b, err
}

func (c *Client) fetchFrom(ctx context.Context, routes *router, tp TopicPartition, at int64, lim fetchLimits) (Batch, error) {
	found, err := c.look(ctx, routes, []TopicPartition{tp})
	if err != nil {
		return Batch{}, err
	}
	rt, ok := found[tp]
	if !ok {
		return Batch{}, fmt.Errorf("kafka: %s has no leader: %w", tp, kerr.LeaderNotAvailable)
	}
	batches, err := c.fetchOnce(ctx, rt.leader, []position{{tp, rt, at}}, lim)
	if err != nil {
		routes.forget(tp)
		return Batch{}, err
	}
	if len(batches) != 1 {
		return Batch{}, fmt.Errorf("kafka: the fetch answer leaves out %s: %w", tp, kerr.LeaderNotAvailable)
	}
	if b := batches[0]; b.Err != nil && moved(b.Err) {
		routes.forget(tp)
	}
	return batches[0], nil
}

// onTheWay reports errors of the network, and of a leader that moves.
func onTheWay(err error) bool {
	if errors.Is(err, kerr.OffsetOutOfRange) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	if _, missing := errors.AsType[*MissingTopicError](err); missing {
		return false
	}
	_, isCode := errors.AsType[*kerr.Error](err)
	return !isCode || moved(err)
}
