package record

import "encoding/binary"

// MarkerSize is the length of a marker batch as AppendMarker writes it.
const MarkerSize = 78

// Types of control records.
const (
	controlAbort  int16 = 0
	controlCommit int16 = 1
)

// Marker is the end of a transaction in one partition: a control batch with one record (KIP-98; kafka-eos.md C.3).
// It takes one offset.
type Marker struct {
	ProducerID       int64
	ProducerEpoch    int16
	CoordinatorEpoch int32
	Commit           bool // false: abort
	TimestampMs      int64
}

// AppendMarker appends the batch of m, exactly MarkerSize bytes, with its place and its CRC set.
func AppendMarker(dst []byte, baseOffset int64, leaderEpoch int32, m Marker) []byte {
	start := len(dst)
	dst = appendHeader(dst, Header{
		BaseOffset:    baseOffset,
		SizeBytes:     MarkerSize,
		LeaderEpoch:   leaderEpoch,
		Magic:         magicV2,
		Attributes:    attrTransactional | attrControl,
		BaseTimestamp: m.TimestampMs,
		MaxTimestamp:  m.TimestampMs,
		ProducerID:    m.ProducerID,
		ProducerEpoch: m.ProducerEpoch,
		BaseSequence:  NoSequence,
		RecordCount:   1,
	})
	kind := controlAbort
	if m.Commit {
		kind = controlCommit
	}
	// Record: length 16, attributes, timestamp delta, offset delta, then key (4 bytes), value (6 bytes), no headers.
	dst = append(dst, 16<<1, 0, 0, 0, 4<<1, 0, 0)
	dst = binary.BigEndian.AppendUint16(dst, uint16(kind))
	dst = append(dst, 6<<1, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(m.CoordinatorEpoch))
	dst = append(dst, 0)
	putCRC(dst[start:])
	return dst
}

// ParseMarker decodes b, exactly one batch, as a transaction marker. Longer values and higher versions than
// AppendMarker writes are accepted, other control records are not. The CRC is not checked. The error is a *Refusal.
func ParseMarker(b []byte) (Marker, error) {
	h, err := ParseHeader(b)
	if err != nil {
		return Marker{}, err
	}
	if int(h.SizeBytes) != len(b) {
		return Marker{}, refuse(CodeCorruptMessage, "marker batch of %d bytes names %d", len(b), h.SizeBytes)
	}
	if !h.Control() || !h.Transactional() || h.Codec() != CodecNone || h.RecordCount != 1 {
		return Marker{}, refuse(CodeInvalidRecord, "batch with attributes %#x and %d records is not a transaction marker", h.Attributes, h.RecordCount)
	}
	var r, end Record
	it := Records(b[HeaderSize:], h.RecordCount)
	if !it.Next(&r) || it.Next(&end) || it.Err() != nil {
		return Marker{}, it.Err()
	}
	if len(r.Key) < 4 || len(r.Value) < 6 {
		return Marker{}, refuse(CodeInvalidRecord, "control record with a key of %d and a value of %d bytes, want at least 4 and 6", len(r.Key), len(r.Value))
	}
	kind := int16(binary.BigEndian.Uint16(r.Key[2:]))
	if kind != controlAbort && kind != controlCommit {
		return Marker{}, refuse(CodeInvalidRecord, "control record of type %d is not a transaction marker", kind)
	}
	return Marker{
		ProducerID:       h.ProducerID,
		ProducerEpoch:    h.ProducerEpoch,
		CoordinatorEpoch: int32(binary.BigEndian.Uint32(r.Value[2:])),
		Commit:           kind == controlCommit,
		TimestampMs:      h.MaxTimestamp,
	}, nil
}
