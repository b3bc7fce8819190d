package keeper

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/strandline-io/strandline/broker/journal"
	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/sequencer"
)

// ErrDiverged says that replay does not give the state that the loop had: a restart would not continue from what
// clients were told. It is a bug.
var ErrDiverged = errors.New("replay differs from the running state")

// Marked is told by the loop what its state was. The marks are kept until the shadow has passed them, which is one for
// each group of units, so at most 16 bytes for each 4 KiB of journal.
func (k *Keeper) Marked(marks []sequencer.Mark) {
	if !k.cfg.Verify {
		return
	}
	k.mu.Lock()
	k.marks = append(k.marks, marks...)
	k.mu.Unlock()
}

// verify compares the shadow, which has just applied u, with the loop's state behind u, if it was marked.
func (k *Keeper) verify(u journal.Stored) error {
	want, ok := k.mark(u.Seq)
	if got := k.shadow.Hash(); ok && got != want {
		return inUnit(u, fmt.Errorf("%w: the state hashes to %016x, replay to %016x; nothing more is answered or freed: "+
			"keep a copy of the data folder and report it", ErrDiverged, want, got))
	}
	return nil
}

// mark takes the marks up to seq off the list and returns the one of seq.
func (k *Keeper) mark(seq uint64) (hash uint64, ok bool) {
	if !k.cfg.Verify {
		return 0, false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	n := 0
	for n < len(k.marks) && k.marks[n].Seq <= seq {
		hash, ok = k.marks[n].Hash, k.marks[n].Seq == seq
		n++
	}
	k.marks = k.marks[n:]
	return hash, ok
}

// verifySnapshot looks whether a restart would get back what was stored.
func (k *Keeper) verifySnapshot(state []byte) error {
	if !k.cfg.Verify {
		return nil
	}
	m, err := machine.Restore(k.machineCfg, state)
	if err != nil {
		return fmt.Errorf("snapshot at %d: %w: it does not restore: %w", k.shadowSeq, ErrDiverged, err)
	}
	if got, want := m.Hash(), k.shadow.Hash(); got != want || !bytes.Equal(m.AppendSnapshot(nil), state) {
		return fmt.Errorf("snapshot at %d: %w: the state hashes to %016x, the restored snapshot to %016x, or stores other bytes",
			k.shadowSeq, ErrDiverged, want, got)
	}
	return nil
}
