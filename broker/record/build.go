package record

import "encoding/binary"

// Builder makes record batches: plain ones, and ones whose records the caller compresses. Set its fields before
// Append; add the records first. A Builder is not safe for overlapping calls.
type Builder struct {
	BaseOffset    int64
	LeaderEpoch   int32
	ProducerID    int64
	ProducerEpoch int16
	BaseSequence  int32
	Transactional bool
	Control       bool
	LogAppendTime bool

	section       []byte
	count         int32
	nextDelta     int32
	baseTimestamp int64
	maxTimestamp  int64
}

// NewBuilder returns a builder of batches without producer, for offset 0.
func NewBuilder() *Builder {
	b := &Builder{}
	b.Reset()
	return b
}

// Reset makes b as NewBuilder returns it, keeping its memory.
func (b *Builder) Reset() {
	*b = Builder{
		LeaderEpoch:   NoLeaderEpoch,
		ProducerID:    NoProducerID,
		ProducerEpoch: NoProducerEpoch,
		BaseSequence:  NoSequence,
		section:       b.section[:0],
		maxTimestamp:  NoTimestamp,
	}
}

// Add appends a record behind the last one. nil keys and values are null. The slices are copied.
func (b *Builder) Add(timestampMs int64, key, value []byte, headers ...HeaderField) {
	b.AddAt(b.nextDelta, timestampMs, key, value, headers...)
}

// AddAt appends a record with an offset delta of the caller's choice, as compaction leaves them.
func (b *Builder) AddAt(offsetDelta int32, timestampMs int64, key, value []byte, headers ...HeaderField) {
	if b.count == 0 {
		b.baseTimestamp = timestampMs
		b.maxTimestamp = timestampMs
	}
	b.maxTimestamp = max(b.maxTimestamp, timestampMs)
	b.count++
	b.nextDelta = offsetDelta + 1
	var encoded []byte
	for _, h := range headers {
		encoded = binary.AppendVarint(encoded, int64(len(h.Key)))
		encoded = append(encoded, h.Key...)
		encoded = appendField(encoded, h.Value)
	}
	b.section = appendRecord(b.section, &Record{
		OffsetDelta:    offsetDelta,
		TimestampDelta: timestampMs - b.baseTimestamp,
		HeaderCount:    int32(len(headers)),
		Key:            key,
		Value:          value,
		headers:        encoded,
	})
}

// Count is how many records were added.
func (b *Builder) Count() int32 { return b.count }

// Section is the encoded records, uncompressed: what a caller compresses for AppendCompressed. It is valid until
// the next Add or Reset.
func (b *Builder) Section() []byte { return b.section }

// Append appends the batch, uncompressed.
func (b *Builder) Append(dst []byte) []byte { return b.AppendCompressed(dst, CodecNone, b.section) }

// AppendCompressed appends the batch with payload, which is Section compressed with codec, as its records.
func (b *Builder) AppendCompressed(dst []byte, codec int8, payload []byte) []byte {
	attributes := int16(0)
	for _, bit := range []struct {
		on   bool
		mask int16
	}{{b.Transactional, attrTransactional}, {b.Control, attrControl}, {b.LogAppendTime, attrLogAppendTime}} {
		if bit.on {
			attributes |= bit.mask
		}
	}
	return AppendRebuilt(dst, Header{
		BaseOffset:      b.BaseOffset,
		LeaderEpoch:     b.LeaderEpoch,
		Magic:           magicV2,
		Attributes:      attributes,
		LastOffsetDelta: max(b.nextDelta-1, 0),
		BaseTimestamp:   b.baseTimestamp,
		MaxTimestamp:    b.maxTimestamp,
		ProducerID:      b.ProducerID,
		ProducerEpoch:   b.ProducerEpoch,
		BaseSequence:    b.BaseSequence,
		RecordCount:     b.count,
	}, codec, payload)
}

// AppendRebuilt appends a batch that has h's header but codec and payload as its records; length and CRC are set
// anew. It serves re-compression and Renumber.
func AppendRebuilt(dst []byte, h Header, codec int8, payload []byte) []byte {
	start := len(dst)
	h.Magic = magicV2
	h.SizeBytes = int32(HeaderSize + len(payload))
	h.Attributes = h.Attributes&^attrCodecMask | int16(codec)&attrCodecMask
	dst = append(appendHeader(dst, h), payload...)
	putCRC(dst[start:])
	return dst
}

// AppendRenumbered appends the count records of section with the offset deltas 0 to count-1, everything else as it
// was: what a batch needs for which Check says Renumber.
func AppendRenumbered(dst, section []byte, count int32) ([]byte, error) {
	it := Records(section, count)
	var r Record
	for delta := int32(0); it.Next(&r); delta++ {
		r.OffsetDelta = delta
		dst = appendRecord(dst, &r)
	}
	return dst, it.Err()
}

func appendRecord(dst []byte, r *Record) []byte {
	length := 1 + varintSize(r.TimestampDelta) + varintSize(int64(r.OffsetDelta)) +
		fieldSize(r.Key) + fieldSize(r.Value) + varintSize(int64(r.HeaderCount)) + len(r.headers)
	dst = binary.AppendVarint(dst, int64(length))
	dst = append(dst, byte(r.Attributes))
	dst = binary.AppendVarint(dst, r.TimestampDelta)
	dst = binary.AppendVarint(dst, int64(r.OffsetDelta))
	dst = appendField(dst, r.Key)
	dst = appendField(dst, r.Value)
	dst = binary.AppendVarint(dst, int64(r.HeaderCount))
	return append(dst, r.headers...)
}

func appendField(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	return append(binary.AppendVarint(dst, int64(len(b))), b...)
}

func fieldSize(b []byte) int {
	if b == nil {
		return 1
	}
	return varintSize(int64(len(b))) + len(b)
}

func varintSize(v int64) int {
	u := uint64(v)<<1 ^ uint64(v>>63)
	n := 1
	for u >= 0x80 {
		u >>= 7
		n++
	}
	return n
}
