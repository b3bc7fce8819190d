//go:build darwin || windows

package vfs

import "os"

// writeEach is the vectored write of platforms without one.
func writeEach(f *os.File, bufs [][]byte, off int64) error {
	for _, b := range bufs {
		n, err := f.WriteAt(b, off)
		if err != nil {
			return err
		}
		off += int64(n)
	}
	return nil
}
