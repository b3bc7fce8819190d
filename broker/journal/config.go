package journal

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/strandline-io/strandline/internal/vfs"
)

// FileConfig says where a file journal lies and how it behaves. Zero fields have the defaults named. A journal keeps
// one file open for each segment that is not freed.
type FileConfig struct {
	// FS and Dir name the folder, which the journal owns alone. Both are mandatory.
	FS  vfs.FS
	Dir string
	// Durability decides when a group stops counting as outstanding. Default DurabilityFsync.
	Durability Durability
	// SegmentBytes is the size of a segment file, 32 KiB to 1 TiB, rounded up to 4 KiB. Default 64 MiB.
	SegmentBytes int64
	// MaxUnitBytes bounds UnitBytes of one unit; a unit or group larger than a segment makes a segment of its own.
	// Default 128 MiB.
	MaxUnitBytes int64
	// MaxExtents bounds the batches of one segment, and so the memory that the active one needs: it is sealed when
	// it holds as many. Default 262,144.
	MaxExtents int
	// SyncBytes is, under DurabilityWrite, how much may be written before a sync is started. Default 4 MiB.
	SyncBytes int64
	// ZeroFillBytesPerTick is the write rate per TickInterval up to which segments are zero-filled in the
	// background, so that later syncs need no change of file metadata; negative: never. Default 4 MiB.
	ZeroFillBytesPerTick int64
	// TickInterval paces zero-filling, late syncs and new attempts to get space, 1 ms to 1 h. Default 100 ms.
	TickInterval time.Duration
	// Rand gives the journal's secret when it is new. Default crypto/rand.
	Rand io.Reader
	// Restore gets the newest usable snapshot, before anything else; it is not called if there is none. The state
	// is the callee's.
	Restore func(seq uint64, state []byte) error
	// Extents gets every unit with batches at or below the snapshot that still lies in the journal, heads only, in
	// order, after Restore and before replay. May be nil.
	Extents func(Stored) error
}

const (
	defaultSegmentBytes = 64 << 20
	defaultMaxUnitBytes = 128 << 20
	defaultMaxExtents   = 262_144
	defaultSyncBytes    = 4 << 20
	defaultZeroFill     = 4 << 20
	defaultTick         = 100 * time.Millisecond

	minSegmentBytes = 32 << 10
	maxSegmentBytes = 1 << 40
	maxUnitBytes    = 1<<31 - 1
	maxExtents      = 1 << 24
)

// withDefaults fills c's zero fields and reports everything that is out of range at once.
func (c FileConfig) withDefaults() (FileConfig, error) {
	setDefault(&c.SegmentBytes, defaultSegmentBytes)
	setDefault(&c.MaxUnitBytes, defaultMaxUnitBytes)
	setDefault(&c.MaxExtents, defaultMaxExtents)
	setDefault(&c.SyncBytes, defaultSyncBytes)
	setDefault(&c.ZeroFillBytesPerTick, defaultZeroFill)
	setDefault(&c.TickInterval, defaultTick)
	c.SegmentBytes = alignUp(c.SegmentBytes)
	if c.Rand == nil {
		c.Rand = rand.Reader
	}
	var errs []error
	check := func(name string, got, low, high int64) {
		if got < low || got > high {
			errs = append(errs, fmt.Errorf("journal: %s is %d; it must be %d to %d", name, got, low, high))
		}
	}
	check("SegmentBytes", c.SegmentBytes, minSegmentBytes, maxSegmentBytes)
	check("MaxUnitBytes", c.MaxUnitBytes, 1, maxUnitBytes)
	check("MaxExtents", int64(c.MaxExtents), 1, maxExtents)
	check("TickInterval in ms", c.TickInterval.Milliseconds(), 1, time.Hour.Milliseconds())
	check("SyncBytes", c.SyncBytes, 1, maxSegmentBytes)
	if c.Durability > DurabilityWrite {
		errs = append(errs, fmt.Errorf("journal: unknown Durability %d", c.Durability))
	}
	if c.FS == nil || c.Dir == "" {
		errs = append(errs, errors.New("journal: FS and Dir are mandatory"))
	}
	return c, errors.Join(errs...)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
