// Package record knows Kafka's record batch v2 and its control batches: read, check, patch, write.
// It is pure: bytes in, bytes and verdicts out. Layout: KIP-98, big-endian, 61-byte header.
package record

// HeaderSize is the length of a batch's fixed part, up to its first record.
const HeaderSize = 61

// HeadSize is the part of the header that lies before the batch's own CRC coverage: base offset, length, leader
// epoch, magic and the CRC itself.
const HeadSize = 21

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
