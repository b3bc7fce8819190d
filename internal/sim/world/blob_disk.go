package world

import (
	"strings"

	"github.com/strandline-io/strandline/internal/vfs"
)

// blobDisk is the disk of a folder as one process sees it: time passes within each call that changes something, so that
// others come between, and so that the process can die there.
type blobDisk struct {
	*vfs.Mem
	p *blobPlace
	r *blobRuntime
}

// begin lets time pass and plans what fails.
func (d *blobDisk) begin(op vfs.Op) {
	if op != vfs.OpRead && op != vfs.OpOpen {
		d.r.sleep(20 + d.p.Int64N(900))
		d.p.hooks.inCall(d.r)
	}
	if n, ok := d.p.diskFaults[op]; ok && !d.p.calm {
		if d.p.diskFaults[op] = n - 1; n == 1 {
			delete(d.p.diskFaults, op)
			d.Mem.FailNext(op, 0, errInjected)
		}
	}
}

func (d *blobDisk) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &blobFile{f, d}, nil
}

func (d *blobDisk) Create(name string) (vfs.File, error) {
	d.begin(vfs.OpCreate)
	return d.wrap(d.Mem.Create(name))
}

func (d *blobDisk) Open(name string) (vfs.File, error) {
	d.begin(vfs.OpOpen)
	return d.wrap(d.Mem.Open(name))
}

func (d *blobDisk) Rename(oldName, newName string) error {
	d.begin(vfs.OpRename)
	err := d.Mem.Rename(oldName, newName)
	d.named(newName, err)
	return err
}

func (d *blobDisk) Link(oldName, newName string) error {
	d.begin(vfs.OpRename)
	err := d.Mem.Link(oldName, newName)
	d.named(newName, err)
	if err == nil {
		d.p.hooks.linked(d.r)
	}
	return err
}

// named is called for names that a file was given.
func (d *blobDisk) named(name string, err error) {
	if err == nil && strings.HasSuffix(name, ".avro") {
		d.p.hooks.published(name)
	}
}

func (d *blobDisk) Remove(name string) error {
	d.begin(vfs.OpRemove)
	return d.Mem.Remove(name)
}

func (d *blobDisk) SyncDir(dir string) error {
	d.begin(vfs.OpSyncDir)
	return d.Mem.SyncDir(dir)
}

type blobFile struct {
	vfs.File
	d *blobDisk
}

func (f *blobFile) ReadAt(p []byte, off int64) (int, error) {
	f.d.begin(vfs.OpRead)
	return f.File.ReadAt(p, off)
}

func (f *blobFile) WriteAt(p []byte, off int64) (int, error) {
	f.d.begin(vfs.OpWrite)
	return f.File.WriteAt(p, off)
}

func (f *blobFile) Sync() error {
	f.d.begin(vfs.OpSync)
	return f.File.Sync()
}
