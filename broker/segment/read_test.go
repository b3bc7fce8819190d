package segment

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/strandline-io/strandline/broker/record"
	"github.com/strandline-io/strandline/internal/vfs"
)

// TestReadLimits reads five batches of 1000 bytes, two in files and three in the journal.
func TestReadLimits(t *testing.T) {
	s, j := open(t, vfs.NewMem(), Config{}, nil), newFakeJournal()
	log := s.NewLog(j, 1)
	var all []Shelving
	var want []byte
	for i := range int64(5) {
		raw := sized(2*i, i, 1000)
		raw[26] = 1 // two offsets
		record.PatchMaxTimestamp(raw, i)
		want = append(want, raw...)
		all = append(all, j.put(1, raw, 50))
		log = log.Append(all[i].Extent)
	}
	if _, err := s.Shelve(j, all[:2]); err != nil {
		t.Fatal(err)
	}
	log = log.WithShelved(s.Files(1))
	if log.StartOffset() != 0 || log.EndOffset() != 10 || log.ShelvedOffset() != 4 {
		t.Fatalf("log of %d to %d, files to %d", log.StartOffset(), log.EndOffset(), log.ShelvedOffset())
	}
	f := func(from, upTo int64, maxBytes int, atLeastOne bool, first, end int) {
		t.Helper()
		got, err := log.Read([]byte("x"), from, upTo, maxBytes, atLeastOne)
		if err != nil || !bytes.Equal(got[1:], want[first*1000:end*1000]) {
			t.Fatalf("%d bytes, want batches %d to %d; error %v", len(got)-1, first, end, err)
		}
	}
	f(0, 10, 5000, false, 0, 5)
	f(0, 10, 4999, false, 0, 4)
	f(0, 10, 2000, false, 0, 2)
	f(0, 10, 1999, false, 0, 1)
	f(1, 10, 1999, false, 0, 1)
	f(0, 10, 999, false, 0, 0)
	f(0, 10, 0, false, 0, 0)
	f(0, 10, 999, true, 0, 1)
	f(0, 10, 0, true, 0, 1)
	f(0, 10, -1, true, 0, 1)
	f(5, 10, 999, false, 2, 2)
	f(5, 10, 0, true, 2, 3)
	f(5, 10, 2500, true, 2, 4)
	f(0, 3, 5000, true, 0, 2)
	f(0, 2, 5000, true, 0, 1)
	f(0, 7, 5000, true, 0, 4)
	f(6, 6, 5000, true, 3, 3)
	f(7, 6, 5000, true, 3, 3)
	f(10, 10, 5000, true, 5, 5)
	f(11, 99, 5000, true, 5, 5)
	f(9, 99, 5000, true, 4, 5)
}

// TestReadsAreFew: extents that lie close together are one read, others are not read across.
func TestReadsAreFew(t *testing.T) {
	s, j := open(t, vfs.NewMem(), Config{}, nil), newFakeJournal()
	log := s.NewLog(j, 1)
	var want []byte
	for i, gap := range []int{0, 0, gapBytes, gapBytes + 1, 0} {
		raw := sized(int64(i), 0, 500)
		want = append(want, raw...)
		log = log.Append(j.put(1, raw, gap).Extent)
	}
	got, err := log.Read(make([]byte, 0, 10_000), 0, 5, 5000, false)
	if err != nil || !bytes.Equal(got, want) || j.reads != 2 {
		t.Fatalf("%d bytes in %d reads, error %v", len(got), j.reads, err)
	}
}

// TestReadAllocatesNothing when dst has room.
func TestReadAllocatesNothing(t *testing.T) {
	s, j, m := open(t, vfs.OS(t.TempDir()), Config{}, nil), newFakeJournal(), newMaker(1)
	batches, log := fill(t, s, j, 1, 2000, m)
	dst := make([]byte, 0, 1<<18)
	f := func() {
		t.Helper()
		from := int64(0)
		allocs := testing.AllocsPerRun(100, func() {
			got, err := log.Read(dst, from%log.EndOffset(), log.EndOffset(), 1<<16, true)
			if err != nil || len(got) == 0 {
				t.Fatalf("%d bytes, error %v", len(got), err)
			}
			from += 97
		})
		if allocs != 0 {
			t.Fatalf("%v allocations", allocs)
		}
	}
	f()
	if _, err := s.Shelve(j, shelvings(batches)); err != nil {
		t.Fatal(err)
	}
	log = log.WithShelved(s.Files(1))
	f()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestMoved(t *testing.T) {
	s, j, m := open(t, vfs.NewMem(), smallConfig(), nil), newFakeJournal(), newMaker(2)
	batches, log := fill(t, s, j, 1, 10, m)
	if _, err := s.Shelve(j, shelvings(batches)); err != nil {
		t.Fatal(err)
	}
	j.free(1)
	if got, err := log.Read([]byte("x"), 0, 10, 1<<20, true); !errors.Is(err, ErrMoved) || len(got) != 1 {
		t.Fatalf("%d bytes, error %v", len(got), err)
	}
	if _, _, err := log.OffsetForTime(0, 0, 10); !errors.Is(err, ErrMoved) {
		t.Fatal(err)
	}
	if _, err := s.Shelve(j, []Shelving{{Partition: 2, Extent: batches[0].extent.Extent}}); !errors.Is(err, ErrMoved) {
		t.Fatal(err)
	}
	now := log.WithShelved(s.Files(1))
	got, err := now.Read(nil, 0, now.EndOffset(), 1<<20, true)
	if err != nil || !bytes.Equal(got, modelRead(batches, 0, 1<<60, 1<<20, true)) {
		t.Fatalf("%d bytes, error %v", len(got), err)
	}
}

// TestAppendBranches: every log keeps what it had, whatever is derived from it and in which order.
func TestAppendBranches(t *testing.T) {
	s, j := open(t, vfs.NewMem(), Config{}, nil), newFakeJournal()
	at := func(base, pos int64) Extent { return Extent{BaseOffset: base, Pos: pos, Len: 100} }
	l0 := s.NewLog(j, 1).Append(at(0, 0), at(1, 1), at(2, 2))
	l1 := l0.Append(at(3, 31))
	l2 := l0.Append(at(3, 32))
	l3 := l2.Append(at(4, 4))
	l4 := l1.Append(at(4, 41))
	dropped := l3.WithShelved(Files{endOffset: 3})
	l5 := dropped.Append(at(5, 5))
	l6 := l3.Append(at(5, 6))
	f := func(l *Log, want ...int64) {
		t.Helper()
		var got []int64
		for _, e := range l.tail.extents {
			got = append(got, e.Pos)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("log holds %v, want %v", got, want)
		}
	}
	f(l0, 0, 1, 2)
	f(l1, 0, 1, 2, 31)
	f(l2, 0, 1, 2, 32)
	f(l3, 0, 1, 2, 32, 4)
	f(l4, 0, 1, 2, 31, 41)
	f(dropped, 32, 4)
	f(l5, 32, 4, 5)
	f(l6, 0, 1, 2, 32, 4, 6)
	if got, err := l6.WithShelved(Files{endOffset: 9}).Read(nil, 0, 10, 100, true); err != nil || len(got) > 0 {
		t.Fatalf("read %d bytes of nothing, error %v", len(got), err)
	}
	f(dropped.Append(at(1, 9), at(2, 9)), 32, 4)
	if l0.Append() != l0 || l3.WithShelved(Files{}) == nil || dropped.WithShelved(Files{endOffset: 2}) != dropped {
		t.Fatal("nothing to do made something")
	}
}

// TestAppendIsAmortised: a long tail is neither copied at each Append nor kept after it has moved.
func TestAppendIsAmortised(t *testing.T) {
	l := &Log{}
	grown := 0
	for i := range int64(100_000) {
		before := cap(l.tail.extents)
		l = l.Append(Extent{BaseOffset: i, Len: 100})
		if cap(l.tail.extents) != before {
			grown++
		}
	}
	if grown > 60 {
		t.Fatalf("grown %d times", grown)
	}
	if l = l.WithShelved(Files{endOffset: 99_990}); cap(l.tail.extents) > 100 {
		t.Fatalf("room for %d extents is kept for 10", cap(l.tail.extents))
	}
	if l = l.WithShelved(Files{endOffset: 100_000}); l.tail.extents != nil || l.EndOffset() != 100_000 {
		t.Fatalf("log ends at %d", l.EndOffset())
	}
}

// damageCase is a partition with thirty batches in one file and ten in the journal.
type damageCase struct {
	t       *testing.T
	store   *Store
	journal *fakeJournal
	disk    *vfs.Mem
	lengths []Length
	log     *Log
	batches []modelBatch
}

const damagedFile = "partitions/0000000001/00000000000000000000"

// damage lets act spoil something and meet it: the error must be ErrCorrupt and name the place.
func damage(t *testing.T, what, place string, act func(d damageCase) error) {
	t.Helper()
	d := damageCase{t: t, disk: vfs.NewMem(), journal: newFakeJournal()}
	cfg := smallConfig()
	cfg.SegmentBytes = 1 << 20
	d.store = open(t, d.disk, cfg, nil)
	d.batches, d.log = fill(t, d.store, d.journal, 1, 40, newMaker(6))
	var err error
	if d.lengths, err = d.store.Shelve(d.journal, shelvings(d.batches[:30])); err != nil {
		t.Fatal(err)
	}
	d.log = d.log.WithShelved(d.store.Files(1))
	if err = act(d); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), place) {
		t.Fatalf("%s: error %v, want damage at %q", what, err, place)
	}
}

func (d *damageCase) spoil(name string, at int64, b ...byte) {
	d.t.Helper()
	file, err := d.disk.Open(name)
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := file.WriteAt(b, at); err != nil {
		d.t.Fatal(err)
	}
}

// position is where batch i lies in the file.
func (d *damageCase) position(i int) (pos int64) {
	for _, b := range d.batches[:i] {
		pos += int64(len(b.raw))
	}
	return pos
}

func TestDamagedFiles(t *testing.T) {
	damage(t, "file missing", damagedFile+".log", func(d damageCase) error {
		if err := d.disk.Remove(damagedFile + ".log"); err != nil {
			t.Fatal(err)
		}
		_, err := Open(d.disk, smallConfig(), d.lengths)
		return err
	})
	damage(t, "file too short", damagedFile+".log at byte", func(d damageCase) error {
		d.lengths[0].FileBytes++
		_, err := Open(d.disk, smallConfig(), d.lengths)
		return err
	})
}

func TestDamagedLog(t *testing.T) {
	damage(t, "magic in the middle", damagedFile+".log at byte", func(d damageCase) error {
		d.spoil(damagedFile+".log", d.position(20)+16, 9)
		log := open(t, d.disk, smallConfig(), d.lengths).NewLog(d.journal, 1)
		whole, err := log.Read(make([]byte, 0, 1<<20), 0, 1<<60, 1<<20, true)
		if err != nil || !bytes.Equal(whole, modelRead(d.batches[:20], 0, 1<<60, 1<<20, true)) {
			t.Fatalf("before the damage: %d bytes, error %v", len(whole), err)
		}
		_, err = log.Read(nil, d.batches[20].base, 1<<60, 1<<20, true)
		return err
	})
	damage(t, "magic, found while indexing", damagedFile+".log at byte", func(d damageCase) error {
		d.spoil(damagedFile+".log", d.position(20)+16, 9)
		log := open(t, d.disk, Config{}, d.lengths).NewLog(d.journal, 1)
		if got, ok, err := log.OffsetForTime(d.batches[3].times[0], 0, 1<<60); err != nil || !ok {
			t.Fatalf("before the damage: %+v, %v, %v", got, ok, err)
		}
		if _, _, err := log.OffsetForTime(d.batches[29].times[0]+1000, 0, 1<<60); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("lookup beyond damage: %v", err)
		}
		if _, _, err := log.MaxTimestamp(0, 1<<60); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("max timestamp beyond damage: %v", err)
		}
		before := d.disk.Count(vfs.OpRead)
		_, err := log.Read(nil, d.batches[20].base, 1<<60, 1<<20, true)
		if reads := d.disk.Count(vfs.OpRead) - before; reads > 1 {
			t.Fatalf("%d reads to find known damage", reads)
		}
		return err
	})
	damage(t, "length beyond the end", damagedFile+".log at byte", func(d damageCase) error {
		d.spoil(damagedFile+".log", d.position(29)+9, 1)
		_, err := d.log.Read(nil, d.batches[29].base, 1<<60, 1<<20, true)
		return err
	})
}

func TestDamagedJournal(t *testing.T) {
	damage(t, "journal extent", "journal segment 1 at byte", func(d damageCase) error {
		d.journal.segments[1][d.batches[35].extent.Pos+7]++
		_, err := d.log.Read(nil, d.batches[35].base, 1<<60, 1<<20, true)
		return err
	})
	for _, e := range []Extent{{Pos: -1, Len: 100}, {Pos: 1<<63 - 1, Len: 100}, {Len: 60}, {Len: -1}, {Len: 100, LastDelta: -1}, {Len: 100, BaseOffset: -1}} {
		damage(t, "impossible extent", "journal segment 0 at byte", func(d damageCase) error {
			_, err := d.store.Shelve(d.journal, []Shelving{d.batches[30].extent, {Partition: 1, Extent: e}})
			return err
		})
	}
	damage(t, "CRC while shelving", "journal segment 1 at byte", func(d damageCase) error {
		d.journal.segments[1][d.batches[35].extent.Pos+70]++
		_, err := d.store.Shelve(d.journal, shelvings(d.batches[30:]))
		d.journal.segments[1][d.batches[35].extent.Pos+70]--
		again, errAgain := d.store.Shelve(d.journal, shelvings(d.batches[25:]))
		if errAgain != nil || again[0].EndOffset != d.log.EndOffset() {
			t.Fatalf("once more: %+v, error %v", again, errAgain)
		}
		return err
	})
}

// TestReadersAndOwner lets readers follow their partition while it is appended to, shelved, freed and reopened.
func TestReadersAndOwner(t *testing.T) {
	s, j, m := open(t, vfs.NewMem(), smallConfig(), nil), newFakeJournal(), newMaker(8)
	var current atomic.Pointer[Log]
	current.Store(s.NewLog(j, 1))
	const total = 600
	var made []modelBatch
	for base := int64(0); len(made) < total; base = made[len(made)-1].last + 1 {
		made = append(made, m.batch(base))
	}
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			dst := make([]byte, 0, 20_000)
			for i, from := 0, int64(0); i < total; {
				got, err := current.Load().Read(dst, from, 1<<60, 3000, true)
				if err != nil && !errors.Is(err, ErrMoved) {
					t.Error(err)
					return
				}
				for len(got) > 0 {
					if !bytes.HasPrefix(got, made[i].raw) {
						t.Errorf("at offset %d there is something else", from)
						return
					}
					got, from = got[len(made[i].raw):], made[i].last+1
					i++
				}
				if _, _, err := current.Load().OffsetForTime(m.clock-50, 0, from); err != nil && !errors.Is(err, ErrMoved) {
					t.Error(err)
					return
				}
			}
		})
	}
	var waiting []Shelving
	for i := range made {
		made[i].extent = j.putLocked(1, made[i].raw, 60)
		waiting = append(waiting, made[i].extent)
		current.Store(current.Load().Append(made[i].extent.Extent))
		if i%25 == 24 {
			segment := j.sealLocked()
			if _, err := s.Shelve(j, waiting); err != nil {
				t.Fatal(err)
			}
			current.Store(current.Load().WithShelved(s.Files(1)))
			j.free(segment)
			waiting = waiting[:0]
		}
	}
	readers.Wait()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := current.Load().Read(nil, 0, 1, 100, true); err == nil {
		t.Fatal("a closed store was read")
	}
}

func (j *fakeJournal) putLocked(partition uint32, raw []byte, gap int) Shelving {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.put(partition, raw, gap)
}

func (j *fakeJournal) sealLocked() (sealed uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	sealed = j.active
	j.seal()
	return sealed
}

// FuzzIndexFiles puts any bytes into the index files: reads give the same bytes as before, whatever they are.
func FuzzIndexFiles(f *testing.F) {
	f.Add([]byte{}, []byte{}, uint16(3))
	f.Add([]byte{0, 0, 0, 9, 0, 0, 2, 0, 0, 0, 0, 20, 0, 0, 4, 0}, bytes.Repeat([]byte{0, 0, 0, 1}, 6), uint16(77))
	f.Add(bytes.Repeat([]byte{0xff}, 40), bytes.Repeat([]byte{0x7f}, 40), uint16(500))
	build := func(t testing.TB) (*vfs.Mem, []Length, []modelBatch) {
		disk, j := vfs.NewMem(), newFakeJournal()
		s := open(t, disk, smallConfig(), nil)
		batches, _ := fill(t, s, j, 1, 120, newMaker(9))
		lengths, err := s.Shelve(j, shelvings(batches))
		if err != nil {
			t.Fatal(err)
		}
		return disk, lengths, batches
	}
	disk, lengths, batches := build(f)
	name := open(f, disk, smallConfig(), lengths).Files(1).list[0].name
	f.Add(content(f, disk, name+".index"), content(f, disk, name+".timeindex"), uint16(9))
	f.Fuzz(func(t *testing.T, index, times []byte, from uint16) {
		disk, lengths, _ := build(t)
		s := open(t, disk, smallConfig(), lengths)
		for _, ref := range s.Files(1).list {
			for name, b := range map[string][]byte{ref.indexName(): index, ref.timesName(): times} {
				file, err := openOrCreate(disk, name)
				if err != nil {
					t.Fatal(err)
				}
				if err := file.Truncate(0); err != nil {
					t.Fatal(err)
				}
				if _, err := file.WriteAt(b, 0); err != nil {
					t.Fatal(err)
				}
			}
		}
		log := s.NewLog(newFakeJournal(), 1)
		end := log.EndOffset()
		for at := int64(from) % end; at < end; at += end / 7 {
			want := modelRead(batches, at, end, 900, true)
			got, err := log.Read(make([]byte, 0, 40_000), at, end, 900, true)
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("at %d: %d bytes, want %d, error %v", at, len(got), len(want), err)
			}
		}
		if _, _, err := log.OffsetForTime(batches[60].times[0], 0, end); err != nil {
			t.Fatal(err)
		}
		if _, _, err := log.MaxTimestamp(0, end); err != nil {
			t.Fatal(err)
		}
	})
}

func BenchmarkRead(b *testing.B) {
	s, j := open(b, vfs.OS(b.TempDir()), Config{}, nil), newFakeJournal()
	log := s.NewLog(j, 1)
	var all []Shelving
	for i := range int64(4096) {
		all = append(all, j.put(1, sized(i, i, 16<<10), 0))
		log = log.Append(all[i].Extent)
	}
	if _, err := s.Shelve(j, all); err != nil {
		b.Fatal(err)
	}
	log = log.WithShelved(s.Files(1))
	dst := make([]byte, 0, 2<<20)
	from := int64(0)
	b.SetBytes(1 << 20)
	b.ReportAllocs()
	for b.Loop() {
		got, err := log.Read(dst, from, log.EndOffset(), 1<<20, true)
		if err != nil || len(got) != 1<<20 {
			b.Fatalf("%d bytes, error %v", len(got), err)
		}
		from = (from + 64) % 4096
	}
}

func BenchmarkShelve(b *testing.B) {
	j := newFakeJournal()
	var all []Shelving
	for i := range int64(16 << 10) {
		all = append(all, j.put(uint32(i%8), sized(i/8, i, 4<<10), 0))
	}
	b.SetBytes(64 << 20)
	for b.Loop() {
		s := open(b, vfs.OS(b.TempDir()), Config{}, nil)
		if _, err := s.Shelve(j, all); err != nil {
			b.Fatal(err)
		}
	}
}
