package drill

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	pollWait     = 250 * time.Millisecond
	gateWait     = 5 * time.Millisecond
	clientPause  = 50 * time.Millisecond
	closeWait    = 10 * time.Second
	maxReasons   = 50 // kept of the errors that workers saw
	reasonsShown = 5
	// endWait bounds an attempt to end a transaction, longer than a broker is down.
	endWait = 90 * time.Second
)

// errDied ends a client in the midst of its transaction.
var errDied = errors.New("died on purpose")

// work moves records until all have moved. A client that was fenced or failed is replaced by a new one with the same
// transactional id, as a process that died would be.
func (d *drill) work(ctx context.Context, id int) {
	rng := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	for ctx.Err() == nil {
		s, err := d.session(id)
		if err == nil {
			// First of all this ends what its predecessor left: offsets pending in that hold back whoever is to go on from them.
			if _, _, err = s.Client().ProducerID(ctx); err == nil {
				err = d.transactions(ctx, s, id, rng)
			}
			closeSession(s)
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		if !errors.Is(err, errDied) {
			d.counts.replaced.Add(1)
			d.reason(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(clientPause):
		}
	}
}

func (d *drill) session(id int) (*kgo.GroupTransactSession, error) {
	return kgo.NewGroupTransactSession(clientOptions(d.target.addrs,
		kgo.ConsumerGroup(d.name), kgo.ConsumeTopics(d.source()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.FetchMaxPartitionBytes(64<<10), kgo.FetchMaxBytes(1<<20),
		kgo.HeartbeatInterval(500*time.Millisecond), kgo.SessionTimeout(10*time.Second), kgo.RebalanceTimeout(15*time.Second),
		kgo.TransactionalID(d.txnID(id)), kgo.TransactionTimeout(transactionTimeout), kgo.ProducerLinger(0),
	)...)
}

// closeSession leaves the group if the broker answers in time. A client that cannot goes on closing by itself; it is
// fenced when its successor begins.
func closeSession(s *kgo.GroupTransactSession) {
	closed := make(chan struct{})
	go func() {
		s.CloseAllowingRebalance()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(closeWait):
	}
}

// transactions runs one after the other. It returns nil when everything has moved, and an error if the client is of no
// use any more.
func (d *drill) transactions(ctx context.Context, s *kgo.GroupTransactSession, id int, rng *rand.Rand) error {
	for d.wait(ctx) {
		poll, cancel := context.WithTimeout(ctx, pollWait)
		fetches := s.PollRecords(poll, 1+rng.IntN(d.perTxn))
		cancel()
		if fetches.IsClientClosed() {
			return kgo.ErrClientClosed
		}
		fetches.EachError(func(_ string, _ int32, err error) {
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
				d.reason(fmt.Errorf("fetch: %w", err))
			}
		})
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := d.transaction(ctx, s, id, fetches, rng.IntN(abortEvery) == 0); err != nil {
			return err
		}
	}
	return nil
}

// wait holds a worker back while the next kill is due, or the last one is not judged. It returns false when the work is over.
func (d *drill) wait(ctx context.Context) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-d.done:
			return false
		default:
		}
		if d.movedSum() < d.limit.Load() && !d.judging.Load() {
			return true
		}
		time.Sleep(gateWait)
	}
}

func (d *drill) transaction(ctx context.Context, s *kgo.GroupTransactSession, id int, fetches kgo.Fetches, abort bool) error {
	if err := s.Begin(); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, endWait)
	defer cancel()
	first := kgo.AbortingFirstErrPromise(s.Client())
	fetches.EachRecord(func(r *kgo.Record) {
		s.Produce(ctx, &kgo.Record{
			Topic: d.output(), Key: r.Key, Value: r.Value,
			Headers: []kgo.RecordHeader{{Key: fromHeader, Value: fmt.Appendf(nil, "%d/%d", r.Partition, r.Offset)}},
		}, first.Promise())
	})
	die := d.doomed.Load() > 0 && d.doomed.Add(-1) >= 0
	if abort || die {
		// What is aborted or left open shall be on the broker.
		if err := s.Client().Flush(ctx); err != nil {
			return fmt.Errorf("flush: %w", err)
		}
		d.putOffsets(ctx, s.Client(), id, fetches)
	}
	if die {
		d.counts.died.Add(1)
		return errDied
	}
	failed := outcome(ctx, first)
	if ctx.Err() != nil {
		return fmt.Errorf("produce: %w", ctx.Err())
	}
	committed, err := s.End(ctx, kgo.TransactionEndTry(!abort && failed == nil))
	switch {
	case err != nil && !abort && failed == nil:
		d.counts.unknown.Add(1)
		return fmt.Errorf("commit: %w", err)
	case err != nil:
		d.counts.aborted.Add(1)
		return fmt.Errorf("abort: %w", errors.Join(failed, err))
	case committed:
		d.counts.committed.Add(1)
		fetches.EachRecord(func(r *kgo.Record) { d.reached(r.Partition, r.Offset+1) })
	case abort:
		d.counts.aborted.Add(1)
	default:
		d.counts.givenUp.Add(1)
	}
	return nil
}

func (d *drill) txnID(id int) string { return fmt.Sprintf("%s-%d", d.name, id) }

// putOffsets puts the offsets into a transaction that shall not commit: a session does that only for one that shall. Whether
// it succeeds does not matter.
func (d *drill) putOffsets(ctx context.Context, client *kgo.Client, id int, fetches kgo.Fetches) {
	producer, epoch, err := client.ProducerID(ctx)
	if err != nil {
		return
	}
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = d.txnID(id), producer, epoch, d.name
	if _, err := add.RequestWith(ctx, client); err != nil {
		return
	}
	put := kmsg.NewPtrTxnOffsetCommitRequest()
	put.TransactionalID, put.ProducerID, put.ProducerEpoch, put.Group = add.TransactionalID, producer, epoch, d.name
	put.MemberID, put.Generation = client.GroupMetadata()
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic = d.source()
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		if n := len(p.Records); n > 0 {
			partition := kmsg.NewTxnOffsetCommitRequestTopicPartition()
			partition.Partition, partition.Offset = p.Partition, p.Records[n-1].Offset+1
			topic.Partitions = append(topic.Partitions, partition)
		}
	})
	put.Topics = append(put.Topics, topic)
	_, _ = put.RequestWith(ctx, client)
}

// outcome waits for what became of all records, but not longer than ctx: what has been sent once, a client repeats for as
// long as its broker is away, and that may be for ever.
func outcome(ctx context.Context, first *kgo.FirstErrPromise) error {
	failed := make(chan error, 1)
	go func() { failed <- first.Err() }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *drill) reason(err error) {
	d.errMu.Lock()
	defer d.errMu.Unlock()
	text := err.Error()
	if len(d.reasons) < maxReasons || d.reasons[text] > 0 {
		d.reasons[text]++
	}
}

// reasonsText names the most frequent ones.
func (d *drill) reasonsText() string {
	d.errMu.Lock()
	defer d.errMu.Unlock()
	var all []string
	for text := range d.reasons {
		all = append(all, text)
	}
	slices.SortFunc(all, func(a, b string) int {
		if d.reasons[a] != d.reasons[b] {
			return d.reasons[b] - d.reasons[a]
		}
		return strings.Compare(a, b)
	})
	for i, text := range all {
		all[i] = fmt.Sprintf("%d× %s", d.reasons[text], text)
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all[:min(len(all), reasonsShown)], "; ")
}
