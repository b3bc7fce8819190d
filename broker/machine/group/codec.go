package group

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
)

// ErrCorrupt is wrapped by every error of Apply and Restore.
var ErrCorrupt = errors.New("group: damaged data")

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrCorrupt}, args...)...)
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendBytes(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

// appendOptional writes a string that may be missing: length + 1, or 0.
func appendOptional(dst []byte, s *string) []byte {
	if s == nil {
		return append(dst, 0)
	}
	return append(binary.AppendUvarint(dst, uint64(len(*s))+1), *s...)
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
	if r.err == nil && len(r.b) > 0 {
		r.fail("%d bytes too many", len(r.b))
	}
	return r.err
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail("cut short before a byte")
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail("bad unsigned number, %d bytes left", len(r.b))
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

func (r *reader) int32() int32 {
	v := r.varint()
	if v < math.MinInt32 || v > math.MaxInt32 {
		r.fail("number %d does not fit 32 bits", v)
		return 0
	}
	return int32(v)
}

// natural reads a number that may not be negative.
func (r *reader) natural() int32 {
	v := r.int32()
	if v < 0 {
		r.fail("number %d is negative", v)
		return 0
	}
	return v
}

// count reads a number of elements of at least minBytes each, so that it is never more than the bytes at hand hold.
func (r *reader) count(minBytes int) int {
	n := r.uvarint()
	if n > uint64(len(r.b)/minBytes) {
		r.fail("%d elements of %d bytes in %d bytes", n, minBytes, len(r.b))
		return 0
	}
	return int(n)
}

func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.fail("%d bytes wanted, %d left", n, len(r.b))
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) string() string { return string(r.take(r.uvarint())) }

// bytes returns a copy.
func (r *reader) bytes() []byte { return append([]byte(nil), r.take(r.uvarint())...) }

func (r *reader) optional() *string {
	n := r.uvarint()
	if n == 0 {
		return nil
	}
	s := string(r.take(n - 1))
	return &s
}

// hashBytes spreads b over 64 bits. The state's hash is the sum of its items' hashes, so that it can follow each
// change and does not depend on the order of changes.
func hashBytes(b []byte) uint64 {
	const k1, k2 = 0x9e3779b97f4a7c15, 0xd6e8feb86659fd93
	h := uint64(len(b)) ^ k2
	for ; len(b) >= 8; b = b[8:] {
		h = fold(binary.LittleEndian.Uint64(b)^k1, h^k2)
	}
	var tail uint64
	for i, c := range b {
		tail |= uint64(c) << (8 * i)
	}
	h = fold(tail^k1, h^k2)
	return fold(h^k1, h^k2)
}

func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}
