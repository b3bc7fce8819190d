package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/internal/mutant"
)

// OffsetFetch answers an OffsetFetch request, v1 to 10.
func (gs *Groups) OffsetFetch(ctx Context, req *kmsg.OffsetFetchRequest) {
	gs.start(ctx)
	resp := kmsg.NewPtrOffsetFetchResponse()
	resp.Version = req.Version
	f := &offsetFetch{ctx: ctx, version: req.Version, stable: req.Version >= 7 && req.RequireStable, byID: req.Version >= 10,
		budgetBytes: maxAnswerGroups * gs.cfg.MaxGroupBytes}
	if req.Version >= 8 {
		for _, q := range req.Groups {
			resp.Groups = append(resp.Groups, gs.fetchGroup(f, q.Group, fetcher{q.MemberID, q.MemberEpoch}, q.Topics, q.Topics == nil))
		}
		ctx.Reply(ctx.OpID(), resp)
		return
	}
	topics := make([]kmsg.OffsetFetchRequestGroupTopic, 0, len(req.Topics))
	for _, t := range req.Topics {
		topics = append(topics, kmsg.OffsetFetchRequestGroupTopic{Topic: t.Topic, Partitions: t.Partitions})
	}
	answer := gs.fetchGroup(f, req.Group, fetcher{epoch: -1}, topics, req.Topics == nil && req.Version >= 2)
	if req.Version >= 2 {
		resp.ErrorCode = answer.ErrorCode
	} else if answer.ErrorCode != 0 { // which v1 has no place for but the partitions
		answer.Topics = refusedTopics(topics, answer.ErrorCode)
	}
	for _, t := range answer.Topics {
		out := kmsg.OffsetFetchResponseTopic{Topic: t.Topic}
		for _, p := range t.Partitions {
			out.Partitions = append(out.Partitions, kmsg.OffsetFetchResponseTopicPartition{Partition: p.Partition,
				Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: p.Metadata, ErrorCode: p.ErrorCode})
		}
		resp.Topics = append(resp.Topics, out)
	}
	ctx.Reply(ctx.OpID(), resp)
}

func refusedTopics(topics []kmsg.OffsetFetchRequestGroupTopic, code int16) (refused []kmsg.OffsetFetchResponseGroupTopic) {
	for _, t := range topics {
		out := kmsg.OffsetFetchResponseGroupTopic{Topic: t.Topic}
		for _, p := range t.Partitions {
			out.Partitions = append(out.Partitions, kmsg.OffsetFetchResponseGroupTopicPartition{Partition: p, Offset: -1,
				LeaderEpoch: -1, Metadata: kmsg.StringPtr(""), ErrorCode: code})
		}
		refused = append(refused, out)
	}
	return refused
}

// maxAnswerGroups bounds an answer, in full groups (MaxGroupBytes): a short request that names one thing a thousand
// times must not get a thousand copies.
const maxAnswerGroups = 4

// offsetFetch is how one request wants its answers.
type offsetFetch struct {
	ctx     Context
	version int16
	stable  bool // partitions with pending offsets are an error (KIP-447)
	byID    bool
	// budgetBytes is how much the answer may still grow.
	budgetBytes int
}

// fetcher is the member of the consumer protocol that asks, since v9; an operator, or a client that does not say, has
// no id and the epoch -1.
type fetcher struct {
	id    *string
	epoch int32
}

// mayFetch judges who asks for the offsets of a group of the consumer protocol, which may have no members any more.
func (g *group) mayFetch(f *offsetFetch, who fetcher) int16 {
	if g == nil || g.groupType() != "consumer" || f.version < 9 || who.id == nil && who.epoch < 0 {
		return 0
	}
	id := ""
	if who.id != nil {
		id = *who.id
	}
	m, ok := g.saved.consumer.members.Get(id)
	switch {
	case !ok:
		return kerr.UnknownMemberID.Code
	case who.epoch != m.epoch:
		return m.stale()
	}
	return 0
}

func (gs *Groups) fetchGroup(f *offsetFetch, name string, member fetcher, topics []kmsg.OffsetFetchRequestGroupTopic, all bool) kmsg.OffsetFetchResponseGroup {
	resp := kmsg.OffsetFetchResponseGroup{Group: name}
	if !mayGroup(f.ctx, kmsg.ACLOperationDescribe, name) {
		resp.ErrorCode = kerr.GroupAuthorizationFailed.Code
		return resp
	}
	if f.budgetBytes < 0 { // then nothing is put together any more just to be dropped
		resp.ErrorCode = kerr.PolicyViolation.Code
		return resp
	}
	g, _ := gs.groups.Get(name)
	if resp.ErrorCode = g.mayFetch(f, member); resp.ErrorCode != 0 {
		return resp
	}
	switch {
	case !all:
		for _, t := range topics {
			resp.Topics = append(resp.Topics, f.topic(g, t))
		}
	case g != nil:
		g.saved.topics.Scan(func(_ string, t *topicOffsets) bool {
			if !mayTopic(f.ctx, kmsg.ACLOperationDescribe, t.name) {
				return true
			}
			if out := f.wholeTopic(t); len(out.Partitions) > 0 {
				resp.Topics = append(resp.Topics, out)
			}
			return f.budgetBytes >= 0
		})
	}
	if f.budgetBytes < 0 {
		resp.ErrorCode, resp.Topics = kerr.PolicyViolation.Code, nil
	}
	return resp
}

func (f *offsetFetch) topic(g *group, t kmsg.OffsetFetchRequestGroupTopic) kmsg.OffsetFetchResponseGroupTopic {
	out := kmsg.OffsetFetchResponseGroupTopic{Topic: t.Topic, TopicID: t.TopicID}
	name, ok := t.Topic, true
	if f.byID {
		name, ok = f.ctx.TopicByID(t.TopicID)
	}
	may := !ok || mayTopic(f.ctx, kmsg.ACLOperationDescribe, name)
	for _, p := range t.Partitions {
		var e *offsetEntry
		if ok && may && g != nil {
			e = g.entry(name, p)
		}
		answer := f.partition(p, e)
		switch {
		case !ok:
			answer.ErrorCode = kerr.UnknownTopicID.Code
		case !may:
			answer.ErrorCode = kerr.TopicAuthorizationFailed.Code
		}
		out.Partitions = append(out.Partitions, answer)
	}
	return out
}

// wholeTopic lists a topic's committed offsets. A partition that has only pending ones is left out, also for who asks for
// stable offsets: only who names it learns that one is on its way.
func (f *offsetFetch) wholeTopic(t *topicOffsets) kmsg.OffsetFetchResponseGroupTopic {
	out := kmsg.OffsetFetchResponseGroupTopic{Topic: t.name}
	f.budgetBytes -= len(t.name) + len(t.entries)*partitionAnswerBytes
	if f.byID {
		id, _, ok := f.ctx.Topic(t.name)
		if !ok {
			return out
		}
		out.TopicID = id
	}
	for _, e := range t.entries {
		if e.committed != nil {
			out.Partitions = append(out.Partitions, f.partition(e.partition, e))
		}
	}
	return out
}

// partitionAnswerBytes is about what one partition takes in an answer, beside its metadata.
const partitionAnswerBytes = 24

func (f *offsetFetch) partition(partition int32, e *offsetEntry) kmsg.OffsetFetchResponseGroupTopicPartition {
	out := kmsg.OffsetFetchResponseGroupTopicPartition{Partition: partition, Offset: -1, LeaderEpoch: -1,
		Metadata: kmsg.StringPtr("")}
	switch {
	case e == nil:
	case f.stable && len(e.pending) > 0 && !mutant.On("stable fetch does not wait"):
		out.ErrorCode = kerr.UnstableOffsetCommit.Code
	case e.committed != nil:
		out.Offset, out.LeaderEpoch = e.committed.offset, e.committed.leaderEpoch
		out.Metadata = kmsg.StringPtr(e.committed.metadata)
		f.budgetBytes -= len(e.committed.metadata)
	}
	return out
}
