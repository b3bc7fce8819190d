package segment

import (
	"bytes"
	"errors"
	"maps"
	"testing"

	"github.com/strandline-io/strandline/broker/record"
	"github.com/strandline-io/strandline/internal/alloc"
	"github.com/strandline-io/strandline/internal/vfs"
)

// FuzzDataFiles damages the files that hold a partition's batches: each six bytes are one edit. A read then gives
// batches that were written, batches that fail their CRC, or an error that says where: never a good batch that was
// not written, never one out of order.
func FuzzDataFiles(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 7, 1}, uint16(0))
	f.Add([]byte{1, 1, 0, 200, 0, 16, 2, 2, 0, 0, 0, 0}, uint16(40))
	f.Add([]byte{0, 3, 1, 0, 8, 255, 1, 4, 0, 61, 0, 2}, uint16(100))
	disk, j := vfs.NewMem(), newFakeJournal()
	s := open(f, disk, smallConfig(), nil)
	batches, _ := fill(f, s, j, 1, 120, newMaker(9))
	lengths, err := s.Shelve(j, shelvings(batches))
	if err != nil {
		f.Fatal(err)
	}
	files := make(map[string][]byte)
	var names []string
	for _, ref := range s.Files(1).list {
		for _, name := range []string{ref.logName(), ref.indexName(), ref.timesName()} {
			files[name] = content(f, disk, name)
		}
		names = append(names, ref.logName())
	}
	written, times := make(map[string]bool), make(map[int64]int64)
	for _, b := range batches {
		written[whatCounts(b.raw)] = true
		for i, ms := range b.times {
			times[b.base+int64(i)] = ms
		}
	}
	// The time of a record itself.
	for pos, c := 0, files[names[0]]; pos < len(c); {
		h, err := record.ParseHeader(c[pos:])
		if err != nil {
			f.Fatal(err)
		}
		if at := pos + record.HeaderSize; h.Codec() == record.CodecNone && c[at] < 0x80 {
			at += 2 // length and attributes
			f.Add([]byte{0, 0, byte(at >> 16), byte(at >> 8), byte(at), 3}, uint16(h.BaseOffset))
		}
		pos += int(h.SizeBytes)
	}
	f.Fuzz(func(t *testing.T, edits []byte, from uint16) {
		changed := maps.Clone(files)
		for ; len(edits) >= 6; edits = edits[6:] {
			name := names[int(edits[0])%len(names)]
			if c := changed[name]; len(c) > 0 {
				changed[name] = edit(bytes.Clone(c), edits[1], int(edits[2])<<16|int(edits[3])<<8|int(edits[4]), edits[5])
			}
		}
		read := func() { readDamaged(t, changed, lengths, int64(from), written, times) }
		alloc.Within(t, 1<<20, 8, read)
	})
}

func edit(content []byte, kind byte, pos int, value byte) []byte {
	pos %= len(content)
	switch kind % 5 {
	case 0:
		content[pos] ^= 1 << (value % 8)
	case 1:
		content[pos] = value
	case 2:
		clear(content[pos:min(pos+512, len(content))])
	case 3:
		return content[:pos]
	case 4: // a place written elsewhere
		copy(content[pos:], content[int(value)*16%len(content):])
	}
	return content
}

func readDamaged(t *testing.T, files map[string][]byte, lengths []Length, from int64, written map[string]bool, times map[int64]int64) {
	disk := vfs.NewMem()
	for name, c := range files {
		if err := disk.MkdirAll(name[:bytes.LastIndexByte([]byte(name), '/')]); err != nil {
			t.Fatal(err)
		}
		file, err := disk.Create(name)
		if err == nil {
			err = file.WriteVecAt([][]byte{c}, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := Open(disk, smallConfig(), lengths)
	if err != nil {
		mustBeDamage(t, err)
		return
	}
	log := s.NewLog(newFakeJournal(), 1)
	end := log.EndOffset()
	for at := from % end; at < end; {
		got, err := log.Read(make([]byte, 0, 20_000), at, end, 3000, true)
		if err != nil {
			mustBeDamage(t, err)
			break
		}
		next := at
		for len(got) > 0 {
			h, err := record.ParseHeader(got)
			if err != nil || int(h.SizeBytes) > len(got) {
				t.Fatalf("at %d: a piece of a batch was read: %v", at, err)
			}
			raw := got[:h.SizeBytes]
			if record.CheckCRC(raw) && !written[whatCounts(raw)] {
				t.Fatalf("at %d: a good batch of offsets %d to %d that nobody wrote", at, h.BaseOffset, h.LastOffset())
			}
			if h.LastOffset() < next || h.BaseOffset >= end {
				t.Fatalf("at %d: offsets %d to %d, expected from %d to %d", at, h.BaseOffset, h.LastOffset(), next, end)
			}
			got = got[h.SizeBytes:]
			if next = h.NextOffset(); !record.CheckCRC(raw) {
				next = h.BaseOffset + 1 // the client refuses it, and does not go on behind it
			}
		}
		if next == at {
			break
		}
		at = next
	}
	if found, ok, err := log.OffsetForTime(1_700_000_000_100, 0, end); err != nil {
		mustBeDamage(t, err)
	} else if ok && (found.Offset < 0 || found.Offset >= end || found.TimestampMs < 1_700_000_000_100) {
		t.Fatalf("found %+v", found)
	}
	if _, _, err := log.MaxTimestamp(0, end); err != nil {
		mustBeDamage(t, err)
	}
}

// whatCounts is a batch without its leader epoch, which lies outside of the CRC and changes no record.
func whatCounts(raw []byte) string { return string(raw[:12]) + string(raw[16:]) }

func mustBeDamage(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, ErrCorrupt) {
		t.Fatalf("%v does not wrap ErrCorrupt", err)
	}
}
