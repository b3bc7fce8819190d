package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/internal/mutant"
)

// TxnOffsetCommit makes offsets pending for producerID, v0 to 5 (KIP-98, KIP-447). The caller has checked the
// transactional id, the producer's epoch and that the group is part of the transaction; it sends the response.
func (gs *Groups) TxnOffsetCommit(ctx Context, producerID int64, req *kmsg.TxnOffsetCommitRequest) *kmsg.TxnOffsetCommitResponse {
	gs.start(ctx)
	resp := kmsg.NewPtrTxnOffsetCommitResponse()
	resp.Version = req.Version
	c := gs.newCommit(ctx, req.Group, producerID)
	if req.Version >= 3 && (req.Generation >= 0 || req.MemberID != "" || req.InstanceID != nil) {
		c.speaksFor(req.MemberID, req.Generation)
	}
	for _, t := range req.Topics {
		out := kmsg.TxnOffsetCommitResponseTopic{Topic: t.Topic}
		c.topic(ctx, t.Topic, t.TopicID, false)
		for _, p := range t.Partitions {
			epoch := int32(-1)
			if req.Version >= 2 {
				epoch = p.LeaderEpoch
			}
			out.Partitions = append(out.Partitions, kmsg.TxnOffsetCommitResponseTopicPartition{Partition: p.Partition,
				ErrorCode: c.partition(p.Partition, p.Offset, epoch, p.Metadata)})
		}
		resp.Topics = append(resp.Topics, out)
	}
	if c.asked {
		if code := gs.finishCommit(ctx, c, gs.mayCommitTxn(req)); code != 0 {
			for i := range resp.Topics {
				for j := range resp.Topics[i].Partitions {
					failPartition(&resp.Topics[i].Partitions[j].ErrorCode, code)
				}
			}
		}
	}
	return resp
}

// mayCommitTxn judges who wants to commit (kafka-eos.md D.5). Unlike a plain commit it is welcome while a generation
// waits for its assignment, and clients from before KIP-447 say nothing about themselves.
func (gs *Groups) mayCommitTxn(req *kmsg.TxnOffsetCommitRequest) int16 {
	if req.Group == "" {
		return kerr.InvalidGroupID.Code
	}
	if mutant.On("transactional offsets of anybody accepted") || req.Version < 3 || req.Generation < 0 && req.MemberID == "" && req.InstanceID == nil {
		return 0
	}
	g, ok := gs.groups.Get(req.Group)
	switch {
	case !ok && req.Generation >= 0:
		return kerr.IllegalGeneration.Code
	case !ok, g.empty() && req.Generation < 0:
		return 0
	}
	if g.hasConsumers() {
		m, ok := g.saved.consumer.members.Get(req.MemberID)
		switch {
		case !ok:
			return kerr.UnknownMemberID.Code
		case req.Generation > m.epoch || req.Generation < 0:
			return kerr.IllegalGeneration.Code
		}
		return 0
	}
	_, _, code := gs.find(req.Group, req.MemberID, req.InstanceID, req.Generation)
	return code
}
