package group

import (
	"math"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/internal/mutant"
)

// OffsetCommit answers an OffsetCommit request, v2 to 10.
func (gs *Groups) OffsetCommit(ctx Context, req *kmsg.OffsetCommitRequest) {
	gs.start(ctx)
	resp := kmsg.NewPtrOffsetCommitResponse()
	resp.Version = req.Version
	c := gs.newCommit(ctx, req.Group, noProducer)
	c.speaksFor(req.MemberID, req.Generation)
	if req.Version <= 4 && req.RetentionTimeMillis >= 0 {
		c.rec.expireMs = addMs(ctx.WallMs(), req.RetentionTimeMillis)
	}
	for _, t := range req.Topics {
		out := kmsg.OffsetCommitResponseTopic{Topic: t.Topic, TopicID: t.TopicID}
		c.topic(ctx, t.Topic, t.TopicID, req.Version >= 10)
		for _, p := range t.Partitions {
			epoch := int32(-1)
			if req.Version >= 6 {
				epoch = p.LeaderEpoch
			}
			out.Partitions = append(out.Partitions, kmsg.OffsetCommitResponseTopicPartition{Partition: p.Partition,
				ErrorCode: c.partition(p.Partition, p.Offset, epoch, p.Metadata)})
		}
		resp.Topics = append(resp.Topics, out)
	}
	fail := func(f func(code *int16)) {
		for i := range resp.Topics {
			for j := range resp.Topics[i].Partitions {
				f(&resp.Topics[i].Partitions[j].ErrorCode)
			}
		}
	}
	if !mayGroup(ctx, kmsg.ACLOperationRead, req.Group) {
		fail(func(code *int16) { *code = kerr.GroupAuthorizationFailed.Code })
	} else if c.asked {
		if refusal := gs.finishCommit(ctx, c, gs.mayCommit(ctx, req)); refusal != 0 {
			fail(func(code *int16) { failPartition(code, refusal) })
		}
	}
	ctx.Reply(ctx.OpID(), resp)
}

// failPartition gives a partition the whole group's error. A partition that does not exist, or is not the client's to read,
// keeps its own.
func failPartition(code *int16, groupCode int16) {
	switch *code {
	case kerr.UnknownTopicOrPartition.Code, kerr.UnknownTopicID.Code, kerr.TopicAuthorizationFailed.Code:
	default:
		*code = groupCode
	}
}

// mayCommit judges who wants to commit (kafka-eos.md D.4).
func (gs *Groups) mayCommit(ctx Context, req *kmsg.OffsetCommitRequest) int16 {
	g, ok := gs.groups.Get(req.Group)
	if !ok {
		switch {
		case req.Generation < 0:
			return 0
		case req.Version >= 9:
			return kerr.GroupIDNotFound.Code
		}
		return kerr.IllegalGeneration.Code
	}
	if g.hasConsumers() {
		return gs.mayCommitConsumer(g, req)
	}
	instance := sinceVersion(req.Version, 7, req.InstanceID)
	empty := g.live.phase == phaseEmpty
	switch {
	case empty && req.Generation < 0:
		return 0
	case req.Generation < 0 && req.MemberID == "" && instance == nil:
		// Only members may commit for a group that has some.
		return kerr.UnknownMemberID.Code
	}
	_, m, code := gs.find(req.Group, req.MemberID, instance, req.Generation)
	switch {
	case code != 0:
		return code
	case g.live.phase == phaseCompleting && !mutant.On("commit before the assignment accepted"):
		return kerr.RebalanceInProgress.Code
	}
	gs.touch(ctx, m)
	return 0
}

// mayCommitConsumer is mayCommit for a group with members of the consumer protocol, who may also commit at an older
// epoch what they have had since: commit.partition judges that.
func (gs *Groups) mayCommitConsumer(g *group, req *kmsg.OffsetCommitRequest) int16 {
	m, ok := g.saved.consumer.members.Get(req.MemberID)
	switch {
	case !ok:
		return kerr.UnknownMemberID.Code
	case req.Version < 9 && m.info.classic == nil:
		return kerr.UnsupportedVersion.Code
	case mutant.On("commit of a stale member epoch accepted"):
	case req.Generation > m.epoch || req.Generation < 0:
		return m.stale()
	}
	return 0
}

// stale is the code for an epoch that is not the member's.
func (m *consumerMember) stale() int16 {
	if m.info.classic != nil {
		return kerr.IllegalGeneration.Code
	}
	return kerr.StaleMemberEpoch.Code
}

// commit collects what one request commits.
type commit struct {
	gs      *Groups
	group   *group // nil while it does not exist
	rec     offsetsRecord
	asked   bool // some partition exists, so that the group has to be asked
	code    int16
	count   int32 // partitions of the current topic
	fresh   int   // partitions for which the group keeps nothing yet
	pending int
	grows   int // by how much the state grows
	// member, if there is one, may commit at epoch, which is not above its own, and topicID is the current topic's.
	member  *consumerMember
	epoch   int32
	topicID [16]byte
}

func (gs *Groups) newCommit(ctx Context, name string, producerID int64) *commit {
	g, _ := gs.groups.Get(name)
	return &commit{gs: gs, group: g,
		rec: offsetsRecord{group: name, producerID: producerID, atMs: ctx.WallMs(), expireMs: -1}}
}

// speaksFor notes the member of the consumer protocol that commits, if it is one.
func (c *commit) speaksFor(memberID string, epoch int32) {
	if c.group != nil && c.group.hasConsumers() {
		c.member, _ = c.group.saved.consumer.members.Get(memberID)
		c.epoch = epoch
	}
}

// topic begins the next topic of the request.
func (c *commit) topic(ctx Context, name string, id [16]byte, byID bool) {
	c.code, c.count = 0, 0
	ok := true
	if byID {
		if name, ok = ctx.TopicByID(id); !ok {
			c.code = kerr.UnknownTopicID.Code
			return
		}
	}
	if !mayTopic(ctx, kmsg.ACLOperationRead, name) {
		c.code = kerr.TopicAuthorizationFailed.Code
		return
	}
	if c.topicID, c.count, ok = ctx.Topic(name); !ok {
		c.code, c.count = kerr.UnknownTopicOrPartition.Code, 0
	}
	c.rec.topics = append(c.rec.topics, topicCommit{name: name})
}

// partition judges one partition and takes it into the record if nothing is wrong with it.
func (c *commit) partition(partition int32, off int64, leaderEpoch int32, metadata *string) int16 {
	switch {
	case c.code != 0:
		return c.code
	case partition < 0 || partition >= c.count:
		return kerr.UnknownTopicOrPartition.Code
	}
	c.asked = true
	t := &c.rec.topics[len(c.rec.topics)-1]
	p := partitionCommit{partition: partition, offset: off, leaderEpoch: leaderEpoch}
	if metadata != nil {
		p.metadata = *metadata
	}
	if c.stale(partition) {
		if c.rec.producerID != noProducer {
			return kerr.IllegalGeneration.Code
		}
		return c.member.stale()
	}
	if utf16Len(p.metadata) > c.gs.cfg.MaxOffsetMetadataChars {
		return kerr.OffsetMetadataTooLarge.Code
	}
	if !c.hasRoom(t.name, p) {
		return kerr.InvalidCommitOffsetSize.Code
	}
	t.partitions = append(t.partitions, p)
	return 0
}

// stale tells whether a member of the consumer protocol got the partition only after the epoch that it commits at.
func (c *commit) stale(partition int32) bool {
	if c.member == nil || c.epoch == c.member.epoch || mutant.On("commit of a stale member epoch accepted") {
		return false
	}
	p := topicPartition{c.topicID, partition}
	for _, list := range [...][]holding{c.member.assigned, c.member.revoking} {
		if h, ok := findHolding(list, p); ok {
			return h.since > c.epoch
		}
	}
	return true
}

// hasRoom tells whether one offset more fits the bounds, and counts it.
func (c *commit) hasRoom(topic string, p partitionCommit) bool {
	known, held, fresh, pending := 0, 0, 1, 0
	grows := overheadBytes + len(p.metadata)
	if c.rec.producerID != noProducer {
		pending = 1
	}
	if c.group != nil {
		known, held = c.group.saved.offsets, c.group.saved.pending
		if e := c.group.entry(topic, p.partition); e != nil {
			fresh = 0
			if e.committed != nil && pending == 0 {
				grows -= int(e.committed.sizeBytes())
			}
		}
	}
	limit := c.gs.cfg.MaxOffsetsPerGroup
	if fresh > 0 && known+c.fresh >= limit || pending > 0 && held+c.pending >= limit || grows > 0 && !c.gs.mayGrow(c.grows+grows) {
		return false
	}
	c.fresh += fresh
	c.pending += pending
	c.grows += grows
	return true
}

// finishCommit records what was collected unless code refuses all of it. It returns the refusal.
func (gs *Groups) finishCommit(ctx Context, c *commit, code int16) int16 {
	if code != 0 {
		return code
	}
	kept := c.rec.topics[:0]
	for _, t := range c.rec.topics {
		if len(t.partitions) > 0 {
			kept = append(kept, t)
		}
	}
	if c.rec.topics = kept; len(kept) == 0 {
		return 0
	}
	if _, code := gs.open(c.rec.group); code != 0 {
		return code
	}
	gs.record(ctx, kindOffsets, &c.rec)
	return 0
}

// utf16Len is the length of a string as Kafka counts it.
func utf16Len(s string) int {
	n := utf8.RuneCountInString(s)
	for _, r := range s {
		if r > 0xffff {
			n++
		}
	}
	return n
}

// addMs adds a duration that a client named, without wrapping around.
func addMs(atMs, durationMs int64) int64 {
	if durationMs > math.MaxInt64-max(atMs, 0) {
		return math.MaxInt64
	}
	return atMs + durationMs
}
