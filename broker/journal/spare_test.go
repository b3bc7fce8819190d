package journal

import (
	"errors"
	"strings"
	"testing"

	"github.com/strandline-io/strandline/internal/vfs"
)

// removals notes which spares are removed.
type removals struct {
	vfs.FS
	names []string
}

func (r *removals) Remove(name string) error {
	if strings.HasSuffix(name, spareSuffix) {
		r.names = append(r.names, name)
	}
	return r.FS.Remove(name)
}

func spareNames(t *testing.T, disk vfs.FS) (spares []string) {
	t.Helper()
	names, err := disk.List("journal")
	must(t, err)
	for _, name := range names {
		if strings.HasSuffix(name, spareSuffix) {
			spares = append(spares, name)
		}
	}
	return spares
}

// TestSpaceKeptReadyOutlivesAKill: what the process before had prepared is used, not removed and made anew.
func TestSpaceKeptReadyOutlivesAKill(t *testing.T) {
	disk := vfs.NewMem()
	j, _ := openStepped(t, disk)
	units := oneBlock(30)
	appendUnits(j, units[:10]...)
	disk = disk.ProcessCrash()
	if had := spareNames(t, disk); len(had) != 1 {
		t.Fatalf("before: spares %q", had)
	}
	watched := &removals{FS: disk}
	j, o := openStepped(t, watched)
	checkReplayed(t, j, o.replayed, units[:10])
	// The prepared segment has become a spare beside the one that was there.
	if has := spareNames(t, disk); len(has) != 2 {
		t.Errorf("spares %q, want two", has)
	}
	if len(watched.names) != 0 {
		t.Errorf("%q were removed", watched.names)
	}
	appendUnits(j, units[10:]...)
	disk = disk.ProcessCrash()
	j, o = openStepped(t, disk)
	checkReplayed(t, j, o.replayed, units)
	must(t, j.Close())
}

// TestSparesYieldToAFullDisk: the journal opens with the space of its spares when there is no other, and spares that do
// not fit, or are too many, go.
func TestSparesYieldToAFullDisk(t *testing.T) {
	disk := vfs.NewMem()
	j, _ := openStepped(t, disk)
	units := oneBlock(10)
	appendUnits(j, units...)
	disk = disk.ProcessCrash()
	disk.SetCapacity(disk.UsedBytes())
	j, o := openStepped(t, disk)
	checkReplayed(t, j, o.replayed, units)
	if has := spareNames(t, disk); len(has) != 0 {
		t.Errorf("spares %q on a full disk", has)
	}
	disk.SetCapacity(-1)
	must(t, j.Close())

	for i, size := range []int64{minSegmentBytes, minSegmentBytes - 1, minSegmentBytes, minSegmentBytes, minSegmentBytes} {
		f, err := disk.Create("journal/" + spareName(uint64(i+7)))
		must(t, err)
		must(t, errors.Join(f.Allocate(0, size), f.Close()))
	}
	f, err := disk.Create("journal/ffffffffffffffff" + spareSuffix)
	must(t, err)
	must(t, f.Close())
	j, _ = openStepped(t, disk)
	if got, want := strings.Join(spareNames(t, disk), " "), strings.Join([]string{spareName(7), spareName(9), spareName(10)}, " "); got != want {
		t.Errorf("spares %s, want %s", got, want)
	}
	drain(j)
	must(t, j.Close())
}

// TestFileHasOneName: a spare became a segment, the process was killed before the folder was synced, the next one makes it a
// spare again, and the power is cut. Whichever names are left, no two are of one file.
func TestFileHasOneName(t *testing.T) {
	left := 0
	for seed := range uint64(200) {
		disk := vfs.NewMem()
		j, _ := openStepped(t, disk)
		appendUnits(j, oneBlock(10)...)
		must(t, disk.SyncDir("journal")) // of the spare that was made meanwhile
		spare := spareNames(t, disk)[0]
		must(t, disk.Rename("journal/"+spare, "journal/"+rolledName(100)))
		disk = disk.ProcessCrash()
		watched := &diesBehind{disk, "journal/" + rolledName(100)}
		o := &opening{}
		if _, err := OpenStepped(o.config(watched), o.replay, o.event); !errors.Is(err, vfs.ErrCrashed) {
			t.Fatalf("opening: %v", err)
		}
		disk = disk.PowerLoss(seed)
		names, err := disk.List("journal")
		must(t, err)
		for i, name := range names {
			before := readFile(t, disk, name)
			for _, other := range names[i+1:] {
				overwrite(t, disk, other, 0, 0xaa, 0x55, byte(i))
			}
			if string(readFile(t, disk, name)) != string(before) {
				t.Fatalf("seed %d: %s is another file of %q as well", seed, name, names)
			}
		}
		if len(spareNames(t, disk)) > 0 {
			left++
		}
	}
	if left == 0 {
		t.Error("no power cut left a spare")
	}
}

// diesBehind is a disk whose process dies behind a rename of one name.
type diesBehind struct {
	*vfs.Mem
	name string
}

func (d *diesBehind) Rename(oldName, newName string) error {
	err := d.Mem.Rename(oldName, newName)
	if oldName == d.name {
		d.CrashAfter(1)
	}
	return err
}
