package journal

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/strandline-io/strandline/internal/alloc"
	"github.com/strandline-io/strandline/internal/vfs"
)

// victim is a journal with everything in it: two lives, sealed and recycled segments, a large unit, two snapshots,
// a torn-off last segment. Its units are all durable; the last group's durability is named by nobody.
type victim struct {
	names    []string
	files    map[string][]byte
	units    []Unit
	snapshot uint64
	lastFrom uint64 // first unit of the last group
}

func newVictim(t testing.TB) *victim {
	disk := vfs.NewMem()
	open := func() *Stepped {
		o := &opening{}
		j, err := OpenStepped(o.config(disk), o.replay, o.event)
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	rng := rand.New(rand.NewPCG(11, 11))
	v := &victim{files: make(map[string][]byte), snapshot: 12}
	add := func(j *Stepped, n, size int) {
		group := make([]Unit, n)
		for i := range group {
			group[i] = newUnit(rng, size)
		}
		v.units = append(v.units, group...)
		v.lastFrom = j.Append(group)[0].Seq
		drain(j)
	}
	j := open()
	for range 8 {
		add(j, 2, 1500)
	}
	if err := errors.Join(j.WriteSnapshot(6, []byte("state at 6")), j.WriteSnapshot(12, []byte("state at 12"))); err != nil {
		t.Fatal(err)
	}
	j.Trim(6)
	drain(j)
	disk = disk.ProcessCrash()
	j = open()
	add(j, 3, 500)
	add(j, 1, 50_000)
	for range 5 {
		add(j, 3, 800)
	}
	disk = disk.ProcessCrash()
	names, err := disk.List("journal")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		f, err := disk.Open("journal/" + name)
		if err != nil {
			t.Fatal(err)
		}
		size, _ := f.Size()
		v.files[name] = make([]byte, size)
		_, _ = f.ReadAt(v.files[name], 0)
		if size > 0 {
			v.names = append(v.names, name)
		}
	}
	return v
}

func (v *victim) sizeBytes() (n int) {
	for _, content := range v.files {
		n += len(content)
	}
	return n
}

// disk returns a copy with changed files put in; a nil one is missing.
func (v *victim) disk(t testing.TB, changed map[string][]byte) *vfs.Mem {
	disk := vfs.NewMem()
	if err := disk.MkdirAll("journal"); err != nil {
		t.Fatal(err)
	}
	for _, name := range v.names {
		content := v.files[name]
		if c, ok := changed[name]; ok {
			content = c
		}
		if content == nil {
			continue
		}
		f, err := disk.Create("journal/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.WriteVecAt([][]byte{content}, 0); err != nil {
			t.Fatal(err)
		}
	}
	return disk
}

// check opens a damaged copy. Whatever is found must have been appended, in order and without a gap; it returns how
// far that goes, or the error.
func (v *victim) check(t testing.TB, changed map[string][]byte) (last uint64, err error) {
	t.Helper()
	o := &opening{}
	j, err := OpenStepped(o.config(v.disk(t, changed)), o.replay, o.event)
	if err != nil {
		return 0, err
	}
	next := o.snapshotSeq + 1
	for _, k := range o.replayed {
		if k.seq != next || k.seq > uint64(len(v.units)) {
			t.Fatalf("unit %d was replayed instead of %d of %d", k.seq, next, len(v.units))
		}
		next++
	}
	for _, k := range append(o.extents, o.replayed...) {
		if err := k.differs(v.units[k.seq-1], nil); err != nil {
			t.Fatalf("an invented unit: %v", err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return next - 1, nil
}

func TestEveryFlippedBitIsNoticedOrHarmless(t *testing.T) {
	v := newVictim(t)
	all := uint64(len(v.units))
	if last, err := v.check(t, nil); err != nil || last != all {
		t.Fatalf("unchanged: %d of %d, %v", last, all, err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	cut, refused := 0, 0
	for range 1500 {
		name := v.names[rng.IntN(len(v.names))]
		content := append([]byte(nil), v.files[name]...)
		pos := rng.IntN(len(content))
		if rng.IntN(2) == 0 {
			pos = pos / blockBytes * blockBytes // the heads
			pos += rng.IntN(min(200, len(content)-pos))
		}
		content[pos] ^= 1 << rng.IntN(8)
		last, err := v.check(t, map[string][]byte{name: content})
		switch {
		case err != nil && !errors.Is(err, ErrCorrupt) && !strings.Contains(err.Error(), "is not known here"):
			t.Fatalf("bit at %d of %s: %v", pos, name, err)
		case err != nil:
			refused++
		case last < all:
			cut++
			if last+1 != v.lastFrom && last+1 < v.lastFrom {
				t.Fatalf("bit at %d of %s: cut to %d, but units up to %d are named durable", pos, name, last, v.lastFrom-1)
			}
		}
	}
	if cut == 0 || refused == 0 {
		t.Fatalf("%d cut, %d refused: the test hits nothing", cut, refused)
	}
}

func TestEveryTruncationIsAPrefixOrRefused(t *testing.T) {
	v := newVictim(t)
	for _, name := range v.names {
		content := v.files[name]
		for size := 0; size < len(content); size += 997 {
			if _, err := v.check(t, map[string][]byte{name: content[:size]}); err != nil && !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%s cut to %d: %v", name, size, err)
			}
		}
	}
}

// FuzzOpen edits the journal's files: each seven bytes are one edit.
func FuzzOpen(f *testing.F) {
	v := newVictim(f)
	f.Add([]byte{0, 0, 0, 0, 0, 8, 1})
	f.Add([]byte{1, 1, 0, 0, 32, 0, 3, 2, 2, 0, 0, 16, 0, 0})
	f.Add([]byte{3, 3, 0, 0, 48, 0, 2, 3, 4, 0, 0, 32, 8, 0})
	f.Add([]byte{2, 4, 0, 0, 16, 0, 1, 4, 0, 0, 0, 32, 70, 5})
	f.Fuzz(func(t *testing.T, edits []byte) {
		changed := make(map[string][]byte)
		for ; len(edits) >= 7; edits = edits[7:] {
			name := v.names[int(edits[0])%len(v.names)]
			content, ok := changed[name]
			if !ok {
				content = append([]byte(nil), v.files[name]...)
			}
			if len(content) > 0 {
				changed[name] = edit(content, edits[1], edits[2:6], edits[6], v.files[v.names[int(edits[6])%len(v.names)]])
			}
		}
		alloc.Within(t, v.sizeBytes(), 8, func() { _, _ = v.check(t, changed) })
	})
}

func edit(content []byte, kind byte, at []byte, value byte, other []byte) []byte {
	pos := int(uint32(at[0])<<24|uint32(at[1])<<16|uint32(at[2])<<8|uint32(at[3])) % len(content)
	block := pos / blockBytes * blockBytes
	switch kind % 6 {
	case 0:
		content[pos] ^= 1 << (value % 8)
	case 1:
		content[pos] = value
	case 2:
		clear(content[block:min(block+blockBytes, len(content))])
	case 3:
		content = content[:pos]
	case 4:
		// A block of any file in place of this one, as a disk that lost a write or put it elsewhere.
		if from := int(value) * blockBytes; from < len(other) {
			copy(content[block:], other[from:min(from+blockBytes, len(other))])
		}
	case 5:
		if value == 0 {
			return nil
		}
	}
	return content
}
