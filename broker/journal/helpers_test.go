package journal

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/strandline-io/strandline/internal/vfs"
)

// newBatch makes a record batch of that size as far as the journal looks into one.
func newBatch(rng *rand.Rand, size int) []byte {
	b := make([]byte, max(size, batchHeader))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	binary.BigEndian.PutUint32(b[batchCRCAt:], crc32.Checksum(b[batchPrefix:], castagnoli))
	return b
}

// newUnit makes a unit whose batches have about that many bytes together.
func newUnit(rng *rand.Rand, size int) Unit {
	u := Unit{Meta: make([]byte, rng.IntN(60))}
	for i := range u.Meta {
		u.Meta[i] = byte(rng.Uint32())
	}
	for n := rng.IntN(4); n > 0; n-- {
		u.Batches = append(u.Batches, newBatch(rng, size/n))
	}
	return u
}

// kept is what a callback got of a unit, copied.
type kept struct {
	seq, segment uint64
	meta         []byte
	batches      []StoredBatch
}

func keep(s Stored) kept {
	k := kept{seq: s.Seq, segment: s.Segment, meta: bytes.Clone(s.Meta)}
	for _, b := range s.Batches {
		b.Header = bytes.Clone(b.Header)
		k.batches = append(k.batches, b)
	}
	return k
}

// differs compares a unit with what was appended; read fetches whole batches and may be nil.
func (k kept) differs(want Unit, read func(segment uint64, p []byte, pos int64) error) error {
	if !bytes.Equal(k.meta, want.Meta) || len(k.batches) != len(want.Batches) {
		return fmt.Errorf("unit %d has meta %x and %d batches, want %x and %d", k.seq, k.meta, len(k.batches), want.Meta,
			len(want.Batches))
	}
	for i, b := range k.batches {
		if !bytes.Equal(b.Header, want.Batches[i][:batchHeader]) || int(b.Len) != len(want.Batches[i]) {
			return fmt.Errorf("batch %d of unit %d has another header or length", i, k.seq)
		}
		if read == nil {
			continue
		}
		p := make([]byte, b.Len)
		if err := read(k.segment, p, b.Pos); err != nil {
			return err
		}
		if !bytes.Equal(p, want.Batches[i]) {
			return fmt.Errorf("batch %d of unit %d reads back differently at %d", i, k.seq, b.Pos)
		}
	}
	return nil
}

// opening collects what an opening delivers.
type opening struct {
	snapshotSeq uint64
	state       []byte
	extents     []kept
	replayed    []kept
	events      []Event
}

func (o *opening) config(disk vfs.FS) FileConfig {
	return FileConfig{
		FS: disk, Dir: "journal", SegmentBytes: minSegmentBytes, MaxUnitBytes: 1 << 20,
		Rand: rand.NewChaCha8([32]byte{1}),
		Restore: func(seq uint64, state []byte) error {
			o.snapshotSeq, o.state = seq, state
			return nil
		},
		Extents: func(s Stored) error { o.extents = append(o.extents, keep(s)); return nil },
	}
}

func (o *opening) replay(s Stored) error { o.replayed = append(o.replayed, keep(s)); return nil }

func (o *opening) event(e Event) { o.events = append(o.events, e) }

func (o *opening) last() uint64 {
	if n := len(o.replayed); n > 0 {
		return o.replayed[n-1].seq
	}
	return o.snapshotSeq
}

// openStepped opens a journal that must be fine.
func openStepped(t *testing.T, disk vfs.FS, change ...func(*FileConfig)) (*Stepped, *opening) {
	t.Helper()
	o := &opening{}
	cfg := o.config(disk)
	for _, c := range change {
		c(&cfg)
	}
	j, err := OpenStepped(cfg, o.replay, o.event)
	if err != nil {
		t.Fatal(err)
	}
	return j, o
}

// drain does all steps.
func drain(j *Stepped) {
	for ready := j.Ready(); len(ready) > 0; ready = j.Ready() {
		j.Step(ready[0])
	}
}

// appendUnits appends each unit as a group of its own and drains.
func appendUnits(j *Stepped, units ...Unit) {
	for _, u := range units {
		j.Append([]Unit{u})
		drain(j)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func randomUnits(seed uint64, n, size int) []Unit {
	rng := rand.New(rand.NewPCG(seed, 0))
	units := make([]Unit, n)
	for i := range units {
		units[i] = newUnit(rng, size)
	}
	return units
}

// checkReplayed demands exactly want, from sequence 1 on, readable in full.
func checkReplayed(t *testing.T, j Journal, got []kept, want []Unit) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d units were replayed, want %d", len(got), len(want))
	}
	for i, k := range got {
		if k.seq != uint64(i+1) {
			t.Fatalf("unit %d has sequence %d", i+1, k.seq)
		}
		must(t, k.differs(want[i], j.ReadAt))
	}
}

func kinds(events []Event) string {
	var s []byte
	for _, e := range events {
		s = append(s, " WYXFS"[e.Kind])
	}
	return string(slices.Clip(s))
}
