package protocol

import (
	"context"
	"errors"

	"github.com/strandline-io/strandline/internal/failpoint"
	"github.com/strandline-io/strandline/internal/mutant"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/task/core"
)

// Producer is one transactional id, as *kafka.Producer is. One worker owns it; calls do not overlap.
type Producer interface {
	Begin() error
	Produce(ctx context.Context, r kafka.Record, done func(offset int64, err error))
	Flush(ctx context.Context) error
	CommitOffsets(ctx context.Context, m kafka.Membership, offsets map[kafka.TopicPartition]int64) error
	Commit(ctx context.Context) (kafka.Outcome, error)
	Close()
}

// errNotOwned says that a task was lost between its work and the commit.
var errNotOwned = errors.New("task: the group took a task of the transaction away")

// Commit is steps 3 and 4 of the commit protocol for a transaction whose changelogs and checkpoints have been given to
// the producer. An error ends the worker: nothing mends what is wrong. To be fenced is no such error: whether another
// process has the slot, TakeSlot asks the group.
func Commit(ctx context.Context, p Producer, tokens *Tokens, e core.Commit) (core.TxnEnded, error) {
	if err := putOffsets(ctx, p, tokens, e); err != nil && !mutant.On("zombie's token committed") {
		ended := core.TxnEnded{Epoch: e.Epoch, Outcome: core.Aborted, Err: err}
		if Final(err) {
			return ended, err
		}
		return ended, nil
	}
	failpoint.Hit("commit.offsets")
	outcome, err := p.Commit(ctx)
	ended := core.TxnEnded{Epoch: e.Epoch, Outcome: core.Unknown, Err: err}
	switch outcome {
	case kafka.CommittedOutcome:
		failpoint.Hit("commit.ended")
		return core.TxnEnded{Epoch: e.Epoch, Outcome: core.Committed}, nil
	case kafka.AbortedOutcome:
		ended.Outcome = core.Aborted
	}
	return ended, nil
}

// putOffsets waits for the acknowledgements and puts the offsets into the transaction. The tokens are looked at last:
// whoever holds them all also holds the generation, because a rebalance waits for OnRevoked.
func putOffsets(ctx context.Context, p Producer, tokens *Tokens, e core.Commit) error {
	if !mutant.On("commit before the acknowledgements") {
		if err := p.Flush(ctx); err != nil {
			return err
		}
	}
	m, ok := tokens.Hold(e.Owned)
	if !ok {
		return errNotOwned
	}
	offsets := make(map[kafka.TopicPartition]int64, len(e.Offsets))
	for _, o := range e.Offsets {
		offsets[kafka.TopicPartition{Topic: o.Topic, Partition: int32(o.Partition)}] = o.Offset
	}
	failpoint.Hit("commit.flushed")
	return p.CommitOffsets(ctx, m, offsets)
}

// TakeSlot takes a worker's transactional id. Before that it asks the group, by check, whether another process has the slot:
// one that wakes after a long pause must not fence its successor.
func TakeSlot[P any](ctx context.Context, check func(context.Context) error, open func(context.Context) (P, error)) (P, error) {
	if err := check(ctx); err != nil {
		var none P
		return none, err
	}
	return open(ctx)
}
