package journal

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"github.com/strandline-io/strandline/internal/mutant"
	"github.com/strandline-io/strandline/internal/vfs"
)

const (
	bodyWindow = 1 << 20  // reading everything
	headWindow = 16 << 10 // hopping from head to head
)

// window reads a file through one buffer.
type window struct {
	file vfs.File
	size int64 // of the file
	buf  []byte
	off  int64 // of buf
	n    int   // bytes in buf
}

func newWindow(f vfs.File, size int64, bufBytes int64) *window {
	return &window{file: f, size: size, buf: make([]byte, min(bufBytes, max(size, 1)))}
}

// errShort is returned for bytes beyond the end of the file.
var errShort = errors.New("beyond the end of the file")

// bytes returns n bytes at pos, valid until the next call. It allocates no more than the file holds.
func (w *window) bytes(pos int64, n int) ([]byte, error) {
	if pos < 0 || n < 0 || pos > w.size || int64(n) > w.size-pos {
		return nil, errShort
	}
	if pos >= w.off && pos+int64(n) <= w.off+int64(w.n) {
		return w.buf[pos-w.off:][:n], nil
	}
	if n > len(w.buf) {
		w.buf = make([]byte, n)
	}
	w.off, w.n = pos, 0
	got, err := w.file.ReadAt(w.buf[:min(int64(len(w.buf)), w.size-pos)], pos)
	if got < n {
		if err == nil || errors.Is(err, io.EOF) {
			return nil, errShort
		}
		return nil, err
	}
	w.n = got
	return w.buf[:n], nil
}

// crc continues a CRC over [pos, pos+n) without holding it in memory.
func (w *window) crc(crc uint32, pos, n int64) (uint32, error) {
	for n > 0 {
		part := min(n, int64(len(w.buf)))
		b, err := w.bytes(pos, int(part))
		if err != nil {
			return 0, err
		}
		crc = crc32.Update(crc, castagnoli, b)
		pos += part
		n -= part
	}
	return crc, nil
}

// unit is one that was read. Its memory is used again for the next.
type unit struct {
	head    unitHead
	pos     int64
	fixed   []byte // table and meta
	headers []byte
	batches []StoredBatch
}

func (u *unit) meta() []byte { return u.fixed[lengthBytes*u.head.batches:] }

func (u *unit) length(i int64) int64 { return int64(le.Uint32(u.fixed[lengthBytes*i:])) }

func (u *unit) end() int64 { return u.pos + u.head.totalBytes }

// stored describes u as lying at pos of a segment.
func (u *unit) stored(segment uint64, pos int64) Stored {
	at := pos + unitHeadBytes + int64(len(u.fixed))
	u.batches = u.batches[:0]
	for i := range u.head.batches {
		header := u.headers[batchHeader*i:][:batchHeader:batchHeader]
		u.batches = append(u.batches, StoredBatch{Header: header, Pos: at, Len: int32(u.length(i))})
		at += u.length(i)
	}
	return Stored{Seq: u.head.seq, Segment: segment, Meta: u.meta(), Batches: u.batches}
}

// lengthsFit says whether the table's lengths add up to what the head says.
func (u *unit) lengthsFit() bool {
	total := unitHeadBytes + int64(len(u.fixed))
	for i := range u.head.batches {
		if n := u.length(i); n < batchHeader || n > math.MaxInt32 {
			return false
		}
		total += u.length(i)
	}
	return total == u.head.totalBytes
}

// readUnit reads the unit at pos into u; with bodies it also checks each batch's own CRC. bad says what is wrong
// with it, err that the disk did not answer.
func readUnit(w *window, u *unit, seed uint32, pos int64, bodies bool) (bad string, err error) {
	defer func() {
		if errors.Is(err, errShort) {
			bad, err = "the file ends within it", nil
		}
	}()
	b, err := w.bytes(pos, unitHeadBytes)
	if err != nil {
		return "", err
	}
	head, ok := parseUnitHead(b, w.size-pos)
	if !ok {
		return "no unit begins here", nil
	}
	u.head, u.pos = head, pos
	crc := crc32.Update(seed, castagnoli, b[4:])
	fixed := head.metaBytes + lengthBytes*head.batches
	if b, err = w.bytes(pos+unitHeadBytes, int(fixed)); err != nil {
		return "", err
	}
	u.fixed = append(u.fixed[:0], b...)
	if !u.lengthsFit() {
		return "its batches' lengths do not add up", nil
	}
	crc = crc32.Update(crc, castagnoli, u.fixed)
	at := pos + unitHeadBytes + fixed
	u.headers = u.headers[:0]
	for i := range head.batches {
		if b, err = w.bytes(at, batchHeader); err != nil {
			return "", err
		}
		u.headers = append(u.headers, b...)
		crc = crc32.Update(crc, castagnoli, b[:batchPrefix])
		if bodies {
			want := beUint32(b[batchCRCAt:])
			got, err := w.crc(0, at+batchPrefix, u.length(i)-batchPrefix)
			if err != nil {
				return "", err
			}
			if got != want {
				return fmt.Sprintf("batch %d fails its CRC", i), nil
			}
		}
		at += u.length(i)
	}
	if crc != head.crc {
		return "it fails its CRC", nil
	}
	return "", nil
}

// beUint32 reads a field of a record batch, which is big-endian.
func beUint32(b []byte) uint32 {
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

// chain is where reading stands: the next unit must be nextSeq and name prevCRC.
type chain struct {
	nextSeq uint64
	prevCRC uint32
}

// walker follows the chain through one segment.
type walker struct {
	w           *window
	seed        uint32
	incarnation uint32
	chain       chain
	pos         int64
	unit        unit
}

// next reads the unit that must come next. bad says why there is none.
func (k *walker) next(bodies bool) (bad string, err error) {
	bad, err = readUnit(k.w, &k.unit, k.seed, k.pos, bodies)
	if bad != "" || err != nil {
		return bad, err
	}
	h := k.unit.head
	switch {
	case mutant.On("stale unit replayed"):
	case h.seq != k.chain.nextSeq:
		return fmt.Sprintf("it is unit %d instead of %d", h.seq, k.chain.nextSeq), nil
	case h.prevCRC != k.chain.prevCRC:
		return fmt.Sprintf("it follows another unit %d", h.seq-1), nil
	case h.incarnation != k.incarnation: // cannot be, since seed and chain hold: a check on ourselves
		return fmt.Sprintf("it is of incarnation %d instead of %d", h.incarnation, k.incarnation), nil
	}
	k.pos = h.nextPos(k.unit.end())
	k.chain = chain{nextSeq: h.seq + 1, prevCRC: h.crc}
	return "", nil
}

// damaged wraps ErrCorrupt with the place.
func damaged(file string, offset int64, format string, args ...any) error {
	return fmt.Errorf("%w: %s at offset %d: %s; restore the folder from a copy, or start a new one",
		ErrCorrupt, file, offset, fmt.Sprintf(format, args...))
}

// readFooter calls f for each unit that a footer lists. The CRC over the whole is known good only when it returns
// nil; every unit's own CRC and the chain are checked before f gets it.
func readFooter(file vfs.File, name string, p footerPointer, h segmentHeader, f func(*unit) error) error {
	w := newWindow(file, p.pos+p.size, bodyWindow)
	at, seed := p.pos, h.secret.seed(h.number)
	c := chain{nextSeq: p.firstSeq, prevCRC: p.prevCRC}
	var u unit
	for c.nextSeq <= p.lastSeq {
		bad, err := readEntry(w, &u, seed, p.endPos, &at)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		if bad == "" && (u.head.seq != c.nextSeq || u.head.prevCRC != c.prevCRC) {
			bad = fmt.Sprintf("unit %d breaks the chain", u.head.seq)
		}
		if bad != "" {
			return damaged(name, at, "the footer's entry for unit %d: %s", c.nextSeq, bad)
		}
		if err := f(&u); err != nil {
			return err
		}
		c = chain{nextSeq: u.head.seq + 1, prevCRC: u.head.crc}
	}
	if at != p.pos+p.size || c.prevCRC != p.lastCRC {
		return damaged(name, p.pos, "the footer does not end with unit %d", p.lastSeq)
	}
	return nil
}

// readEntry reads one entry of a footer at *at and moves it on; the unit must end by endPos.
func readEntry(w *window, u *unit, seed uint32, endPos int64, at *int64) (bad string, err error) {
	defer func() {
		if errors.Is(err, errShort) {
			bad, err = "the footer ends within it", nil
		}
	}()
	b, err := w.bytes(*at, positionBytes+unitHeadBytes)
	if err != nil {
		return "", err
	}
	pos := int64(le.Uint64(b))
	if pos < dataStart || pos > endPos {
		return "it names no position in the segment", nil
	}
	head, ok := parseUnitHead(b[positionBytes:], endPos-pos)
	if !ok {
		return "no unit is described", nil
	}
	u.head, u.pos = head, pos
	crc := crc32.Update(seed, castagnoli, b[positionBytes+4:])
	fixed := head.metaBytes + lengthBytes*head.batches
	next := *at + positionBytes + unitHeadBytes
	if fixed+batchHeader*head.batches > w.size-next {
		return "", errShort
	}
	if b, err = w.bytes(next, int(fixed+batchHeader*head.batches)); err != nil {
		return "", err
	}
	u.fixed = append(u.fixed[:0], b[:fixed]...)
	u.headers = append(u.headers[:0], b[fixed:]...)
	if !u.lengthsFit() {
		return "its batches' lengths do not add up", nil
	}
	crc = crc32.Update(crc, castagnoli, u.fixed)
	for i := range head.batches {
		crc = crc32.Update(crc, castagnoli, u.headers[batchHeader*i:][:batchPrefix])
	}
	if crc != head.crc {
		return "it fails its CRC", nil
	}
	*at = next + int64(len(b))
	return "", nil
}
