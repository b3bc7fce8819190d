package segment

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline-io/strandline/broker/record"
	"github.com/strandline-io/strandline/internal/vfs"
)

func content(t testing.TB, fs vfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, size)
	if size > 0 {
		if _, err := f.ReadAt(b, 0); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// sized is a batch of one record, sizeBytes long.
func sized(base, ms int64, sizeBytes int) []byte {
	b := record.NewBuilder()
	b.BaseOffset = base
	b.Add(ms, nil, nil)
	over := record.HeaderSize + 7
	b.Reset()
	b.BaseOffset = base
	value := make([]byte, sizeBytes-over)
	for {
		b.Reset()
		b.BaseOffset = base
		b.Add(ms, nil, value)
		raw := b.Append(nil)
		if len(raw) == sizeBytes {
			return raw
		}
		value = value[:len(value)+sizeBytes-len(raw)]
	}
}

// TestGoldenLayout writes batches of 1000 bytes into files of 10,000 with an entry every 3,000: what Kafka 4.3 has
// on disk for them (C.12; an entry's offset is the last one of the batch at its position).
func TestGoldenLayout(t *testing.T) {
	disk, j := vfs.NewMem(), newFakeJournal()
	cfg := Config{SegmentBytes: 10_000, IndexIntervalBytes: 3000}
	s := open(t, disk, cfg, nil)
	var all []Shelving
	var bytesOfLog []byte
	times := []int64{100, 110, 105, 90, 120, 95, 96, 97, 119, 125, 130, 131}
	for i, ms := range times {
		raw := sized(int64(i), ms, 1000)
		all = append(all, j.put(7, raw, 100))
		bytesOfLog = append(bytesOfLog, raw...)
	}
	lengths, err := s.Shelve(j, all)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Length{{Partition: 7, FileBase: 10, FileBytes: 2000, EndOffset: 12}}, lengths); diff != "" {
		t.Fatalf("lengths (-want +got):\n%s", diff)
	}
	names, err := disk.List("partitions/0000000007")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"00000000000000000000.index", "00000000000000000000.log", "00000000000000000000.timeindex",
		"00000000000000000010.index", "00000000000000000010.log", "00000000000000000010.timeindex",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Fatalf("names (-want +got):\n%s", diff)
	}
	f := func(name string, want string) {
		t.Helper()
		if got := hex.EncodeToString(content(t, disk, "partitions/0000000007/"+name)); got != want {
			t.Fatalf("%s holds %s, want %s", name, got, want)
		}
	}
	f("00000000000000000000.log", hex.EncodeToString(bytesOfLog[:10_000]))
	f("00000000000000000010.log", hex.EncodeToString(bytesOfLog[10_000:]))
	f("00000000000000000000.index", "00000004"+"00000fa0"+"00000008"+"00001f40")
	f("00000000000000000000.timeindex", "0000000000000078"+"00000004"+"000000000000007d"+"00000009")
	f("00000000000000000010.index", "")
	f("00000000000000000010.timeindex", "")

	// Three more batches: no entry yet at 3000, one at 4000.
	all = all[:0]
	for i := int64(12); i < 15; i++ {
		all = append(all, j.put(7, sized(i, 200+i, 1000), 100))
	}
	if _, err := s.Shelve(j, all); err != nil {
		t.Fatal(err)
	}
	f("00000000000000000010.index", "00000004"+"00000fa0")
	f("00000000000000000010.timeindex", "00000000000000d6"+"00000004")
}

// kafkaIndexes is Kafka's rule as its own recovery applies it, written down a second time.
func kafkaIndexes(log []byte, base int64, interval int, closed bool) (index, times []byte) {
	maxMs, maxOffset, lastMs, lastPos := int64(-1), int64(0), int64(-1), 0
	addTime := func() {
		if maxMs > lastMs {
			times = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(times, uint64(maxMs)), uint32(maxOffset-base))
			lastMs = maxMs
		}
	}
	for pos := 0; pos < len(log); {
		h, err := record.ParseHeader(log[pos:])
		if err != nil {
			panic(err)
		}
		if h.MaxTimestamp > maxMs {
			maxMs, maxOffset = h.MaxTimestamp, h.LastOffset()
		}
		if pos-lastPos > interval {
			index = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(index, uint32(h.LastOffset()-base)), uint32(pos))
			addTime()
			lastPos = pos
		}
		pos += int(h.SizeBytes)
	}
	if closed {
		addTime()
	}
	return index, times
}

// TestIndexFiles compares the index files after many shelvings, restarts and repairs with that rule.
func TestIndexFiles(t *testing.T) {
	disk, j, m := vfs.NewMem(), newFakeJournal(), newMaker(3)
	s := open(t, disk, smallConfig(), nil)
	_, log := fill(t, s, j, 1, 0, m)
	var lengths []Length
	for round := range 40 {
		var all []Shelving
		for range 12 {
			b := m.batch(log.EndOffset())
			e := j.put(1, b.raw, 10)
			all = append(all, e)
			log = log.Append(e.Extent)
		}
		if round%5 == 4 {
			s = open(t, disk, smallConfig(), lengths)
		}
		var err error
		if lengths, err = s.Shelve(j, all); err != nil {
			t.Fatal(err)
		}
		if round == 20 { // a sealed file's indexes are repaired by the first reader
			first := s.Files(1).list[0]
			if err := disk.Remove(first.indexName()); err != nil {
				t.Fatal(err)
			}
			f, err := disk.Open(first.timesName())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt([]byte{0xff}, 1); err != nil {
				t.Fatal(err)
			}
			s = open(t, disk, smallConfig(), lengths)
			if _, err := s.NewLog(j, 1).Read(nil, 0, 1, 100, true); err != nil {
				t.Fatal(err)
			}
		}
	}
	files := s.Files(1).list
	if len(files) < 5 {
		t.Fatalf("only %d files", len(files))
	}
	for i, f := range files {
		index, times := kafkaIndexes(content(t, disk, f.logName()), f.base, 300, i+1 < len(files))
		if !bytes.Equal(index, content(t, disk, f.indexName())) || !bytes.Equal(times, content(t, disk, f.timesName())) {
			t.Fatalf("file %d: index or timeindex differs from Kafka's rule", i)
		}
	}
}

// leave makes a file that nobody knows.
func leave(t *testing.T, disk *vfs.Mem, name string) {
	t.Helper()
	f, err := disk.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("left behind"), 0); err != nil {
		t.Fatal(err)
	}
}

func TestOpenCleansUp(t *testing.T) {
	disk, j, m := vfs.NewMem(), newFakeJournal(), newMaker(4)
	s := open(t, disk, smallConfig(), nil)
	batches, _ := fill(t, s, j, 1, 20, m)
	lengths, err := s.Shelve(j, shelvings(batches))
	if err != nil {
		t.Fatal(err)
	}
	newest := s.Files(1).list[len(s.Files(1).list)-1]
	f, err := disk.Open(newest.logName())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("torn"), newest.sizeBytes); err != nil {
		t.Fatal(err)
	}
	indexBefore := content(t, disk, newest.indexName())
	index, err := openOrCreate(disk, newest.indexName())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := index.WriteAt([]byte{0, 0, 1, 0, 0, 0, 0x7f, 0}, int64(len(indexBefore))); err != nil {
		t.Fatal(err)
	}
	leave(t, disk, fmt.Sprintf("partitions/0000000001/%020d.log", newest.endOffset))
	leave(t, disk, fmt.Sprintf("partitions/0000000001/%020d.timeindex", newest.endOffset))
	leave(t, disk, "partitions/0000000001/notes.txt")
	leave(t, disk, "partitions/notes.txt")
	if err := disk.MkdirAll("partitions/0000000099"); err != nil {
		t.Fatal(err)
	}
	leave(t, disk, "partitions/0000000099/00000000000000000000.log")

	s = open(t, disk, smallConfig(), lengths)
	if got := content(t, disk, newest.logName()); int64(len(got)) != newest.sizeBytes {
		t.Fatalf("newest file has %d bytes, want %d", len(got), newest.sizeBytes)
	}
	if got := content(t, disk, newest.indexName()); !bytes.Equal(got, indexBefore) {
		t.Fatalf("index of the newest file is %x, want %x", got, indexBefore)
	}
	names, err := disk.List("partitions")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"0000000001", "notes.txt"}, names); diff != "" {
		t.Fatalf("folder (-want +got):\n%s", diff)
	}
	inside, err := disk.List("partitions/0000000001")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range inside {
		if name > fmt.Sprintf("%020d.timeindex", newest.base) && name != "notes.txt" {
			t.Fatalf("%s is still there", name)
		}
	}
	got, err := s.NewLog(j, 1).Read(nil, 0, 1<<60, 1<<20, false)
	if err != nil || !bytes.Equal(got, modelRead(batches, 0, 1<<60, 1<<20, false)) {
		t.Fatalf("%d bytes, error %v", len(got), err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
