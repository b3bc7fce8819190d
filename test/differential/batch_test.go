//go:build peers

package differential

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
)

// batch is what a generated record batch says.
type batch struct {
	producer      int64
	epoch         int16
	sequence      int32
	records       int
	transactional bool
	control       bool
	gzip          bool
	timestamp     int64
	baseOffset    int64
	magic         int8
	badCRC        bool
	key           bool
	salt          uint64
	padding       int
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const (
	attrGzip          = 1
	attrAppendTime    = 1 << 3
	attrTransactional = 1 << 4
	attrControl       = 1 << 5
)

func (b batch) encode() []byte {
	attrs := 0
	if b.transactional {
		attrs |= attrTransactional
	}
	if b.control {
		attrs |= attrControl
	}
	body := b.body()
	if b.gzip {
		attrs |= attrGzip
		var buf bytes.Buffer
		w := gzip.NewWriter(&buf)
		w.Write(body)
		w.Close()
		body = buf.Bytes()
	}
	last := max(b.records-1, 0)
	out := binary.BigEndian.AppendUint64(nil, uint64(b.baseOffset))
	out = binary.BigEndian.AppendUint32(out, uint32(49+len(body)))
	out = binary.BigEndian.AppendUint32(out, ^uint32(0))
	out = append(out, byte(b.magic))
	out = binary.BigEndian.AppendUint32(out, 0)
	out = binary.BigEndian.AppendUint16(out, uint16(attrs))
	out = binary.BigEndian.AppendUint32(out, uint32(last))
	out = binary.BigEndian.AppendUint64(out, uint64(b.timestamp))
	out = binary.BigEndian.AppendUint64(out, uint64(b.timestamp+int64(last)))
	out = binary.BigEndian.AppendUint64(out, uint64(b.producer))
	out = binary.BigEndian.AppendUint16(out, uint16(b.epoch))
	out = binary.BigEndian.AppendUint32(out, uint32(b.sequence))
	out = binary.BigEndian.AppendUint32(out, uint32(b.records))
	out = append(out, body...)
	sum := crc32.Checksum(out[21:], castagnoli)
	if b.badCRC {
		sum++
	}
	binary.BigEndian.PutUint32(out[17:], sum)
	return out
}

func (b batch) body() []byte {
	r := rand.New(rand.NewPCG(b.salt, 1))
	var out []byte
	for i := range b.records {
		rec := []byte{0}
		rec = binary.AppendVarint(rec, int64(i)) // timestamps rise by one
		rec = binary.AppendVarint(rec, int64(i))
		if b.key || b.control {
			rec = binary.AppendVarint(rec, 4)
			rec = append(rec, 0, 0, 0, byte(i&1))
		} else {
			rec = binary.AppendVarint(rec, -1)
		}
		value := binary.BigEndian.AppendUint64(nil, r.Uint64())
		value = append(value, make([]byte, b.padding)...)
		rec = binary.AppendVarint(rec, int64(len(value)))
		rec = append(rec, value...)
		rec = binary.AppendVarint(rec, 0)
		out = binary.AppendVarint(out, int64(len(rec)))
		out = append(out, rec...)
	}
	return out
}

// stored is what a reader sees of one batch.
type stored struct {
	base     int64
	last     int32
	attrs    uint16
	producer int64
	epoch    int16
	sequence int32
	count    int32
	first    int64 // timestamp
	max      int64
	hash     uint32
	marker   string
}

// readBatches parses what a Fetch brought: whole batches, the rest of a torn one is not looked at.
func readBatches(b []byte) ([]stored, error) {
	var out []stored
	for len(b) >= 61 {
		size := 12 + int(binary.BigEndian.Uint32(b[8:]))
		if size > len(b) {
			break
		}
		one := b[:size]
		b = b[size:]
		if binary.BigEndian.Uint32(one[17:]) != crc32.Checksum(one[21:], castagnoli) {
			return nil, fmt.Errorf("batch at %d: wrong CRC", binary.BigEndian.Uint64(one))
		}
		s := stored{
			base: int64(binary.BigEndian.Uint64(one)), attrs: binary.BigEndian.Uint16(one[21:]),
			last: int32(binary.BigEndian.Uint32(one[23:])), first: int64(binary.BigEndian.Uint64(one[27:])),
			max: int64(binary.BigEndian.Uint64(one[35:])), producer: int64(binary.BigEndian.Uint64(one[43:])),
			epoch: int16(binary.BigEndian.Uint16(one[51:])), sequence: int32(binary.BigEndian.Uint32(one[53:])),
			count: int32(binary.BigEndian.Uint32(one[57:])),
		}
		if s.attrs&attrControl != 0 {
			// length, attributes, timestamp delta, offset delta, key length: one byte each; then version and type
			s.marker = fmt.Sprint(one[61+5 : 61+9])
		} else {
			s.hash = crc32.Checksum(one[61:], castagnoli)
		}
		out = append(out, s)
	}
	return out, nil
}

func (s stored) String() string {
	return fmt.Sprintf("%d..%d attrs %#x P%d/%d seq %d n %d %d %08x %s", s.base, s.base+int64(s.last), s.attrs, s.producer,
		s.epoch, s.sequence, s.count, s.first, s.hash, s.marker)
}
