package vfs

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

func writeVecAt(f *os.File, bufs [][]byte, off int64) error { return writeEach(f, bufs, off) }

// dataSync is F_FULLFSYNC, which os.File.Sync asks for: fsync alone leaves the bytes in the drive's cache.
func dataSync(f *os.File) error { return f.Sync() }

func allocate(f *os.File, off, n int64) error {
	defer runtime.KeepAlive(f)
	info, err := f.Stat()
	if err != nil {
		return err
	}
	end := off + n
	if end <= info.Size() {
		return nil
	}
	store := unix.Fstore_t{Flags: unix.F_ALLOCATEALL, Posmode: unix.F_PEOFPOSMODE, Length: end - info.Size()}
	if err := unix.FcntlFstore(f.Fd(), unix.F_PREALLOCATE, &store); err != nil {
		if isNoSpace(err) {
			return os.NewSyscallError("fcntl F_PREALLOCATE", err)
		}
		return fillZeros(f, end)
	}
	return f.Truncate(end)
}
