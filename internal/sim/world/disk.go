package world

import (
	"errors"

	"github.com/strandline-io/strandline/internal/vfs"
)

// slowDisk lets virtual time pass within the calls of coroutines that work on the disk, so that others come between.
type slowDisk struct {
	*vfs.Mem
	w *World
	p *process
}

func (d *slowDisk) pause() {
	if c := d.w.current; c != nil && c.onDisk && !d.p.dead {
		c.sleep(20 + d.w.Int64N(800))
	}
}

func (d *slowDisk) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &slowFile{f, d}, nil
}

func (d *slowDisk) Create(name string) (vfs.File, error) {
	d.pause()
	return d.wrap(d.Mem.Create(name))
}

func (d *slowDisk) Open(name string) (vfs.File, error) {
	d.pause()
	return d.wrap(d.Mem.Open(name))
}

func (d *slowDisk) Rename(oldName, newName string) error {
	d.pause()
	return d.Mem.Rename(oldName, newName)
}

func (d *slowDisk) Remove(name string) error {
	d.pause()
	return d.Mem.Remove(name)
}

func (d *slowDisk) SyncDir(dir string) error {
	d.pause()
	return d.Mem.SyncDir(dir)
}

type slowFile struct {
	vfs.File
	d *slowDisk
}

func (f *slowFile) WriteAt(p []byte, off int64) (int, error) {
	f.d.pause()
	return f.File.WriteAt(p, off)
}

func (f *slowFile) WriteVecAt(bufs [][]byte, off int64) error {
	f.d.pause()
	return f.File.WriteVecAt(bufs, off)
}

func (f *slowFile) Sync() error {
	f.d.pause()
	return f.File.Sync()
}

func (f *slowFile) Allocate(off, n int64) error {
	f.d.pause()
	return f.File.Allocate(off, n)
}

func (f *slowFile) Truncate(size int64) error {
	f.d.pause()
	return f.File.Truncate(size)
}

// diskIsDead reports that a planned crash within a call has happened.
func (w *World) diskIsDead() bool {
	_, err := w.disk.List(".")
	return errors.Is(err, vfs.ErrCrashed)
}

var errInjected = errors.New("the simulated disk failed")
