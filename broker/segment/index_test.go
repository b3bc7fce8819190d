package segment

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/strandline-io/strandline/internal/vfs"
)

func replace(t testing.TB, fs vfs.FS, name string, b []byte) {
	t.Helper()
	f, err := openOrCreate(fs, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestPlausibleIndex moves one entry after the other to the batch behind its own: the index still is in order, and
// only the log can tell that it is wrong.
func TestPlausibleIndex(t *testing.T) {
	disk, j := vfs.NewMem(), newFakeJournal()
	cfg := smallConfig()
	cfg.SegmentBytes = 1 << 20
	s := open(t, disk, cfg, nil)
	batches, _ := fill(t, s, j, 1, 80, newMaker(5))
	lengths, err := s.Shelve(j, shelvings(batches))
	if err != nil {
		t.Fatal(err)
	}
	name := s.Files(1).list[0].indexName()
	good := content(t, disk, name)
	positions, pos := map[uint32]uint32{}, uint32(0)
	for _, b := range batches {
		positions[pos] = pos + uint32(len(b.raw))
		pos += uint32(len(b.raw))
	}
	checked := 0
	for at := 0; at+indexEntrySize < len(good); at += indexEntrySize {
		bad := bytes.Clone(good)
		moved := positions[binary.BigEndian.Uint32(bad[at+4:])]
		binary.BigEndian.PutUint32(bad[at+4:], moved)
		if moved >= binary.BigEndian.Uint32(bad[at+indexEntrySize+4:]) {
			continue
		}
		checked++
		replace(t, disk, name, bad)
		log := open(t, disk, cfg, lengths).NewLog(j, 1)
		from := int64(binary.BigEndian.Uint32(bad[at:]))
		want := modelRead(batches, from, 1<<60, 2000, true)
		got, err := log.Read(make([]byte, 0, 40_000), from, 1<<60, 2000, true)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("entry %d, offset %d: %d bytes, want %d, error %v", at/indexEntrySize, from, len(got), len(want), err)
		}
	}
	if checked < 10 {
		t.Fatalf("only %d entries could be moved", checked)
	}
}

// TestUnsyncedTimeIndex loses the newer half of a time index that was never synced, as a power cut may, while the
// index is whole: the largest timestamp is still found.
func TestUnsyncedTimeIndex(t *testing.T) {
	disk, j := vfs.NewMem(), newFakeJournal()
	cfg := Config{IndexIntervalBytes: 300}
	s := open(t, disk, cfg, nil)
	var all []Shelving
	for i, ms := range []int64{90, 100, 95, 1000, 50, 51, 52, 53} {
		all = append(all, j.put(1, sized(int64(i), ms, 400), 0))
	}
	lengths, err := s.Shelve(j, all)
	if err != nil {
		t.Fatal(err)
	}
	name := s.Files(1).list[0].timesName()
	times := content(t, disk, name)
	if len(times) != 2*timeEntrySize {
		t.Fatalf("time index has %d bytes", len(times))
	}
	replace(t, disk, name, times[:timeEntrySize])
	log := open(t, disk, cfg, lengths).NewLog(j, 1)
	if got, ok, err := log.OffsetForTime(500, 0, 8); err != nil || !ok || got != (Found{Offset: 3, TimestampMs: 1000}) {
		t.Fatalf("found %+v, %v, %v", got, ok, err)
	}
}

// TestIndexIsDurable cuts the power after every Shelve: what the index files are trusted for must be there.
func TestIndexIsDurable(t *testing.T) {
	for seed := range uint64(20) {
		disk, j, m := vfs.NewMem(), newFakeJournal(), newMaker(seed)
		cfg := smallConfig()
		s := open(t, disk, cfg, nil)
		var lengths []Length
		log := s.NewLog(j, 1)
		for range 12 {
			var all []Shelving
			for range 9 {
				b := m.batch(log.EndOffset())
				e := j.put(1, b.raw, 10)
				all = append(all, e)
				log = log.Append(e.Extent)
			}
			var err error
			if lengths, err = s.Shelve(j, all); err != nil {
				t.Fatal(err)
			}
			disk = disk.PowerLoss(seed)
			for _, f := range s.Files(1).list {
				size := f.sizeBytes
				if !f.sealed {
					size = s.trusted(size)
				} else if size < 0 {
					size = int64(len(content(t, disk, f.logName())))
				}
				index, times := kafkaIndexes(content(t, disk, f.logName()), f.base, 300, f.sealed)
				for len(index) > 0 && int64(binary.BigEndian.Uint32(index[len(index)-4:])) >= size {
					index, times = index[:len(index)-indexEntrySize], nil
				}
				if len(index) == 0 {
					continue
				}
				if !bytes.HasPrefix(content(t, disk, f.indexName()), index) || !bytes.HasPrefix(content(t, disk, f.timesName()), times) {
					t.Fatalf("seed %d: the index of %s is not durable", seed, f.logName())
				}
			}
			s = open(t, disk, cfg, lengths)
		}
	}
}
