package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/strandline-io/strandline/internal/vfs"
)

var (
	modelSeed  = flag.Uint64("seed", 0, "run the model test with this seed only")
	modelSeeds = flag.Uint64("seeds", 400, "how many seeds the model test runs")
)

// model is what a journal must be: a slice of units and two floors. Everything else about it is luck.
type model struct {
	rng        *rand.Rand
	durability Durability
	units      []Unit // unit i has sequence i+1
	written    uint64
	synced     uint64
	snapshots  map[uint64][]byte
	snapshot   uint64 // the newest durable
	trim       uint64
	sealed     map[uint64]bool
	holds      []hold
	inc        uint32
	dying      bool // a crash is planned

	disk *vfs.Mem
	j    *Stepped
	log  []string
}

type hold struct {
	segment uint64
	release func()
}

func (m *model) logf(format string, args ...any) { m.log = append(m.log, fmt.Sprintf(format, args...)) }

func TestModel(t *testing.T) {
	if *modelSeed != 0 {
		runModel(t, *modelSeed)
		return
	}
	for seed := uint64(1); seed <= *modelSeeds && !t.Failed(); seed++ {
		runModel(t, seed)
	}
}

func runModel(t *testing.T, seed uint64) {
	m := &model{
		rng: rand.New(rand.NewPCG(seed, 1)), snapshots: make(map[uint64][]byte), sealed: make(map[uint64]bool),
		disk: vfs.NewMem(),
	}
	m.durability = Durability(m.rng.IntN(2))
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("panic: %v", p)
			defer panic(p)
		}
		if t.Failed() {
			for _, line := range m.log[max(0, len(m.log)-40):] {
				t.Log(line)
			}
			t.Logf("again: go test ./broker/journal -run TestModel -seed=%d -v", seed)
		}
	}()
	if err := m.open(); err != nil {
		t.Error(err)
		return
	}
	for range 150 + m.rng.IntN(150) {
		if err := m.act(); err != nil {
			t.Error(err)
			return
		}
	}
}

// act does one random thing.
func (m *model) act() error {
	switch p := m.rng.IntN(100); {
	case p < 30:
		m.append()
	case p < 75:
		m.step()
	case p < 79:
		m.j.Tick()
	case p < 81:
		m.j.Sync()
	case p < 84:
		return m.takeSnapshot()
	case p < 87:
		m.trim = max(m.trim, m.rng.Uint64N(uint64(len(m.units))+1))
		m.logf("trim %d", m.trim)
		m.j.Trim(m.trim)
	case p < 90:
		m.hold()
	case p < 95:
		return m.read()
	case p < 98:
		return m.crash()
	case p < 99:
		return m.close()
	default:
		m.j.Reserve(int64(m.rng.IntN(100_000)))
	}
	return nil
}

func (m *model) append() {
	if !m.j.Room() {
		return
	}
	size := 1 << m.rng.IntN(13)
	if m.rng.IntN(40) == 0 {
		size = 60_000
	}
	group := make([]Unit, 1+m.rng.IntN(4))
	for i := range group {
		group[i] = newUnit(m.rng, size)
	}
	placed := m.j.Append(group)
	m.logf("append %d units of %d bytes from %d on: segment %d", len(group), size, placed[0].Seq, placed[0].Segment)
	for i, p := range placed {
		if p.Seq != uint64(len(m.units)+1) {
			panic(fmt.Sprintf("unit placed as %d, want %d", p.Seq, len(m.units)+1))
		}
		m.units = append(m.units, group[i])
	}
}

func (m *model) step() {
	if ready := m.j.Ready(); len(ready) > 0 {
		l := ready[m.rng.IntN(len(ready))]
		m.logf("step %d", l)
		m.j.Step(l)
	}
}

func (m *model) event(e Event) {
	switch e.Kind {
	case Written:
		m.written = e.Seq
	case Synced:
		m.synced = e.Seq
	case Sealed:
		m.sealed[e.Segment] = true
	case Failed:
		if !m.dying {
			panic(e.Err)
		}
	}
}

func (m *model) takeSnapshot() error {
	if m.synced == 0 || m.synced <= m.snapshot {
		return nil
	}
	seq := m.snapshot + 1 + m.rng.Uint64N(m.synced-m.snapshot)
	state := binary.LittleEndian.AppendUint64(bytes.Repeat([]byte{byte(seq)}, m.rng.IntN(9000)), seq)
	m.logf("snapshot %d", seq)
	m.snapshots[seq], m.snapshot = state, seq
	return m.j.WriteSnapshot(seq, state)
}

func (m *model) hold() {
	if len(m.holds) > 0 && m.rng.IntN(2) == 0 {
		m.holds[0].release()
		m.holds = m.holds[1:]
		return
	}
	segments := m.j.Segments()
	s := segments[m.rng.IntN(len(segments))]
	if release, ok := m.j.Hold(s.Number); ok {
		m.holds = append(m.holds, hold{s.Number, release})
	}
}

// read scans a sealed segment, of which a held one must be there in full.
func (m *model) read() error {
	for _, s := range m.j.Segments() {
		if !s.Sealed || m.rng.IntN(2) == 0 {
			continue
		}
		release, ok := m.j.Hold(s.Number)
		if !ok {
			continue
		}
		next := s.FirstSeq
		err := m.j.Scan(s.Number, func(st Stored) error {
			if st.Seq != next {
				return fmt.Errorf("scan of segment %d gives unit %d instead of %d", s.Number, st.Seq, next)
			}
			next++
			return keep(st).differs(m.units[st.Seq-1], m.j.ReadAt)
		})
		release()
		if err != nil {
			return err
		}
		if next != s.LastSeq+1 {
			return fmt.Errorf("scan of segment %d ends with %d instead of %d", s.Number, next-1, s.LastSeq)
		}
	}
	for _, h := range m.holds {
		if err := m.j.ReadAt(h.segment, make([]byte, 8), 0); err != nil {
			return fmt.Errorf("segment %d is held: %w", h.segment, err)
		}
	}
	return nil
}

// crash ends the process, at times in the middle of a step or of the opening after it.
func (m *model) crash() error {
	if m.rng.IntN(2) == 0 {
		m.disk.CrashAfter(1 + m.rng.IntN(4))
		m.dying = true
		for range 6 {
			m.append()
			m.step()
		}
		m.dying = false
	}
	m.cut()
	for m.rng.IntN(2) == 0 {
		m.disk.CrashAfter(1 + m.rng.IntN(20))
		o := &opening{}
		_, err := OpenStepped(o.config(m.disk), o.replay, o.event)
		m.logf("crash while opening: %v", err)
		if err != nil && !errors.Is(err, vfs.ErrCrashed) {
			return err
		}
		m.cut()
	}
	return m.open()
}

// cut replaces the disk with what is left of it. What was only written is durable no sooner than an opening says so.
func (m *model) cut() {
	if m.rng.IntN(2) == 0 {
		m.disk = m.disk.ProcessCrash()
	} else {
		sector := 4096
		if m.rng.IntN(2) == 0 {
			sector = 512
		}
		m.disk = m.disk.PowerLossTorn(m.rng.Uint64(), sector)
		m.written = m.synced
	}
	m.logf("crash: at least %d of %d units must be there", m.written, len(m.units))
	m.holds = nil
}

func (m *model) close() error {
	m.logf("close")
	for _, h := range m.holds {
		h.release()
	}
	m.holds = nil
	if err := m.j.Close(); err != nil {
		return err
	}
	if m.synced != uint64(len(m.units)) {
		return fmt.Errorf("closed with %d of %d units synced", m.synced, len(m.units))
	}
	return m.open()
}

// open recovers and compares. What was found becomes the truth: it must stay.
func (m *model) open() error {
	o := &opening{}
	cfg := o.config(m.disk)
	cfg.Durability = m.durability
	cfg.SyncBytes = 40_000
	cfg.MaxExtents = 40
	var err error
	if m.j, err = OpenStepped(cfg, o.replay, m.event); err != nil {
		return err
	}
	m.logf("opened: incarnation %d, snapshot %d, units to %d", m.j.Incarnation(), o.snapshotSeq, o.last())
	if m.j.Incarnation() <= m.inc {
		return fmt.Errorf("incarnation %d after %d", m.j.Incarnation(), m.inc)
	}
	m.inc = m.j.Incarnation()
	if o.snapshotSeq != m.snapshot || !bytes.Equal(o.state, m.snapshots[m.snapshot]) {
		return fmt.Errorf("snapshot %d was restored, want %d (or its state differs)", o.snapshotSeq, m.snapshot)
	}
	if o.last() < m.written || o.last() > uint64(len(m.units)) {
		return fmt.Errorf("found units to %d of %d, need %d", o.last(), len(m.units), m.written)
	}
	next := m.snapshot + 1
	for _, k := range o.replayed {
		if k.seq != next {
			return fmt.Errorf("replay gives unit %d instead of %d", k.seq, next)
		}
		next++
	}
	if err := m.checkExtents(o); err != nil {
		return err
	}
	for _, k := range append(o.extents, o.replayed...) {
		if err := k.differs(m.units[k.seq-1], m.j.ReadAt); err != nil {
			return err
		}
	}
	m.units = m.units[:o.last()]
	m.written, m.synced = o.last(), o.last()
	return nil
}

// checkExtents demands everything with batches between the first segment and the snapshot.
func (m *model) checkExtents(o *opening) error {
	var want []uint64
	for seq := m.j.Segments()[0].FirstSeq; seq <= m.snapshot; seq++ {
		if len(m.units[seq-1].Batches) > 0 {
			want = append(want, seq)
		}
	}
	var got []uint64
	for _, k := range o.extents {
		got = append(got, k.seq)
	}
	if fmt.Sprint(want) != fmt.Sprint(got) {
		return fmt.Errorf("extents of units %v, want %v", got, want)
	}
	if first := m.j.Segments()[0].FirstSeq; first > min(m.trim, m.snapshot)+1 {
		return fmt.Errorf("the journal begins with %d though only %d may be freed", first, min(m.trim, m.snapshot))
	}
	return nil
}
