package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sync"

	"github.com/strandline-io/strandline/internal/failpoint"
	"github.com/strandline-io/strandline/internal/vfs"
)

// disk carries out a Core's actions, blocking and without goroutines of its own. Actions of different lanes may
// overlap, and so may reads.
type disk struct {
	fs     vfs.FS
	dir    string
	secret secret

	mu     sync.Mutex
	files  map[uint64]*openSegment
	spares map[uint64]vfs.File // the background lane's alone
}

// openSegment is a segment's file.
type openSegment struct {
	file      vfs.File
	name      string
	fileBytes int64 // reserved so far; of the lane that makes the file, later of the write lane
	named     bool  // its name is durable

	// Guarded by disk.mu.
	refs    int
	freeing bool // wanted, but somebody holds it
}

var errFreed = errors.New("the segment has been freed")

func (d *disk) path(name string) string { return path.Join(d.dir, name) }

// do carries out a and returns what to tell the Core.
func (d *disk) do(a Action) Input {
	in := Input{segment: a.segment, seq: a.seq}
	switch a.kind {
	case actWrite:
		in.kind = inWritten
		in.full, in.err = d.write(a)
	case actSync:
		in.kind, in.err = inSynced, d.sync(a.segments)
	case actFooter:
		in.kind = inFootered
		in.bytes, in.err = d.footer(a)
		in.full = errors.Is(in.err, vfs.ErrNoSpace)
	case actFree:
		return d.free(a)
	case actPrepare:
		in.kind, in.err = inPrepared, d.prepare(a)
	case actSpare:
		in.kind, in.err = inSpare, d.makeSpare(a)
	case actZero:
		in.kind, in.err = inZeroed, d.zero(a)
	}
	return in
}

func (d *disk) lookup(number uint64) *openSegment {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.files[number]
}

func (d *disk) put(number uint64, s *openSegment) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files[number] = s
}

// write writes a group. full is that err is want of space before anything of it was written.
func (d *disk) write(a Action) (full bool, err error) {
	s := d.lookup(a.segment)
	if s == nil || s.fileBytes < a.sizeBytes || !s.named {
		if err := d.ensure(a.segment, a.sizeBytes); err != nil {
			s = d.lookup(a.segment)
			full = errors.Is(err, vfs.ErrNoSpace) && (s == nil || s.fileBytes < a.sizeBytes)
			return full, fmt.Errorf("make room in journal segment %d: %w", a.segment, err)
		}
		s = d.lookup(a.segment)
	}
	if err := s.file.WriteVecAt(a.group.bufs, a.group.pos); err != nil {
		return false, fmt.Errorf("write %s at offset %d: %w", s.name, a.group.pos, err)
	}
	failpoint.Hit("journal.written")
	return false, nil
}

func (d *disk) sync(segments []uint64) error {
	failpoint.Hit("journal.unsynced")
	for _, number := range segments {
		s := d.lookup(number)
		if err := s.file.Sync(); err != nil {
			return fmt.Errorf("sync %s: %w", s.name, err)
		}
	}
	failpoint.Hit("journal.synced")
	return nil
}

// ensure makes the file of a segment if it is missing and reserves sizeBytes for it. The name is durable when it
// returns: no unit in the file can be durable before.
func (d *disk) ensure(number uint64, sizeBytes int64) error {
	s := d.lookup(number)
	if s == nil {
		name := rolledName(number)
		f, err := d.create(name, sizeBytes)
		if err != nil {
			return err
		}
		s = &openSegment{file: f, name: name, fileBytes: sizeBytes}
		d.put(number, s)
	}
	if s.fileBytes < sizeBytes {
		if err := s.file.Allocate(0, sizeBytes); err != nil {
			return err
		}
		s.fileBytes = sizeBytes
	}
	if s.named {
		return nil
	}
	failpoint.Hit("journal.rolled")
	err := d.fs.SyncDir(d.dir)
	s.named = err == nil
	return err
}

// create makes a file of that size, replacing what an attempt before has left.
func (d *disk) create(name string, sizeBytes int64) (vfs.File, error) {
	f, err := d.fs.Create(d.path(name))
	if errors.Is(err, fs.ErrExist) {
		if err = d.fs.Remove(d.path(name)); err == nil {
			f, err = d.fs.Create(d.path(name))
		}
	}
	if err != nil {
		return nil, err
	}
	if err := f.Allocate(0, sizeBytes); err != nil {
		return nil, errors.Join(err, f.Close(), d.fs.Remove(d.path(name)))
	}
	return f, nil
}

func (d *disk) prepare(a Action) error {
	f := d.spares[a.spare]
	if f != nil && d.lookup(a.segment) == nil {
		name := rolledName(a.segment)
		if err := d.fs.Rename(d.path(spareName(a.spare)), d.path(name)); err != nil {
			return err
		}
		delete(d.spares, a.spare)
		d.put(a.segment, &openSegment{file: f, name: name})
	}
	return d.ensure(a.segment, a.sizeBytes)
}

func (d *disk) makeSpare(a Action) error {
	f, err := d.create(spareName(a.spare), a.sizeBytes)
	if err != nil {
		return err
	}
	d.spares[a.spare] = f
	return nil
}

var zeroStep [zeroStepBytes]byte

// zero writes zeros into a part of a file that holds nothing, and syncs them, so that later syncs of that part
// change no metadata.
func (d *disk) zero(a Action) error {
	var f vfs.File
	if a.spare != 0 {
		f = d.spares[a.spare]
	} else if s := d.lookup(a.segment); s != nil {
		f = s.file
	}
	if f == nil {
		return errFreed
	}
	if _, err := f.WriteAt(zeroStep[:a.sizeBytes], a.pos); err != nil {
		return err
	}
	return f.Sync()
}

// footer writes a sealed segment's footer and the pointer to it, and returns the file's size. One sync covers both:
// should a power cut keep only the pointer, the footer fails its CRC and the segment itself is read.
func (d *disk) footer(a Action) (fileBytes int64, err error) {
	s, w := d.lookup(a.segment), a.footer
	defer func() {
		if err != nil {
			err = fmt.Errorf("seal %s: %w", s.name, err)
		}
	}()
	if w.footer == nil {
		if w.footer, err = collectFooter(s, a.segment, w.pointer.lastSeq); err != nil {
			return 0, err
		}
	}
	seed := d.secret.seed(a.segment)
	p := w.pointer
	p.size, p.crc = w.footer.size, w.footer.crc(seed)
	if err := s.file.WriteVecAt(w.footer.chunks, p.pos); err != nil {
		return 0, err
	}
	failpoint.Hit("journal.footer-half")
	if fileBytes, err = s.file.Size(); err != nil {
		return 0, err
	}
	if end := alignUp(p.pos + p.size); w.truncate && end < fileBytes {
		if err := s.file.Truncate(end); err != nil {
			return 0, err
		}
		fileBytes = end
	}
	if err := s.file.WriteVecAt([][]byte{p.encode(seed), zeroBlock[:blockBytes-pointerBytes]}, blockBytes); err != nil {
		return 0, err
	}
	failpoint.Hit("journal.footer-written")
	if err := s.file.Sync(); err != nil {
		return 0, err
	}
	failpoint.Hit("journal.footer-synced")
	return fileBytes, nil
}

// free removes a segment, or renames it to a spare, and makes that durable before the next one is freed: else a
// power cut could leave a gap.
func (d *disk) free(a Action) Input {
	in := Input{kind: inFreed, segment: a.segment}
	d.mu.Lock()
	s := d.files[a.segment]
	if s.refs > 0 {
		s.freeing = true
		d.mu.Unlock()
		in.kind = inHeld
		return in
	}
	delete(d.files, a.segment)
	d.mu.Unlock()
	var err error
	if a.recycle {
		err = d.fs.Rename(d.path(s.name), d.path(spareName(a.spare)))
	} else {
		err = d.fs.Remove(d.path(s.name))
	}
	if err != nil {
		d.put(a.segment, s)
		in.err = err
		return in
	}
	failpoint.Hit("journal.freed")
	if a.recycle {
		d.spares[a.spare] = s.file
	} else {
		_ = s.file.Close() // nothing in it matters any more
	}
	if err := d.fs.SyncDir(d.dir); err != nil {
		in.err, in.fatal = fmt.Errorf("sync folder %s: %w", d.dir, err), true
	}
	return in
}

// hold keeps a segment in the table.
func (d *disk) hold(number uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.files[number]
	if s == nil {
		return false
	}
	s.refs++
	return true
}

// release undoes a hold and reports whether the segment should now be freed.
func (d *disk) release(number uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.files[number]
	s.refs--
	wanted := s.refs == 0 && s.freeing
	s.freeing = s.freeing && s.refs > 0
	return wanted
}

func (d *disk) readAt(number uint64, p []byte, pos int64) error {
	s := d.lookup(number)
	if s == nil {
		return fmt.Errorf("read journal segment %d: %w", number, errFreed)
	}
	if n, err := s.file.ReadAt(p, pos); n < len(p) {
		return fmt.Errorf("read %d bytes of %s at offset %d: %w", len(p), s.name, pos, err)
	}
	return nil
}

// close closes all files. With tidy it first removes what was prepared in vain.
func (d *disk) close(tidy bool, last uint64) error {
	var errs []error
	for id, f := range d.spares {
		errs = append(errs, f.Close())
		if tidy {
			errs = append(errs, d.fs.Remove(d.path(spareName(id))))
		}
	}
	for number, s := range d.files {
		errs = append(errs, s.file.Close())
		if tidy && number > last {
			errs = append(errs, d.fs.Remove(d.path(s.name)))
		}
	}
	return errors.Join(errs...)
}
