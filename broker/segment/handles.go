package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/strandline-io/strandline/internal/vfs"
)

// file is one .log file of a partition with its two indexes. Its bytes only ever grow, and only at the end.
type file struct {
	base  int64
	name  string // without ending
	log   string // name of the .log file
	index atomic.Pointer[fileIndex]

	// Guarded by handles.mu.
	handle     *handle
	prev, next *file
	removed    bool
}

func (f *file) logName() string   { return f.log }
func (f *file) indexName() string { return f.name + ".index" }
func (f *file) timesName() string { return f.name + ".timeindex" }

// handle is an open .log file. refs and detached are guarded by handles.mu.
type handle struct {
	vfs.File
	sizeBytes int64 // when it was opened
	refs      int
	detached  bool
}

// handles keeps at most max .log files open, besides those that are in use at this moment, the least recently used
// going first. The index in memory goes with the descriptor. No lock is held while the disk is asked: two that open
// the same file at once both do, and one closes again.
type handles struct {
	fs  vfs.FS
	max int

	mu     sync.Mutex
	root   file // ring of open files, most recently used first
	count  int
	closed bool
}

func (hs *handles) init(fsys vfs.FS, maxOpen int) {
	hs.fs, hs.max = fsys, maxOpen
	hs.root.prev, hs.root.next = &hs.root, &hs.root
}

// acquire returns f's open file; release must follow. The error is ErrMoved when f was removed.
func (hs *handles) acquire(f *file) (*handle, error) {
	hs.mu.Lock()
	if h, ok := hs.use(f); ok {
		hs.mu.Unlock()
		return h, nil
	}
	removed, closed := f.removed, hs.closed
	hs.mu.Unlock()
	if removed {
		return nil, ErrMoved
	}
	if closed {
		return nil, fmt.Errorf("open %s: store: %w", f.logName(), fs.ErrClosed)
	}
	opened, err := hs.open(f)
	if err != nil {
		return nil, err
	}

	hs.mu.Lock()
	h, ok := hs.use(f)
	if !ok && !f.removed && !hs.closed {
		h, opened = opened, nil
		h.refs = 1
		f.handle = h
		hs.pushFront(f)
	}
	victim := hs.evict()
	hs.mu.Unlock()
	err = errors.Join(closeHandle(opened), closeHandle(victim))
	if h == nil {
		return nil, errors.Join(ErrMoved, err)
	}
	if err != nil {
		return nil, errors.Join(err, hs.release(h))
	}
	return h, nil
}

func (hs *handles) open(f *file) (*handle, error) {
	opened, err := hs.fs.Open(f.logName())
	if errors.Is(err, fs.ErrNotExist) {
		hs.mu.Lock()
		removed := f.removed
		hs.mu.Unlock()
		if removed {
			return nil, ErrMoved
		}
		return nil, damaged(f.logName(), 0, "file is missing")
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", f.logName(), err)
	}
	size, err := opened.Size()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("size of %s: %w", f.logName(), err), opened.Close())
	}
	return &handle{File: opened, sizeBytes: size}, nil
}

// use takes a reference to f's handle if it has one. hs.mu is held.
func (hs *handles) use(f *file) (*handle, bool) {
	h := f.handle
	if h == nil {
		return nil, false
	}
	h.refs++
	if hs.root.next != f {
		hs.unlink(f)
		hs.pushFront(f)
	}
	return h, true
}

func (hs *handles) release(h *handle) error {
	hs.mu.Lock()
	h.refs--
	var victim *handle
	switch {
	case h.refs > 0:
	case h.detached:
		victim = h
	default:
		victim = hs.evict()
	}
	hs.mu.Unlock()
	return closeHandle(victim)
}

// evict detaches the least recently used file that nobody uses, if there are too many. hs.mu is held.
func (hs *handles) evict() *handle {
	if hs.count <= hs.max {
		return nil
	}
	for f := hs.root.prev; f != &hs.root; f = f.prev {
		if f.handle.refs == 0 {
			return hs.detach(f)
		}
	}
	return nil
}

// detach ends the cache's hold on f's handle and returns it if it may be closed now. hs.mu is held.
func (hs *handles) detach(f *file) *handle {
	h := f.handle
	if h == nil {
		return nil
	}
	f.handle = nil
	f.index.Store(nil)
	h.detached = true
	hs.unlink(f)
	if h.refs > 0 {
		return nil
	}
	return h
}

// forget makes every later acquire of f fail with ErrMoved.
func (hs *handles) forget(f *file) error {
	hs.mu.Lock()
	f.removed = true
	h := hs.detach(f)
	hs.mu.Unlock()
	return closeHandle(h)
}

// closeAll closes what is open; files in use close when they are released, others open no more.
func (hs *handles) closeAll() error {
	var errs []error
	hs.mu.Lock()
	hs.closed = true
	hs.mu.Unlock()
	for {
		hs.mu.Lock()
		f := hs.root.prev
		if f == &hs.root {
			hs.mu.Unlock()
			return errors.Join(errs...)
		}
		h := hs.detach(f)
		hs.mu.Unlock()
		errs = append(errs, closeHandle(h))
	}
}

// setIndex gives f an index in memory, if f is open.
func (hs *handles) setIndex(f *file, x *fileIndex) {
	hs.mu.Lock()
	if f.handle != nil {
		f.index.Store(x)
	}
	hs.mu.Unlock()
}

// swapIndex is setIndex if f's index still is old.
func (hs *handles) swapIndex(f *file, old, x *fileIndex) {
	hs.mu.Lock()
	if f.handle != nil {
		f.index.CompareAndSwap(old, x)
	}
	hs.mu.Unlock()
}

func (hs *handles) pushFront(f *file) {
	f.prev, f.next = &hs.root, hs.root.next
	f.prev.next, f.next.prev = f, f
	hs.count++
}

func (hs *handles) unlink(f *file) {
	f.prev.next, f.next.prev = f.next, f.prev
	f.prev, f.next = nil, nil
	hs.count--
}

func closeHandle(h *handle) error {
	if h == nil {
		return nil
	}
	return h.Close()
}
