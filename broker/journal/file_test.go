package journal

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/strandline-io/strandline/internal/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// owner appends from one goroutine and waits for events, as a sequencer does.
type owner struct {
	mu     sync.Mutex
	events []Event
	wake   chan struct{}
}

func newOwner() *owner { return &owner{wake: make(chan struct{}, 1)} }

func (o *owner) event(e Event) {
	o.mu.Lock()
	o.events = append(o.events, e)
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

func (o *owner) seen(kind EventKind, seq uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.events {
		if e.Kind == kind && e.Seq >= seq {
			return true
		}
	}
	return false
}

func (o *owner) await(kind EventKind, seq uint64) {
	for !o.seen(kind, seq) {
		<-o.wake
	}
}

// appendAll appends units one group at a time, as fast as there is room.
func (o *owner) appendAll(j Journal, units []Unit) (placed []Placed) {
	for _, u := range units {
		for !j.Room() {
			<-o.wake
		}
		placed = append(placed, j.Append([]Unit{u})...)
	}
	return placed
}

// checkPlaced reads every batch where Append said that it would be.
func checkPlaced(t *testing.T, j Journal, placed []Placed, units []Unit) {
	t.Helper()
	for i, p := range placed {
		pos := p.BatchPos
		for _, want := range units[i].Batches {
			got := make([]byte, len(want))
			must(t, j.ReadAt(p.Segment, got, pos))
			if !bytes.Equal(got, want) {
				t.Fatalf("unit %d reads back differently", p.Seq)
			}
			pos += int64(len(want))
		}
	}
}

// checkOrder demands that sequences rise within a kind, that Written comes before Synced, and Synced before Sealed.
func checkOrder(t *testing.T, j Journal, events []Event) {
	t.Helper()
	last := make(map[uint64]uint64)
	for _, s := range j.Segments() {
		last[s.Number] = s.LastSeq
	}
	var written, synced, sealed uint64
	for _, e := range events {
		switch e.Kind {
		case Written:
			if e.Seq <= written {
				t.Fatalf("Written %d after %d", e.Seq, written)
			}
			written = e.Seq
		case Synced:
			if e.Seq <= synced || e.Seq > written {
				t.Fatalf("Synced %d after Synced %d and Written %d", e.Seq, synced, written)
			}
			synced = e.Seq
		case Sealed:
			if e.Segment <= sealed || last[e.Segment] > synced {
				t.Fatalf("Sealed %d after %d, its last unit being %d and Synced %d", e.Segment, sealed, last[e.Segment], synced)
			}
			sealed = e.Segment
		case Failed:
			t.Fatal(e.Err)
		}
	}
}

func TestFileOnARealDisk(t *testing.T) {
	for _, durability := range []Durability{DurabilityFsync, DurabilityWrite} {
		disk := vfs.OS(t.TempDir())
		var units []Unit
		for round := range 4 {
			op := &opening{}
			cfg := op.config(disk)
			cfg.Durability, cfg.SegmentBytes = durability, 256<<10
			o := newOwner()
			j, err := OpenFile(cfg, op.replay, o.event)
			must(t, err)
			checkReplayed(t, j, op.replayed, units)
			more := randomUnits(uint64(round), 60, 12_000)
			units = append(units, more...)
			placed := o.appendAll(j, more)
			o.await(Written, uint64(len(units)))
			checkPlaced(t, j, placed, more)
			if j.LastSeq() != uint64(len(units)) {
				t.Fatalf("LastSeq %d of %d", j.LastSeq(), len(units))
			}
			must(t, j.Close())
			o.await(Synced, uint64(len(units)))
			checkOrder(t, j, o.events)
			if j.Close() == nil {
				t.Fatal("closed twice")
			}
		}
	}
}

func TestFileWithReadersAndTrim(t *testing.T) {
	disk := vfs.NewMem()
	op := &opening{}
	o := newOwner()
	j, err := OpenFile(op.config(disk), op.replay, o.event)
	must(t, err)
	units := randomUnits(1, 300, 3000)
	var readers sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					runtime.Gosched()
				}
				for _, s := range j.Segments() {
					release, ok := j.Hold(s.Number)
					if !ok {
						continue
					}
					if err := j.ReadAt(s.Number, make([]byte, 100), 0); err != nil {
						t.Error(err)
					}
					if s.Sealed {
						if err := j.Scan(s.Number, func(st Stored) error {
							return keep(st).differs(units[st.Seq-1], j.ReadAt)
						}); err != nil {
							t.Error(err)
						}
					}
					release()
				}
			}
		})
	}
	for i := 0; i < len(units); i += 30 {
		o.appendAll(j, units[i:i+30])
		last := uint64(i + 30)
		o.await(Synced, last)
		must(t, j.WriteSnapshot(last, []byte("state")))
		j.Trim(last)
	}
	close(stop)
	readers.Wait()
	must(t, j.Close())
	checkOrder(t, j, o.events)
}

func TestFileSecondOpenAndFailure(t *testing.T) {
	disk := vfs.NewMem()
	op := &opening{}
	o := newOwner()
	j, err := OpenFile(op.config(disk), op.replay, o.event)
	must(t, err)
	if _, err := OpenFile(op.config(disk), op.replay, o.event); !errors.Is(err, vfs.ErrLocked) {
		t.Fatalf("the second open says %v", err)
	}
	boom := errors.New("medium error")
	disk.FailNext(vfs.OpWrite, 0, boom)
	j.Append(randomUnits(1, 1, 100))
	o.await(Failed, 0)
	if err := j.Close(); !errors.Is(err, boom) {
		t.Fatalf("Close says %v", err)
	}
	j, err = OpenFile(op.config(disk), op.replay, o.event)
	must(t, err)
	must(t, j.Close())
}

func TestFileInABubble(t *testing.T) {
	for _, durability := range []Durability{DurabilityFsync, DurabilityWrite} {
		synctest.Test(t, func(t *testing.T) {
			disk := vfs.NewMem()
			op := &opening{}
			cfg := op.config(disk)
			cfg.Durability = durability
			o := newOwner()
			j, err := OpenFile(cfg, op.replay, o.event)
			must(t, err)
			units := randomUnits(3, 10, 500)
			began := time.Now()
			o.appendAll(j, units)
			o.await(Synced, 10)
			if took := time.Since(began); durability == DurabilityFsync && took > 0 || took > 200*time.Millisecond {
				t.Fatalf("%v of virtual time went by", took)
			}
			// A journal at rest must let virtual time stand still: its timer may not run for ever.
			synctest.Wait()
			<-time.After(time.Hour)
			writes := disk.Count(vfs.OpWrite)
			<-time.After(time.Hour)
			j.mu.Lock()
			wants := j.core.WantsTick()
			j.mu.Unlock()
			if wants || disk.Count(vfs.OpWrite) != writes {
				t.Fatal("a journal at rest still does something after an hour")
			}
			must(t, j.Close())
		})
	}
}

func TestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOwner()
		j := NewMemory(MemoryConfig{SegmentBytes: 20_000, Incarnation: 7}, o.event)
		units := randomUnits(4, 50, 2000)
		placed := o.appendAll(j, units)
		o.await(Synced, 50)
		checkPlaced(t, j, placed, units)
		checkOrder(t, j, o.events)
		if j.Incarnation() != 7 || j.LastSeq() != 50 || !j.Reserve(1<<30) {
			t.Fatal("small answers are wrong")
		}
		next := uint64(1)
		for _, s := range j.Segments() {
			if !s.Sealed {
				continue
			}
			must(t, j.Scan(s.Number, func(st Stored) error {
				if st.Seq != next {
					t.Fatalf("scan gives %d, want %d", st.Seq, next)
				}
				next++
				return keep(st).differs(units[st.Seq-1], j.ReadAt)
			}))
		}
		infos := j.Segments()
		if n := len(infos); n < 4 || infos[n-1].FirstSeq != next {
			t.Fatalf("segments %+v, scanned to %d", infos, next)
		}
		// A read may span what lies between batches of one segment.
		a, b := placed[0], placed[1]
		span := make([]byte, b.BatchPos-a.BatchPos)
		must(t, j.ReadAt(a.Segment, span, a.BatchPos))
		if j.ReadAt(a.Segment, make([]byte, 1), 1<<20) == nil {
			t.Fatal("a read beyond the segment succeeded")
		}
		release, _ := j.Hold(infos[1].Number)
		must(t, j.WriteSnapshot(50, nil))
		j.Trim(50)
		if got := j.Segments()[0].Number; got != infos[1].Number {
			t.Fatalf("the first segment is %d, want the held %d", got, infos[1].Number)
		}
		release()
		if got := j.Segments(); len(got) != 1 {
			t.Fatalf("segments %+v after the release", got)
		}
		must(t, j.Close())
		if j.Close() == nil || j.Room() || j.Append(units) != nil {
			t.Fatal("a closed journal goes on")
		}
	})
}

func BenchmarkAppendSync(b *testing.B) {
	for _, size := range []int{100, 16 << 10, 1 << 20} {
		b.Run(byteName(size), func(b *testing.B) {
			o := newOwner()
			cfg := FileConfig{FS: vfs.OS(b.TempDir()), Dir: "journal"}
			synced := make(chan uint64, 4)
			j, err := OpenFile(cfg, func(Stored) error { return nil }, func(e Event) {
				if e.Kind == Synced {
					synced <- e.Seq
				}
				o.event(e)
			})
			if err != nil {
				b.Fatal(err)
			}
			unit := Unit{Meta: make([]byte, 40), Batches: [][]byte{newBatch(rand.New(rand.NewPCG(1, 1)), size)}}
			group := []Unit{unit}
			o.events = nil
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				last := j.Append(group)[0].Seq
				for <-synced < last {
				}
				o.events = o.events[:0]
			}
			if err := j.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

func byteName(n int) string {
	if n >= 1<<20 {
		return "1MiB"
	}
	if n >= 1<<10 {
		return "16KiB"
	}
	return "100B"
}
