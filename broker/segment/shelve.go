package segment

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"

	"github.com/strandline-io/strandline/broker/record"
	"github.com/strandline-io/strandline/internal/failpoint"
	"github.com/strandline-io/strandline/internal/vfs"
)

// appender knows how the newest file of a partition goes on. It is the owner's.
type appender struct {
	file  *file
	index indexBuilder
	next  int64 // no batch may begin below
}

// move is one partition's part of a Shelve: its files as they will be published, and writes not yet done.
type move struct {
	*partition
	files   []fileRef // copied from the published ones, then changed
	created []*file
	newDir  bool
	dirty   bool // the newest file has bytes that are not synced

	pending    [][]byte
	pendingPos int64
}

// Shelve copies batches out of the journal into their partitions' files and makes them durable there: each touched
// file is synced once, at the end. It returns the lengths to be journaled, one per partition named in batches, in
// order of their ids; only when those are durable may the journal segment be freed. Batches of one partition must
// come in ascending order; those that the files hold already are left out, so a Shelve may be repeated. The caller leaves
// out partitions that are gone. Batches should come in the journal's order: it is then read once, in large pieces.
//
// After an error the files may hold more than is known; nothing of it is ever read, and the next Shelve or Open
// writes over it. The error wraps ErrCorrupt if a batch in the journal is not what its extent and its CRC say.
func (s *Store) Shelve(j Journal, batches []Shelving) ([]Length, error) {
	sh := shelver{store: s, journal: j, moves: make(map[uint32]*move)}
	if err := sh.run(batches); err != nil {
		return nil, errors.Join(err, sh.undo())
	}
	return sh.publish(), nil
}

// maxPos is a position beyond every journal segment whose sum with a length does not wrap.
const maxPos = 1 << 62

type shelver struct {
	store   *Store
	journal Journal
	moves   map[uint32]*move
	touched []*move // in order of first touch within the window
	window  []byte
}

func (sh *shelver) run(batches []Shelving) error {
	for i := range batches {
		if e := &batches[i]; e.Pos < 0 || e.Pos > maxPos || e.Len < record.HeaderSize || e.LastDelta < 0 || e.BaseOffset < 0 {
			return damaged(journalName(e.Segment), e.Pos, "impossible extent %+v of partition %d", e.Extent, e.Partition)
		}
	}
	if !slices.IsSortedFunc(batches, byPlace) {
		batches = slices.Clone(batches)
		slices.SortStableFunc(batches, byPlace)
	}
	for len(batches) > 0 {
		n, span := sh.nextWindow(batches)
		if err := sh.copyWindow(batches[:n], span); err != nil {
			return err
		}
		batches = batches[n:]
	}
	failpoint.Hit("shelve.copied")
	newDirs := false
	for _, m := range sh.ordered() {
		if err := sh.settle(m); err != nil {
			return err
		}
		newDirs = newDirs || m.newDir
	}
	if newDirs {
		return syncDir(sh.store.fs, sh.store.cfg.Dir)
	}
	return nil
}

func byPlace(a, b Shelving) int {
	return cmp.Or(cmp.Compare(a.Segment, b.Segment), cmp.Compare(a.Pos, b.Pos))
}

// nextWindow says how many batches the next window takes and how many bytes of the journal it spans.
func (sh *shelver) nextWindow(batches []Shelving) (n int, span int64) {
	first := &batches[0]
	end := first.Pos + int64(first.Len)
	for n = 1; n < len(batches); n++ {
		e := &batches[n]
		if e.Segment != first.Segment || e.Pos < end || e.Pos-end > pieceBytes ||
			e.Pos+int64(e.Len)-first.Pos > int64(sh.store.cfg.WindowBytes) {
			break
		}
		end = e.Pos + int64(e.Len)
	}
	return n, end - first.Pos
}

// copyWindow reads one window of the journal and writes its batches to their files, one vector per partition.
func (sh *shelver) copyWindow(batches []Shelving, span int64) error {
	first := &batches[0]
	if int64(cap(sh.window)) < span {
		sh.window = make([]byte, max(span, int64(sh.store.cfg.WindowBytes)))
	}
	window := sh.window[:span]
	if err := sh.readWindow(window, first.Segment, first.Pos); err != nil {
		return err
	}
	sh.touched = sh.touched[:0]
	for i := range batches {
		e := &batches[i]
		if err := sh.take(e, window[e.Pos-first.Pos:][:e.Len]); err != nil {
			return err
		}
	}
	for i, m := range sh.touched {
		if i > 0 && i == len(sh.touched)/2 {
			failpoint.Hit("shelve.half")
		}
		if err := sh.flush(m); err != nil {
			return err
		}
	}
	return nil
}

func (sh *shelver) readWindow(window []byte, segment uint64, pos int64) error {
	release, ok := sh.journal.Hold(segment)
	if !ok {
		return fmt.Errorf("shelve %s: %w", journalName(segment), ErrMoved)
	}
	defer release()
	for done := 0; done < len(window); {
		n := min(pieceBytes, len(window)-done)
		if err := sh.journal.ReadAt(segment, window[done:done+n], pos+int64(done)); err != nil {
			return fmt.Errorf("shelve %s at byte %d: %w", journalName(segment), pos+int64(done), err)
		}
		done += n
	}
	return nil
}

// take notes one batch for its partition's file, beginning a new file where one is due.
func (sh *shelver) take(e *Shelving, b []byte) error {
	m, err := sh.move(e.Partition)
	if err != nil {
		return err
	}
	if e.LastOffset() < m.endOffset {
		return nil
	}
	h, err := record.ParseHeader(b)
	if err != nil || h.BaseOffset != e.BaseOffset || h.LastOffsetDelta != e.LastDelta || h.SizeBytes != e.Len || !record.CheckCRC(b) {
		return damaged(journalName(e.Segment), e.Pos, "not the record batch of partition %d with offsets %d to %d and %d bytes", e.Partition, e.BaseOffset, e.LastOffset(), e.Len)
	}
	if err := sh.makeRoom(m, &h, sh.fileBytes(e)); err != nil {
		return err
	}
	a := m.tail
	if h.BaseOffset < a.next {
		panic(fmt.Sprintf("BUG: shelving a batch of partition %d with base offset %d behind offset %d", e.Partition, h.BaseOffset, a.next-1))
	}
	if len(m.pending) == 0 {
		m.pendingPos = a.index.coveredBytes
		sh.touched = append(sh.touched, m)
	}
	m.add(b)
	a.index.add(a.index.coveredBytes, &h)
	a.next = h.NextOffset()
	ref := m.newest()
	ref.sizeBytes, ref.endOffset = a.index.coveredBytes, a.next
	return nil
}

// add appends b to the vector, as one slice with the last one where both lie side by side in the window. No slice is
// longer than a piece.
func (m *move) add(b []byte) {
	if n := len(m.pending); n > 0 {
		last := m.pending[n-1]
		joined := last[:min(len(last)+len(b), cap(last), pieceBytes)]
		if len(joined) > len(last) && &joined[len(last)] == &b[0] {
			m.pending[n-1] = joined
			b = b[len(joined)-len(last):]
		}
	}
	for len(b) > 0 {
		n := min(len(b), pieceBytes)
		m.pending = append(m.pending, b[:n])
		b = b[n:]
	}
}

func (m *move) newest() *fileRef { return &m.files[len(m.files)-1] }

// move finds or begins a partition's part.
func (sh *shelver) move(id uint32) (*move, error) {
	if m := sh.moves[id]; m != nil {
		return m, nil
	}
	s := sh.store
	s.mu.Lock()
	p := s.partitions[id]
	if p == nil {
		p = &partition{id: id, dir: s.partitionDir(id)}
	}
	s.mu.Unlock()
	m := &move{partition: p, files: slices.Clone(p.files)}
	sh.moves[id] = m
	if len(p.files) == 0 {
		m.newDir = true
		if err := s.fs.MkdirAll(p.dir); err != nil {
			return nil, fmt.Errorf("make folder %s: %w", p.dir, err)
		}
		return m, nil
	}
	if p.tail == nil && !m.newest().sealed {
		if err := s.loadTail(m); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// loadTail reads how the newest file of a partition goes on.
func (s *Store) loadTail(m *move) (err error) {
	ref := m.newest()
	h, err := s.handles.acquire(ref.file)
	if err != nil {
		return err
	}
	b, err := s.loadIndex(ref, h, ref.sizeBytes)
	if err = errors.Join(err, s.handles.release(h)); err != nil {
		return err
	}
	m.tail = &appender{file: ref.file, index: b, next: m.partition.endOffset}
	return nil
}

func (sh *shelver) fileBytes(e *Shelving) int64 {
	limit := sh.store.cfg.SegmentBytes
	if e.FileBytes > 0 {
		limit = min(limit, e.FileBytes)
	}
	return limit
}

// makeRoom begins a new file if there is none, or the batch of h does not fit.
func (sh *shelver) makeRoom(m *move, h *record.Header, fileBytes int64) error {
	if a := m.tail; a != nil {
		full := a.index.coveredBytes > 0 && a.index.coveredBytes+int64(h.SizeBytes) > fileBytes
		if !full && h.LastOffset()-a.file.base <= math.MaxInt32 {
			return nil
		}
		if err := sh.flush(m); err != nil {
			return err
		}
		a.index.addTime()
		m.newest().sealed = true
		if err := sh.syncNewest(m); err != nil {
			return err
		}
	}
	f := m.newFile(h.BaseOffset)
	if err := createEmpty(sh.store.fs, f.logName()); err != nil {
		return err
	}
	m.created = append(m.created, f)
	m.tail = &appender{file: f, index: newIndexBuilder(f.base, &sh.store.cfg), next: m.endOffset}
	m.files = append(m.files, fileRef{file: f, endOffset: h.BaseOffset})
	return nil
}

// createEmpty makes a file, emptying what an earlier, failed attempt left.
func createEmpty(fsys vfs.FS, name string) error {
	f, err := fsys.Create(name)
	if errors.Is(err, fs.ErrExist) {
		if f, err = fsys.Open(name); err == nil {
			err = f.Truncate(0)
		}
	}
	if f != nil {
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	return nil
}

// flush writes what is pending for a partition, in pieces.
func (sh *shelver) flush(m *move) error {
	if len(m.pending) == 0 {
		return nil
	}
	ref := m.newest()
	h, err := sh.store.handles.acquire(ref.file)
	if err != nil {
		return err
	}
	pos := m.pendingPos
	for rest := m.pending; len(rest) > 0 && err == nil; {
		n, size := piece(rest)
		err = h.WriteVecAt(rest[:n], pos)
		rest, pos = rest[n:], pos+size
	}
	if err != nil {
		err = fmt.Errorf("write %s: %w", ref.logName(), err)
	}
	clear(m.pending)
	m.pending, m.dirty = m.pending[:0], true
	return errors.Join(err, sh.store.handles.release(h))
}

// piece says how many slices of bufs make one write, and their length.
func piece(bufs [][]byte) (n int, size int64) {
	size = int64(len(bufs[0]))
	for n = 1; n < len(bufs) && size+int64(len(bufs[n])) <= pieceBytes; n++ {
		size += int64(len(bufs[n]))
	}
	return n, size
}

// syncNewest makes the newest file durable, and its index files if they are due.
func (sh *shelver) syncNewest(m *move) error {
	s, ref := sh.store, m.newest()
	h, err := s.handles.acquire(ref.file)
	if err != nil {
		return err
	}
	if err = h.Sync(); err != nil {
		err = fmt.Errorf("sync %s: %w", ref.logName(), err)
	}
	if err = errors.Join(err, s.handles.release(h)); err != nil {
		return err
	}
	m.dirty = false
	before := int64(0)
	if n := len(m.partition.files); n > 0 && m.partition.files[n-1].file == ref.file {
		before = m.partition.files[n-1].sizeBytes
	}
	due := ref.sealed || s.trusted(before) != s.trusted(ref.sizeBytes)
	return s.saveIndex(ref.file, &m.tail.index, due)
}

func syncDir(fsys vfs.FS, dir string) error {
	if err := fsys.SyncDir(dir); err != nil {
		return fmt.Errorf("sync folder %s: %w", dir, err)
	}
	return nil
}

// settle makes everything of one partition durable.
func (sh *shelver) settle(m *move) error {
	s := sh.store
	if m.dirty {
		if err := sh.syncNewest(m); err != nil {
			return err
		}
	}
	if len(m.created) > 0 {
		return syncDir(s.fs, m.dir)
	}
	return nil
}

func (sh *shelver) ordered() []*move {
	all := make([]*move, 0, len(sh.moves))
	for _, m := range sh.moves {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *move) int { return cmp.Compare(a.id, b.id) })
	return all
}

// publish lets readers see what was moved.
func (sh *shelver) publish() []Length {
	s := sh.store
	lengths := make([]Length, 0, len(sh.moves))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range sh.ordered() {
		p := m.partition
		p.files = m.files
		if len(p.files) > 0 {
			p.endOffset = max(p.endOffset, m.newest().endOffset)
		}
		s.partitions[p.id] = p
		if p.tail != nil {
			s.handles.setIndex(p.tail.file, p.tail.index.snapshot())
		}
		lengths = append(lengths, p.length())
	}
	return lengths
}

// undo gives up what a failed Shelve knows beyond what is published.
func (sh *shelver) undo() error {
	var errs []error
	for _, m := range sh.ordered() {
		m.tail = nil
		for _, f := range m.created {
			errs = append(errs, sh.store.handles.forget(f))
		}
	}
	return errors.Join(errs...)
}
