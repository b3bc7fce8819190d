package group

import (
	"encoding/binary"

	"github.com/strandline-io/strandline/broker/machine/codec"
)

// Kinds of durable records, 64 to 95. The numbers are for ever; docs/formats/group.md has the layouts.
const (
	// kindGeneration: a join phase ended with members. It replaces all members; nobody has an assignment yet.
	kindGeneration uint8 = 64
	// kindAssignment: the leader of the current generation assigned, the group is stable.
	kindAssignment uint8 = 65
	// kindRebalance: members are asked to join again.
	kindRebalance uint8 = 66
	// kindRemoved: members left or expired, the rest is asked to join again.
	kindRemoved uint8 = 67
	// kindReplaced: a static member came back under a new member id, in the same role.
	kindReplaced uint8 = 68
	// kindOffsets: offsets were committed, or made pending for a producer.
	kindOffsets uint8 = 69
	// kindOffsetsRemoved: offsets expired, or were deleted, pending ones included.
	kindOffsetsRemoved uint8 = 70
	// kindGroupRemoved: the group and all it holds is gone.
	kindGroupRemoved uint8 = 71
)

type generationRecord struct {
	group        string
	protocolType string
	generation   int32
	protocol     string
	leader       string
	atMs         int64
	members      []*memberInfo
}

func (rec *generationRecord) append(b []byte) []byte {
	b = codec.AppendString(b, rec.group)
	b = codec.AppendString(b, rec.protocolType)
	b = binary.AppendVarint(b, int64(rec.generation))
	b = codec.AppendString(b, rec.protocol)
	b = codec.AppendString(b, rec.leader)
	b = binary.AppendVarint(b, rec.atMs)
	b = binary.AppendUvarint(b, uint64(len(rec.members)))
	for _, m := range rec.members {
		b = appendMember(b, m)
	}
	return b
}

func readGeneration(r *reader) generationRecord {
	rec := generationRecord{group: r.String(), protocolType: r.String(), generation: r.Natural(), protocol: r.String(),
		leader: r.String(), atMs: r.Varint()}
	for range r.Count(minMemberBytes) {
		rec.members = append(rec.members, r.member())
	}
	return rec
}

// minMemberBytes is the least that appendMember writes: seven lengths and numbers.
const minMemberBytes = 7

func appendMember(b []byte, m *memberInfo) []byte {
	b = codec.AppendString(b, m.id)
	b = codec.AppendOptional(b, m.instance)
	b = codec.AppendString(b, m.clientID)
	b = codec.AppendString(b, m.clientHost)
	b = binary.AppendVarint(b, int64(m.sessionMs))
	b = binary.AppendVarint(b, int64(m.rebalanceMs))
	return appendProtocols(b, m.protocols)
}

func appendProtocols(b []byte, protocols []protocol) []byte {
	b = binary.AppendUvarint(b, uint64(len(protocols)))
	for _, p := range protocols {
		b = codec.AppendString(b, p.name)
		b = codec.AppendBytes(b, p.metadata)
	}
	return b
}

func (r *reader) member() *memberInfo {
	return &memberInfo{id: r.String(), instance: r.Optional(), clientID: r.String(), clientHost: r.String(),
		sessionMs: r.Natural(), rebalanceMs: r.Natural(), protocols: r.protocols()}
}

func (r *reader) protocols() []protocol {
	var protocols []protocol
	for range r.Count(2) {
		protocols = append(protocols, protocol{name: r.String(), metadata: r.Bytes()})
	}
	return protocols
}

type assignmentRecord struct {
	group      string
	generation int32
	members    []memberAssignment
}

type memberAssignment struct {
	id         string
	assignment []byte
}

func (rec *assignmentRecord) append(b []byte) []byte {
	b = codec.AppendString(b, rec.group)
	b = binary.AppendVarint(b, int64(rec.generation))
	b = binary.AppendUvarint(b, uint64(len(rec.members)))
	for _, m := range rec.members {
		b = codec.AppendString(b, m.id)
		b = codec.AppendBytes(b, m.assignment)
	}
	return b
}

func readAssignment(r *reader) assignmentRecord {
	rec := assignmentRecord{group: r.String(), generation: r.Natural()}
	for range r.Count(2) {
		rec.members = append(rec.members, memberAssignment{r.String(), r.Bytes()})
	}
	return rec
}

type removedRecord struct {
	group   string
	atMs    int64
	members []string
}

func (rec *removedRecord) append(b []byte) []byte {
	b = codec.AppendString(b, rec.group)
	b = binary.AppendVarint(b, rec.atMs)
	b = binary.AppendUvarint(b, uint64(len(rec.members)))
	for _, id := range rec.members {
		b = codec.AppendString(b, id)
	}
	return b
}

func readRemoved(r *reader) removedRecord {
	rec := removedRecord{group: r.String(), atMs: r.Varint()}
	for range r.Count(1) {
		rec.members = append(rec.members, r.String())
	}
	return rec
}

type replacedRecord struct {
	group  string
	oldID  string
	member *memberInfo
}

func (rec *replacedRecord) append(b []byte) []byte {
	b = codec.AppendString(b, rec.group)
	b = codec.AppendString(b, rec.oldID)
	return appendMember(b, rec.member)
}

func readReplaced(r *reader) replacedRecord {
	return replacedRecord{group: r.String(), oldID: r.String(), member: r.member()}
}

// noProducer marks offsets that are committed outright.
const noProducer = -1

type offsetsRecord struct {
	group      string
	producerID int64 // noProducer or the producer of the transaction
	atMs       int64
	expireMs   int64 // -1: by the broker's retention
	topics     []topicCommit
}

type topicCommit struct {
	name       string
	partitions []partitionCommit
}

type partitionCommit struct {
	partition   int32
	offset      int64
	leaderEpoch int32
	metadata    string
}

func (rec *offsetsRecord) append(b []byte) []byte {
	b = codec.AppendString(b, rec.group)
	b = binary.AppendVarint(b, rec.producerID)
	b = binary.AppendVarint(b, rec.atMs)
	b = binary.AppendVarint(b, rec.expireMs)
	b = binary.AppendUvarint(b, uint64(len(rec.topics)))
	for _, t := range rec.topics {
		b = codec.AppendString(b, t.name)
		b = binary.AppendUvarint(b, uint64(len(t.partitions)))
		for _, p := range t.partitions {
			b = binary.AppendVarint(b, int64(p.partition))
			b = binary.AppendVarint(b, p.offset)
			b = binary.AppendVarint(b, int64(p.leaderEpoch))
			b = codec.AppendString(b, p.metadata)
		}
	}
	return b
}

func readOffsets(r *reader) offsetsRecord {
	rec := offsetsRecord{group: r.String(), producerID: r.Varint(), atMs: r.Varint(), expireMs: r.Varint()}
	for range r.Count(2) {
		t := topicCommit{name: r.String()}
		for range r.Count(4) {
			t.partitions = append(t.partitions, partitionCommit{partition: r.Natural(), offset: r.Varint(),
				leaderEpoch: r.Int32(), metadata: r.String()})
		}
		rec.topics = append(rec.topics, t)
	}
	return rec
}

type offsetsRemovedRecord struct {
	group  string
	topics []topicPartitions
}

type topicPartitions struct {
	name       string
	partitions []int32
}

func (rec *offsetsRemovedRecord) append(b []byte) []byte {
	b = codec.AppendString(b, rec.group)
	b = binary.AppendUvarint(b, uint64(len(rec.topics)))
	for _, t := range rec.topics {
		b = codec.AppendString(b, t.name)
		b = binary.AppendUvarint(b, uint64(len(t.partitions)))
		for _, p := range t.partitions {
			b = binary.AppendVarint(b, int64(p))
		}
	}
	return b
}

func readOffsetsRemoved(r *reader) offsetsRemovedRecord {
	rec := offsetsRemovedRecord{group: r.String()}
	for range r.Count(2) {
		t := topicPartitions{name: r.String()}
		for range r.Count(1) {
			t.partitions = append(t.partitions, r.Natural())
		}
		rec.topics = append(rec.topics, t)
	}
	return rec
}

// durable is what every record can do.
type durable interface{ append(b []byte) []byte }

// record makes rec part of the operation; when it returns, the state has moved.
func (gs *Groups) record(ctx Context, kind uint8, rec durable) {
	gs.recordBuf = rec.append(gs.recordBuf[:0])
	ctx.Record(kind, gs.recordBuf)
}

type groupRecord struct{ group string }

func (rec *groupRecord) append(b []byte) []byte { return codec.AppendString(b, rec.group) }
