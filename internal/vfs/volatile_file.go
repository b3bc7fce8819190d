package vfs

import (
	"io"
	"io/fs"
	"maps"
	"slices"
)

// volInode is a file's content: the file on under, and what that does not have yet.
type volInode struct {
	file    File // nil unless the file is open or dirty
	handles int
	dirty   bool // it is in volatileFS.dirty

	size     int64
	onDisk   int64 // size on under
	cut      int64 // the least size since onDisk was right: from here on what under holds is gone
	from, to int64 // space to be reserved
	sectors  map[int64]*volSector
}

// volSector is a sector that under does not have yet.
type volSector struct {
	n       *volNode
	index   int64
	pending bool
	data    [sectorBytes]byte
}

func (n *volNode) open(under FS, name string) error {
	f, err := under.Open(name)
	if err != nil {
		return err
	}
	size, err := f.Size()
	if err != nil {
		return err
	}
	n.file, n.size, n.onDisk, n.cut = f, size, size, size
	return nil
}

// unsynced reports whether under lacks anything of the content.
func (n *volInode) unsynced() bool {
	return len(n.sectors) > 0 || n.size != n.onDisk || n.cut != n.onDisk || n.from < n.to
}

// read fills p from off on with what was written, and zeros where nothing was.
func (n *volInode) read(p []byte, off int64) error {
	end := off + int64(len(p))
	have := max(0, min(end, n.cut)-off)
	if have > 0 {
		if got, err := n.file.ReadAt(p[:have], off); int64(got) < have {
			return err
		}
	}
	clear(p[have:])
	if len(n.sectors) == 0 {
		return nil
	}
	for i := off / sectorBytes; i*sectorBytes < end; i++ {
		if s := n.sectors[i]; s != nil {
			start := i * sectorBytes
			copy(p[max(0, start-off):], s.data[max(0, off-start):])
		}
	}
	return nil
}

// write keeps p at off.
func (v *volatileFS) write(n *volNode, p []byte, off int64) error {
	for len(p) > 0 {
		i, in := off/sectorBytes, off%sectorBytes
		part := min(int64(len(p)), sectorBytes-in)
		s := n.sectors[i]
		if s == nil {
			s = &volSector{n: n, index: i, pending: true}
			if part < sectorBytes {
				if err := n.read(s.data[:], i*sectorBytes); err != nil {
					return err
				}
			}
			if n.sectors == nil {
				n.sectors = make(map[int64]*volSector)
			}
			n.sectors[i] = s
			v.queue = append(v.queue, s)
			v.pending++
		}
		copy(s.data[in:], p[:part])
		p, off = p[part:], off+part
		n.size = max(n.size, off)
		v.touch(n)
		v.bound()
	}
	return nil
}

// touch notes that under lacks something of n.
func (v *volatileFS) touch(n *volNode) {
	if n.unsynced() && !n.dirty {
		n.dirty = true
		v.dirty = append(v.dirty, n)
	}
}

// forget drops a sector.
func (v *volatileFS) forget(s *volSector) {
	s.pending = false
	delete(s.n.sectors, s.index)
	v.pending--
}

// volFile is an open file.
type volFile struct {
	v      *volatileFS
	n      *volNode
	name   string
	closed bool
}

func (f *volFile) error(op string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: f.name, Err: err}
}

// use runs a call that changes the file.
func (f *volFile) use(op string, do func() error) error {
	f.v.mu.Lock()
	defer f.v.mu.Unlock()
	if f.closed {
		return f.error(op, fs.ErrClosed)
	}
	return f.error(op, do())
}

func (f *volFile) ReadAt(p []byte, off int64) (int, error) {
	f.v.mu.RLock()
	defer f.v.mu.RUnlock()
	switch {
	case f.closed:
		return 0, f.error("read", fs.ErrClosed)
	case off < 0:
		return 0, f.error("read", fs.ErrInvalid)
	}
	n := int(max(0, min(int64(len(p)), f.n.size-off)))
	if err := f.n.read(p[:n], off); err != nil {
		return 0, f.error("read", err)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *volFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.WriteVecAt([][]byte{p}, off); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (f *volFile) WriteVecAt(bufs [][]byte, off int64) error {
	return f.use("write", func() error {
		if off < 0 {
			return fs.ErrInvalid
		}
		for _, b := range bufs {
			if err := f.v.write(f.n, b, off); err != nil {
				return err
			}
			off += int64(len(b))
		}
		f.v.breathe()
		return nil
	})
}

// Sync brings to under what was written before it began; what is written meanwhile may come along.
func (f *volFile) Sync() error {
	return f.use("sync", func() error {
		v, n := f.v, f.n
		runs := v.runs(n)
		if v.rng.IntN(2) == 0 {
			v.turn()
			if err := v.writeSize(n); err != nil {
				return v.fail(err)
			}
		}
		v.turn()
		for i, run := range runs {
			if i > 0 && i == len(runs)/2 {
				v.turn()
			}
			if err := v.writeRun(n, run); err != nil {
				return v.fail(err)
			}
		}
		if err := v.writeSize(n); err != nil {
			return v.fail(err)
		}
		v.rest(n)
		return v.failed
	})
}

// runs cuts what is pending of a file into pieces of adjacent sectors, in any order.
func (v *volatileFS) runs(n *volNode) [][]*volSector {
	var runs [][]*volSector
	left := 0
	for _, i := range slices.Sorted(maps.Keys(n.sectors)) {
		if left == 0 || n.sectors[i-1] == nil {
			runs, left = append(runs, nil), 1+v.rng.IntN(128)
		}
		runs[len(runs)-1] = append(runs[len(runs)-1], n.sectors[i])
		left--
	}
	v.rng.Shuffle(len(runs), func(i, j int) { runs[i], runs[j] = runs[j], runs[i] })
	return runs
}

func (f *volFile) Allocate(off, length int64) error {
	return f.use("allocate", func() error {
		if off < 0 || length <= 0 || off+length < 0 {
			return fs.ErrInvalid
		}
		n := f.n
		if n.from == n.to {
			n.from, n.to = off, off+length
		}
		n.from, n.to = min(n.from, off), max(n.to, off+length)
		n.size = max(n.size, off+length)
		f.v.touch(n)
		f.v.breathe()
		return nil
	})
}

func (f *volFile) Truncate(size int64) error {
	return f.use("truncate", func() error {
		if size < 0 {
			return fs.ErrInvalid
		}
		f.v.truncate(f.n, size)
		f.v.touch(f.n)
		f.v.breathe()
		return nil
	})
}

func (v *volatileFS) truncate(n *volNode, size int64) {
	if size < n.size {
		for _, i := range slices.Sorted(maps.Keys(n.sectors)) {
			switch start := i * sectorBytes; {
			case start >= size:
				v.forget(n.sectors[i])
			case start+sectorBytes > size:
				clear(n.sectors[i].data[size-start:])
			}
		}
	}
	n.size, n.cut = size, min(n.cut, size)
	n.from, n.to = min(n.from, size), min(n.to, size)
}

func (f *volFile) Size() (int64, error) {
	f.v.mu.RLock()
	defer f.v.mu.RUnlock()
	if f.closed {
		return 0, f.error("size", fs.ErrClosed)
	}
	return f.n.size, nil
}

func (f *volFile) Close() error {
	return f.use("close", func() error {
		f.closed = true
		f.n.handles--
		f.v.handles--
		f.v.rest(f.n)
		return nil
	})
}
