package journal

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/strandline-io/strandline/internal/vfs"
)

func TestEventsOfTwoOverlappingGroups(t *testing.T) {
	run := func(d Durability, want string, steps ...Lane) {
		t.Helper()
		j, o := openStepped(t, vfs.NewMem(), func(c *FileConfig) { c.Durability = d; c.SyncBytes = 1 })
		units := randomUnits(1, 2, 100)
		j.Append(units[:1])
		j.Append(units[1:])
		if j.Room() {
			t.Fatal("there is room for a third group")
		}
		for _, l := range steps {
			if !j.Step(l) {
				t.Fatalf("lane %d has nothing to do after %q", l, kinds(o.events))
			}
		}
		if got := kinds(o.events); got != want {
			t.Fatalf("events %q, want %q", got, want)
		}
	}
	run(DurabilityFsync, "WWYY", LaneWrite, LaneWrite, LaneSync, LaneSync)
	run(DurabilityFsync, "WYWY", LaneWrite, LaneSync, LaneWrite, LaneSync)
	run(DurabilityFsync, "WWY", LaneWrite, LaneWrite, LaneSync)
	run(DurabilityWrite, "WYW", LaneWrite, LaneSync, LaneWrite)
}

func TestRoomFollowsDurability(t *testing.T) {
	f := func(d Durability, lane Lane) {
		t.Helper()
		j, _ := openStepped(t, vfs.NewMem(), func(c *FileConfig) { c.Durability = d })
		units := randomUnits(1, 2, 100)
		j.Append(units[:1])
		j.Append(units[1:])
		for l := LaneWrite; l < lane; l++ {
			j.Step(l)
			if j.Room() {
				t.Fatalf("durability %d: room after lane %d", d, l)
			}
		}
		j.Step(lane)
		if !j.Room() {
			t.Fatalf("durability %d: no room after lane %d", d, lane)
		}
	}
	f(DurabilityFsync, LaneSync)
	f(DurabilityWrite, LaneWrite)
}

func TestWriteDurabilitySyncsLate(t *testing.T) {
	write := func(c *FileConfig) { c.Durability, c.SyncBytes, c.SegmentBytes = DurabilityWrite, 20_000, 1<<20 }
	j, o := openStepped(t, vfs.NewMem(), write)
	units := randomUnits(1, 8, 100)
	appendUnits(j, units[:2]...)
	if got := kinds(o.events); got != "WW" {
		t.Fatalf("events %q before anything asked for a sync", got)
	}
	j.Sync()
	drain(j)
	if got := kinds(o.events); got != "WWY" {
		t.Fatalf("events %q after Sync", got)
	}
	appendUnits(j, units[2])
	if !j.WantsTick() {
		t.Fatal("unsynced bytes want no tick")
	}
	j.Tick()
	drain(j)
	if got := kinds(o.events); got != "WWYWY" {
		t.Fatalf("events %q after a tick", got)
	}
	appendUnits(j, units[3:]...)
	if got := kinds(o.events); got != "WWYWYWWWWWY" {
		t.Fatalf("events %q after SyncBytes", got)
	}
}

func TestOneWriteAndOneSyncPerGroup(t *testing.T) {
	disk := vfs.NewMem()
	j, _ := openStepped(t, disk, func(c *FileConfig) { c.SegmentBytes = 1 << 20 })
	drain(j)
	writes, syncs := disk.Count(vfs.OpWrite), disk.Count(vfs.OpSync)
	for range 10 {
		j.Append(randomUnits(3, 20, 300))
		drain(j)
	}
	writes, syncs = disk.Count(vfs.OpWrite)-writes, disk.Count(vfs.OpSync)-syncs
	if writes != 10 || syncs != 10 {
		t.Fatalf("10 groups took %d writes and %d syncs", writes, syncs)
	}
}

func TestSegmentsAreSealed(t *testing.T) {
	f := func(change func(*FileConfig), size int, wantSegments int) {
		t.Helper()
		j, o := openStepped(t, vfs.NewMem(), change)
		units := make([]Unit, 12)
		for i := range units {
			units[i] = Unit{Batches: [][]byte{newBatch(rand.New(rand.NewPCG(1, 1)), size)}}
		}
		appendUnits(j, units...)
		infos := j.Segments()
		if len(infos) != wantSegments {
			t.Fatalf("%d segments, want %d: %+v", len(infos), wantSegments, infos)
		}
		next := uint64(1)
		for i, s := range infos {
			if s.FirstSeq != next || s.Sealed != (i < len(infos)-1) || (s.LastSeq == 0) == s.Sealed {
				t.Fatalf("segment %d of %d: %+v, want first %d", i, len(infos), s, next)
			}
			next = s.LastSeq + 1
		}
		if got := strings.Count(kinds(o.events), "X"); got != wantSegments-1 {
			t.Fatalf("%d Sealed events, want %d", got, wantSegments-1)
		}
	}
	f(func(*FileConfig) {}, 100, 3)
	f(func(c *FileConfig) { c.MaxExtents = 2 }, 100, 6)
	f(func(c *FileConfig) { c.SegmentBytes = 1 << 20 }, 100, 1)
	f(func(*FileConfig) {}, 100_000, 12)
}

func TestAppendRefusesBugs(t *testing.T) {
	f := func(units ...Unit) {
		t.Helper()
		j, _ := openStepped(t, vfs.NewMem(), func(c *FileConfig) { c.MaxUnitBytes = 5000 })
		defer func() {
			if p, _ := recover().(string); !strings.HasPrefix(p, "BUG:") {
				t.Fatalf("recovered %q", p)
			}
		}()
		j.Append(units)
	}
	f(Unit{Batches: [][]byte{make([]byte, batchHeader-1)}})
	f(Unit{Meta: make([]byte, 5000)})
}

func TestFailureStopsForGood(t *testing.T) {
	boom := errors.New("medium error")
	f := func(op vfs.Op, want string) {
		t.Helper()
		disk := vfs.NewMem()
		j, o := openStepped(t, disk)
		drain(j)
		units := randomUnits(1, 3, 100)
		appendUnits(j, units[0])
		disk.FailNext(op, 0, boom)
		j.Append(units[1:2])
		j.Append(units[2:])
		drain(j)
		if got := kinds(o.events); got != want {
			t.Fatalf("events %q, want %q", got, want)
		}
		if err := o.events[len(o.events)-1].Err; !errors.Is(err, boom) || !strings.Contains(err.Error(), ".segment") {
			t.Fatalf("failed with %v", err)
		}
		changes := disk.Count(vfs.OpWrite) + disk.Count(vfs.OpSync)
		if j.Room() || j.Append(units[:1]) != nil || len(j.Ready()) > 0 {
			t.Fatal("the journal goes on after a failure")
		}
		if err := j.WriteSnapshot(1, nil); !errors.Is(err, boom) {
			t.Fatalf("snapshot after a failure: %v", err)
		}
		j.Tick()
		drain(j)
		if err := j.Close(); !errors.Is(err, boom) {
			t.Fatalf("Close says %v", err)
		}
		if disk.Count(vfs.OpWrite)+disk.Count(vfs.OpSync) != changes {
			t.Fatal("something was written or synced after a failure")
		}
		j, o = openStepped(t, disk)
		if o.last() < 1 {
			t.Fatal("the unit synced before the failure is gone")
		}
		must(t, j.Close())
	}
	f(vfs.OpWrite, "WYF")
	f(vfs.OpSync, "WYWWF")
}

func TestFailureWhileSealing(t *testing.T) {
	disk := vfs.NewMem()
	j, o := openStepped(t, disk)
	drain(j)
	units := randomUnits(1, 2, 12_000)
	for j.Append(units[:1]); len(j.Segments()) == 1; j.Append(units[:1]) {
		drain(j)
	}
	j.Step(LaneWrite)
	j.Step(LaneSync)
	disk.FailNext(vfs.OpSync, 0, errors.New("medium error"))
	drain(j)
	if got := kinds(o.events); !strings.HasSuffix(got, "F") || strings.Contains(got, "X") {
		t.Fatalf("events %q", got)
	}
}

func TestZeroFillAtLowRatesAndChangeOver(t *testing.T) {
	disk := vfs.NewMem()
	j, _ := openStepped(t, disk)
	units := randomUnits(1, 3, 100)
	appendUnits(j, units[0])
	for range ticksBeforeZero {
		j.Tick()
	}
	writes := disk.Count(vfs.OpWrite)
	if drain(j); disk.Count(vfs.OpWrite) != writes {
		t.Fatal("segments are filled before the start is over")
	}
	j.Tick()
	if drain(j); disk.Count(vfs.OpWrite) == writes {
		t.Fatal("no segment was filled at rest")
	}
	for range 3 {
		j.Tick()
		drain(j)
	}
	appendUnits(j, units[1])
	if infos := j.Segments(); len(infos) != 2 || infos[0].SizeBytes >= minSegmentBytes {
		t.Fatalf("the filled segment was not taken, or the rest of the other not given back: %+v", infos)
	}
	for n := 0; j.WantsTick(); n++ {
		if n == 20 {
			t.Fatal("ticks are wanted for ever at rest")
		}
		j.Tick()
		drain(j)
	}
}

func TestNoZeroFillAtHighRates(t *testing.T) {
	disk := vfs.NewMem()
	j, _ := openStepped(t, disk, func(c *FileConfig) { c.ZeroFillBytesPerTick = 1000; c.SegmentBytes = 1 << 20 })
	drain(j)
	units := randomUnits(1, 20, 100)
	for _, u := range units {
		writes := disk.Count(vfs.OpWrite)
		appendUnits(j, u)
		j.Tick()
		drain(j)
		if n := disk.Count(vfs.OpWrite) - writes; n != 1 {
			t.Fatalf("%d writes for a group at a high rate", n)
		}
	}
}
