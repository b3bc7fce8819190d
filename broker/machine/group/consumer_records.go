package group

import (
	"encoding/binary"

	"github.com/strandline-io/strandline/broker/machine/codec"
)

const (
	// kindConsumerEpoch: the group is a consumer group and has this epoch.
	kindConsumerEpoch uint8 = 72
	// kindConsumerMember: a member is new, or says something else about itself.
	kindConsumerMember uint8 = 73
	// kindConsumersRemoved: members left, or were fenced.
	kindConsumersRemoved uint8 = 74
	// kindConsumerTarget: an assignor has decided who should have what.
	kindConsumerTarget uint8 = 75
	// kindConsumerCurrent: a member has moved towards its target.
	kindConsumerCurrent uint8 = 76
	// kindConsumerReplaced: a static member came back under a new member id.
	kindConsumerReplaced uint8 = 77
	// kindConsumerPatterns: patterns match these topics.
	kindConsumerPatterns uint8 = 78
	// kindClassicMember and kindClassicReplaced are kindConsumerMember and kindConsumerReplaced for a member of the classic
	// protocol.
	kindClassicMember   uint8 = 79
	kindClassicReplaced uint8 = 80
	// kindSettings: a group has these settings and no others.
	kindSettings uint8 = 81
)

type consumerEpochRecord struct {
	group        string
	epoch        int32
	metadataHash uint64
	atMs         int64
}

func (rec *consumerEpochRecord) append(b []byte) []byte {
	b = codec.AppendString(b, rec.group)
	b = binary.AppendVarint(b, int64(rec.epoch))
	b = binary.AppendUvarint(b, rec.metadataHash)
	return binary.AppendVarint(b, rec.atMs)
}

func readConsumerEpoch(r *reader) consumerEpochRecord {
	return consumerEpochRecord{group: r.String(), epoch: r.Natural(), metadataHash: r.Uvarint(), atMs: r.Varint()}
}

type consumerMemberRecord struct {
	group string
	info  *consumerInfo
}

// kind tells members of the two protocols apart.
func (rec *consumerMemberRecord) kind() uint8 {
	if rec.info.classic != nil {
		return kindClassicMember
	}
	return kindConsumerMember
}

func (rec *consumerMemberRecord) append(b []byte) []byte {
	return appendAnyConsumer(codec.AppendString(b, rec.group), rec.info)
}

func readConsumerMember(r *reader, classic bool) consumerMemberRecord {
	return consumerMemberRecord{group: r.String(), info: r.anyConsumer(classic)}
}

// appendAnyConsumer writes what the member has of the classic protocol behind the rest.
func appendAnyConsumer(b []byte, i *consumerInfo) []byte {
	b = appendConsumer(b, i)
	if i.classic != nil {
		b = appendClassic(b, i.classic)
	}
	return b
}

func (r *reader) anyConsumer(classic bool) *consumerInfo {
	i := r.consumer()
	if classic {
		i.classic = r.classic()
	}
	return i
}

func appendClassic(b []byte, c *classicInfo) []byte {
	return appendProtocols(binary.AppendVarint(b, int64(c.sessionMs)), c.protocols)
}

func (r *reader) classic() *classicInfo {
	c := &classicInfo{sessionMs: r.Natural(), protocols: r.protocols()}
	if len(c.protocols) == 0 {
		r.Fail("member of the classic protocol without protocols")
	}
	return c
}

func appendConsumer(b []byte, i *consumerInfo) []byte {
	b = codec.AppendString(b, i.id)
	b = codec.AppendOptional(b, i.instance)
	b = codec.AppendOptional(b, i.rack)
	b = codec.AppendString(b, i.clientID)
	b = codec.AppendString(b, i.clientHost)
	b = binary.AppendVarint(b, int64(i.rebalanceMs))
	b = appendNames(b, i.topics)
	b = codec.AppendString(b, i.pattern)
	return codec.AppendString(b, i.assignor)
}

func (r *reader) consumer() *consumerInfo {
	return &consumerInfo{id: r.String(), instance: r.Optional(), rack: r.Optional(), clientID: r.String(),
		clientHost: r.String(), rebalanceMs: r.Natural(), topics: r.names(), pattern: r.String(), assignor: r.String()}
}

func appendNames(b []byte, names []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(names)))
	for _, name := range names {
		b = codec.AppendString(b, name)
	}
	return b
}

// names reads names, each above the one before.
func (r *reader) names() []string {
	var names []string
	for i := range r.Count(1) {
		name := r.String()
		if i > 0 && name <= names[i-1] {
			r.Fail("name %q after %q", name, names[i-1])
			return nil
		}
		names = append(names, name)
	}
	return names
}

type consumerTargetRecord struct {
	group   string
	epoch   int32
	members []memberTarget // whose target is another one than before
}

type memberTarget struct {
	id     string
	target []topicPartition
}

func (rec *consumerTargetRecord) append(b []byte) []byte {
	b = codec.AppendString(b, rec.group)
	b = binary.AppendVarint(b, int64(rec.epoch))
	b = binary.AppendUvarint(b, uint64(len(rec.members)))
	for _, m := range rec.members {
		b = codec.AppendString(b, m.id)
		b = appendTarget(b, m.target)
	}
	return b
}

func readConsumerTarget(r *reader) consumerTargetRecord {
	rec := consumerTargetRecord{group: r.String(), epoch: r.Natural()}
	for range r.Count(2) {
		rec.members = append(rec.members, memberTarget{r.String(), r.target()})
	}
	return rec
}

func appendTarget(b []byte, target []topicPartition) []byte {
	b = binary.AppendUvarint(b, uint64(len(target)))
	var last topicPartition
	for i, p := range target {
		b = appendPlace(b, i == 0, last, p)
		last = p
	}
	return b
}

// appendPlace writes the topic's id only where it changes: 0, or 1 and the id.
func appendPlace(b []byte, first bool, last, p topicPartition) []byte {
	if !first && last.topic == p.topic {
		b = append(b, 0)
	} else {
		b = append(append(b, 1), p.topic[:]...)
	}
	return binary.AppendVarint(b, int64(p.partition))
}

// place reads what appendPlace wrote.
func (r *reader) place(first bool, last topicPartition) topicPartition {
	p := last
	if r.Bool() {
		copy(p.topic[:], r.Take(uint64(len(p.topic))))
	} else if first {
		r.Fail("partition without a topic")
	}
	p.partition = r.Natural()
	if !first && compareTopicPartitions(last, p) >= 0 {
		r.Fail("partition %x-%d after %x-%d", p.topic, p.partition, last.topic, last.partition)
	}
	return p
}

func (r *reader) target() []topicPartition {
	var target []topicPartition
	var last topicPartition
	for i := range r.Count(2) {
		last = r.place(i == 0, last)
		if r.Err() != nil {
			return nil
		}
		target = append(target, last)
	}
	return target
}

type consumerCurrentRecord struct {
	group     string
	id        string
	epoch     int32
	prevEpoch int32
	state     reconciliation
	assigned  []holding
	revoking  []holding
}

func (rec *consumerCurrentRecord) append(b []byte) []byte {
	b = codec.AppendString(codec.AppendString(b, rec.group), rec.id)
	return appendCurrent(b, rec.epoch, rec.prevEpoch, rec.state, rec.assigned, rec.revoking)
}

func appendCurrent(b []byte, epoch, prevEpoch int32, state reconciliation, assigned, revoking []holding) []byte {
	b = binary.AppendVarint(b, int64(epoch))
	b = binary.AppendVarint(b, int64(prevEpoch))
	b = append(b, byte(state))
	return appendHoldings(appendHoldings(b, assigned), revoking)
}

// readConsumerCurrent reads into a copy of nothing: what a member is, without who it is.
func readConsumerCurrent(r *reader) consumerCurrentRecord {
	rec := consumerCurrentRecord{group: r.String(), id: r.String()}
	r.current(&rec)
	return rec
}

func (r *reader) current(rec *consumerCurrentRecord) {
	rec.epoch, rec.prevEpoch = r.memberEpoch(), r.memberEpoch()
	rec.state = reconciliation(r.Byte())
	if rec.state > unreleased {
		r.Fail("member %q of group %q is in state %d", rec.id, rec.group, byte(rec.state))
	}
	rec.assigned, rec.revoking = r.holdings(), r.holdings()
	for _, h := range rec.revoking {
		if _, both := findHolding(rec.assigned, h.topicPartition); both {
			r.Fail("member %q of group %q gives up a partition that it keeps", rec.id, rec.group)
		}
	}
}

func (r *reader) memberEpoch() int32 {
	v := r.Int32()
	if v < 0 && v != leftEpoch {
		r.Fail("member epoch %d", v)
	}
	return v
}

func appendHoldings(b []byte, list []holding) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	var last topicPartition
	for i, h := range list {
		b = appendPlace(b, i == 0, last, h.topicPartition)
		b = binary.AppendVarint(b, int64(h.since))
		last = h.topicPartition
	}
	return b
}

func (r *reader) holdings() []holding {
	var list []holding
	var last topicPartition
	for i := range r.Count(3) {
		last = r.place(i == 0, last)
		since := r.Natural()
		if r.Err() != nil {
			return nil
		}
		list = append(list, holding{last, since})
	}
	return list
}

type consumerReplacedRecord struct {
	group string
	oldID string
	info  *consumerInfo
}

// kind tells members of the two protocols apart.
func (rec *consumerReplacedRecord) kind() uint8 {
	if rec.info.classic != nil {
		return kindClassicReplaced
	}
	return kindConsumerReplaced
}

func (rec *consumerReplacedRecord) append(b []byte) []byte {
	return appendAnyConsumer(codec.AppendString(codec.AppendString(b, rec.group), rec.oldID), rec.info)
}

func readConsumerReplaced(r *reader, classic bool) consumerReplacedRecord {
	return consumerReplacedRecord{group: r.String(), oldID: r.String(), info: r.anyConsumer(classic)}
}

type consumerPatternsRecord struct {
	group    string
	patterns []MatchedPattern
}

func (rec *consumerPatternsRecord) append(b []byte) []byte {
	b = codec.AppendString(b, rec.group)
	b = binary.AppendUvarint(b, uint64(len(rec.patterns)))
	for _, p := range rec.patterns {
		b = appendNames(codec.AppendString(b, p.Pattern), p.Topics)
	}
	return b
}

func readConsumerPatterns(r *reader) consumerPatternsRecord {
	rec := consumerPatternsRecord{group: r.String()}
	for range r.Count(2) {
		rec.patterns = append(rec.patterns, MatchedPattern{r.String(), r.names()})
	}
	return rec
}
