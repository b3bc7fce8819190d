package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/internal/mutant"
)

// TxnID is what requests of a transaction name it by.
type TxnID struct {
	ID         string
	ProducerID int64
	Epoch      int16
}

// Membership is what a group knows a member by. TxnOffsetCommit carries it, which is what fences a worker that has
// lost its tasks (KIP-447).
type Membership struct {
	Group      string
	MemberID   string
	InstanceID string // "" for a dynamic member
	Generation int32
}

// SendOffsets puts offsets of the group into an open transaction, after all its produces are acknowledged. Where the
// cluster has transaction version 1 the group is added first.
func (c *Client) SendOffsets(ctx context.Context, id TxnID, m Membership, offsets map[TopicPartition]int64) error {
	if c.transactionVersion < 2 {
		if err := addGroup(ctx, c.link, id, m.Group); err != nil {
			return err
		}
	}
	return sendOffsets(ctx, c.link, id, m, offsets)
}

func sendOffsets(ctx context.Context, l Link, id TxnID, m Membership, offsets map[TopicPartition]int64) error {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = id.ID, id.ProducerID, id.Epoch
	req.Group, req.Generation, req.MemberID = m.Group, m.Generation, m.MemberID
	if m.InstanceID != "" {
		req.InstanceID = &m.InstanceID
	}
	for _, t := range byTopic(slices.Collect(maps.Keys(offsets))) {
		rt := kmsg.NewTxnOffsetCommitRequestTopic()
		rt.Topic = t.topic
		for _, p := range t.partitions {
			rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
			rp.Partition, rp.Offset = p, offsets[TopicPartition{t.topic, p}]
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
	}
	if mutant.On("offsets committed outside the transaction") {
		return commitOutside(ctx, l, req)
	}
	return retry(ctx, l, func() error {
		resp, err := req.RequestWith(ctx, l)
		if err != nil {
			return fmt.Errorf("kafka: TxnOffsetCommit of group %q: %w", m.Group, err)
		}
		for _, t := range resp.Topics {
			for _, rp := range t.Partitions {
				if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
					return fmt.Errorf("kafka: TxnOffsetCommit of %s-%d by member %q in generation %d of group %q: %w",
						t.Topic, rp.Partition, m.MemberID, m.Generation, m.Group, err)
				}
			}
		}
		return nil
	})
}

// commitOutside is a defect: the offsets do not wait for the transaction.
func commitOutside(ctx context.Context, l Link, in *kmsg.TxnOffsetCommitRequest) error {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation, req.MemberID, req.InstanceID = in.Group, in.Generation, in.MemberID, in.InstanceID
	for _, t := range in.Topics {
		rt := kmsg.NewOffsetCommitRequestTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetCommitRequestTopicPartition()
			rp.Partition, rp.Offset = p.Partition, p.Offset
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
	}
	_, err := req.RequestWith(ctx, l)
	return err
}

// addGroup is what transaction version 1 needs before TxnOffsetCommit.
func addGroup(ctx context.Context, l Link, id TxnID, group string) error {
	req := kmsg.NewPtrAddOffsetsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = id.ID, id.ProducerID, id.Epoch, group
	return retry(ctx, l, func() error {
		resp, err := req.RequestWith(ctx, l)
		if err != nil {
			return fmt.Errorf("kafka: AddOffsetsToTxn of group %q: %w", group, err)
		}
		return codeError("AddOffsetsToTxn of group "+group, resp.ErrorCode, nil)
	})
}

// errLateCopy is why a committed transaction counts as unknown.
var errLateCopy = errors.New("the transaction is committed, but a copy of one of its requests was never answered: under transaction.version 1 " +
	"it could still arrive and end the next transaction, so the id is taken over anew")

// EndOutcome says what an answer to EndTxn, nil or an error, tells about the transaction. Only what is certainly not applied
// is aborted. Whoever is fenced, or has no longer the producer id of its transactional id, does not know: an earlier try may have
// been applied, and another producer may have come since. Nor does it know by whom: a late
// InitProducerId of its own does the same as another process, so that is for the group to say (Member.Check).
//
// unanswered is how many requests that matter after the transaction (outlives) were sent and never answered. A copy of such
// a request may still be under way. Under transaction version 1 all transactions of a producer have one epoch, so the copy
// would end the next one in its middle, or set its offsets back: then the outcome is unknown, which takes the id over, and
// that fences what is late. From version 2 on the end of the transaction does.
func EndOutcome(err error, transactionVersion int16, unanswered int) (Outcome, error) {
	switch {
	case err == nil && transactionVersion < 2 && unanswered > 0:
		return Unknown, errLateCopy
	case err == nil:
		return CommittedOutcome, nil
	case errors.Is(err, kerr.OperationNotAttempted), errors.Is(err, kerr.InvalidTxnState), errors.Is(err, kerr.TransactionAbortable):
		return AbortedOutcome, err
	}
	return Unknown, err
}

// Outlives reports whether a late copy of a request does harm in the producer's next transaction, if both have one epoch.
// Late batches are known by their sequence, and a partition or group that is added for nothing gets a marker for nothing.
func Outlives(key int16) bool { return key == keyEndTxn || key == keyTxnOffsetCommit }
