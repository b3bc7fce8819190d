package vfs

import (
	"errors"
	"io"
	"io/fs"
	"maps"
)

// pageBytes is the unit in which unsynced bytes survive a power cut or do not.
const pageBytes = 4096

// maxVersions bounds what is remembered of a page that is written over and over without a sync.
const maxVersions = 8

type page = [pageBytes]byte

// zeroPage stands for reserved space. It is never written.
var zeroPage = new(page)

// inode holds a file's bytes, now and as a power cut may leave them. Pages are never changed once stored.
type inode struct {
	size  int64
	pages map[int64]*page // missing: a hole
	// dirty holds the versions of every page that was written since the last Sync, the synced one first and the
	// current one last; nil is a hole. lost holds those of pages that a failed Sync has forgotten.
	dirty, lost map[int64][]*page
	sizes       []int64 // in the same way
}

func newFile() *memNode {
	n := &memNode{}
	n.inode = inode{
		pages: make(map[int64]*page), dirty: make(map[int64][]*page), lost: make(map[int64][]*page), sizes: []int64{0},
	}
	return n
}

func (n *inode) allocatedBytes() int64 { return int64(len(n.pages)) * pageBytes }

func (n *inode) setPage(i int64, p *page) {
	old := n.pages[i]
	if p == nil {
		delete(n.pages, i)
	} else {
		n.pages[i] = p
	}
	versions := n.dirty[i]
	if versions == nil {
		versions = []*page{old}
	}
	if len(versions) == maxVersions {
		versions = append(versions[:1], versions[2:]...)
	}
	n.dirty[i] = append(versions, p)
}

func (n *inode) setSize(size int64) {
	if size == n.size {
		return
	}
	n.size = size
	if len(n.sizes) == maxVersions {
		n.sizes = append(n.sizes[:1], n.sizes[2:]...)
	}
	n.sizes = append(n.sizes, size)
}

func (n *inode) read(p []byte, off int64) int {
	done := 0
	for done < len(p) && off < n.size {
		in := off % pageBytes
		part := min(int64(len(p)-done), pageBytes-in, n.size-off)
		if pg := n.pages[off/pageBytes]; pg != nil {
			copy(p[done:], pg[in:in+part])
		} else {
			clear(p[done : done+int(part)])
		}
		done += int(part)
		off += part
	}
	return done
}

// write stores p at off. The caller has checked that there is space.
func (n *inode) write(p []byte, off int64) {
	for len(p) > 0 {
		i, in := off/pageBytes, off%pageBytes
		next := new(page)
		if old := n.pages[i]; old != nil {
			*next = *old
		}
		part := copy(next[in:], p)
		n.setPage(i, next)
		p = p[part:]
		off += int64(part)
		n.setSize(max(n.size, off))
	}
}

// missing is how many bytes [off, end) needs beyond what is reserved.
func (n *inode) missing(off, end int64) int64 {
	var pages int64
	for i := off / pageBytes; i*pageBytes < end; i++ {
		if n.pages[i] == nil {
			pages++
		}
	}
	return pages * pageBytes
}

// memFile is an open file of a Mem.
type memFile struct {
	m      *Mem
	name   string
	node   *memNode
	closed bool
}

// begin checks that the file may be used. It is called with m.mu held.
func (f *memFile) begin(name string, op Op) error {
	err := f.m.enter(op)
	if err == nil && f.closed {
		err = fs.ErrClosed
	}
	if err != nil {
		return &fs.PathError{Op: name, Path: f.name, Err: err}
	}
	return nil
}

func (f *memFile) fail(name string, err error) error {
	return &fs.PathError{Op: name, Path: f.name, Err: err}
}

// reserve takes the space that [off, end) still needs from the disk.
func (f *memFile) reserve(name string, off, end int64) error {
	need := f.node.missing(off, end)
	if f.m.capacity >= 0 && f.m.used+need > f.m.capacity {
		return f.fail(name, ErrNoSpace)
	}
	f.m.used += need
	return nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.begin("read", OpRead); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, f.fail("read", fs.ErrInvalid)
	}
	n := f.node.read(p, off)
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.WriteVecAt([][]byte{p}, off); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (f *memFile) WriteVecAt(bufs [][]byte, off int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	err := f.begin("write", OpWrite)
	if errors.Is(err, ErrCrashed) || f.closed {
		return err
	}
	if off < 0 {
		return f.fail("write", fs.ErrInvalid)
	}
	end := off
	for _, b := range bufs {
		end += int64(len(b))
	}
	whole := err == nil
	if !whole {
		end = off + (end-off)/2/pageBytes*pageBytes
	}
	if spaceErr := f.reserve("write", off, end); spaceErr != nil {
		return spaceErr
	}
	for _, b := range bufs {
		b = b[:min(int64(len(b)), end-off)]
		f.node.write(b, off)
		off += int64(len(b))
	}
	return err
}

func (f *memFile) Sync() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	n := f.node
	err := f.begin("sync", OpSync)
	if errors.Is(err, ErrCrashed) || f.closed {
		return err
	}
	if err != nil {
		for i, versions := range n.dirty {
			if first, ok := n.lost[i]; ok {
				versions = append([]*page{first[0]}, versions[1:]...)
			}
			n.lost[i] = versions
		}
		clear(n.dirty)
		return err
	}
	for i := range n.dirty {
		delete(n.lost, i)
	}
	clear(n.dirty)
	n.sizes = append(n.sizes[:0], n.size)
	return nil
}

func (f *memFile) Allocate(off, length int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.begin("allocate", OpAllocate); err != nil {
		return err
	}
	if off < 0 || length <= 0 || off+length < 0 {
		return f.fail("allocate", fs.ErrInvalid)
	}
	end := off + length
	if err := f.reserve("allocate", off, end); err != nil {
		return err
	}
	for i := off / pageBytes; i*pageBytes < end; i++ {
		if f.node.pages[i] == nil {
			f.node.pages[i] = zeroPage
		}
	}
	f.node.setSize(max(f.node.size, end))
	return nil
}

func (f *memFile) Truncate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.begin("truncate", OpAllocate); err != nil {
		return err
	}
	if size < 0 {
		return f.fail("truncate", fs.ErrInvalid)
	}
	n := f.node
	before := n.allocatedBytes()
	for i := range maps.Clone(n.pages) {
		if i*pageBytes >= size {
			n.setPage(i, nil)
		}
	}
	if in := size % pageBytes; in > 0 && n.pages[size/pageBytes] != nil {
		cut := *n.pages[size/pageBytes]
		clear(cut[in:])
		n.setPage(size/pageBytes, &cut)
	}
	n.setSize(size)
	f.m.used -= before - n.allocatedBytes()
	return nil
}

func (f *memFile) Size() (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.m.dead {
		return 0, f.fail("size", ErrCrashed)
	}
	if f.closed {
		return 0, f.fail("size", fs.ErrClosed)
	}
	return f.node.size, nil
}

func (f *memFile) Close() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.m.dead {
		return f.fail("close", ErrCrashed)
	}
	if f.closed {
		return f.fail("close", fs.ErrClosed)
	}
	f.closed = true
	f.node.handles--
	f.m.release(f.node)
	return nil
}
