package journal

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/strandline-io/strandline/internal/vfs"
)

func TestFullDiskIsBackPressure(t *testing.T) {
	disk := vfs.NewMem()
	j, o := openStepped(t, disk)
	drain(j)
	if free, low := j.Space(); low || free != capacity(minSegmentBytes) {
		t.Fatalf("at first: free %d, low %t", free, low)
	}
	disk.SetCapacity(disk.UsedBytes())
	units := oneBlock(30)
	appended := 0
	for free, low := j.Space(); !low || free >= UnitBytes(units[0]); free, low = j.Space() {
		appendUnits(j, units[appended])
		appended++
	}
	// One segment was active, one prepared, one spare: all of their space is used before anything is refused.
	if appended != 12 {
		t.Fatalf("%d units went into three segments, want 12", appended)
	}
	var reported error
	for _, e := range o.events {
		switch e.Kind {
		case SpaceChanged:
			reported = e.Err
		case Failed:
			t.Fatalf("the full disk ended the journal: %v", e.Err)
		}
	}
	if !errors.Is(reported, vfs.ErrNoSpace) {
		t.Fatalf("reported %v", reported)
	}
	if j.Reserve(UnitBytes(units[0])) {
		t.Fatal("there is space on a full disk")
	}
	o.events = nil
	if drain(j); kinds(o.events) != "S" {
		t.Fatalf("events %q after Reserve", kinds(o.events))
	}

	must(t, j.disk.fs.Remove("journal/"+lockName))
	disk.SetCapacity(-1)
	if !j.WantsTick() {
		t.Fatal("nobody would notice that there is space again")
	}
	o.events = nil
	j.Tick()
	drain(j)
	if free, low := j.Space(); low || free != capacity(minSegmentBytes) || kinds(o.events) != "S" || o.events[0].Err != nil {
		t.Fatalf("with space again: free %d, low %t, events %+v", free, low, o.events)
	}
	appendUnits(j, units[appended:20]...)
	must(t, j.Close())
	j, o = openStepped(t, disk)
	checkReplayed(t, j, o.replayed, units[:20])
}

func TestFreeingHelpsAFullDisk(t *testing.T) {
	disk := vfs.NewMem()
	j, _ := openStepped(t, disk)
	drain(j)
	disk.SetCapacity(disk.UsedBytes())
	units := oneBlock(11)
	appendUnits(j, units...)
	if _, low := j.Space(); !low {
		t.Fatal("the disk is full, but space is not low")
	}
	disk.SetCapacity(disk.UsedBytes() + 3*blockBytes)
	must(t, j.WriteSnapshot(8, []byte("state")))
	j.Trim(8)
	drain(j)
	if free, low := j.Space(); low || free != capacity(minSegmentBytes) {
		t.Fatalf("after freeing: free %d, low %t", free, low)
	}
}

func TestReserveForALargeGroup(t *testing.T) {
	disk := vfs.NewMem()
	j, o := openStepped(t, disk)
	drain(j)
	if !j.Reserve(capacity(minSegmentBytes)) || j.Reserve(capacity(minSegmentBytes)+1) {
		t.Fatal("Reserve does not know the size of a segment")
	}
	if drain(j); kinds(o.events) != "S" {
		t.Fatalf("events %q", kinds(o.events))
	}
	const large = 500_000
	if j.Reserve(large) || j.Reserve(large-1) {
		t.Fatal("a large group has room at once")
	}
	drain(j)
	if !j.Reserve(large) {
		t.Fatal("no room for a large group after SpaceChanged")
	}
	disk.SetCapacity(disk.UsedBytes())
	unit := Unit{Meta: make([]byte, (large-200)/2)}
	if n := UnitBytes(unit); n > large {
		t.Fatalf("the unit has %d bytes", n)
	}
	appendUnits(j, unit)
	if got := kinds(o.events); got != "SSWY" && got != "SSWYS" {
		t.Fatalf("events %+v", o.events)
	}
}

// TestWritesWaitForSpace: what is decided and finds no space for its file waits, in order, and ends nothing.
func TestWritesWaitForSpace(t *testing.T) {
	for _, large := range []int{200_000, 2_000} { // in the segment that is empty; in the next one
		disk := vfs.NewMem()
		j, o := openStepped(t, disk)
		if large < 200_000 {
			disk.SetCapacity(disk.UsedBytes())
		}
		drain(j)
		disk.SetCapacity(disk.UsedBytes())
		var units []Unit
		for j.Room() {
			units = append(units, Unit{Meta: bytes.Repeat([]byte{byte(len(units))}, large)})
			appendUnits(j, units[len(units)-1])
		}
		if _, low := j.Space(); !low || !strings.Contains(kinds(o.events), "S") || len(units) < 2 {
			t.Fatalf("low %t, events %+v", low, o.events)
		}
		written := strings.Count(kinds(o.events), "W")
		j.Tick()
		drain(j)
		if got := kinds(o.events); strings.Contains(got, "F") || strings.Count(got, "W") != written || !j.WantsTick() {
			t.Fatalf("events %q, wants a tick: %t", got, j.WantsTick())
		}
		disk.SetCapacity(-1)
		j.Tick()
		drain(j)
		if _, low := j.Space(); low || !j.Room() || strings.Count(kinds(o.events), "W") != len(units) {
			t.Fatalf("with space again: low %t, events %q of %d units", low, kinds(o.events), len(units))
		}
		must(t, j.Close())
		j, o = openStepped(t, disk)
		checkReplayed(t, j, o.replayed, units)
	}
}

// TestWriteBehindAFullSegment: a write that begins a segment is not passed on while the one before it, which begins one too,
// may yet find no space.
func TestWriteBehindAFullSegment(t *testing.T) {
	disk := vfs.NewMem()
	j, o := openStepped(t, disk)
	units := []Unit{{Meta: make([]byte, 100)}, {Meta: make([]byte, 200_000)}, {Meta: bytes.Repeat([]byte{1}, 200_000)}}
	appendUnits(j, units[0])
	disk.SetCapacity(disk.UsedBytes())
	for _, u := range units[1:] {
		j.Append([]Unit{u})
	}
	drain(j)
	disk.SetCapacity(-1)
	j.Tick()
	drain(j)
	if got := strings.Count(kinds(o.events), "W"); got != len(units) {
		t.Fatalf("events %q: %d groups written, want %d", kinds(o.events), got, len(units))
	}
	must(t, j.Close())
	j, o = openStepped(t, disk)
	checkReplayed(t, j, o.replayed, units)
}

// TestCloseDoesNotWaitForSpace: it says what was not written, which nobody was told of.
func TestCloseDoesNotWaitForSpace(t *testing.T) {
	disk := vfs.NewMem()
	j, _ := openStepped(t, disk)
	drain(j)
	disk.SetCapacity(disk.UsedBytes())
	appendUnits(j, Unit{Meta: make([]byte, 200_000)})
	if err := j.Close(); !errors.Is(err, vfs.ErrNoSpace) {
		t.Fatal(err)
	}
	j, o := openStepped(t, disk)
	checkReplayed(t, j, o.replayed, nil)
}

// TestSmallDisk: where a whole segment never has space, short ones serve, and space stays low.
func TestSmallDisk(t *testing.T) {
	disk := vfs.NewMem()
	disk.SetCapacity(1 << 20)
	f := func(appended []Unit, more int) []Unit {
		j, o := openStepped(t, disk, func(c *FileConfig) { c.SegmentBytes = 32 << 20 })
		checkReplayed(t, j, o.replayed, appended)
		drain(j)
		for range more {
			u := Unit{Meta: make([]byte, 3000)}
			appended = append(appended, u)
			appendUnits(j, u)
		}
		if _, low := j.Space(); !low || strings.Contains(kinds(o.events), "F") {
			t.Fatalf("low %t, events %q", low, kinds(o.events))
		}
		must(t, j.Close())
		return appended
	}
	f(f(nil, 3), 4)
}

func TestOpenOnAFullDisk(t *testing.T) {
	disk := vfs.NewMem()
	j, _ := openStepped(t, disk)
	units := oneBlock(5)
	appendUnits(j, units...)
	disk = disk.ProcessCrash()
	disk.SetCapacity(disk.UsedBytes() - minSegmentBytes)
	j, o := openStepped(t, disk)
	checkReplayed(t, j, o.replayed, units)
	drain(j)
	if _, low := j.Space(); !low {
		t.Fatal("space is not low")
	}
	disk.SetCapacity(-1)
	j.Tick()
	drain(j)
	appendUnits(j, oneBlock(3)...)
	must(t, j.Close())
}

func TestOtherTroubleInPreparationIsBackPressureToo(t *testing.T) {
	for _, op := range []vfs.Op{vfs.OpCreate, vfs.OpAllocate, vfs.OpSyncDir, vfs.OpRename} {
		disk := vfs.NewMem()
		j, o := openStepped(t, disk)
		if op == vfs.OpRename {
			drain(j)
		}
		disk.FailNext(op, 0, errors.New("trouble"))
		units := oneBlock(20)
		for _, u := range units {
			appendUnits(j, u)
			j.Tick()
		}
		for _, e := range o.events {
			if e.Kind == Failed {
				t.Fatalf("op %d: %v", op, e.Err)
			}
		}
		must(t, j.Close())
		j, o = openStepped(t, disk)
		checkReplayed(t, j, o.replayed, units)
	}
}
