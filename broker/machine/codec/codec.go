// Package codec writes and reads the bytes in which the machine and its parts keep records and snapshots. Reading takes
// hostile bytes: it never panics, and never allocates more than the bytes at hand can hold.
package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrCorrupt is wrapped by every error of replay and restore: the bytes are damaged or do not follow from the state.
var ErrCorrupt = errors.New("machine: damaged data")

// Corrupt returns an error that wraps ErrCorrupt.
func Corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrCorrupt}, args...)...)
}

// AppendString appends s behind its length.
func AppendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// AppendBytes appends b behind its length.
func AppendBytes(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

// AppendOptional appends a string that may be missing: behind its length + 1, or 0.
func AppendOptional(dst []byte, s *string) []byte {
	if s == nil {
		return append(dst, 0)
	}
	return append(binary.AppendUvarint(dst, uint64(len(*s))+1), *s...)
}

// Reader takes values off the front of bytes. After the first problem it returns zero values, and Err says what it was.
type Reader struct {
	rest []byte
	err  error
}

// NewReader returns a reader of b, which stays the caller's.
func NewReader(b []byte) Reader { return Reader{rest: b} }

// Len is how many bytes are left: 0 after a problem.
func (r *Reader) Len() int { return len(r.rest) }

// Err is the first problem; it wraps ErrCorrupt.
func (r *Reader) Err() error { return r.err }

// Fail notes a problem, unless there was one before.
func (r *Reader) Fail(format string, args ...any) {
	if r.err == nil {
		r.err = Corrupt(format, args...)
	}
	r.rest = nil
}

// End returns the first problem; bytes left over are one.
func (r *Reader) End() error {
	if len(r.rest) > 0 {
		r.Fail("%d bytes too many", len(r.rest))
	}
	return r.err
}

// Byte reads one byte.
func (r *Reader) Byte() byte {
	if len(r.rest) == 0 {
		r.Fail("cut short")
		return 0
	}
	v := r.rest[0]
	r.rest = r.rest[1:]
	return v
}

// Bool reads 0 or 1.
func (r *Reader) Bool() bool {
	v := r.Byte()
	if v > 1 {
		r.Fail("%d is neither yes nor no", v)
	}
	return v == 1
}

// Uvarint reads an unsigned number of variable length.
func (r *Reader) Uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.Fail("bad unsigned number, %d bytes left", len(r.rest))
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// Varint reads a number of variable length.
func (r *Reader) Varint() int64 {
	v, n := binary.Varint(r.rest)
	if n <= 0 {
		r.Fail("bad number, %d bytes left", len(r.rest))
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// Within reads a number from lowest, which it returns for others, to highest.
func (r *Reader) Within(lowest, highest int64) int64 {
	v := r.Varint()
	if v < lowest || v > highest {
		r.Fail("%d is not in %d to %d", v, lowest, highest)
		return lowest
	}
	return v
}

// Below reads an unsigned number less than limit.
func (r *Reader) Below(limit uint64) uint64 {
	v := r.Uvarint()
	if v >= limit {
		r.Fail("%d is not below %d", v, limit)
		return 0
	}
	return v
}

// Int16, Int32, Natural (an Int32 that is not negative) and Uint32 read a number that must fit.
func (r *Reader) Int16() int16   { return int16(r.Within(math.MinInt16, math.MaxInt16)) }
func (r *Reader) Int32() int32   { return int32(r.Within(math.MinInt32, math.MaxInt32)) }
func (r *Reader) Natural() int32 { return int32(r.Within(0, math.MaxInt32)) }
func (r *Reader) Uint32() uint32 { return uint32(r.Below(math.MaxUint32 + 1)) }

// Count reads how many elements follow, which have at least minBytes each: never more than the bytes at hand can hold.
func (r *Reader) Count(minBytes int) int {
	n := r.Uvarint()
	if n > uint64(len(r.rest)/minBytes) {
		r.Fail("%d elements of at least %d bytes in %d bytes", n, minBytes, len(r.rest))
		return 0
	}
	return int(n)
}

// Take returns the next n bytes, not a copy of them.
func (r *Reader) Take(n uint64) []byte {
	if n > uint64(len(r.rest)) {
		r.Fail("%d bytes wanted, %d left", n, len(r.rest))
		return nil
	}
	v := r.rest[:n]
	r.rest = r.rest[n:]
	return v
}

// UUID reads 16 bytes.
func (r *Reader) UUID() (u [16]byte) {
	copy(u[:], r.Take(uint64(len(u))))
	return u
}

// String reads what AppendString wrote.
func (r *Reader) String() string { return string(r.Take(r.Uvarint())) }

// Bytes reads a copy of what AppendBytes wrote.
func (r *Reader) Bytes() []byte { return append([]byte(nil), r.Take(r.Uvarint())...) }

// Optional reads what AppendOptional wrote.
func (r *Reader) Optional() *string {
	n := r.Uvarint()
	if n == 0 {
		return nil
	}
	s := string(r.Take(n - 1))
	return &s
}
