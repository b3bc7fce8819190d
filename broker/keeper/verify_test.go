package keeper

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/strandline-io/strandline/broker/journal"
	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/segment"
	"github.com/strandline-io/strandline/broker/sequencer"
	"github.com/strandline-io/strandline/internal/vfs"
)

// onePass is an Env that lets a Keeper do what there is to do, once.
type onePass struct {
	over    bool
	trouble error
	wakes   int
}

func (e *onePass) Record(*machine.Shelved) error { return sequencer.ErrStopped }
func (e *onePass) Pause(time.Duration)           { e.over = true }
func (e *onePass) Wake()                         { e.wakes++ }
func (e *onePass) Stopping() bool                { return e.over }
func (e *onePass) SetSlow(bool)                  {}
func (e *onePass) Trouble(err error)             { e.trouble = err }

// life is a machine over a journal of small segments, and the keeper that follows it.
type life struct {
	t       *testing.T
	env     onePass
	machine *machine.Machine
	journal *journal.Stepped
	keeper  *Keeper
	now     machine.Now
}

func begin(t *testing.T, disk *vfs.Mem, verify bool) *life {
	t.Helper()
	l := &life{t: t}
	var sealed []uint64
	r := NewRecovery(machine.Config{})
	var err error
	l.journal, err = journal.OpenStepped(journal.FileConfig{
		FS: disk, Dir: "journal", SegmentBytes: 32 << 10, Restore: r.Restore, Extents: r.Place,
	}, r.Replay, func(e journal.Event) {
		if e.Kind == journal.Sealed {
			sealed = append(sealed, e.Segment)
			l.keeper.Sealed(sealed[len(sealed)-1:])
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	store, err := segment.Open(disk, segment.Config{}, r.Lengths())
	if err != nil {
		t.Fatal(err)
	}
	l.machine, l.now = r.Machine, r.Machine.LastNow()
	l.keeper = New(Config{
		Env: &l.env, Journal: l.journal, Store: store, Board: r.Board(l.journal, store), Recovery: r,
		JournalMaxBytes: 1 << 20, Verify: verify,
	})
	return l
}

// decide does what the loop does with an operation, and tells the keeper a hash that is off by that much.
func (l *life) decide(body any, off uint64) {
	l.t.Helper()
	l.now.WallMs++
	l.now.EngineMs++
	var out machine.Out
	l.machine.Step(&machine.Op{Now: l.now, Body: body}, &out)
	for _, u := range out.Units {
		for _, p := range l.journal.Append([]journal.Unit{{Meta: u.Meta}}) {
			l.keeper.Marked([]sequencer.Mark{{Seq: p.Seq, Hash: l.machine.Hash() + off}})
		}
		for ready := l.journal.Ready(); len(ready) > 0; ready = l.journal.Ready() {
			l.journal.Step(ready[0])
		}
	}
}

// TestVerifyComparesEachMark: a state that replay does not give stops housekeeping at the unit in question, before
// anything is stored or freed; without Verify nobody looks.
func TestVerifyComparesEachMark(t *testing.T) {
	f := func(verify bool, wrong int, want string) {
		t.Run(fmt.Sprint(verify, wrong), func(t *testing.T) {
			l := begin(t, vfs.NewMem(), verify)
			for n := 1; n <= 20; n++ {
				off := uint64(0)
				if n == wrong {
					off = 1
				}
				l.decide(&machine.Incarnation{Number: uint32(n)}, off)
			}
			before := l.journal.Segments()
			err := l.keeper.Run()
			if want == "" && err != nil || want != "" && (!errors.Is(err, ErrDiverged) || !strings.HasPrefix(err.Error(), want)) {
				t.Errorf("Run returned %v, want %q", err, want)
			}
			if want == "" && l.keeper.shadowSeq < 10 {
				t.Errorf("the shadow came to unit %d", l.keeper.shadowSeq)
			}
			if l.env.trouble != nil || len(l.journal.Segments()) != len(before) || l.keeper.snapshotSeq != 0 {
				t.Errorf("trouble %v, %d of %d segments left, snapshot at %d", l.env.trouble, len(l.journal.Segments()), len(before), l.keeper.snapshotSeq)
			}
		})
	}
	f(true, 0, "")
	f(true, 1, "unit 1 in segment 1: ")
	f(true, 4, "unit 4 in segment 1: ")
	f(true, 9, "unit 9 in segment 3: ")
	f(false, 4, "")
}

// TestVerifyBoundsItsMarks: what the shadow has passed is forgotten.
func TestVerifyBoundsItsMarks(t *testing.T) {
	l := begin(t, vfs.NewMem(), true)
	for n := 1; n <= 200; n++ {
		l.decide(&machine.Incarnation{Number: uint32(n)}, 0)
		l.env.over = false
		if err := l.keeper.Run(); err != nil {
			t.Fatal(err)
		}
		if len(l.keeper.marks) > 12 {
			t.Fatalf("%d marks are kept at unit %d, the shadow is at %d", len(l.keeper.marks), n, l.keeper.shadowSeq)
		}
	}
}

// TestSnapshotsAreRestoredBeforeTheyCount: a snapshot that would not bring back the state is found when it is made.
func TestSnapshotsAreRestoredBeforeTheyCount(t *testing.T) {
	l := begin(t, vfs.NewMem(), true)
	for n := 1; n <= 20; n++ {
		l.decide(&machine.Incarnation{Number: uint32(n)}, 0)
	}
	state := l.machine.AppendSnapshot(nil)
	l.keeper.shadow = l.machine
	if err := l.keeper.verifySnapshot(state); err != nil {
		t.Error(err)
	}
	other := machine.New(machine.Config{}).AppendSnapshot(nil)
	for _, bad := range [][]byte{other, state[:len(state)-1], append(state[:len(state):len(state)], 0)} {
		if err := l.keeper.verifySnapshot(bad); !errors.Is(err, ErrDiverged) {
			t.Errorf("%v", err)
		}
	}
}
