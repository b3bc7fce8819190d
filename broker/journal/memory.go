package journal

import (
	"errors"
	"fmt"
	"slices"
	"sync"
)

// MemoryConfig describes an in-memory journal. Zero fields have the defaults of FileConfig.
type MemoryConfig struct {
	SegmentBytes int64
	MaxUnitBytes int64
	// Incarnation is what Incarnation answers. Default 1.
	Incarnation uint32
}

// Memory is a journal without a disk: nothing survives it. It works inside a testing/synctest bubble. It keeps one
// goroutine, which delivers events.
type Memory struct {
	cfg    MemoryConfig
	events func(Event)

	mu          sync.Mutex
	segments    []*memorySegment // oldest first; the last one is active
	nextSeq     uint64
	outstanding int
	queue       []Event
	trimSeq     uint64
	snapshotSeq uint64
	closed      bool

	wake chan struct{}
	done chan struct{}
}

// memorySegment holds units in the file journal's terms: batches at increasing positions.
type memorySegment struct {
	SegmentInfo
	units []memoryUnit
	refs  int
}

type memoryUnit struct {
	meta    []byte
	pos     int64 // of the first batch
	batches [][]byte
}

// NewMemory makes an empty journal. Units are copied when they are appended.
func NewMemory(cfg MemoryConfig, events func(Event)) *Memory {
	setDefault(&cfg.SegmentBytes, defaultSegmentBytes)
	setDefault(&cfg.MaxUnitBytes, defaultMaxUnitBytes)
	setDefault(&cfg.Incarnation, 1)
	m := &Memory{cfg: cfg, events: events, nextSeq: 1, wake: make(chan struct{}, 1), done: make(chan struct{})}
	m.begin(1)
	go m.deliver()
	return m
}

func (m *Memory) begin(number uint64) {
	m.segments = append(m.segments, &memorySegment{SegmentInfo: SegmentInfo{Number: number, FirstSeq: m.nextSeq}})
}

// deliver is the goroutine that reports. A group stops counting as outstanding just before its Synced event.
func (m *Memory) deliver() {
	defer close(m.done)
	for range m.wake {
		for {
			m.mu.Lock()
			if len(m.queue) == 0 {
				closed := m.closed
				m.mu.Unlock()
				if closed {
					return
				}
				break
			}
			ev := m.queue[0]
			m.queue = slices.Delete(m.queue, 0, 1)
			if ev.Kind == Synced {
				m.outstanding--
			}
			m.mu.Unlock()
			m.events(ev)
		}
	}
}

func (m *Memory) signal() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Append implements Journal.
func (m *Memory) Append(units []Unit) []Placed {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(units) == 0 || m.closed {
		return nil
	}
	if m.outstanding >= 2 {
		panic("BUG: Append with two groups outstanding; ask Room first")
	}
	var need int64
	for i, u := range units {
		if n := UnitBytes(u); n > m.cfg.MaxUnitBytes {
			panic(fmt.Sprintf("BUG: unit %d of a group has %d bytes; the limit is %d", i, n, m.cfg.MaxUnitBytes))
		}
		need += unitBytes(u)
	}
	s := m.segments[len(m.segments)-1]
	if len(s.units) > 0 && s.SizeBytes+need > m.cfg.SegmentBytes {
		s.LastSeq, s.Sealed = m.nextSeq-1, true
		m.queue = append(m.queue, Event{Kind: Sealed, Segment: s.Number})
		m.begin(s.Number + 1)
		s = m.segments[len(m.segments)-1]
	}
	placed := make([]Placed, len(units))
	for i, u := range units {
		placed[i] = s.add(m.nextSeq, u)
		m.nextSeq++
	}
	m.outstanding++
	last := m.nextSeq - 1
	m.queue = append(m.queue, Event{Kind: Written, Seq: last}, Event{Kind: Synced, Seq: last})
	m.signal()
	return placed
}

func (s *memorySegment) add(seq uint64, u Unit) Placed {
	pos := s.SizeBytes + unitHeadBytes + lengthBytes*int64(len(u.Batches)) + int64(len(u.Meta))
	kept := memoryUnit{meta: slices.Clone(u.Meta), pos: pos, batches: make([][]byte, len(u.Batches))}
	for i, b := range u.Batches {
		if len(b) < batchHeader {
			panic(fmt.Sprintf("BUG: a batch of %d bytes in a unit; a record batch has at least %d", len(b), batchHeader))
		}
		kept.batches[i] = slices.Clone(b)
	}
	s.units = append(s.units, kept)
	s.SizeBytes += unitBytes(u)
	return Placed{Seq: seq, Segment: s.Number, BatchPos: pos}
}

// Room implements Journal.
func (m *Memory) Room() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.outstanding < 2 && !m.closed
}

// Sync implements Journal: everything is as durable as it gets.
func (m *Memory) Sync() {}

// Space implements Journal.
func (m *Memory) Space() (freeBytes int64, low bool) { return maxSegmentBytes, false }

// Reserve implements Journal.
func (m *Memory) Reserve(int64) bool { return true }

// Incarnation implements Journal.
func (m *Memory) Incarnation() uint32 { return m.cfg.Incarnation }

// LastSeq is the sequence of the newest unit appended; 0 if there is none.
func (m *Memory) LastSeq() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.nextSeq - 1
}

func (m *Memory) find(number uint64) *memorySegment {
	for _, s := range m.segments {
		if s.Number == number {
			return s
		}
	}
	return nil
}

// ReadAt implements Journal. What lies between the batches reads as zeros.
func (m *Memory) ReadAt(segment uint64, p []byte, pos int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.find(segment)
	if s == nil {
		return fmt.Errorf("read journal segment %d: %w", segment, errFreed)
	}
	end := pos + int64(len(p))
	if pos < 0 || end > s.SizeBytes {
		return fmt.Errorf("read %d bytes at offset %d of journal segment %d: it has %d", len(p), pos, segment, s.SizeBytes)
	}
	clear(p)
	at, _ := slices.BinarySearchFunc(s.units, pos, func(u memoryUnit, pos int64) int {
		if u.end() <= pos {
			return -1
		}
		return 1
	})
	for _, u := range s.units[at:] {
		from := u.pos
		for _, b := range u.batches {
			if low, high := max(pos, from), min(end, from+int64(len(b))); low < high {
				copy(p[low-pos:], b[low-from:high-from])
			}
			from += int64(len(b))
		}
		if u.pos >= end {
			break
		}
	}
	return nil
}

func (u memoryUnit) end() int64 {
	end := u.pos
	for _, b := range u.batches {
		end += int64(len(b))
	}
	return end
}

// Hold implements Journal.
func (m *Memory) Hold(segment uint64) (release func(), ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.find(segment)
	if s == nil {
		return nil, false
	}
	s.refs++
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		s.refs--
		m.free()
	}), true
}

// Scan implements Journal.
func (m *Memory) Scan(segment uint64, f func(Stored) error) error {
	m.mu.Lock()
	s := m.find(segment)
	sealed := s != nil && s.Sealed
	m.mu.Unlock()
	if s == nil {
		return fmt.Errorf("scan journal segment %d: %w", segment, errFreed)
	}
	if !sealed {
		return fmt.Errorf("scan journal segment %d: it is not sealed", segment)
	}
	for i, u := range s.units {
		st := Stored{Seq: s.FirstSeq + uint64(i), Segment: segment, Meta: u.meta}
		pos := u.pos
		for _, b := range u.batches {
			st.Batches = append(st.Batches, StoredBatch{Header: b[:batchHeader:batchHeader], Pos: pos, Len: int32(len(b))})
			pos += int64(len(b))
		}
		if err := f(st); err != nil {
			return err
		}
	}
	return nil
}

// Trim implements Journal.
func (m *Memory) Trim(seq uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trimSeq = max(m.trimSeq, seq)
	m.free()
}

// free drops what may go, oldest first.
func (m *Memory) free() {
	may := min(m.trimSeq, m.snapshotSeq)
	for len(m.segments) > 1 && m.segments[0].refs == 0 && m.segments[0].LastSeq <= may {
		m.segments = slices.Delete(m.segments, 0, 1)
	}
}

// Segments implements Journal.
func (m *Memory) Segments() []SegmentInfo {
	m.mu.Lock()
	defer m.mu.Unlock()
	infos := make([]SegmentInfo, len(m.segments))
	for i, s := range m.segments {
		infos[i] = s.SegmentInfo
	}
	return infos
}

// WriteSnapshot implements Journal: the state itself is dropped, since nobody can ask for it.
func (m *Memory) WriteSnapshot(seq uint64, _ []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if seq >= m.nextSeq || seq <= m.snapshotSeq {
		return fmt.Errorf("snapshot at unit %d: units go to %d, the newest snapshot is at %d", seq, m.nextSeq-1,
			m.snapshotSeq)
	}
	m.snapshotSeq = seq
	m.free()
	return nil
}

// Close implements Journal. It returns when all events are delivered.
func (m *Memory) Close() error {
	m.mu.Lock()
	already := m.closed
	m.closed = true
	m.signal()
	m.mu.Unlock()
	if already {
		return errors.New("the journal is closed already")
	}
	<-m.done
	return nil
}
