package streamtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline-io/strandline/stream"
)

// SinkUnderTest is one fresh place for a sink, which lives longer than the sink's values: a process that dies opens the
// same place again.
type SinkUnderTest interface {
	// Open returns a new stream.Sink value over the same place, as a restarted process would make it.
	Open() stream.Sink
	// Visible returns the rows that a reader of the place sees now, as RowText made them, in any order.
	Visible() ([]string, error)
	// Row makes a record that the sink accepts, different for every n. The suite sets RowSequence.
	Row(n int) stream.SinkRecord
	// RowText is what Visible reports for Row(n).
	RowText(n int) string
}

// sinkSeeds is how many random histories TestSink plays.
const sinkSeeds = 60

// TestSink checks the contract of stream.Sink and stream.SinkWriter: every row of a committed token is visible once
// after its Commit or Restore, no other row ever, with a crash between any two calls, zombies that write and prepare but
// never commit, repeated Commit, unknown outcomes either way, and empty epochs. newPlace is called for every history.
func TestSink(t *testing.T, newPlace func(t *testing.T) SinkUnderTest) {
	t.Helper()
	t.Run("one epoch", func(t *testing.T) {
		h := newSinkHistory(t, newPlace(t), 0)
		h.open()
		h.write(3)
		h.expect("nothing is visible before Prepare")
		h.prepare(true)
		h.expect("nothing is visible before Commit")
		h.transaction(true)
		h.commit()
		h.end()
	})
	t.Run("nothing to do", func(t *testing.T) {
		h := newSinkHistory(t, newPlace(t), 0)
		h.open()
		h.prepare(true)
		if h.prepared != nil {
			t.Fatalf("Prepare of an epoch without rows returned the token %q, want nil", h.prepared)
		}
		h.transaction(true)
		h.end()
	})
	t.Run("commit is repeatable", func(t *testing.T) {
		h := newSinkHistory(t, newPlace(t), 0)
		h.open()
		h.write(2)
		h.prepare(true)
		h.transaction(true)
		for range 3 {
			h.commit()
		}
		h.open()
		h.commit()
		h.end()
	})
	t.Run("an aborted epoch leaves nothing", func(t *testing.T) {
		h := newSinkHistory(t, newPlace(t), 0)
		h.open()
		h.write(2)
		h.prepare(true)
		h.transaction(false)
		h.open()
		h.write(2)
		h.prepare(true)
		h.transaction(true)
		h.commit()
		h.end()
	})
	t.Run("a zombie's rows stay invisible", func(t *testing.T) {
		h := newSinkHistory(t, newPlace(t), 0)
		h.open()
		h.write(2)
		h.prepare(false)
		h.transaction(true)
		zombie := h.writer
		h.open()
		zombieWrite(t, h, zombie)
		h.write(3)
		h.prepare(true)
		zombieWrite(t, h, zombie)
		h.transaction(true)
		h.commit()
		h.end()
	})
	for seed := range uint64(sinkSeeds) {
		t.Run(fmt.Sprintf("history %d", seed), func(t *testing.T) { newSinkHistory(t, newPlace(t), seed).play() })
	}
}

// zombieWrite lets a writer that was replaced go on; whether it notices is its own affair.
func zombieWrite(t *testing.T, h *sinkHistory, zombie stream.SinkWriter) {
	t.Helper()
	row := h.place.Row(1_000_000)
	row.RowSequence = h.written
	if zombie.Write(context.Background(), row) == nil {
		_, _ = zombie.Prepare(context.Background(), h.epoch+1)
	}
}

// sinkHistory plays one task's life with a sink, and knows what must be visible.
type sinkHistory struct {
	t     *testing.T
	place SinkUnderTest
	seed  uint64
	rng   *rand.Rand

	writer   stream.SinkWriter
	epoch    int64
	written  int64 // rows of this life, committed ones included: the next RowSequence
	rows     []int // rows not committed
	number   int   // of the next row
	prepared []byte
	// What the checkpoint holds.
	token     []byte
	committed []int
	sequence  int64
}

func newSinkHistory(t *testing.T, place SinkUnderTest, seed uint64) *sinkHistory {
	t.Helper()
	h := &sinkHistory{t: t, place: place, seed: seed, rng: rand.New(rand.NewPCG(seed, 3))}
	job := stream.JobIdentity{Job: "suite", Run: "1"}
	if err := place.Open().Check(context.Background(), job); err != nil {
		t.Fatalf("Check: %v", err)
	}
	return h
}

// open begins a new life of the task: what was not committed is forgotten.
func (h *sinkHistory) open() {
	h.t.Helper()
	s := h.place.Open()
	w, err := s.Open(context.Background(), stream.SinkTask{
		JobIdentity: stream.JobIdentity{Job: "suite", Run: "1"}, Sink: s.Name(), Task: "stage-0",
	})
	if err == nil {
		err = w.Restore(context.Background(), slices.Clone(h.token))
	}
	if err != nil {
		h.t.Fatalf("Open and Restore: %v", err)
	}
	h.writer, h.rows, h.prepared, h.written = w, nil, nil, h.sequence
	h.t.Cleanup(func() { _ = w.Close() })
}

func (h *sinkHistory) write(n int) {
	h.t.Helper()
	for range n {
		row := h.place.Row(h.number)
		row.RowSequence = h.written
		if err := h.writer.Write(context.Background(), row); err != nil {
			h.t.Fatalf("Write: %v", err)
		}
		h.rows = append(h.rows, h.number)
		h.number++
		h.written++
	}
}

func (h *sinkHistory) prepare(finish bool) {
	h.t.Helper()
	if finish {
		h.writer.Finish()
	}
	h.epoch++
	token, err := h.writer.Prepare(context.Background(), h.epoch)
	if err != nil {
		h.t.Fatalf("Prepare: %v", err)
	}
	if token == nil && len(h.rows) > 0 {
		h.t.Fatalf("Prepare returned no token for %d rows", len(h.rows))
	}
	h.prepared = slices.Clone(token)
}

// transaction decides the outcome of the transaction that holds the prepared token.
func (h *sinkHistory) transaction(committed bool) {
	if committed {
		h.token, h.sequence = h.prepared, h.written
		h.committed = append(h.committed, h.rows...)
	}
	h.rows = nil
}

func (h *sinkHistory) commit() {
	h.t.Helper()
	if h.token == nil {
		return
	}
	if err := h.writer.Commit(context.Background(), slices.Clone(h.token)); err != nil {
		h.t.Fatalf("Commit: %v", err)
	}
}

// expect checks that only committed rows are visible, each once.
func (h *sinkHistory) expect(when string) []string {
	h.t.Helper()
	got, err := h.place.Visible()
	if err != nil {
		h.t.Fatalf("%s: Visible: %v", when, err)
	}
	got = slices.Clone(got)
	slices.Sort(got)
	allowed := h.texts()
	for i, row := range got {
		if _, ok := slices.BinarySearch(allowed, row); !ok {
			h.t.Fatalf("seed %d: %s: row %q is visible and was never committed", h.seed, when, row)
		}
		if i > 0 && got[i-1] == row {
			h.t.Fatalf("seed %d: %s: row %q is visible twice", h.seed, when, row)
		}
	}
	return got
}

func (h *sinkHistory) texts() []string {
	out := []string{}
	for _, n := range h.committed {
		out = append(out, h.place.RowText(n))
	}
	slices.Sort(out)
	return out
}

// end finishes everything: then all committed rows are visible, and nothing is pending.
func (h *sinkHistory) end() {
	h.t.Helper()
	h.open()
	for range 3 {
		h.prepare(true)
		h.transaction(true)
		h.commit()
		if h.token == nil {
			break
		}
	}
	if h.token != nil || h.writer.Pending() {
		h.t.Fatalf("seed %d: after the end Prepare still returns the token %q, Pending %v", h.seed, h.token, h.writer.Pending())
	}
	got := h.expect("at the end")
	if diff := cmp.Diff(h.texts(), append([]string{}, got...)); diff != "" {
		h.t.Fatalf("seed %d: rows at the end (-committed +visible):\n%s", h.seed, diff)
	}
}

// play is a random history: after every call the process may die, every transaction may fail, and an outcome may become
// known only at the next life.
func (h *sinkHistory) play() {
	h.open()
	dies := func() bool {
		if h.rng.IntN(6) != 0 {
			return false
		}
		h.expect("after a crash")
		if h.rng.IntN(2) == 0 {
			_ = h.writer.Close()
		}
		h.open()
		return true
	}
	for range 30 {
		if h.rng.IntN(4) > 0 {
			h.write(h.rng.IntN(4))
		}
		if dies() {
			continue
		}
		h.prepare(h.rng.IntN(5) == 0)
		if dies() {
			continue
		}
		committed := h.rng.IntN(5) > 0
		h.transaction(committed)
		if !committed {
			h.open()
			continue
		}
		if dies() {
			continue
		}
		for range 1 + h.rng.IntN(2) {
			h.commit()
		}
		h.expect("after Commit")
	}
	h.end()
}
