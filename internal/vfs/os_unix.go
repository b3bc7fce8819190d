//go:build linux || darwin

package vfs

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func openFile(path string, flag int) (*os.File, error) { return os.OpenFile(path, flag, 0o644) }

func rename(oldPath, newPath string) error { return os.Rename(oldPath, newPath) }

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func lockFile(f *os.File) error {
	err := retry(func() error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("%w (%w)", ErrLocked, err)
	}
	return err
}

func isNoSpace(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// retry repeats a system call that a signal interrupted.
func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// zeroChunk is what fillZeros writes at once.
var zeroChunk [1 << 20]byte

// fillZeros writes zeros from the end of f up to end, which reserves the space where nothing else can.
func fillZeros(f *os.File, end int64) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	for off := info.Size(); off < end; {
		n, err := f.WriteAt(zeroChunk[:min(int64(len(zeroChunk)), end-off)], off)
		if err != nil {
			return err
		}
		off += int64(n)
	}
	return nil
}
