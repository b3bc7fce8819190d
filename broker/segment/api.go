// Package segment holds each partition's batches outside the journal, as plain Kafka .log files with sparse indexes,
// and reads a partition wherever its bytes are: in its own files or still in the journal. The files are described in
// docs/formats/segment.md.
package segment

import (
	"errors"
	"fmt"
	"math"
)

// ErrCorrupt marks damage: bytes that were moved and synced and are not what was written. It comes wrapped with file
// and position.
var ErrCorrupt = errors.New("segment damaged")

// ErrMoved says that a Log is out of date: its bytes were moved to files and the journal segment was freed, or the
// partition was forgotten. Load the partition's current Log and read again.
var ErrMoved = errors.New("segment moved: read again from the partition's current log")

// Extent is one batch that still lies in the journal. No pointers: many are kept.
type Extent struct {
	BaseOffset   int64
	MaxTimestamp int64
	Segment      uint64
	Pos          int64
	LastDelta    int32 // last offset - base offset
	Len          int32
}

// LastOffset is the offset of the batch's last record.
func (e *Extent) LastOffset() int64 { return e.BaseOffset + int64(e.LastDelta) }

// Journal is what reading needs of the journal.
type Journal interface {
	ReadAt(segment uint64, p []byte, pos int64) error
	Hold(segment uint64) (release func(), ok bool)
}

// Shelving is one batch to be moved out of the journal.
type Shelving struct {
	Partition uint32
	// FileBytes, if not 0, is the size beyond which this partition's files are not grown, if it is below Config.SegmentBytes.
	FileBytes int64
	Extent
}

// Length says what of a partition is moved: its files hold everything below EndOffset, the newest one has the base
// offset FileBase and is FileBytes long. FileBytes 0 means that there is no file.
type Length struct {
	Partition uint32
	FileBase  int64
	FileBytes int64
	EndOffset int64
}

// Config of a Store. The zero value works.
type Config struct {
	// Dir is the folder below the FS's root; default "partitions".
	Dir string
	// SegmentBytes is the size beyond which a partition's file is not grown; a larger batch gets a file of its own.
	// Default 1 GiB, at most 2 GiB - 1 (positions in the index are int32).
	SegmentBytes int64
	// IndexIntervalBytes is the distance of entries in the .index file; default 4096 (index.interval.bytes).
	IndexIntervalBytes int64
	// IndexSyncBytes: index files are synced whenever the log grows past a multiple of this, and when it is rolled.
	// What is younger is read from the log itself after a restart. Default 64 MiB.
	IndexSyncBytes int64
	// MemoryIntervalBytes is the distance of entries of the index in memory, 16 bytes each; default 64 KiB.
	MemoryIntervalBytes int64
	// MaxOpenFiles bounds descriptors and loaded indexes, save those in use at a moment; default 256.
	MaxOpenFiles int
	// WindowBytes is the memory that Shelve copies through; a larger batch needs its own size. Default 8 MiB.
	WindowBytes int
	// MaxDecodedBytes bounds what a batch may decompress to when a time lookup has to look into it. Default 128 MiB.
	MaxDecodedBytes int
}

// pieceBytes bounds one read or write of background work.
const pieceBytes = 1 << 20

func (c Config) withDefaults() (Config, error) {
	if c.Dir == "" {
		c.Dir = "partitions"
	}
	c.SegmentBytes = orDefault(c.SegmentBytes, 1<<30)
	c.IndexIntervalBytes = orDefault(c.IndexIntervalBytes, 4096)
	c.IndexSyncBytes = orDefault(c.IndexSyncBytes, 64<<20)
	c.MemoryIntervalBytes = orDefault(c.MemoryIntervalBytes, 64<<10)
	c.MaxOpenFiles = orDefault(c.MaxOpenFiles, 256)
	c.WindowBytes = orDefault(c.WindowBytes, 8<<20)
	c.MaxDecodedBytes = orDefault(c.MaxDecodedBytes, 128<<20)
	switch {
	case c.SegmentBytes < 1 || c.SegmentBytes > math.MaxInt32:
		return c, fmt.Errorf("segment: SegmentBytes is %d, want 1 to %d", c.SegmentBytes, math.MaxInt32)
	case c.IndexIntervalBytes < 1, c.IndexSyncBytes < 1, c.MemoryIntervalBytes < 1, c.MaxOpenFiles < 1, c.WindowBytes < 1, c.MaxDecodedBytes < 1:
		return c, fmt.Errorf("segment: a bound of %+v is negative, want 0 for its default or more", c)
	}
	return c, nil
}

func orDefault[T int | int64](v, fallback T) T {
	if v == 0 {
		return fallback
	}
	return v
}

// damaged wraps ErrCorrupt with the place.
func damaged(name string, pos int64, format string, args ...any) error {
	return fmt.Errorf("%s at byte %d: %s: %w", name, pos, fmt.Sprintf(format, args...), ErrCorrupt)
}
