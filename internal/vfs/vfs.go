// Package vfs is the disk seam: everything durable goes through FS and File, so that a simulated disk can stand
// in for the real one and decide what a crash or a power cut leaves behind.
package vfs

import (
	"errors"
	"io"
)

// ErrNoSpace is what is returned, wrapped, when the disk or the quota is full.
var ErrNoSpace = errors.New("no space left on the disk")

// ErrLocked is what FS.Lock returns, wrapped, when another process or another holder has the lock.
var ErrLocked = errors.New("locked by another process")

// FS is a directory tree. Names are slash-separated and relative to the FS's root. Calls may overlap.
// Nothing is durable by itself: a file's bytes need File.Sync, its name needs SyncDir of its folder.
// Missing files are reported with an error for which errors.Is(err, fs.ErrNotExist) holds.
type FS interface {
	MkdirAll(dir string) error
	// Create makes a new file for reading and writing; it fails with fs.ErrExist if the name is taken.
	Create(name string) (File, error)
	// Open opens an existing file for reading and writing.
	Open(name string) (File, error)
	// Rename replaces newName if it exists.
	Rename(oldName, newName string) error
	// Link gives a file a second name and fails with fs.ErrExist if newName is taken (link(2)).
	Link(oldName, newName string) error
	Remove(name string) error
	// List returns the names in dir, sorted, without dir itself.
	List(dir string) ([]string, error)
	SyncDir(dir string) error
	// Lock takes an exclusive lock that ends with Close or with the process, whichever comes first.
	Lock(name string) (io.Closer, error)
}

// File is an open file. Calls may overlap, except Close.
type File interface {
	io.ReaderAt
	io.WriterAt
	// WriteVecAt writes the slices one after another at off, as one system call where the platform has one.
	// The slices are not kept.
	WriteVecAt(bufs [][]byte, off int64) error
	// Sync makes the bytes written so far durable (fdatasync), and the size if it grew.
	Sync() error
	// Allocate reserves space for [off, off+n) and grows the file to off+n if it is shorter; the reserved bytes
	// read as zero.
	Allocate(off, n int64) error
	Truncate(size int64) error
	Size() (int64, error)
	Close() error
}
