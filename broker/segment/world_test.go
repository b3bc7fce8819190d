package segment

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/strandline-io/strandline/broker/record"
	"github.com/strandline-io/strandline/internal/compress"
	"github.com/strandline-io/strandline/internal/vfs"
)

// fakeJournal is a journal in memory that forgets nothing unless it is told to.
type fakeJournal struct {
	mu       sync.Mutex
	segments map[uint64][]byte
	active   uint64
	held     int
	reads    int
	release  func()
}

func newFakeJournal() *fakeJournal {
	j := &fakeJournal{segments: map[uint64][]byte{1: nil}, active: 1}
	j.release = func() {
		j.mu.Lock()
		j.held--
		j.mu.Unlock()
	}
	return j
}

func (j *fakeJournal) ReadAt(segment uint64, p []byte, pos int64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.reads++
	if j.held == 0 {
		return errors.New("segment is read without being held")
	}
	if b := j.segments[segment]; pos < 0 || pos+int64(len(p)) > int64(len(b)) {
		return fmt.Errorf("read of %d bytes at %d of %d: %w", len(p), pos, len(b), io.ErrUnexpectedEOF)
	}
	copy(p, j.segments[segment][pos:])
	return nil
}

func (j *fakeJournal) Hold(segment uint64) (release func(), ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, ok := j.segments[segment]; !ok {
		return nil, false
	}
	j.held++
	return j.release, true
}

// put appends raw behind gap bytes of something else and says where it lies.
func (j *fakeJournal) put(partition uint32, raw []byte, gap int) Shelving {
	h, err := record.ParseHeader(raw)
	if err != nil {
		panic(err)
	}
	b := append(j.segments[j.active], make([]byte, gap)...)
	e := Shelving{Partition: partition, Extent: Extent{
		BaseOffset: h.BaseOffset, MaxTimestamp: h.MaxTimestamp, Segment: j.active, Pos: int64(len(b)),
		LastDelta: h.LastOffsetDelta, Len: h.SizeBytes,
	}}
	j.segments[j.active] = append(b, raw...)
	return e
}

func (j *fakeJournal) seal() { j.active++; j.segments[j.active] = nil }

func (j *fakeJournal) free(segment uint64) {
	j.mu.Lock()
	delete(j.segments, segment)
	j.mu.Unlock()
}

// modelBatch is a batch as the model remembers it.
type modelBatch struct {
	raw    []byte
	base   int64
	last   int64
	times  []int64 // of its records
	extent Shelving
}

// maker makes batches from a seed.
type maker struct {
	rng   *rand.Rand
	clock int64
}

func (m *maker) batch(base int64) modelBatch {
	b := record.NewBuilder()
	b.BaseOffset = base
	n := 1 + m.rng.IntN(5)
	out := modelBatch{base: base, last: base + int64(n) - 1}
	for range n {
		m.clock += m.rng.Int64N(20) - 4
		size := m.rng.IntN(120)
		if m.rng.IntN(40) == 0 {
			size = m.rng.IntN(5000)
		}
		value := make([]byte, size)
		for i := range value {
			value[i] = byte(m.rng.Uint32())
		}
		b.Add(m.clock, nil, value)
		out.times = append(out.times, m.clock)
	}
	codec, payload := record.CodecNone, b.Section()
	if m.rng.IntN(4) == 0 {
		codec = int8(m.rng.IntN(5))
		var err error
		if payload, err = compress.Encode(codec, b.Section(), nil); err != nil {
			panic(err)
		}
	}
	out.raw = b.AppendCompressed(nil, codec, payload)
	if m.rng.IntN(10) == 0 {
		record.PatchAppendTime(out.raw, m.clock)
		for i := range out.times {
			out.times[i] = m.clock
		}
	}
	return out
}

// modelRead is what Read promises, for a caller with enough room.
func modelRead(batches []modelBatch, from, upTo int64, maxBytes int, atLeastOne bool) []byte {
	var out []byte
	for _, b := range batches {
		if b.last < from {
			continue
		}
		first := atLeastOne && len(out) == 0
		if b.base >= upTo || from >= upTo || len(out)+len(b.raw) > maxBytes && !first {
			break
		}
		out = append(out, b.raw...)
	}
	return out
}

func modelOffsetForTime(batches []modelBatch, ms, from, upTo int64) (Found, bool) {
	for _, b := range batches {
		for i, t := range b.times {
			if offset := b.base + int64(i); t >= ms && offset >= from {
				return Found{Offset: offset, TimestampMs: t}, offset < upTo
			}
		}
	}
	return Found{}, false
}

func modelMaxTimestamp(batches []modelBatch, from, upTo int64) (Found, bool) {
	best, found := Found{TimestampMs: record.NoTimestamp}, false
	for _, b := range batches {
		for i, t := range b.times {
			if offset := b.base + int64(i); offset >= from && offset < upTo && t > best.TimestampMs {
				best, found = Found{Offset: offset, TimestampMs: t}, true
			}
		}
	}
	return best, found
}

// fill puts n batches of one partition into the journal and returns them with a log over them.
func fill(t testing.TB, s *Store, j *fakeJournal, partition uint32, n int, m *maker) ([]modelBatch, *Log) {
	t.Helper()
	log := s.NewLog(j, partition)
	var batches []modelBatch
	for range n {
		b := m.batch(log.EndOffset())
		b.extent = j.put(partition, b.raw, 40)
		log = log.Append(b.extent.Extent)
		batches = append(batches, b)
	}
	return batches, log
}

func shelvings(batches []modelBatch) []Shelving {
	var all []Shelving
	for i := range batches {
		all = append(all, batches[i].extent)
	}
	return all
}

func newMaker(seed uint64) *maker {
	return &maker{rng: rand.New(rand.NewPCG(seed, 1)), clock: 1_700_000_000_000}
}

// smallConfig lets few kilobytes cross every border.
func smallConfig() Config {
	return Config{SegmentBytes: 8 << 10, IndexIntervalBytes: 300, IndexSyncBytes: 2000, MemoryIntervalBytes: 700, MaxOpenFiles: 2, WindowBytes: 4 << 10}
}

func open(t testing.TB, fs vfs.FS, cfg Config, lengths []Length) *Store {
	t.Helper()
	s, err := Open(fs, cfg, lengths)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
