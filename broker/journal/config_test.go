package journal

import (
	"strings"
	"testing"

	"github.com/strandline-io/strandline/internal/vfs"
)

func TestConfigNamesEveryFault(t *testing.T) {
	f := func(change func(*FileConfig), want ...string) {
		t.Helper()
		cfg := FileConfig{FS: vfs.NewMem(), Dir: "journal"}
		change(&cfg)
		_, err := OpenFile(cfg, nil, nil)
		if err == nil {
			t.Fatalf("no error, want %q", want)
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("error %q does not say %q", err, w)
			}
		}
	}
	f(func(c *FileConfig) { c.FS = nil }, "FS and Dir are mandatory")
	f(func(c *FileConfig) { c.SegmentBytes, c.MaxUnitBytes = 1, -1 }, "SegmentBytes is 4096; it must be 32768 to", "MaxUnitBytes is -1")
	f(func(c *FileConfig) { c.MaxExtents, c.SyncBytes, c.TickInterval = -1, -1, 1 }, "MaxExtents", "SyncBytes", "TickInterval")
	f(func(c *FileConfig) { c.Durability = 9 }, "unknown Durability 9")
}

func TestUnitBytesIsWhatAUnitTakes(t *testing.T) {
	for _, u := range randomUnits(8, 50, 3000) {
		j, _ := openStepped(t, vfs.NewMem())
		before := j.core.remaining()
		j.Append([]Unit{u})
		used := before - j.core.remaining()
		if padding := used - UnitBytes(u); padding < 0 || padding >= blockBytes {
			t.Fatalf("a unit of %d bytes took %d", UnitBytes(u), used)
		}
	}
}
