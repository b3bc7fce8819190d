package journal

import (
	"fmt"
	"hash/crc32"
)

// copyBelow is the size up to which a batch is copied next to its unit's head: a copy costs less than one more slice
// in the vectored write.
const copyBelow = 2048

// keepArenaBytes is how much memory a group keeps for its next use.
const keepArenaBytes = 4 << 20

var zeroBlock [blockBytes]byte

// tail is where the next unit goes. The sequencer's goroutine and recovery move it, nobody else.
type tail struct {
	secret      secret
	incarnation uint32
	number      uint64 // segment
	seed        uint32
	pos         int64
	nextSeq     uint64
	prevCRC     uint32
}

// enter moves t to the start of a new segment and returns its header.
func (t *tail) enter(number, durable uint64) segmentHeader {
	t.number, t.seed, t.pos = number, t.secret.seed(number), dataStart
	return segmentHeader{
		secret: t.secret, incarnation: t.incarnation, number: number,
		firstSeq: t.nextSeq, durable: durable, prevCRC: t.prevCRC,
	}
}

// group is one write: some units of one segment, which start at a block and are padded to one.
type group struct {
	segment   uint64
	pos       int64
	bufs      [][]byte
	lastSeq   uint64
	fileBytes int64 // what the file must be long for it
	written   bool
	grows     bool // its file is missing or shorter than that

	arena  []byte
	pieces []piece
}

// piece is a range of the arena, or outside it.
type piece struct {
	from, to int
	outside  []byte
}

func (g *group) reset(segment uint64, pos int64) {
	if cap(g.arena) > keepArenaBytes {
		g.arena = nil
	}
	clear(g.bufs)
	clear(g.pieces)
	*g = group{segment: segment, pos: pos, bufs: g.bufs[:0], arena: g.arena[:0], pieces: g.pieces[:0]}
}

// header puts a segment's first two blocks before the units.
func (g *group) header(h segmentHeader) {
	g.pos = 0
	g.arena = append(g.arena, h.encode()...)
	g.arena = append(g.arena, zeroBlock[:blockBytes-headerBytes]...)
	g.arena = append(g.arena, zeroBlock[:]...)
}

// encode appends units to g and to the footer and moves t behind them. The batches are used until the group is
// written.
func (t *tail) encode(g *group, f *footer, units []Unit, durable uint64) []Placed {
	placed := make([]Placed, len(units))
	from := 0
	for i, u := range units {
		head := unitHead{
			seq: t.nextSeq, durable: durable, incarnation: t.incarnation, prevCRC: t.prevCRC,
			metaBytes: int64(len(u.Meta)), batches: int64(len(u.Batches)), totalBytes: unitBytes(u),
		}
		if i == len(units)-1 {
			head.flags = flagGroupEnd
		}
		at := len(g.arena)
		g.arena = head.appendHead(g.arena)
		for _, b := range u.Batches {
			if len(b) < batchHeader {
				panic(fmt.Sprintf("BUG: a batch of %d bytes in a unit; a record batch has at least %d", len(b), batchHeader))
			}
			g.arena = le.AppendUint32(g.arena, uint32(len(b)))
		}
		g.arena = append(g.arena, u.Meta...)
		fixed := len(g.arena)
		crc := crc32.Update(t.seed, castagnoli, g.arena[at+4:])
		for _, b := range u.Batches {
			crc = crc32.Update(crc, castagnoli, b[:batchPrefix])
		}
		le.PutUint32(g.arena[at:], crc)
		f.add(t.pos, g.arena[at:fixed], u.Batches)
		for _, b := range u.Batches {
			if len(b) < copyBelow {
				g.arena = append(g.arena, b...)
				continue
			}
			g.pieces = append(g.pieces, piece{from: from, to: len(g.arena)}, piece{outside: b})
			from = len(g.arena)
		}
		placed[i] = Placed{Seq: t.nextSeq, Segment: t.number, BatchPos: t.pos + int64(fixed-at)}
		t.pos += head.totalBytes
		t.nextSeq++
		t.prevCRC = crc
	}
	padded := alignUp(t.pos)
	g.arena = append(g.arena, zeroBlock[:padded-t.pos]...)
	t.pos = padded
	g.finish(from, t)
	return placed
}

// finish makes the slices to write, now that the arena does not move any more.
func (g *group) finish(from int, t *tail) {
	g.pieces = append(g.pieces, piece{from: from, to: len(g.arena)})
	for _, p := range g.pieces {
		b := p.outside
		if b == nil {
			b = g.arena[p.from:p.to]
		}
		if len(b) > 0 {
			g.bufs = append(g.bufs, b)
		}
	}
	g.lastSeq = t.nextSeq - 1
}

// footer collects what is needed of a segment's units without their batches' bodies, until the segment is sealed.
type footer struct {
	chunks  [][]byte
	size    int64
	extents int
	free    [][]byte // chunks to use again
}

const (
	footerChunkBytes = 64 << 10
	maxFreeChunks    = 32
)

// add takes a unit at pos: its head, table and meta, and the batches of which it keeps the headers.
func (f *footer) add(pos int64, fixed []byte, batches [][]byte) {
	need := positionBytes + len(fixed) + batchHeader*len(batches)
	last := len(f.chunks) - 1
	if last < 0 || cap(f.chunks[last])-len(f.chunks[last]) < need {
		f.grow(need)
		last++
	}
	b := le.AppendUint64(f.chunks[last], uint64(pos))
	b = append(b, fixed...)
	for _, batch := range batches {
		b = append(b, batch[:batchHeader]...)
	}
	f.chunks[last] = b
	f.size += int64(need)
	f.extents += len(batches)
}

// grow adds a chunk with room for need bytes, a used one if there is any.
func (f *footer) grow(need int) {
	if last := len(f.free) - 1; last >= 0 && need <= footerChunkBytes {
		f.chunks, f.free = append(f.chunks, f.free[last]), f.free[:last]
		return
	}
	f.chunks = append(f.chunks, make([]byte, 0, max(footerChunkBytes, need)))
}

// recycle keeps what it may of the memory of a footer that is written.
func (f *footer) recycle(written *footer) {
	for _, c := range written.chunks {
		if cap(c) == footerChunkBytes && len(f.free) < maxFreeChunks {
			f.free = append(f.free, c[:0])
		}
	}
}

func (f *footer) crc(seed uint32) uint32 {
	for _, c := range f.chunks {
		seed = crc32.Update(seed, castagnoli, c)
	}
	return seed
}
