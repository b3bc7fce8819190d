package vfs

import (
	"errors"
	"io"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// maxVec is IOV_MAX of Linux.
const maxVec = 1024

func writeVecAt(f *os.File, bufs [][]byte, off int64) error {
	fd := int(f.Fd())
	defer runtime.KeepAlive(f)
	for len(bufs) > 0 {
		vec := bufs[:min(len(bufs), maxVec)]
		n, err := unix.Pwritev(fd, vec, off)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return os.NewSyscallError("pwritev", err)
		}
		off += int64(n)
		done := 0
		for done < len(vec) && n >= len(vec[done]) {
			n -= len(vec[done])
			done++
		}
		bufs = bufs[done:]
		if done == len(vec) {
			continue
		}
		// The kernel stopped inside a slice: the rest of this one goes out alone, which also makes it report why.
		rest := bufs[0][n:]
		written, err := f.WriteAt(rest, off)
		if err != nil {
			return err
		}
		if written != len(rest) {
			return io.ErrShortWrite
		}
		off += int64(written)
		bufs = bufs[1:]
	}
	return nil
}

func dataSync(f *os.File) error {
	defer runtime.KeepAlive(f)
	return os.NewSyscallError("fdatasync", retry(func() error { return unix.Fdatasync(int(f.Fd())) }))
}

func allocate(f *os.File, off, n int64) error {
	defer runtime.KeepAlive(f)
	err := retry(func() error { return unix.Fallocate(int(f.Fd()), 0, off, n) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return fillZeros(f, off+n)
	}
	return os.NewSyscallError("fallocate", err)
}
