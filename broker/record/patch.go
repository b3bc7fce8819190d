package record

import (
	"encoding/binary"
	"hash/crc32"
)

// hash/crc32's table is a pure function of the polynomial; nothing here depends on the machine.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ComputeCRC returns the CRC-32C of the batch b, from its attributes to its end. b is exactly one batch of at least
// HeaderSize bytes.
func ComputeCRC(b []byte) uint32 { return crc32.Checksum(b[posAttributes:], castagnoli) }

// CheckCRC reports whether the batch b, exactly one batch, has the CRC that it names. A b shorter than a header has
// not.
func CheckCRC(b []byte) bool {
	return len(b) >= HeaderSize && binary.BigEndian.Uint32(b[posCRC:]) == ComputeCRC(b)
}

// PatchOffsets gives the batch b its place: base offset and partition leader epoch. Both lie outside the CRC, which
// stays as it is. b has at least HeadSize bytes.
func PatchOffsets(b []byte, baseOffset int64, leaderEpoch int32) {
	binary.BigEndian.PutUint64(b[posBaseOffset:], uint64(baseOffset))
	binary.BigEndian.PutUint32(b[posLeaderEpoch:], uint32(leaderEpoch))
}

// PatchMaxTimestamp sets the max timestamp of b, exactly one batch, and its CRC.
func PatchMaxTimestamp(b []byte, ms int64) {
	binary.BigEndian.PutUint64(b[posMaxTimestamp:], uint64(ms))
	putCRC(b)
}

// PatchAppendTime marks b, exactly one batch, as appended at ms: timestamp type LogAppendTime, max timestamp ms.
// The records' own deltas stay, readers take the max timestamp (kafka-eos.md C.10). The CRC is set anew.
func PatchAppendTime(b []byte, ms int64) {
	attributes := binary.BigEndian.Uint16(b[posAttributes:])
	binary.BigEndian.PutUint16(b[posAttributes:], attributes|uint16(attrLogAppendTime))
	binary.BigEndian.PutUint64(b[posMaxTimestamp:], uint64(ms))
	putCRC(b)
}

// PatchCreateTime clears the LogAppendTime bit of b, exactly one batch, and sets its max timestamp and CRC: the
// client's bit does not count on a CreateTime topic.
func PatchCreateTime(b []byte, maxTimestampMs int64) {
	attributes := binary.BigEndian.Uint16(b[posAttributes:])
	binary.BigEndian.PutUint16(b[posAttributes:], attributes&^uint16(attrLogAppendTime))
	binary.BigEndian.PutUint64(b[posMaxTimestamp:], uint64(maxTimestampMs))
	putCRC(b)
}

func putCRC(b []byte) { binary.BigEndian.PutUint32(b[posCRC:], ComputeCRC(b)) }
