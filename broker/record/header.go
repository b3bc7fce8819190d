// Package record knows Kafka's record batch v2 and its control batches: read, check, patch, write.
// It is pure: bytes in, bytes and verdicts out. Layout: KIP-98, big-endian, 61-byte header.
package record

import (
	"encoding/binary"
	"fmt"
	"math"
)

// HeaderSize is the length of a batch's fixed part, up to its first record.
const HeaderSize = 61

// HeadSize is the part of the header that lies before the batch's own CRC coverage: base offset, length, leader
// epoch, magic and the CRC itself.
const HeadSize = 21

// Values that mean "none" (KIP-98).
const (
	NoProducerID    int64 = -1
	NoProducerEpoch int16 = -1
	NoSequence      int32 = -1
	NoTimestamp     int64 = -1
	NoLeaderEpoch   int32 = -1
)

// Codecs, the lowest three bits of a batch's attributes.
const (
	CodecNone   int8 = 0
	CodecGzip   int8 = 1
	CodecSnappy int8 = 2
	CodecLZ4    int8 = 3
	CodecZstd   int8 = 4
)

// Attribute bits of a batch. Bits 7 to 15 are zero.
const (
	attrCodecMask     int16 = 0x07
	attrLogAppendTime int16 = 0x08
	attrTransactional int16 = 0x10
	attrControl       int16 = 0x20
	attrDeleteHorizon int16 = 0x40
	attrUnknown       int16 = ^int16(0x7f)
)

// Positions of the header's fields.
const (
	posBaseOffset      = 0
	posBatchLength     = 8
	posLeaderEpoch     = 12
	posMagic           = 16
	posCRC             = 17
	posAttributes      = 21
	posLastOffsetDelta = 23
	posBaseTimestamp   = 27
	posMaxTimestamp    = 35
	posProducerID      = 43
	posProducerEpoch   = 51
	posBaseSequence    = 53
	posRecordCount     = 57
)

// lengthPrefix is how many bytes of a batch its own length field does not count.
const lengthPrefix = 12

const magicV2 int8 = 2

// Header is the fixed part of a batch, decoded.
type Header struct {
	BaseOffset      int64
	SizeBytes       int32 // whole batch, the 12 bytes before batchLength's count included
	LeaderEpoch     int32
	Magic           int8
	CRC             uint32
	Attributes      int16
	LastOffsetDelta int32
	BaseTimestamp   int64
	MaxTimestamp    int64
	ProducerID      int64
	ProducerEpoch   int16
	BaseSequence    int32
	RecordCount     int32
}

// ParseHeader decodes the first 61 bytes of b. It checks only what is needed to find the batch's end: that the
// bytes are there, that the magic is 2, and that the batch's length holds at least a header and fits an int32.
// b may be shorter than the batch. The error is a *Refusal.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderSize {
		return Header{}, refuse(CodeCorruptMessage, "record batch of %d bytes is shorter than its header of %d", len(b), HeaderSize)
	}
	if magic := int8(b[posMagic]); magic != magicV2 {
		return Header{}, refuse(CodeInvalidRecord, "record batch has magic %d, only 2 is supported: upgrade the client", magic)
	}
	length := int32(binary.BigEndian.Uint32(b[posBatchLength:]))
	if length < HeaderSize-lengthPrefix || length > math.MaxInt32-lengthPrefix {
		return Header{}, refuse(CodeCorruptMessage, "record batch has length %d, want %d to %d", length, HeaderSize-lengthPrefix, math.MaxInt32-lengthPrefix)
	}
	return Header{
		BaseOffset:      int64(binary.BigEndian.Uint64(b[posBaseOffset:])),
		SizeBytes:       length + lengthPrefix,
		LeaderEpoch:     int32(binary.BigEndian.Uint32(b[posLeaderEpoch:])),
		Magic:           int8(b[posMagic]),
		CRC:             binary.BigEndian.Uint32(b[posCRC:]),
		Attributes:      int16(binary.BigEndian.Uint16(b[posAttributes:])),
		LastOffsetDelta: int32(binary.BigEndian.Uint32(b[posLastOffsetDelta:])),
		BaseTimestamp:   int64(binary.BigEndian.Uint64(b[posBaseTimestamp:])),
		MaxTimestamp:    int64(binary.BigEndian.Uint64(b[posMaxTimestamp:])),
		ProducerID:      int64(binary.BigEndian.Uint64(b[posProducerID:])),
		ProducerEpoch:   int16(binary.BigEndian.Uint16(b[posProducerEpoch:])),
		BaseSequence:    int32(binary.BigEndian.Uint32(b[posBaseSequence:])),
		RecordCount:     int32(binary.BigEndian.Uint32(b[posRecordCount:])),
	}, nil
}

// appendHeader writes h's 61 bytes; length and CRC are h's, whatever follows.
func appendHeader(dst []byte, h Header) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.BaseOffset))
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.SizeBytes-lengthPrefix))
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.LeaderEpoch))
	dst = append(dst, byte(h.Magic))
	dst = binary.BigEndian.AppendUint32(dst, h.CRC)
	dst = binary.BigEndian.AppendUint16(dst, uint16(h.Attributes))
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.LastOffsetDelta))
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.BaseTimestamp))
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.MaxTimestamp))
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.ProducerID))
	dst = binary.BigEndian.AppendUint16(dst, uint16(h.ProducerEpoch))
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.BaseSequence))
	return binary.BigEndian.AppendUint32(dst, uint32(h.RecordCount))
}

// Codec is the batch's compression: one of the Codec constants, or 5 to 7, which nobody defined.
func (h Header) Codec() int8 { return int8(h.Attributes & attrCodecMask) }

// Transactional reports whether the batch belongs to a transaction (its markers included).
func (h Header) Transactional() bool { return h.Attributes&attrTransactional != 0 }

// Control reports whether the batch holds control records, which consumers never see.
func (h Header) Control() bool { return h.Attributes&attrControl != 0 }

// LogAppendTime reports whether MaxTimestamp is the broker's time and stands for every record's.
func (h Header) LogAppendTime() bool { return h.Attributes&attrLogAppendTime != 0 }

// DeleteHorizon returns the Unix milliseconds from which compaction may drop the batch's tombstones and markers;
// ok is false when none is set, and BaseTimestamp is a time then.
func (h Header) DeleteHorizon() (ms int64, ok bool) {
	if h.Attributes&attrDeleteHorizon == 0 {
		return NoTimestamp, false
	}
	return h.BaseTimestamp, true
}

// LastOffset is the offset of the batch's last record, also when compaction has removed that record.
func (h Header) LastOffset() int64 { return h.BaseOffset + int64(h.LastOffsetDelta) }

// NextOffset is the first offset behind the batch.
func (h Header) NextOffset() int64 { return h.BaseOffset + int64(h.LastOffsetDelta) + 1 }

// Idempotent reports whether the batch names a producer id.
func (h Header) Idempotent() bool { return h.ProducerID > NoProducerID }

// LastSequence is the sequence of the batch's last record, or NoSequence when the batch has none. A batch may wrap
// inside: BaseSequence 2147483642 and ten records end at 3.
func (h Header) LastSequence() int32 {
	if h.BaseSequence < 0 {
		return NoSequence
	}
	return addSequence(h.BaseSequence, h.LastOffsetDelta)
}

// Error codes of the Kafka protocol that this package gives.
const (
	CodeCorruptMessage   int16 = 2
	CodeMessageTooLarge  int16 = 10
	CodeInvalidTimestamp int16 = 32
	CodeUnsupportedCodec int16 = 76
	CodeInvalidRecord    int16 = 87
)

// Refusal says why bytes are not an acceptable record batch: a Kafka error code and a sentence for the client.
type Refusal struct {
	Code    int16
	Message string
}

func (r *Refusal) Error() string { return fmt.Sprintf("%s (code %d)", r.Message, r.Code) }

func refuse(code int16, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}
