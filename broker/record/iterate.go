package record

import (
	"encoding/binary"
	"math"
)

// Record is one record of a batch, undecoded as far as possible. Key, Value and the headers are slices of the
// section that was iterated; nil means null.
type Record struct {
	OffsetDelta    int32
	TimestampDelta int64
	Attributes     int8
	HeaderCount    int32
	Key            []byte
	Value          []byte
	headers        []byte
}

// HeaderField is one header of a record. A nil Value means null; the key is never null.
type HeaderField struct {
	Key   string
	Value []byte
}

// Iterator walks the records of a batch. It allocates nothing unless it fails, and never reads outside its section
// whatever the bytes say.
type Iterator struct {
	section []byte
	pos     int
	index   int32
	count   int32
	err     *Refusal
}

// Records iterates over section, the uncompressed bytes behind a batch's header, which must hold exactly count
// records and nothing else.
func Records(section []byte, count int32) Iterator {
	it := Iterator{section: section, count: count}
	if count < 0 {
		it.err = refuse(CodeInvalidRecord, "record batch names %d records", count)
	}
	return it
}

// Next decodes the next record into r. It returns false behind the last one, and at the first record that is not
// well-formed; Err tells which.
func (it *Iterator) Next(r *Record) bool {
	if it.err != nil {
		return false
	}
	if it.index >= it.count {
		if it.pos != len(it.section) {
			it.err = refuse(CodeInvalidRecord, "record batch has %d bytes behind its last of %d records", len(it.section)-it.pos, it.count)
		}
		return false
	}
	next := scanRecord(it.section, it.pos, r)
	if next < 0 {
		it.err = refuse(CodeInvalidRecord, "record %d of %d is truncated or malformed, at byte %d of %d", it.index, it.count, it.pos, len(it.section))
		return false
	}
	it.pos = next
	it.index++
	return true
}

// Err is what stopped the iteration: nil behind the last record, else a *Refusal.
func (it *Iterator) Err() error {
	if it.err == nil {
		return nil
	}
	return it.err
}

// scanRecord decodes the record at pos of b into r and returns the position behind it, or -1. Nearly all its varints
// have one byte, which is decoded here: this runs once per record produced.
func scanRecord(b []byte, pos int, r *Record) int {
	length, ok := oneByte(b, pos)
	if pos++; !ok {
		length, pos = varint32(b, pos-1)
	}
	if pos < 0 || length < 1 || int(length) > len(b)-pos {
		return -1
	}
	end := pos + int(length)
	b = b[:end:end]
	r.Attributes = int8(b[pos])
	pos++
	delta, ok := oneByte(b, pos)
	r.TimestampDelta = int64(delta)
	if pos++; !ok {
		if r.TimestampDelta, pos = varint64(b, pos-1); pos < 0 {
			return -1
		}
	}
	r.OffsetDelta, ok = oneByte(b, pos)
	if pos++; !ok {
		if r.OffsetDelta, pos = varint32(b, pos-1); pos < 0 {
			return -1
		}
	}
	if r.Key, pos = field(b, pos); pos < 0 {
		return -1
	}
	if r.Value, pos = field(b, pos); pos < 0 {
		return -1
	}
	r.HeaderCount, ok = oneByte(b, pos)
	if pos++; !ok {
		if r.HeaderCount, pos = varint32(b, pos-1); pos < 0 {
			return -1
		}
	}
	r.headers = b[pos:]
	if r.HeaderCount != 0 {
		pos = scanHeaders(b, pos, r.HeaderCount)
	}
	if pos != end {
		return -1
	}
	return end
}

func scanHeaders(b []byte, pos int, count int32) int {
	// Each header has at least two length bytes.
	if count < 0 || int(count) > (len(b)-pos)/2 {
		return -1
	}
	for range count {
		key, next := field(b, pos)
		if next < 0 || key == nil {
			return -1
		}
		if _, pos = field(b, next); pos < 0 {
			return -1
		}
	}
	return pos
}

// field reads a varint length (-1: null) and that many bytes.
func field(b []byte, pos int) ([]byte, int) {
	length, ok := oneByte(b, pos)
	if pos++; !ok {
		length, pos = varint32(b, pos-1)
	}
	if pos < 0 || length < 0 || int(length) > len(b)-pos {
		if pos >= 0 && length == -1 {
			return nil, pos
		}
		return nil, -1
	}
	end := pos + int(length)
	return b[pos:end:end], end
}

// oneByte decodes a zig-zag varint that has only one byte.
func oneByte(b []byte, pos int) (int32, bool) {
	if uint(pos) >= uint(len(b)) || b[pos] >= 0x80 {
		return 0, false
	}
	return int32(b[pos]>>1) ^ -int32(b[pos]&1), true
}

// varint32 reads a zig-zag varint whose value fits an int32. It returns -1 as position if there is none.
func varint32(b []byte, pos int) (int32, int) {
	if uint(pos+1) < uint(len(b)) && b[pos+1] < 0x80 && b[pos] >= 0x80 {
		u := uint32(b[pos]&0x7f) | uint32(b[pos+1])<<7
		return int32(u>>1) ^ -int32(u&1), pos + 2
	}
	v, pos := varint64(b, pos)
	if v < math.MinInt32 || v > math.MaxInt32 {
		return 0, -1
	}
	return int32(v), pos
}

func varint64(b []byte, pos int) (int64, int) {
	if pos < 0 || pos >= len(b) {
		return 0, -1
	}
	v, n := binary.Varint(b[pos:])
	if n <= 0 {
		return 0, -1
	}
	return v, pos + n
}

// HeaderIterator walks the headers of one record.
type HeaderIterator struct {
	b    []byte
	pos  int
	left int32
}

// Headers iterates over the record's headers. r must come from Iterator.Next, which has checked them.
func (r *Record) Headers() HeaderIterator { return HeaderIterator{b: r.headers, left: r.HeaderCount} }

// Next returns the next header; both slices are part of the iterated section. ok is false behind the last one.
func (it *HeaderIterator) Next() (key, value []byte, ok bool) {
	if it.left <= 0 {
		return nil, nil, false
	}
	it.left--
	key, it.pos = field(it.b, it.pos)
	value, it.pos = field(it.b, it.pos)
	return key, value, it.pos >= 0
}
