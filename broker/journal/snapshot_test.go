package journal

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/strandline-io/strandline/internal/vfs"
)

// snapshotted is a journal of 10 units with snapshots at 4 and 8; trim says what was freed.
func snapshotted(t *testing.T, trim uint64) (*vfs.Mem, []Unit) {
	t.Helper()
	disk := vfs.NewMem()
	j, _ := openStepped(t, disk)
	units := oneBlock(10)
	appendUnits(j, units...)
	must(t, j.WriteSnapshot(4, []byte("state at 4")))
	must(t, j.WriteSnapshot(8, bytes.Repeat([]byte("state at 8 "), 1000)))
	j.Trim(trim)
	drain(j)
	return kill(t, disk), units
}

// wantSnapshot opens and checks which snapshot served.
func wantSnapshot(t *testing.T, disk vfs.FS, seq uint64, state string, units []Unit) {
	t.Helper()
	j, o := openStepped(t, disk)
	if o.snapshotSeq != seq || !strings.HasPrefix(string(o.state), state) {
		t.Fatalf("restored %.20q at %d, want %q at %d", o.state, o.snapshotSeq, state, seq)
	}
	if o.last() != uint64(len(units)) {
		t.Fatalf("units to %d, want %d", o.last(), len(units))
	}
	for _, k := range append(o.extents, o.replayed...) {
		must(t, k.differs(units[k.seq-1], j.ReadAt))
	}
	if first := j.Segments()[0].FirstSeq; uint64(len(o.extents)) != seq+1-min(first, seq+1) {
		t.Fatalf("%d extents from %d to %d", len(o.extents), first, seq)
	}
	must(t, j.Close())
}

func TestSnapshotRestores(t *testing.T) {
	for _, trim := range []uint64{0, 4, 10} {
		disk, units := snapshotted(t, trim)
		wantSnapshot(t, disk, 8, "state at 8", units)
		wantSnapshot(t, disk, 8, "state at 8", units)
	}
}

func TestSnapshotCutShort(t *testing.T) {
	name := snapshotName(8)
	for _, size := range []int64{0, 10, 63, 64, 5000} {
		disk, units := snapshotted(t, 0)
		f, err := disk.Open("journal/" + name)
		must(t, err)
		must(t, f.Truncate(size))
		must(t, f.Sync())
		must(t, f.Close())
		wantSnapshot(t, disk, 4, "state at 4", units)
		if names, _ := disk.List("journal"); strings.Contains(strings.Join(names, " "), name) {
			t.Fatalf("the useless snapshot is still there: %v", names)
		}
		disk, _ = snapshotted(t, 8)
		f, err = disk.Open("journal/" + name)
		must(t, err)
		must(t, f.Truncate(size))
		must(t, f.Sync())
		wantCorrupt(t, disk, name, 0)
	}
}

func TestSnapshotDamaged(t *testing.T) {
	name := snapshotName(8)
	for _, pos := range []int64{0, 9, 13, 20, 35, 41, 50, 64, 9000} {
		disk, units := snapshotted(t, 0)
		flip(t, disk, name, pos, 1)
		wantSnapshot(t, disk, 4, "state at 4", units)
		disk, _ = snapshotted(t, 8)
		flip(t, disk, name, pos, 1)
		wantCorrupt(t, disk, name, 0)
	}
}

func TestSnapshotsGoneOrForeign(t *testing.T) {
	disk, units := snapshotted(t, 0)
	must(t, disk.Remove("journal/"+snapshotName(8)))
	must(t, disk.Remove("journal/"+snapshotName(4)))
	wantSnapshot(t, disk, 0, "", units)

	disk, _ = snapshotted(t, 8)
	must(t, disk.Remove("journal/"+snapshotName(8)))
	must(t, disk.Remove("journal/"+snapshotName(4)))
	o := &opening{}
	if _, err := OpenStepped(o.config(disk), o.replay, o.event); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("without the snapshots: %v", err)
	}

	disk, _ = snapshotted(t, 0)
	content := readFile(t, disk, snapshotName(8))
	content[16] ^= 1
	le.PutUint32(content[8:], plainCRC(content[:snapshotHeaderBytes]))
	must(t, disk.Remove("journal/"+snapshotName(8)))
	writeFile(t, disk, snapshotName(8), content)
	wantCorrupt(t, disk, snapshotName(8), 0)

	only := vfs.NewMem()
	must(t, only.MkdirAll("journal"))
	writeFile(t, only, snapshotName(8), readFile(t, disk, snapshotName(4)))
	wantCorrupt(t, only, snapshotName(8), 0)
}

func TestSnapshotRules(t *testing.T) {
	disk := vfs.NewMem()
	j, _ := openStepped(t, disk, func(c *FileConfig) { c.SegmentBytes = 1 << 20 })
	units := oneBlock(12)
	appendUnits(j, units[:5]...)
	j.Append(units[5:6])
	f := func(seq uint64, want string) {
		t.Helper()
		err := j.WriteSnapshot(seq, []byte("state"))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Fatalf("snapshot at %d: %v, want %q", seq, err, want)
		}
	}
	f(6, "only units up to 5 are durable")
	f(3, "")
	f(3, "there is one at 3 already")
	f(2, "there is one at 3 already")
	f(4, "")
	f(5, "")
	names, err := disk.List("journal")
	must(t, err)
	if got := snapshotSeqs(names); len(got) != 2 || got[0] != 5 || got[1] != 4 {
		t.Fatalf("snapshots %v are kept, want the newest two", got)
	}
	drain(j)
	appendUnits(j, units[6:]...)
	for op, seq := range map[vfs.Op]uint64{vfs.OpCreate: 6, vfs.OpWrite: 7, vfs.OpSync: 8, vfs.OpRename: 9} {
		disk.FailNext(op, 0, vfs.ErrNoSpace)
		if err := j.WriteSnapshot(seq, []byte("state")); !errors.Is(err, vfs.ErrNoSpace) {
			t.Fatalf("failed snapshot says %v", err)
		}
		if !j.Room() {
			t.Fatal("a snapshot without space has ended the journal")
		}
	}
	f(12, "")
	must(t, j.Close())
	f(12, "closed")
	j, o := openStepped(t, disk)
	if o.snapshotSeq != 12 {
		t.Fatalf("snapshot %d", o.snapshotSeq)
	}
	must(t, j.Close())
}

func TestTrimWaitsForSnapshotAndReaders(t *testing.T) {
	j, _ := openStepped(t, vfs.NewMem())
	appendUnits(j, oneBlock(14)...)
	count := func(want int, when string) {
		t.Helper()
		drain(j)
		if got := j.Segments(); len(got) != want {
			t.Fatalf("%d segments %s, want %d", len(got), when, want)
		}
	}
	count(4, "at first")
	j.Trim(12)
	count(4, "before any snapshot")
	release, ok := j.Hold(2)
	if !ok {
		t.Fatal("segment 2 cannot be held")
	}
	must(t, j.WriteSnapshot(12, []byte("state")))
	count(3, "with segment 2 held: only a prefix may go")
	must(t, j.ReadAt(2, make([]byte, 100), dataStart))
	if _, ok := j.Hold(1); ok {
		t.Fatal("a freed segment can be held")
	}
	if err := j.Scan(1, func(Stored) error { return nil }); !errors.Is(err, errFreed) {
		t.Fatalf("scan of a freed segment: %v", err)
	}
	if err := j.ReadAt(1, make([]byte, 1), dataStart); !errors.Is(err, errFreed) {
		t.Fatalf("read of a freed segment: %v", err)
	}
	release()
	release()
	count(1, "when the reader has left")
	if err := j.Scan(4, func(Stored) error { return nil }); err == nil {
		t.Fatal("the active segment was scanned")
	}
}

func TestReleaseWhileFreeingIsUnderWay(t *testing.T) {
	j, _ := openStepped(t, vfs.NewMem())
	appendUnits(j, oneBlock(6)...)
	release, _ := j.Hold(1)
	must(t, j.WriteSnapshot(6, nil))
	j.Trim(6)
	a, ok := j.take(LaneBackground)
	if !ok || a.kind != actFree {
		t.Fatalf("the background does %+v", a)
	}
	outcome := j.disk.do(a)
	release()
	j.finish(LaneBackground, outcome)
	drain(j)
	if infos := j.Segments(); len(infos) != 1 {
		t.Fatalf("a segment was forgotten: %+v", infos)
	}
}
