package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Link is what a Client speaks through. Open makes one of franz-go; a simulation gives its own to Over.
type Link interface {
	// Request goes to whichever broker is responsible.
	kmsg.Requestor
	// Broker speaks to one broker.
	Broker(id int32) kmsg.Requestor
	// Pause waits before a request is repeated. Its error ends the repetition.
	Pause(ctx context.Context, d time.Duration) error
}

// Over returns a client that speaks through l, to a cluster of the given transaction.version. It serves reads, offsets and
// topics; what needs connections of its own (OpenProducer, NewFetcher, Join) is for clients of Open.
func Over(l Link, transactionVersion int16) *Client {
	return &Client{link: l, transactionVersion: transactionVersion}
}

// kgoLink is the Link of a franz-go client, which finds brokers and repeats what networks lose.
type kgoLink struct{ kc *kgo.Client }

func (l kgoLink) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	return l.kc.Request(ctx, req)
}

func (l kgoLink) Broker(id int32) kmsg.Requestor { return l.kc.Broker(int(id)) }

func (kgoLink) Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// retry repeats f while its error is one that passes by itself, until ctx ends.
func retry(ctx context.Context, l Link, f func() error) error { return repeat(ctx, l, passing, f) }

func repeat(ctx context.Context, l Link, again func(error) bool, f func() error) error {
	for pause := retryPause; ; pause = min(2*pause, maxRetryPause) {
		err := f()
		if err == nil || !again(err) {
			return err
		}
		if end := l.Pause(ctx, pause); end != nil {
			return fmt.Errorf("%w (gave up: %w)", err, end)
		}
	}
}

func passing(err error) bool {
	if e, ok := errors.AsType[*kerr.Error](err); ok {
		return e.Retriable || e == kerr.UnstableOffsetCommit || e == kerr.ConcurrentTransactions
	}
	return false
}

// topicPartitions are partitions of one topic.
type topicPartitions struct {
	topic      string
	partitions []int32
}

// byTopic groups partitions, sorted, so that equal calls send equal bytes.
func byTopic(tps []TopicPartition) []topicPartitions {
	var out []topicPartitions
	for _, tp := range slices.SortedFunc(slices.Values(tps), TopicPartition.Compare) {
		if n := len(out); n == 0 || out[n-1].topic != tp.Topic {
			out = append(out, topicPartitions{topic: tp.Topic})
		}
		last := &out[len(out)-1]
		last.partitions = append(last.partitions, tp.Partition)
	}
	return out
}
