package machine

import (
	"encoding/binary"

	"github.com/strandline-io/strandline/broker/machine/codec"
	"github.com/strandline-io/strandline/broker/machine/txn"
)

// A unit's Meta is the format's version, the time, and records: kind, length, payload (docs/formats/machine.md has
// the layouts). A record holds an outcome. A kind's number is never used for another layout: what changes gets a new
// kind, and old ones stay readable.
const metaVersion = 1

const (
	kindBatch                uint8 = 1 // the unit's next batch is data
	kindMarker               uint8 = 2 // the unit's next batch is a transaction marker
	kindIncarnation          uint8 = 3
	kindTopicCreated         uint8 = 4
	kindTopicDeleted         uint8 = 5
	kindPartitionsAdded      uint8 = 6
	kindShelved              uint8 = 7
	kindProducerIDs          uint8 = 8
	kindProducerForgotten    uint8 = 9
	kindTopicSettings        uint8 = 10
	kindLogStart             uint8 = 11
	kindFeature              uint8 = 12
	kindForgetfulIncarnation uint8 = 13
	kindTxnInit              uint8 = 32
	kindTxnAdd               uint8 = 33
	kindTxnEnd               uint8 = 34
	kindTxnExpire            uint8 = 35
	firstGroupKind           uint8 = 64
	lastGroupKind            uint8 = 95
)

// topicCreated makes a topic; its partitions have the ids from firstID on.
type topicCreated struct {
	name            string
	id              [16]byte
	firstID         PartitionID
	partitions      int32
	settingsVersion uint32
	settings        Settings
}

func (t *topicCreated) append(dst []byte) []byte {
	dst = codec.AppendString(dst, t.name)
	dst = append(dst, t.id[:]...)
	dst = binary.AppendUvarint(dst, uint64(t.firstID))
	dst = binary.AppendUvarint(dst, uint64(t.partitions))
	dst = binary.AppendUvarint(dst, uint64(t.settingsVersion))
	return t.settings.append(dst)
}

func readTopicCreated(r *reader) topicCreated {
	return topicCreated{
		name: r.String(), id: r.UUID(), firstID: r.id(), partitions: int32(r.Below(1 << 31)),
		settingsVersion: r.Uint32(), settings: readSettings(r),
	}
}

// partitionsAdded grows a topic; its new partitions have the ids from firstID on.
type partitionsAdded struct {
	name       string
	firstID    PartitionID
	partitions int32
}

func (a *partitionsAdded) append(dst []byte) []byte {
	dst = codec.AppendString(dst, a.name)
	dst = binary.AppendUvarint(dst, uint64(a.firstID))
	return binary.AppendUvarint(dst, uint64(a.partitions))
}

func readPartitionsAdded(r *reader) partitionsAdded {
	return partitionsAdded{name: r.String(), firstID: r.id(), partitions: int32(r.Below(1 << 31))}
}

func appendShelved(dst []byte, all []ShelvedLength) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(all)))
	for _, s := range all {
		dst = binary.AppendUvarint(dst, uint64(s.Partition))
		dst = binary.AppendVarint(dst, s.FileBase)
		dst = binary.AppendVarint(dst, s.FileBytes)
		dst = binary.AppendVarint(dst, s.EndOffset)
	}
	return dst
}

func readShelved(r *reader) []ShelvedLength {
	all := make([]ShelvedLength, r.Count(4))
	for i := range all {
		all[i] = ShelvedLength{Partition: r.id(), FileBase: r.offset(), FileBytes: r.offset(), EndOffset: r.offset()}
	}
	return all
}

func appendInit(dst []byte, i *txn.Init) []byte {
	dst = codec.AppendString(dst, i.ID)
	dst = binary.AppendVarint(dst, i.ProducerID)
	dst = binary.AppendVarint(dst, i.PrevProducerID)
	dst = binary.AppendVarint(dst, int64(i.Epoch))
	dst = binary.AppendVarint(dst, int64(i.LastEpoch))
	return binary.AppendVarint(dst, int64(i.TimeoutMs))
}

func readInit(r *reader) txn.Init {
	return txn.Init{
		ID: r.String(), ProducerID: r.Varint(), PrevProducerID: r.Varint(),
		Epoch: r.Int16(), LastEpoch: r.Int16(), TimeoutMs: r.Int32(),
	}
}

func appendAdd(dst []byte, a *txn.Add) []byte {
	dst = codec.AppendString(dst, a.ID)
	dst = appendPartitions(dst, a.Partitions)
	return appendStrings(dst, a.Groups)
}

func readAdd(r *reader) txn.Add {
	return txn.Add{ID: r.String(), Partitions: readPartitions(r), Groups: readStrings(r)}
}

func appendPartitions(dst []byte, ids []uint32) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(ids)))
	for _, id := range ids {
		dst = binary.AppendUvarint(dst, uint64(id))
	}
	return dst
}

func readPartitions(r *reader) []uint32 {
	ids := make([]uint32, r.Count(1))
	for i := range ids {
		ids[i] = r.Uint32()
	}
	return ids
}

func appendStrings(dst []byte, all []string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(all)))
	for _, s := range all {
		dst = codec.AppendString(dst, s)
	}
	return dst
}

func readStrings(r *reader) []string {
	all := make([]string, r.Count(1))
	for i := range all {
		all[i] = r.String()
	}
	return all
}

func appendEnd(dst []byte, e *txn.End) []byte {
	dst = codec.AppendString(dst, e.ID)
	dst = append(dst, flags(e.Commit, e.Fence))
	dst = binary.AppendVarint(dst, e.ProducerID)
	dst = binary.AppendVarint(dst, e.PrevProducerID)
	dst = binary.AppendVarint(dst, int64(e.Epoch))
	return binary.AppendVarint(dst, int64(e.LastEpoch))
}

func readEnd(r *reader) txn.End {
	e := txn.End{ID: r.String()}
	e.Commit, e.Fence = readFlags(r)
	e.ProducerID, e.PrevProducerID, e.Epoch, e.LastEpoch = r.Varint(), r.Varint(), r.Int16(), r.Int16()
	return e
}

// flags packs two answers into a byte.
func flags(first, second bool) byte {
	var b byte
	if first {
		b |= 1
	}
	if second {
		b |= 2
	}
	return b
}

func readFlags(r *reader) (first, second bool) {
	b := r.Byte()
	if b > 3 {
		r.Fail("unknown flags %#x", b)
	}
	return b&1 != 0, b&2 != 0
}

func (s *Settings) append(dst []byte) []byte {
	dst = append(dst, flags(s.CleanupCompact, s.CleanupDelete), flags(s.LogAppendTime, false))
	dst = codec.AppendString(dst, s.CompressionType)
	for _, v := range [...]int64{
		s.RetentionMs, s.RetentionBytes, s.DeleteRetentionMs, int64(s.MaxMessageBytes), s.TimestampBeforeMaxMs,
		s.TimestampAfterMaxMs, int64(s.MinInsyncReplicas), int64(s.SegmentBytes),
	} {
		dst = binary.AppendVarint(dst, v)
	}
	dst = binary.AppendUvarint(dst, uint64(len(s.Explicit)))
	for _, e := range s.Explicit {
		dst = codec.AppendString(codec.AppendString(dst, e.Name), e.Value)
	}
	return dst
}

func readSettings(r *reader) Settings {
	var s Settings
	s.CleanupCompact, s.CleanupDelete = readFlags(r)
	s.LogAppendTime, _ = readFlags(r)
	s.CompressionType = r.String()
	s.RetentionMs, s.RetentionBytes, s.DeleteRetentionMs = r.Varint(), r.Varint(), r.Varint()
	s.MaxMessageBytes, s.TimestampBeforeMaxMs, s.TimestampAfterMaxMs = r.Int32(), r.Varint(), r.Varint()
	s.MinInsyncReplicas, s.SegmentBytes = r.Int32(), r.Int32()
	n := r.Count(2)
	for range n {
		s.Explicit = append(s.Explicit, Setting{Name: r.String(), Value: r.String()})
	}
	return s
}
