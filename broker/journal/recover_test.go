package journal

import (
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/strandline-io/strandline/internal/vfs"
)

// clone copies a disk's journal folder to a new disk, everything durable.
func clone(t *testing.T, from vfs.FS) *vfs.Mem {
	t.Helper()
	to := vfs.NewMem()
	must(t, to.MkdirAll("journal"))
	names, err := from.List("journal")
	must(t, err)
	for _, name := range names {
		writeFile(t, to, name, readFile(t, from, name))
	}
	return to
}

func readFile(t *testing.T, disk vfs.FS, name string) []byte {
	t.Helper()
	f, err := disk.Open("journal/" + name)
	must(t, err)
	defer f.Close()
	size, err := f.Size()
	must(t, err)
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); n < len(b) {
		t.Fatal(err)
	}
	return b
}

func writeFile(t *testing.T, disk vfs.FS, name string, content []byte) {
	t.Helper()
	f, err := disk.Create("journal/" + name)
	must(t, err)
	must(t, f.WriteVecAt([][]byte{content}, 0))
	must(t, f.Sync())
	must(t, f.Close())
	must(t, disk.SyncDir("journal"))
}

// overwrite changes bytes of a file.
func overwrite(t *testing.T, disk vfs.FS, name string, pos int64, b ...byte) {
	t.Helper()
	f, err := disk.Open("journal/" + name)
	must(t, err)
	must(t, f.WriteVecAt([][]byte{b}, pos))
	must(t, f.Sync())
	must(t, f.Close())
}

// flip inverts one bit.
func flip(t *testing.T, disk vfs.FS, name string, pos int64, bit int) {
	t.Helper()
	overwrite(t, disk, name, pos, readFile(t, disk, name)[pos]^1<<bit)
}

// kill ends the process and returns its disk, of which everything counts as durable.
func kill(t *testing.T, disk *vfs.Mem) *vfs.Mem {
	t.Helper()
	return clone(t, disk.ProcessCrash())
}

// wantCorrupt demands ErrCorrupt that names the file and the offset.
func wantCorrupt(t *testing.T, disk vfs.FS, file string, offset int64) {
	t.Helper()
	o := &opening{}
	j, err := OpenStepped(o.config(disk), o.replay, o.event)
	if err == nil {
		must(t, j.Close())
	}
	place := fmt.Sprintf("%s at offset %d:", file, offset)
	if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), place) {
		t.Fatalf("opened with %v, want damage of %s", err, place)
	}
}

// oneBlock makes units that take one block each, so that unit n of a new journal begins at dataStart+(n-1) blocks.
func oneBlock(n int) []Unit {
	rng := rand.New(rand.NewPCG(9, 9))
	units := make([]Unit, n)
	for i := range units {
		units[i] = Unit{Meta: []byte("meta"), Batches: [][]byte{newBatch(rng, 500), newBatch(rng, 70)}}
	}
	return units
}

func unitPos(n int) int64 { return dataStart + int64(n-1)*blockBytes }

const firstName = "0000000000000001-00000001.segment"

// fourUnits is a journal of four units in one segment, each a group, all synced; the heads name 0 to 3 as durable.
func fourUnits(t *testing.T) (*vfs.Mem, []Unit) {
	t.Helper()
	disk := vfs.NewMem()
	j, _ := openStepped(t, disk)
	units := oneBlock(4)
	appendUnits(j, units...)
	return kill(t, disk), units
}

func TestTornTailIsCut(t *testing.T) {
	for _, pos := range []int64{unitPos(4), unitPos(4) + 60, unitPos(4) + 300} {
		disk, units := fourUnits(t)
		flip(t, disk, firstName, pos, 3)
		j, o := openStepped(t, disk)
		checkReplayed(t, j, o.replayed, units[:3])
		must(t, j.Close())
	}
}

func TestDamageBelowDurableIsRefused(t *testing.T) {
	for n := 1; n <= 3; n++ {
		for _, at := range []int64{0, 8, 60, 300, 600} {
			disk, _ := fourUnits(t)
			flip(t, disk, firstName, unitPos(n)+at, 3)
			wantCorrupt(t, disk, firstName, unitPos(n))
		}
	}
	disk, _ := fourUnits(t)
	overwrite(t, disk, firstName, unitPos(2), make([]byte, 2*blockBytes)...)
	wantCorrupt(t, disk, firstName, unitPos(2))
	disk, _ = fourUnits(t)
	flip(t, disk, firstName, 40, 0)
	wantCorrupt(t, disk, firstName, 0)
}

func TestHoleInTheTailIsNoDamage(t *testing.T) {
	disk := vfs.NewMem()
	j, _ := openStepped(t, disk)
	units := oneBlock(4)
	appendUnits(j, units[:2]...)
	j.Append(units[2:3])
	j.Append(units[3:])
	j.Step(LaneWrite)
	j.Step(LaneWrite)
	disk = kill(t, disk)
	overwrite(t, disk, firstName, unitPos(3), make([]byte, blockBytes)...)
	j, o := openStepped(t, disk)
	checkReplayed(t, j, o.replayed, units[:2])

	// What lies behind the hole must stay unreadable once other units have taken its place.
	others := randomUnits(5, 2, 200)
	appendUnits(j, others...)
	disk = kill(t, disk)
	j, o = openStepped(t, disk)
	checkReplayed(t, j, o.replayed, append(units[:2:2], others...))
}

func TestLeftoversOfAnEarlierLifeStayDead(t *testing.T) {
	disk, units := fourUnits(t)
	lost := readFile(t, disk, firstName)[unitPos(4):unitPos(5)]
	overwrite(t, disk, firstName, unitPos(4), make([]byte, blockBytes)...)
	j, o := openStepped(t, disk)
	checkReplayed(t, j, o.replayed, units[:3])
	other := randomUnits(6, 1, 200)
	appendUnits(j, other...)
	disk = kill(t, disk)
	overwrite(t, disk, firstName, unitPos(4), lost...)
	j, o = openStepped(t, disk)
	checkReplayed(t, j, o.replayed, append(units[:3:3], other...))
}

func TestWhatIsReplayedIsDurable(t *testing.T) {
	disk := vfs.NewMem()
	j, _ := openStepped(t, disk)
	units := oneBlock(3)
	for _, u := range units[:2] {
		j.Append([]Unit{u})
		j.Step(LaneWrite)
	}
	for seed := range uint64(20) {
		disk = disk.ProcessCrash()
		_, o := openStepped(t, disk)
		if len(o.replayed) != 2 {
			t.Fatalf("%d units after a kill, want 2", len(o.replayed))
		}
		disk = disk.PowerLoss(seed)
		j, o = openStepped(t, disk)
		checkReplayed(t, j, o.replayed, units[:2])
	}
}

func TestRecycledSegmentWithStaleContent(t *testing.T) {
	disk := vfs.NewMem()
	j, _ := openStepped(t, disk)
	units := oneBlock(40)
	for i, u := range units {
		appendUnits(j, u)
		if i%4 == 3 {
			must(t, j.WriteSnapshot(uint64(i+1), []byte("state")))
			j.Trim(uint64(i + 1))
			drain(j)
		}
	}
	disk = kill(t, disk)
	names, err := disk.List("journal")
	must(t, err)
	stale := slices.ContainsFunc(names, func(name string) bool {
		b := readFile(t, disk, name)
		return len(b) > dataStart+8 && string(b[:4]) == headerMagic[:4] && le.Uint32(b[dataStart+4:]) == unitMagic &&
			name != rolledName(le.Uint64(b[32:]))
	})
	if !stale {
		t.Fatalf("no file holds anything stale: %v", names)
	}
	j, o := openStepped(t, disk)
	if o.snapshotSeq != 40 || len(o.replayed) != 0 {
		t.Fatalf("snapshot %d and %d units, want 40 and none", o.snapshotSeq, len(o.replayed))
	}
	must(t, j.Close())
}

func TestUnitLargerThanASegment(t *testing.T) {
	disk := vfs.NewMem()
	j, _ := openStepped(t, disk)
	rng := rand.New(rand.NewPCG(2, 2))
	large := Unit{Meta: make([]byte, 50_000), Batches: [][]byte{newBatch(rng, 300_000), newBatch(rng, 80_000)}}
	units := []Unit{newUnit(rng, 100), large, newUnit(rng, 100), large}
	appendUnits(j, units...)
	if infos := j.Segments(); len(infos) != 4 || infos[1].FirstSeq != infos[1].LastSeq {
		t.Fatalf("a large unit has no segment of its own: %+v", infos)
	}
	disk = kill(t, disk)
	j, o := openStepped(t, disk)
	checkReplayed(t, j, o.replayed, units)
	must(t, j.Close())
	j, o = openStepped(t, disk)
	checkReplayed(t, j, o.replayed, units)
	must(t, j.Close())
}

func TestCleanCloseLeavesNothingToRewrite(t *testing.T) {
	disk := vfs.NewMem()
	units := oneBlock(9)
	for range 3 {
		j, o := openStepped(t, disk)
		if len(o.replayed) == 0 {
			appendUnits(j, units...)
		} else {
			checkReplayed(t, j, o.replayed, units)
			if infos := j.Segments(); infos[len(infos)-1].FirstSeq != 10 {
				t.Fatalf("units were rewritten: %+v", infos)
			}
		}
		must(t, j.Close())
		if used := disk.UsedBytes(); used > 3*minSegmentBytes {
			t.Fatalf("a closed journal takes %d bytes", used)
		}
	}
}

func TestIncarnationRisesWithEveryOpening(t *testing.T) {
	disk := vfs.NewMem()
	for want := uint32(1); want < 6; want++ {
		j, _ := openStepped(t, disk)
		if got := j.Incarnation(); got != want {
			t.Fatalf("incarnation %d, want %d", got, want)
		}
		if want%2 == 0 {
			disk = disk.PowerLoss(uint64(want))
			continue
		}
		must(t, j.Close())
	}
	names, err := disk.List("journal")
	must(t, err)
	for _, name := range names {
		if strings.HasSuffix(name, "-00000005.segment") {
			flip(t, disk, name, 12, 0)
			wantCorrupt(t, disk, name, 0)
			return
		}
	}
	t.Fatalf("no segment of incarnation 5: %v", names)
}

func TestSecondOpenIsRefused(t *testing.T) {
	for _, disk := range []vfs.FS{vfs.NewMem(), vfs.OS(t.TempDir())} {
		j, o := openStepped(t, disk)
		_, err := OpenStepped(o.config(disk), o.replay, o.event)
		if !errors.Is(err, vfs.ErrLocked) || !strings.Contains(err.Error(), "journal folder journal is in use by another process") {
			t.Fatalf("the second open says %v", err)
		}
		must(t, j.Close())
		j, _ = openStepped(t, disk)
		must(t, j.Close())
	}
}

func TestMissingSegmentIsDamage(t *testing.T) {
	disk := vfs.NewMem()
	j, _ := openStepped(t, disk)
	appendUnits(j, oneBlock(20)...)
	infos := j.Segments()
	disk = kill(t, disk)
	for i, s := range infos[:len(infos)-1] {
		missing := clone(t, disk)
		name := rolledName(s.Number)
		if i == 0 {
			name = firstName
		}
		must(t, missing.Remove("journal/"+name))
		o := &opening{}
		if _, err := OpenStepped(o.config(missing), o.replay, o.event); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("without %s: %v", name, err)
		}
	}
}

func TestForeignSegmentIsRefused(t *testing.T) {
	disk, _ := fourUnits(t)
	other := vfs.NewMem()
	j, _ := openStepped(t, other, func(c *FileConfig) { c.Rand = rand.NewChaCha8([32]byte{7}) })
	must(t, j.Close())
	j, _ = openStepped(t, other)
	must(t, j.Close())
	const name = "0000000000000002-00000002.segment"
	must(t, disk.Remove("journal/"+rolledName(2)))
	writeFile(t, disk, name, readFile(t, other, name))
	wantCorrupt(t, disk, name, 0)
}

func TestErrorsOfTheOwnerEndTheOpening(t *testing.T) {
	disk, units := fourUnits(t)
	boom := errors.New("boom")
	o := &opening{}
	before, err := disk.List("journal")
	must(t, err)
	_, err = OpenStepped(o.config(disk), func(Stored) error { return boom }, o.event)
	if !errors.Is(err, boom) {
		t.Fatalf("replay's error is lost: %v", err)
	}
	after, err := disk.List("journal")
	must(t, err)
	if !slices.Equal(after, before) {
		t.Fatalf("a failed opening changed the folder from %v to %v", before, after)
	}
	j, o := openStepped(t, disk)
	checkReplayed(t, j, o.replayed, units)
	must(t, j.Close())
}

func TestReadErrorIsNeitherTailNorDamage(t *testing.T) {
	boom := errors.New("medium error")
	reads := 1
	for skip := 0; skip < reads; skip++ {
		disk, units := fourUnits(t)
		if skip == 0 {
			j, _ := openStepped(t, clone(t, disk))
			reads = j.disk.fs.(*vfs.Mem).Count(vfs.OpRead)
		}
		disk.FailNext(vfs.OpRead, skip, boom)
		o := &opening{}
		j, err := OpenStepped(o.config(disk), o.replay, o.event)
		if err == nil {
			checkReplayed(t, j, o.replayed, units)
		}
		if !errors.Is(err, boom) || errors.Is(err, ErrCorrupt) {
			t.Fatalf("read %d of %d failed: %v", skip, reads, err)
		}
	}
}

func TestLastSegmentWithADurableHeaderStays(t *testing.T) {
	disk := vfs.NewMem()
	j, _ := openStepped(t, disk)
	units := oneBlock(5)
	appendUnits(j, units[:4]...)
	must(t, j.WriteSnapshot(4, []byte("state")))
	j.Trim(4)
	j.Append(units[4:])
	for j.Step(LaneBackground) {
	}
	if infos := j.Segments(); len(infos) != 2 || !infos[0].Sealed {
		t.Fatalf("segments %+v while the new header is not durable", infos)
	}
	drain(j)
	if infos := j.Segments(); len(infos) != 1 {
		t.Fatalf("segments %+v once it is", infos)
	}
}

func TestDamagedHeaderOfARolledSegment(t *testing.T) {
	disk := vfs.NewMem()
	j, _ := openStepped(t, disk)
	units := oneBlock(7)
	appendUnits(j, units...)
	disk = kill(t, disk)
	rolled := rolledName(2)
	flip(t, disk, rolled, 40, 0)
	wantCorrupt(t, disk, rolled, 0)

	// With one group in it nothing says that it was durable: it is the torn tail.
	disk = vfs.NewMem()
	j, _ = openStepped(t, disk)
	appendUnits(j, units[:5]...)
	disk = kill(t, disk)
	flip(t, disk, rolled, 40, 0)
	j, o := openStepped(t, disk)
	checkReplayed(t, j, o.replayed, units[:4])
	must(t, j.Close())
}

func TestPayloadCannotLookLikeAHead(t *testing.T) {
	forge := func(s secret) []byte {
		payload := newBatch(rand.New(rand.NewPCG(3, 3)), 6*blockBytes)
		head := unitHead{seq: 99, durable: 98, incarnation: 1, totalBytes: unitHeadBytes, flags: flagGroupEnd}
		fake := head.encode(nil)
		head.crc = crc32.Update(s.seed(1), castagnoli, fake[4:])
		fake = head.encode(nil)
		for at := batchHeader; at+len(fake) < len(payload); at++ {
			if (int64(at)+unitHeadBytes+lengthBytes)%blockBytes == 0 {
				copy(payload[at:], fake)
			}
		}
		return payload
	}
	run := func(guess func(real secret) secret, wantErr bool) {
		t.Helper()
		disk := vfs.NewMem()
		j, _ := openStepped(t, disk, func(c *FileConfig) { c.SegmentBytes = 1 << 20 })
		units := oneBlock(2)
		appendUnits(j, units...)
		appendUnits(j, Unit{Batches: [][]byte{forge(guess(j.disk.secret))}})
		disk = kill(t, disk)
		flip(t, disk, firstName, unitPos(3), 0)
		o := &opening{}
		j, err := OpenStepped(o.config(disk), o.replay, o.event)
		if wantErr != errors.Is(err, ErrCorrupt) {
			t.Fatalf("opened with %v", err)
		}
		if err == nil {
			checkReplayed(t, j, o.replayed, units)
		}
	}
	run(func(secret) secret { return secret{} }, false)
	// Who knows the secret can: this shows that the test forges well.
	run(func(real secret) secret { return real }, true)
}

func TestSegmentOfAnOpeningMustFollowTheChain(t *testing.T) {
	// Two lives share three units and part with the fourth. The second life's opening is put behind the first life.
	base := vfs.NewMem()
	j, _ := openStepped(t, base)
	units := oneBlock(5)
	appendUnits(j, units[:3]...)
	base = kill(t, base)
	live := func(last Unit) *vfs.Mem {
		disk := clone(t, base)
		j, _ := openStepped(t, disk)
		appendUnits(j, last)
		must(t, j.Close())
		return disk
	}
	first, second := live(units[3]), live(units[4])
	j, _ = openStepped(t, second)
	must(t, j.Close())
	const opened = "0000000000000004-00000003.segment"
	writeFile(t, first, opened, readFile(t, second, opened))
	o := &opening{}
	_, err := OpenStepped(o.config(first), o.replay, o.event)
	if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), opened+" says that units up to 4 were durable") {
		t.Fatalf("opened with %v", err)
	}
}

func TestEverythingThatNamesADurablePosition(t *testing.T) {
	f := func(name string, damage func(t *testing.T, disk *vfs.Mem, j *Stepped)) {
		t.Helper()
		disk := vfs.NewMem()
		j, _ := openStepped(t, disk)
		drain(j)
		for _, u := range oneBlock(4) {
			j.Append([]Unit{u})
			j.Step(LaneWrite)
			j.Step(LaneSync)
		}
		damage(t, disk, j)
		disk = kill(t, disk)
		flip(t, disk, firstName, unitPos(4)+60, 0)
		if name != "" {
			wantCorrupt(t, disk, firstName, unitPos(4))
			return
		}
		j, o := openStepped(t, disk)
		checkReplayed(t, j, o.replayed, oneBlock(3))
	}
	f("", func(*testing.T, *vfs.Mem, *Stepped) {})
	f("a snapshot", func(t *testing.T, _ *vfs.Mem, j *Stepped) { must(t, j.WriteSnapshot(4, nil)) })
	f("the header of the next segment", func(t *testing.T, disk *vfs.Mem, j *Stepped) {
		j.Append(oneBlock(1))
		j.Step(LaneWrite)
		flip(t, disk, rolledName(2), dataStart, 0)
	})
	f("a unit of the next segment", func(t *testing.T, disk *vfs.Mem, j *Stepped) {
		j.Append(oneBlock(1))
		j.Step(LaneWrite)
		flip(t, disk, rolledName(2), 40, 0)
	})
}

func TestFooterPointerNamesADurablePosition(t *testing.T) {
	disk := vfs.NewMem()
	j, _ := openStepped(t, disk)
	drain(j)
	appendUnits(j, oneBlock(4)...)
	large := Unit{Meta: make([]byte, 12_000)}
	j.Append([]Unit{large}) // in segment 2, whose only group it is
	j.Append([]Unit{large}) // begins segment 3 and names only unit 4
	drain(j)
	disk = kill(t, disk)
	flip(t, disk, rolledName(2), 40, 0)
	wantCorrupt(t, disk, rolledName(2), 0)
}

func TestDamagedHeaderOfAnOpeningWithoutUnits(t *testing.T) {
	disk, _ := fourUnits(t)
	j, _ := openStepped(t, disk)
	must(t, j.Close())
	openStepped(t, disk)
	disk = kill(t, disk)
	const newest = "0000000000000004-00000003.segment"
	flip(t, disk, newest, 45, 0)
	wantCorrupt(t, disk, newest, 0)
}

func TestNumberOfAFileThatComesBack(t *testing.T) {
	for first := 1; first < 12; first++ {
		for second := 1; second < 12; second++ {
			disk := vfs.NewMem()
			j, _ := openStepped(t, disk)
			units := oneBlock(2)
			appendUnits(j, units...)
			disk = disk.ProcessCrash()
			for _, changes := range []int{first, second} {
				disk.CrashAfter(changes)
				o := &opening{}
				_, _ = OpenStepped(o.config(disk), o.replay, o.event)
				if changes == second {
					disk = disk.PowerLoss(uint64(first))
				} else {
					disk = disk.ProcessCrash()
				}
			}
			j, o := openStepped(t, disk)
			checkReplayed(t, j, o.replayed, units)
		}
	}
}
