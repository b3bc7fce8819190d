package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetDelete answers an OffsetDelete request, v0 (KIP-496). Offsets of topics that a member subscribes to stay. The
// others go with what open transactions would commit (kafka-eos.md D.5).
func (gs *Groups) OffsetDelete(ctx Context, req *kmsg.OffsetDeleteRequest) {
	gs.start(ctx)
	resp := kmsg.NewPtrOffsetDeleteResponse()
	resp.Version = req.Version
	defer func() { ctx.Reply(ctx.OpID(), resp) }()
	g, ok := gs.groups.Get(req.Group)
	switch {
	case !mayGroup(ctx, kmsg.ACLOperationDelete, req.Group):
		resp.ErrorCode = kerr.GroupAuthorizationFailed.Code
		return
	case !ok || !g.saved.exists && g.empty():
		resp.ErrorCode = kerr.GroupIDNotFound.Code
		return
	case g.live.phase != phaseEmpty && g.protocolType() != consumerProtocol:
		resp.ErrorCode = kerr.NonEmptyGroup.Code
		return
	}
	rec := &offsetsRemovedRecord{group: g.name}
	for _, t := range req.Topics {
		out := kmsg.NewOffsetDeleteResponseTopic()
		out.Topic = t.Topic
		deletable := gs.offsetDeletable(ctx, g, t.Topic)
		_, count, _ := ctx.Topic(t.Topic)
		gone := topicPartitions{name: t.Topic}
		for _, p := range t.Partitions {
			code := deletable
			if code != kerr.TopicAuthorizationFailed.Code && (p.Partition < 0 || p.Partition >= count) {
				code = kerr.UnknownTopicOrPartition.Code
			}
			out.Partitions = append(out.Partitions, kmsg.OffsetDeleteResponseTopicPartition{Partition: p.Partition, ErrorCode: code})
			if e := g.entry(t.Topic, p.Partition); code == 0 && e != nil {
				gone.partitions = append(gone.partitions, p.Partition)
			}
		}
		if len(gone.partitions) > 0 {
			rec.topics = append(rec.topics, gone)
		}
		resp.Topics = append(resp.Topics, out)
	}
	if len(rec.topics) > 0 {
		gs.record(ctx, kindOffsetsRemoved, rec)
	}
}

// offsetDeletable says why offsets of a topic may not be deleted, 0 if they may.
func (gs *Groups) offsetDeletable(ctx Context, g *group, topic string) int16 {
	if !mayTopic(ctx, kmsg.ACLOperationRead, topic) {
		return kerr.TopicAuthorizationFailed.Code
	}
	if _, _, ok := ctx.Topic(topic); !ok {
		return kerr.UnknownTopicOrPartition.Code
	}
	if g.empty() {
		return 0
	}
	if g.hasConsumers() {
		if g.saved.consumer.subscribes(topic) {
			return kerr.GroupSubscribedToTopic.Code
		}
		return 0
	}
	topics, understood := g.subscriptions()
	if _, subscribed := topics[topic]; subscribed || !understood {
		return kerr.GroupSubscribedToTopic.Code
	}
	return 0
}
