package journal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"github.com/strandline-io/strandline/internal/mutant"
)

// The bytes are described in docs/formats/journal.md and docs/formats/snapshot.md; all numbers are little-endian.
const (
	blockBytes    = 4096
	dataStart     = 2 * blockBytes // the header's block and the footer pointer's block
	headerBytes   = 64             // of a segment
	pointerBytes  = 64
	unitHeadBytes = 56
	lengthBytes   = 4  // of one batch, in the unit's table
	batchHeader   = 61 // a record batch's fixed part
	batchPrefix   = 21 // what a unit's CRC covers of a batch; the batch's own CRC covers the rest
	batchCRCAt    = 17
	positionBytes = 8 // before each unit in a footer
	secretBytes   = 16
)

const (
	headerMagic  = "SLJSEG\n\x01"
	pointerMagic = "SLJFTR\n\x01"
	unitMagic    = 0x554a4c53 // "SLJU"
)

// flagGroupEnd marks the last unit of a group: the next one starts at the next block.
const flagGroupEnd = 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var le = binary.LittleEndian

// alignUp rounds n up to a whole block.
func alignUp(n int64) int64 { return (n + blockBytes - 1) &^ (blockBytes - 1) }

// UnitBytes is what u takes of a segment: itself and its part of the segment's footer, without padding.
func UnitBytes(u Unit) int64 { return unitBytes(u) + entryBytes(u) }

// unitBytes is the length of u itself.
func unitBytes(u Unit) int64 {
	n := unitHeadBytes + int64(len(u.Meta)) + lengthBytes*int64(len(u.Batches))
	for _, b := range u.Batches {
		n += int64(len(b))
	}
	return n
}

// entryBytes is the length of u's entry in the footer.
func entryBytes(u Unit) int64 {
	return positionBytes + unitHeadBytes + int64(len(u.Meta)) + (lengthBytes+batchHeader)*int64(len(u.Batches))
}

// secret is drawn once for a journal. Everything checked in it is seeded with it, so that bytes from outside
// cannot be made to look like the journal's own.
type secret [secretBytes]byte

// seed is the CRC's start for everything in the segment of that number. Numbers are never used twice, so what a
// recycled file still holds of an earlier segment fails its CRC.
func (s secret) seed(number uint64) uint32 {
	if mutant.On("stale unit replayed") || mutant.On("stale footer believed") {
		number = 0
	}
	return crc32.Update(crc32.Update(0, castagnoli, s[:]), castagnoli, le.AppendUint64(nil, number))
}

// segmentHeader is the first thing in a segment.
type segmentHeader struct {
	secret      secret
	incarnation uint32
	number      uint64
	firstSeq    uint64
	durable     uint64 // every unit up to here was durable when the header was written
	prevCRC     uint32 // of unit firstSeq-1
}

func (h segmentHeader) encode() []byte {
	b := make([]byte, headerBytes)
	copy(b, headerMagic)
	le.PutUint32(b[12:], h.incarnation)
	copy(b[16:32], h.secret[:])
	le.PutUint64(b[32:], h.number)
	le.PutUint64(b[40:], h.firstSeq)
	le.PutUint64(b[48:], h.durable)
	le.PutUint32(b[56:], h.prevCRC)
	le.PutUint32(b[8:], plainCRC(b))
	return b
}

// plainCRC is the CRC of a fixed block with its CRC field, bytes 8 to 12, left out.
func plainCRC(b []byte) uint32 { return blockCRC(0, b) }

func blockCRC(seed uint32, b []byte) uint32 {
	return crc32.Update(crc32.Update(seed, castagnoli, b[:8]), castagnoli, b[12:])
}

// parseHeader reads the header of segment number; ok is false if there is none, also if it is another segment's.
// An error means a format that this version does not know.
func parseHeader(b []byte, number uint64) (h segmentHeader, ok bool, err error) {
	if len(b) < headerBytes {
		return h, false, nil
	}
	b = b[:headerBytes]
	const version = len(headerMagic) - 1
	if string(b[:version]) != headerMagic[:version] || le.Uint32(b[8:]) != plainCRC(b) {
		return h, false, nil
	}
	if b[version] != headerMagic[version] {
		return h, false, fmt.Errorf("journal format %d is not known here (only %d): it was written by another version "+
			"of this program", b[version], headerMagic[version])
	}
	h = segmentHeader{
		incarnation: le.Uint32(b[12:]),
		secret:      secret(b[16:32]),
		number:      le.Uint64(b[32:]),
		firstSeq:    le.Uint64(b[40:]),
		durable:     le.Uint64(b[48:]),
		prevCRC:     le.Uint32(b[56:]),
	}
	return h, h.number == number && h.firstSeq > 0 && h.incarnation > 0, nil
}

// footerPointer says where a sealed segment's footer lies. It exists only if all units of the segment are durable.
type footerPointer struct {
	crc      uint32 // of the footer
	pos      int64
	size     int64
	firstSeq uint64
	lastSeq  uint64
	endPos   int64 // of the last unit
	lastCRC  uint32
	prevCRC  uint32
}

func (p footerPointer) encode(seed uint32) []byte {
	b := make([]byte, pointerBytes)
	copy(b, pointerMagic)
	le.PutUint32(b[12:], p.crc)
	le.PutUint64(b[16:], uint64(p.pos))
	le.PutUint64(b[24:], uint64(p.size))
	le.PutUint64(b[32:], p.lastSeq)
	le.PutUint64(b[40:], uint64(p.endPos))
	le.PutUint32(b[48:], p.lastCRC)
	le.PutUint32(b[52:], p.prevCRC)
	le.PutUint64(b[56:], p.firstSeq)
	le.PutUint32(b[8:], blockCRC(seed, b))
	return b
}

// parsePointer reads the pointer of a file of size fileBytes.
func parsePointer(b []byte, seed uint32, fileBytes int64) (p footerPointer, ok bool) {
	if len(b) < pointerBytes || string(b[:8]) != pointerMagic {
		return p, false
	}
	b = b[:pointerBytes]
	p = footerPointer{
		crc:      le.Uint32(b[12:]),
		pos:      int64(le.Uint64(b[16:])),
		size:     int64(le.Uint64(b[24:])),
		lastSeq:  le.Uint64(b[32:]),
		endPos:   int64(le.Uint64(b[40:])),
		lastCRC:  le.Uint32(b[48:]),
		prevCRC:  le.Uint32(b[52:]),
		firstSeq: le.Uint64(b[56:]),
	}
	inside := p.endPos >= dataStart && p.pos >= p.endPos && p.size > 0 && p.pos <= fileBytes && p.size <= fileBytes-p.pos
	return p, inside && p.firstSeq <= p.lastSeq && le.Uint32(b[8:]) == blockCRC(seed, b)
}

// unitHead is the fixed part of a unit.
type unitHead struct {
	crc         uint32
	seq         uint64
	durable     uint64
	incarnation uint32
	prevCRC     uint32
	metaBytes   int64
	batches     int64
	totalBytes  int64
	flags       uint32
}

// appendHead appends the head with room for the CRC, which is put in last.
func (h unitHead) appendHead(b []byte) []byte {
	b = le.AppendUint32(b, 0)
	b = le.AppendUint32(b, unitMagic)
	b = le.AppendUint64(b, h.seq)
	b = le.AppendUint64(b, h.durable)
	b = le.AppendUint32(b, h.incarnation)
	b = le.AppendUint32(b, h.prevCRC)
	b = le.AppendUint32(b, uint32(h.metaBytes))
	b = le.AppendUint32(b, uint32(h.batches))
	b = le.AppendUint64(b, uint64(h.totalBytes))
	b = le.AppendUint32(b, h.flags)
	return le.AppendUint32(b, 0)
}

// encode appends the head with its CRC.
func (h unitHead) encode(b []byte) []byte {
	at := len(b)
	b = h.appendHead(b)
	le.PutUint32(b[at:], h.crc)
	return b
}

// parseUnitHead reads a head and checks what it says of itself against the room there is, but not its CRC.
func parseUnitHead(b []byte, roomBytes int64) (h unitHead, ok bool) {
	if len(b) < unitHeadBytes || le.Uint32(b[4:]) != unitMagic {
		return h, false
	}
	h = unitHead{
		crc:         le.Uint32(b),
		seq:         le.Uint64(b[8:]),
		durable:     le.Uint64(b[16:]),
		incarnation: le.Uint32(b[24:]),
		prevCRC:     le.Uint32(b[28:]),
		metaBytes:   int64(le.Uint32(b[32:])),
		batches:     int64(le.Uint32(b[36:])),
		totalBytes:  int64(le.Uint64(b[40:])),
		flags:       le.Uint32(b[48:]),
	}
	least := unitHeadBytes + h.metaBytes + h.batches*(lengthBytes+batchHeader)
	return h, h.totalBytes >= least && h.totalBytes <= roomBytes && h.durable < h.seq
}

// nextPos is where the unit after one that ends at end starts.
func (h unitHead) nextPos(end int64) int64 {
	if h.flags&flagGroupEnd != 0 {
		return alignUp(end)
	}
	return end
}

const (
	lockName       = "LOCK"
	segmentSuffix  = ".segment"
	spareSuffix    = ".spare"
	tempSuffix     = ".tmp"
	snapshotSuffix = ".snapshot"
)

func rolledName(number uint64) string { return fmt.Sprintf("%016x%s", number, segmentSuffix) }

// openedName is that of a segment made when the journal was opened. It was complete before it had that name.
func openedName(number uint64, incarnation uint32) string {
	return fmt.Sprintf("%016x-%08x%s", number, incarnation, segmentSuffix)
}

func spareName(id uint64) string { return fmt.Sprintf("%016x%s", id, spareSuffix) }

func snapshotName(seq uint64) string { return fmt.Sprintf("%016x%s", seq, snapshotSuffix) }

// parseSegmentName returns incarnation 0 for a segment that was not made by an open.
func parseSegmentName(name string) (number uint64, incarnation uint32, ok bool) {
	base, ok := strings.CutSuffix(name, segmentSuffix)
	if !ok {
		return 0, 0, false
	}
	first, second, opened := strings.Cut(base, "-")
	number, ok = parseHex(first, 16)
	if opened && ok {
		var n uint64
		n, ok = parseHex(second, 8)
		incarnation = uint32(n)
		ok = ok && n > 0
	}
	return number, incarnation, ok && number > 0
}

func parseSnapshotName(name string) (seq uint64, ok bool) {
	base, ok := strings.CutSuffix(name, snapshotSuffix)
	if !ok {
		return 0, false
	}
	return parseHex(base, 16)
}

// parseHex takes exactly what the names are written with.
func parseHex(s string, digits int) (uint64, bool) {
	n, err := strconv.ParseUint(s, 16, 4*digits)
	return n, err == nil && len(s) == digits && s == fmt.Sprintf("%0*x", digits, n)
}
