package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/strandline-io/strandline/broker/record"
)

// gapBytes is how much of the journal between two batches is read along rather than read around: about what a
// system call costs in copied bytes.
const gapBytes = 4096

// Read appends whole batches to dst and returns it: the first one being the one that holds offset from (or, if that
// offset is gone, the next), none with a base offset of upTo or more, together at most maxBytes, unless atLeastOne is
// set and nothing was appended yet: then the first batch comes whatever its size. It allocates only when dst has no
// room. Nothing appended and no error means that there is nothing to read, or that the first batch is too large.
//
// The error is ErrMoved when the log is out of date, or wraps ErrCorrupt; dst is then returned as it came. What was
// read before trouble is returned without error: the next read from there meets it again.
func (l *Log) Read(dst []byte, from, upTo int64, maxBytes int, atLeastOne bool) ([]byte, error) {
	start := len(dst)
	if len(l.files) == 0 {
		from = max(from, l.filesEnd)
	}
	for from < upTo {
		first := len(dst) == start
		r := reading{from: from, upTo: upTo, budget: maxBytes - (len(dst) - start), first: first, must: first && atLeastOne}
		if r.budget <= 0 && !r.must {
			break
		}
		var next int64
		var err error
		if from < l.filesEnd {
			dst, next, err = l.readFiles(dst, r)
		} else {
			dst, next, err = l.readTail(dst, r)
		}
		if err != nil && len(dst) == start {
			return dst, err
		}
		if err != nil || next <= from {
			break
		}
		from = next
	}
	return dst, nil
}

// reading is what one step of Read has to do. Steps return the offset to go on at, from itself when that is all.
type reading struct {
	from, upTo int64
	budget     int
	first      bool // nothing was read yet
	must       bool // nor has the first batch to fit the budget
}

// minScratchBytes is the least room for looking at headers in dst when growing it would copy what was read.
const minScratchBytes = 1024

// readFiles reads from the one file that holds r.from.
func (l *Log) readFiles(dst []byte, r reading) (out []byte, next int64, err error) {
	i := l.findFile(r.from)
	h, err := l.store.handles.acquire(l.files[i].file)
	if err != nil {
		return dst, r.from, err
	}
	dst, next, err = l.readFile(dst, r, i, h)
	return dst, next, errors.Join(err, l.store.handles.release(h))
}

func (l *Log) readFile(dst []byte, r reading, i int, h *handle) (out []byte, next int64, err error) {
	f, behind := &l.files[i], l.filesEnd
	if i+1 < len(l.files) {
		behind = l.files[i+1].base
	}
	room := cap(dst) - len(dst)
	if room < minScratchBytes {
		if !r.first {
			return dst, r.from, nil
		}
		dst = slices.Grow(dst, scanBytes)
		room = cap(dst) - len(dst)
	}
	size := f.size(h)
	pos, first, err := l.store.locate(f, h, size, r.from, dst[len(dst):len(dst)+min(room, scanBytes)])
	if err != nil {
		return dst, r.from, err
	}
	if pos == size { // nothing at or behind from in this file
		return dst, max(r.from, behind), nil
	}
	if first.BaseOffset >= r.upTo || int(first.SizeBytes) > r.budget && !r.must {
		return dst, r.from, nil
	}
	want := int(min(int64(max(r.budget, int(first.SizeBytes))), size-pos))
	dst = slices.Grow(dst, want)
	buf := dst[len(dst) : len(dst)+want]
	if err := readFull(f.logName(), h, buf, pos); err != nil {
		return dst, r.from, err
	}
	used := wholeBatches(buf, first.BaseOffset, r.upTo)
	if used == 0 {
		return dst, r.from, damaged(f.logName(), pos, "no record batch")
	}
	next = r.from
	if pos+int64(used) == size {
		next = max(r.from, behind)
	}
	return dst[:len(dst)+used], next, nil
}

// findFile returns the index of the file that holds from, or of the first one behind it. from is below filesEnd.
func (l *Log) findFile(from int64) int {
	low, high := 0, len(l.files)-1
	for low < high {
		mid := int(uint(low+high) >> 1)
		if l.files[mid].endOffset <= from {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

func (f *fileRef) size(h *handle) int64 {
	if f.sizeBytes < 0 {
		return h.sizeBytes
	}
	return f.sizeBytes
}

// wholeBatches says how many bytes of buf are whole batches that follow each other from offset next, with base offsets
// below upTo, up to the first that is no such batch. A base offset lies outside of its batch's CRC: no client would see
// that it is wrong.
func wholeBatches(buf []byte, next, upTo int64) (used int) {
	for len(buf)-used >= record.HeaderSize {
		b := buf[used:]
		base := int64(binary.BigEndian.Uint64(b))
		size := int64(int32(binary.BigEndian.Uint32(b[8:]))) + 12
		delta := int64(int32(binary.BigEndian.Uint32(b[23:])))
		if b[16] != 2 || size < record.HeaderSize || base != next || delta < 0 || base >= upTo || size > int64(len(b)) {
			break
		}
		used += int(size)
		next = base + delta + 1
	}
	return used
}

// locate finds the first batch of f that ends at offset or behind it. pos is size when there is none. scratch is
// memory for looking at headers.
func (s *Store) locate(f *fileRef, h *handle, size, offset int64, scratch []byte) (pos int64, first record.Header, err error) {
	err = s.withIndex(f, h, size, func(x *fileIndex) error {
		e, ok := x.atOrBefore(f.base, offset, size)
		sc, err := startScan(f, h, size, e, ok, scratch)
		for pos = size; err == nil && sc.pos < sc.end; {
			var at int64
			if at, err = sc.next(&first); err == nil && first.LastOffset() >= offset {
				pos = at
				break
			}
		}
		return err
	})
	return pos, first, err
}

// withIndex calls try with f's index. If that finds damage it may be the index that is wrong: then try is called once
// more, with one that was made anew from the log.
func (s *Store) withIndex(f *fileRef, h *handle, size int64, try func(x *fileIndex) error) error {
	x, err := s.indexOf(f, h, size)
	if err != nil {
		return err
	}
	err = try(x)
	if err == nil || x.rebuilt || !errors.Is(err, ErrCorrupt) {
		return err
	}
	b, err := s.rebuildIndex(f, h, size)
	if err != nil && !errors.Is(err, ErrCorrupt) {
		return err
	}
	rebuilt := b.snapshot()
	rebuilt.coveredBytes, rebuilt.damaged = size, err != nil
	s.handles.swapIndex(f.file, x, rebuilt)
	return try(rebuilt)
}

// startScan begins a scan of f's first size bytes at the index's point e, if there is one, and checks that the log
// agrees with it.
func startScan(f *fileRef, h *handle, size int64, e entry, ok bool, scratch []byte) (scanner, error) {
	sc := scanner{name: f.logName(), file: h, pos: int64(e.pos), end: size, offset: f.base, buf: scratch}
	if !ok {
		return sc, nil
	}
	sc.offset = -1
	var head record.Header
	if _, err := sc.next(&head); err != nil {
		return sc, err
	}
	if last := f.base + int64(e.lastDelta); head.LastOffset() != last {
		return sc, damaged(f.indexName(), 0, "entry says that the batch at byte %d ends with offset %d, it ends with %d", e.pos, last, head.LastOffset())
	}
	sc.pos, sc.offset = int64(e.pos), head.BaseOffset
	return sc, nil
}

// indexOf returns an index of f's first size bytes, loading it if need be. Two that load at once both do. A damaged
// log has an index up to the damage.
func (s *Store) indexOf(f *fileRef, h *handle, size int64) (*fileIndex, error) {
	x := f.index.Load()
	if x != nil && x.coveredBytes >= size {
		return x, nil
	}
	b, err := s.loadIndex(f, h, size)
	if err != nil && !errors.Is(err, ErrCorrupt) {
		return nil, err
	}
	loaded := b.snapshot()
	if err != nil {
		// Every read would search for the damage again.
		loaded.coveredBytes, loaded.rebuilt, loaded.damaged = size, true, true
	}
	s.handles.swapIndex(f.file, x, loaded)
	return loaded, nil
}

// readTail reads from the journal. A run of extents that lie close together is one read.
func (l *Log) readTail(dst []byte, r reading) (out []byte, next int64, err error) {
	i := l.tail.find(r.from)
	if i == len(l.tail.extents) {
		return dst, r.from, nil
	}
	e := &l.tail.extents[i]
	if e.BaseOffset >= r.upTo || int(e.Len) > r.budget && !r.must {
		return dst, r.from, nil
	}
	room := cap(dst) - len(dst)
	if room < min(r.budget, pieceBytes) || room < int(e.Len) {
		_, span := l.run(i, r, pieceBytes)
		dst = slices.Grow(dst, span)
		room = cap(dst) - len(dst)
	}
	run, span := l.run(i, r, room)
	release, ok := l.journal.Hold(e.Segment)
	if !ok {
		return dst, r.from, ErrMoved
	}
	buf := dst[len(dst) : len(dst)+span]
	err = l.journal.ReadAt(e.Segment, buf, e.Pos)
	release()
	if err != nil {
		return dst, r.from, err
	}
	used := 0
	for j := range run {
		x := &run[j]
		b := buf[x.Pos-e.Pos:][:x.Len]
		if !x.matches(b) {
			return dst, r.from, damaged(journalName(x.Segment), x.Pos, "no record batch with offsets %d to %d", x.BaseOffset, x.LastOffset())
		}
		used += copy(buf[used:], b)
		next = x.LastOffset() + 1
	}
	return dst[:len(dst)+used], next, nil
}

// run returns the extents from index i on that one read of at most room bytes brings, and that read's length: they
// lie in one segment, ascending and close together, and fit r. The first one is taken whatever it has.
func (l *Log) run(i int, r reading, room int) (run []Extent, span int) {
	all := l.tail.extents
	first := &all[i]
	end := first.Pos + int64(first.Len)
	total := int64(first.Len)
	n := i + 1
	for ; n < len(all); n++ {
		e := &all[n]
		gap := e.Pos - end
		if e.BaseOffset >= r.upTo || e.Segment != first.Segment || gap < 0 || gap > gapBytes {
			break
		}
		if total += int64(e.Len); total > int64(r.budget) || e.Pos+int64(e.Len)-first.Pos > int64(room) {
			break
		}
		end = e.Pos + int64(e.Len)
	}
	return all[i:n], int(end - first.Pos)
}

// matches reports whether b begins as the batch that e describes.
func (e *Extent) matches(b []byte) bool {
	return len(b) >= record.HeaderSize && b[16] == 2 &&
		int64(binary.BigEndian.Uint64(b)) == e.BaseOffset &&
		int32(binary.BigEndian.Uint32(b[8:]))+12 == e.Len &&
		int32(binary.BigEndian.Uint32(b[23:])) == e.LastDelta
}

func journalName(segment uint64) string { return fmt.Sprintf("journal segment %d", segment) }
