package machine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrCorrupt is wrapped by every error of Replay and Restore: the bytes are damaged or do not follow from the state.
var ErrCorrupt = errors.New("machine: damaged data")

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrCorrupt}, args...)...)
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// reader decodes hostile bytes. After the first problem it returns zero values, and err says what it was.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = corrupt(format, args...)
	}
	r.b = nil
}

// end returns the first problem; bytes left over are one.
func (r *reader) end() error {
	if len(r.b) > 0 {
		r.fail("%d bytes too many", len(r.b))
	}
	return r.err
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail("cut short")
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) bool() bool {
	v := r.byte()
	if v > 1 {
		r.fail("%d is neither yes nor no", v)
	}
	return v == 1
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail("bad number, %d bytes left", len(r.b))
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail("bad number, %d bytes left", len(r.b))
		return 0
	}
	r.b = r.b[n:]
	return v
}

// within reads a number from lowest to highest.
func (r *reader) within(lowest, highest int64) int64 {
	v := r.varint()
	if v < lowest || v > highest {
		r.fail("%d is not in %d to %d", v, lowest, highest)
		return lowest
	}
	return v
}

func (r *reader) int16() int16    { return int16(r.within(math.MinInt16, math.MaxInt16)) }
func (r *reader) int32() int32    { return int32(r.within(math.MinInt32, math.MaxInt32)) }
func (r *reader) offset() int64   { return r.within(0, maxOffset) }
func (r *reader) uint32() uint32  { return uint32(r.below(math.MaxUint32 + 1)) }
func (r *reader) id() PartitionID { return PartitionID(r.uint32()) }
func (r *reader) millis() int64   { return r.within(math.MinInt64/4, math.MaxInt64/4) }
func (r *reader) engine() int64   { return r.within(0, math.MaxInt64/4) }
func (r *reader) string() string  { return string(r.take(r.uvarint())) }
func (r *reader) uuid() (u [16]byte) {
	copy(u[:], r.take(uint64(len(u))))
	return u
}

// below reads a number less than limit.
func (r *reader) below(limit uint64) uint64 {
	v := r.uvarint()
	if v >= limit {
		r.fail("%d is not below %d", v, limit)
		return 0
	}
	return v
}

// count reads how many elements follow, which have at least minBytes each: never more than the bytes at hand can hold.
func (r *reader) count(minBytes int) int {
	n := r.uvarint()
	if n > uint64(len(r.b)/minBytes) {
		r.fail("%d elements of at least %d bytes in %d bytes", n, minBytes, len(r.b))
		return 0
	}
	return int(n)
}

func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.fail("%d bytes wanted, %d left", n, len(r.b))
		return nil
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

// maxOffset leaves room so that sums of an offset and a batch's length never overflow.
const maxOffset = math.MaxInt64 / 2

// mix folds a number into the running hash.
func mix(h, v uint64) uint64 {
	h = (h ^ v) * 0x9E3779B97F4A7C15
	return h ^ h>>32
}

// mixBytes folds bytes into the running hash, eight at a time.
func mixBytes(h uint64, b []byte) uint64 {
	h = mix(h, uint64(len(b)))
	for ; len(b) >= 8; b = b[8:] {
		h = mix(h, binary.LittleEndian.Uint64(b))
	}
	var tail uint64
	for i, c := range b {
		tail |= uint64(c) << (8 * i)
	}
	return mix(h, tail)
}
