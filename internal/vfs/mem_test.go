package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
)

// outcomes collects what some power cuts leave of name, "-" if it is gone.
func outcomes(t *testing.T, build func(m *Mem), name string) map[string]int {
	t.Helper()
	seen := make(map[string]int)
	for seed := range uint64(300) {
		m := NewMem()
		build(m)
		left := m.PowerLoss(seed)
		if f, err := left.Open(name); err != nil {
			seen["-"]++
		} else {
			seen[fileContent(t, f)]++
		}
	}
	return seen
}

// wantOutcomes demands that exactly the given outcomes are possible, and that each is seen.
func wantOutcomes(t *testing.T, got map[string]int, want ...string) {
	t.Helper()
	for o := range got {
		if !slices.Contains(want, o) {
			t.Errorf("outcome %.40q of %d must not happen", o, got[o])
		}
	}
	for _, o := range want {
		if got[o] == 0 {
			t.Errorf("outcome %.40q never happened", o)
		}
	}
}

func TestPowerLossOfNames(t *testing.T) {
	synced := func(m *Mem, name, content string) File {
		f := create(t, m, name, content)
		must(t, f.Sync())
		must(t, m.SyncDir("."))
		return f
	}
	wantOutcomes(t, outcomes(t, func(m *Mem) { synced(m, "f", "a") }, "f"), "a")
	wantOutcomes(t, outcomes(t, func(m *Mem) { must(t, create(t, m, "f", "a").Sync()) }, "f"), "-", "a")
	wantOutcomes(t, outcomes(t, func(m *Mem) {
		synced(m, "f", "a")
		must(t, create(t, m, "tmp", "b").Sync())
		must(t, m.Rename("tmp", "f"))
	}, "f"), "a", "b")
	wantOutcomes(t, outcomes(t, func(m *Mem) {
		synced(m, "f", "a")
		must(t, create(t, m, "tmp", "b").Sync())
		must(t, m.Rename("tmp", "f"))
		must(t, m.SyncDir("."))
	}, "f"), "b")
	wantOutcomes(t, outcomes(t, func(m *Mem) {
		synced(m, "f", "a")
		must(t, m.Remove("f"))
	}, "f"), "-", "a")
	wantOutcomes(t, outcomes(t, func(m *Mem) {
		must(t, m.MkdirAll("d"))
		must(t, create(t, m, "d/f", "a").Sync())
		must(t, m.SyncDir("d"))
	}, "d/f"), "-", "a")
}

func TestSyncedRenameIsNotUndone(t *testing.T) {
	wantOutcomes(t, outcomes(t, func(m *Mem) {
		must(t, m.MkdirAll("d"))
		must(t, create(t, m, "f", "a").Sync())
		must(t, m.Rename("f", "d/f"))
		must(t, m.SyncDir("d"))
		must(t, m.SyncDir("."))
	}, "f"), "-")
}

func TestPowerLossOfBytes(t *testing.T) {
	a, b, zero := bytes.Repeat([]byte("a"), pageBytes), bytes.Repeat([]byte("b"), pageBytes), make([]byte, pageBytes)
	join := func(parts ...[]byte) string { return string(slices.Concat(parts...)) }
	base := func(m *Mem) File {
		f := create(t, m, "f", join(a, a))
		must(t, f.Sync())
		must(t, m.SyncDir("."))
		return f
	}
	wantOutcomes(t, outcomes(t, func(m *Mem) {
		must(t, base(m).WriteVecAt([][]byte{b, b}, 0))
	}, "f"), join(a, a), join(a, b), join(b, a), join(b, b))
	wantOutcomes(t, outcomes(t, func(m *Mem) {
		f := base(m)
		must(t, f.WriteVecAt([][]byte{b}, 0))
		must(t, f.Sync())
		must(t, f.WriteVecAt([][]byte{zero}, pageBytes))
	}, "f"), join(b, a), join(b, zero))
	wantOutcomes(t, outcomes(t, func(m *Mem) {
		must(t, base(m).WriteVecAt([][]byte{b}, 2*pageBytes))
	}, "f"), join(a, a), join(a, a, zero), join(a, a, b))
	wantOutcomes(t, outcomes(t, func(m *Mem) {
		f := base(m)
		m.FailNext(OpSync, 0, errors.New("medium error"))
		must(t, f.WriteVecAt([][]byte{b}, 0))
		if f.Sync() == nil {
			t.Fatal("the injected failure did not happen")
		}
		must(t, f.Sync())
	}, "f"), join(a, a), join(b, a))
}

func TestPowerLossTearsSectors(t *testing.T) {
	torn := 0
	for seed := range uint64(50) {
		m := NewMem()
		f := create(t, m, "f", string(bytes.Repeat([]byte("a"), pageBytes)))
		must(t, f.Sync())
		must(t, m.SyncDir("."))
		must(t, f.WriteVecAt([][]byte{bytes.Repeat([]byte("b"), pageBytes)}, 0))
		got := content(t, m.PowerLossTorn(seed, 512), "f")
		for at := 0; at < pageBytes; at += 512 {
			if sector := got[at : at+512]; bytes.Count([]byte(sector), []byte(sector[:1])) != 512 {
				t.Fatal("torn within a sector")
			}
		}
		if n := bytes.Count([]byte(got), []byte("a")); n > 0 && n < pageBytes {
			torn++
		}
	}
	if torn == 0 {
		t.Fatal("no page was ever torn")
	}
}

func TestProcessCrashKeepsBytesButNotDurability(t *testing.T) {
	m := NewMem()
	f := create(t, m, "f", "a")
	lock, err := m.Lock("LOCK")
	must(t, err)
	next := m.ProcessCrash()
	wantErr(t, f.Sync(), ErrCrashed)
	wantErr(t, lock.Close(), ErrCrashed)
	_, err = m.Create("g")
	wantErr(t, err, ErrCrashed)
	if got := content(t, next, "f"); got != "a" {
		t.Fatalf("after a process crash: %q", got)
	}
	_, err = next.Lock("LOCK")
	must(t, err)
	lost := false
	for seed := uint64(0); !lost && seed < 100; seed++ {
		m := NewMem()
		create(t, m, "f", "a")
		_, err := m.ProcessCrash().PowerLoss(seed).Open("f")
		lost = err != nil
	}
	if !lost {
		t.Fatal("a process crash made an unsynced name durable")
	}
}

func TestPowerLossIsAFunctionOfTheSeed(t *testing.T) {
	run := func(seed uint64) string {
		m := NewMem()
		for i := range 20 {
			f := create(t, m, fmt.Sprintf("f%d", i), "")
			must(t, f.WriteVecAt([][]byte{bytes.Repeat([]byte{'x'}, 5*pageBytes)}, 0))
			if i%3 == 0 {
				must(t, m.SyncDir("."))
			}
		}
		left := m.PowerLoss(seed)
		names, err := left.List(".")
		must(t, err)
		all := ""
		for _, name := range names {
			all += name + content(t, left, name)
		}
		return all
	}
	for seed := range uint64(20) {
		if first, second := run(seed), run(seed); first != second {
			t.Fatalf("seed %d gave two outcomes", seed)
		}
	}
}

func TestDiskFull(t *testing.T) {
	m := NewMem()
	m.SetCapacity(3 * pageBytes)
	f := create(t, m, "f", "a")
	must(t, f.Allocate(0, 2*pageBytes))
	must(t, f.WriteVecAt([][]byte{make([]byte, 2*pageBytes)}, 0))
	wantErr(t, f.Allocate(0, 4*pageBytes), ErrNoSpace)
	wantErr(t, f.WriteVecAt([][]byte{make([]byte, 2*pageBytes)}, 2*pageBytes), ErrNoSpace)
	g := create(t, m, "g", "b")
	must(t, m.Remove("f"))
	wantErr(t, g.Allocate(0, 2*pageBytes), ErrNoSpace)
	must(t, f.Close())
	must(t, g.Allocate(0, 3*pageBytes))
	must(t, g.Truncate(0))
	if got := m.UsedBytes(); got != 0 {
		t.Fatalf("%d bytes are used by an empty file", got)
	}
}

func TestInjectedFailures(t *testing.T) {
	m := NewMem()
	boom := errors.New("boom")
	m.FailNext(OpWrite, 1, boom)
	f := create(t, m, "f", "first is fine")
	wantErr(t, f.WriteVecAt([][]byte{bytes.Repeat([]byte("x"), 4*pageBytes)}, 0), boom)
	if got := fileContent(t, f); len(got) != 2*pageBytes {
		t.Fatalf("a failed write wrote %d bytes, want the first half", len(got))
	}
	must(t, f.WriteVecAt([][]byte{[]byte("third is fine")}, 0))
	m.FailNext(OpRename, 0, boom)
	wantErr(t, m.Rename("f", "g"), boom)
	must(t, m.Rename("f", "g"))
	if got := m.Count(OpRename); got != 2 {
		t.Fatalf("counted %d renames", got)
	}
}

func TestCrashAfterStopsWithinASequence(t *testing.T) {
	m := NewMem()
	m.CrashAfter(3)
	f := create(t, m, "f", "kept")
	wantErr(t, f.WriteVecAt([][]byte{[]byte("lost")}, 0), ErrCrashed)
	wantErr(t, f.Sync(), ErrCrashed)
	_, err := m.List(".")
	wantErr(t, err, ErrCrashed)
	if got := content(t, m.ProcessCrash(), "f"); got != "kept" {
		t.Fatalf("after the crash: %q", got)
	}
}
