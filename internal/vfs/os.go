package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// OS returns the real directory tree below root, which need not exist yet: MkdirAll(".") makes it.
func OS(root string) FS { return osFS{root: root} }

type osFS struct{ root string }

// path maps a name to the operating system's path. Names that would leave the root are refused.
func (o osFS) path(op, name string) (string, error) {
	if !fs.ValidPath(name) {
		return "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	return filepath.Join(o.root, filepath.FromSlash(name)), nil
}

// MkdirAll makes the root too if it is missing, and that durably, since SyncDir cannot reach the folders above it.
func (o osFS) MkdirAll(dir string) error {
	path, err := o.path("mkdir", dir)
	if err != nil {
		return err
	}
	var above []string
	for missing := filepath.Clean(o.root); ; missing = filepath.Dir(missing) {
		if _, err := os.Stat(missing); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		above = append(above, filepath.Dir(missing))
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return noSpace(err)
	}
	for _, parent := range above {
		if err := syncDir(parent); err != nil {
			return noSpace(err)
		}
	}
	return nil
}

func (o osFS) Create(name string) (File, error) {
	return o.open("create", name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

func (o osFS) Open(name string) (File, error) { return o.open("open", name, os.O_RDWR) }

func (o osFS) open(op, name string, flag int) (File, error) {
	path, err := o.path(op, name)
	if err != nil {
		return nil, err
	}
	f, err := openFile(path, flag)
	if err != nil {
		return nil, noSpace(err)
	}
	return &osFile{f: f}, nil
}

func (o osFS) Rename(oldName, newName string) error {
	return o.two("rename", oldName, newName, rename)
}

func (o osFS) Link(oldName, newName string) error {
	return o.two("link", oldName, newName, os.Link)
}

func (o osFS) two(op, oldName, newName string, do func(oldPath, newPath string) error) error {
	oldPath, err := o.path(op, oldName)
	if err != nil {
		return err
	}
	newPath, err := o.path(op, newName)
	if err != nil {
		return err
	}
	return noSpace(do(oldPath, newPath))
}

func (o osFS) Remove(name string) error {
	path, err := o.path("remove", name)
	if err != nil {
		return err
	}
	return os.Remove(path)
}

func (o osFS) List(dir string) ([]string, error) {
	path, err := o.path("list", dir)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

func (o osFS) SyncDir(dir string) error {
	path, err := o.path("syncdir", dir)
	if err != nil {
		return err
	}
	return noSpace(syncDir(path))
}

// Lock keeps the lock file: removing it would let two holders lock two files of one name.
func (o osFS) Lock(name string) (io.Closer, error) {
	path, err := o.path("lock", name)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, noSpace(err)
	}
	if err := lockFile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f, nil
}

type osFile struct{ f *os.File }

func (o *osFile) ReadAt(p []byte, off int64) (int, error) { return o.f.ReadAt(p, off) }

func (o *osFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := o.f.WriteAt(p, off)
	return n, noSpace(err)
}

func (o *osFile) WriteVecAt(bufs [][]byte, off int64) error {
	return noSpace(writeVecAt(o.f, bufs, off))
}

func (o *osFile) Sync() error { return noSpace(dataSync(o.f)) }

func (o *osFile) Allocate(off, n int64) error {
	if off < 0 || n <= 0 || off+n < 0 {
		return &fs.PathError{Op: "allocate", Path: o.f.Name(), Err: fs.ErrInvalid}
	}
	return noSpace(allocate(o.f, off, n))
}

func (o *osFile) Truncate(size int64) error { return noSpace(o.f.Truncate(size)) }

func (o *osFile) Size() (int64, error) {
	info, err := o.f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (o *osFile) Close() error { return o.f.Close() }

// noSpace marks the errors that mean a full disk, on any platform.
func noSpace(err error) error {
	if err == nil || !isNoSpace(err) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNoSpace, err)
}
