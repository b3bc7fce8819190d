package producer

import (
	"fmt"
	"iter"
	"math"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

// model decides like kafka-eos.md A.4, row by row, for one producer that may wait for nothing.
type model struct {
	known   bool
	epoch   int16
	batches []Batch // of this epoch, the newest five
	open    int64   // first offset, -1 without
	end     int64
}

func (m *model) decide(b Batch) (code int16, duplicate bool) {
	last := int32(-1)
	if n := len(m.batches); n > 0 {
		last = m.batches[n-1].LastSequence
	}
	for _, c := range m.batches {
		if b.Epoch == m.epoch && c.FirstSequence == b.FirstSequence && c.LastSequence == b.LastSequence {
			return 0, true // row 1
		}
	}
	switch {
	case m.known && b.Epoch < m.epoch: // rows 2, 4
		return kerr.InvalidProducerEpoch.Code, false
	case b.Transactional && b.BumpsEpoch && b.FirstSequence != 0 && (b.Epoch != m.epoch || m.open < 0) && len(m.batches) == 0: // row 6
		return kerr.OutOfOrderSequenceNumber.Code, false
	case m.known && b.Epoch != m.epoch && b.FirstSequence != 0: // row 7
		return kerr.OutOfOrderSequenceNumber.Code, false
	case m.known && b.Epoch > m.epoch: // row 8
	case !m.known: // row 9
	case len(m.batches) == 0 && b.FirstSequence == 0: // row 10
	case len(m.batches) > 0 && (b.FirstSequence == last+1 || b.FirstSequence == 0 && last == 1<<31-1): // row 11
	default: // row 12
		return kerr.OutOfOrderSequenceNumber.Code, false
	}
	if !b.Transactional && m.open >= 0 { // row 13
		return kerr.InvalidTxnState.Code, false
	}
	return 0, false
}

func (m *model) append(b Batch) {
	m.adopt(b.Epoch)
	m.batches = append(m.batches, b)
	if len(m.batches) > 5 {
		m.batches = m.batches[1:]
	}
	if b.Transactional && m.open < 0 { // row 14
		m.open = m.end
	}
	m.end++
}

func (m *model) adopt(epoch int16) {
	if !m.known || m.epoch != epoch {
		m.batches = nil
	}
	m.known, m.epoch = true, epoch
}

// TestEveryShortHistory walks all histories of up to four events of one producer and compares every decision and the
// stable offset with the model; the stable offset never moves back (V11).
func TestEveryShortHistory(t *testing.T) {
	var events []any
	for epoch := range int16(2) {
		for seq := range int32(3) {
			for _, kind := range []Batch{{}, {Transactional: true}, {Transactional: true, BumpsEpoch: true}} {
				kind.Epoch, kind.FirstSequence, kind.LastSequence = epoch, seq, seq
				events = append(events, kind)
			}
		}
		events = append(events, Marker{Epoch: epoch}, Marker{Epoch: epoch, Commit: true}, Marker{Epoch: epoch + 1, BumpsEpoch: true})
	}
	length := 4
	if raceEnabled {
		length = 3
	}
	history := make([]any, length)
	var walk func(depth int)
	walk = func(depth int) {
		if depth == length {
			if problem := compare(history); problem != "" {
				t.Fatal(problem)
			}
			return
		}
		for _, e := range events {
			history[depth] = e
			walk(depth + 1)
		}
	}
	walk(0)
}

func compare(history []any) string {
	table := NewTable(Config{})
	p := table.NewPartition(1)
	m := &model{open: -1}
	stable := int64(0)
	for i, event := range history {
		switch e := event.(type) {
		case Batch:
			code, duplicate := m.decide(e)
			if o := p.Check(e); o.Code != code || o.Duplicate != duplicate {
				return fmt.Sprintf("event %d of %+v: got %+v, want code %d, duplicate %v", i, history, o, code, duplicate)
			}
			if code == 0 && !duplicate {
				p.ApplyBatch(e, m.end, m.end, 0, 0)
				m.append(e)
			}
		case restart:
			table, p = restarted(table, p)
		case Marker:
			refused := m.known && (e.Epoch < m.epoch || e.BumpsEpoch && e.Epoch == m.epoch && m.open >= 0)
			if code, _ := p.CheckMarker(e); (code != 0) != refused {
				return fmt.Sprintf("event %d of %+v: got code %d, want refused %v", i, history, code, refused)
			}
			if !refused {
				p.ApplyMarker(e, m.end, 0, 0)
				m.adopt(e.Epoch)
				m.open = -1
				m.end++
			}
		}
		now := m.end
		if m.open >= 0 {
			now = m.open
		}
		first, open := p.FirstUnstable()
		if open != (m.open >= 0) || open && first != m.open {
			return fmt.Sprintf("event %d of %+v: first unstable offset %d, %v, want %d", i, history, first, open, m.open)
		}
		if now < stable {
			return fmt.Sprintf("event %d of %+v: the stable offset moved back from %d to %d", i, history, stable, now)
		}
		stable = now
	}
	return ""
}

// restart is a crash: only what a snapshot holds goes on.
type restart struct{}

func restarted(table *Table, p *Partition) (*Table, *Partition) {
	next := NewTable(Config{})
	q := next.NewPartition(1)
	for _, all := range []iter.Seq[Entry]{p.OpenEntries(), table.Idle()} {
		for e := range all {
			if err := q.Restore(e); err != nil {
				panic(err)
			}
		}
	}
	if err := q.RestoreAborted(p.Aborted()); err != nil {
		panic(err)
	}
	return next, q
}

// TestEveryDisturbance walks a producer that sends its batches in their order, with up to three disturbances at every
// place: a batch that comes twice, too early or too late, one of the last epoch, a crash, a new epoch, a transaction's
// end. Six and more batches, so that those leave the memory of five; also where the sequences wrap around.
func TestEveryDisturbance(t *testing.T) {
	steps, most := 9, 3
	if raceEnabled || testing.Short() {
		steps, most = 8, 2
	}
	for _, kind := range []Batch{{}, {Transactional: true}, {Transactional: true, BumpsEpoch: true}} {
		for _, base := range []int64{0, math.MaxInt32 - 2} {
			if kind.BumpsEpoch && base > 0 {
				continue // it begins at 0
			}
			d := &disturbed{t: t, kind: kind, base: base, steps: steps, history: make([]any, 0, steps)}
			d.walk(0, 0, most)
			if d.runs < 1000 {
				t.Errorf("%d histories of %+v", d.runs, kind)
			}
		}
	}
}

type disturbed struct {
	t       *testing.T
	kind    Batch
	base    int64
	steps   int
	history []any
	runs    int
}

func (d *disturbed) batch(epoch int16, n int64) Batch {
	b := d.kind
	b.Epoch = epoch
	if epoch == 0 {
		n += d.base
	}
	b.FirstSequence = int32(n % (math.MaxInt32 + 1))
	b.LastSequence = b.FirstSequence
	return b
}

// walk goes on behind the history: next is the batch to send, left how many disturbances may still come.
func (d *disturbed) walk(epoch int16, next int64, left int) {
	if len(d.history) == d.steps {
		d.runs++
		if problem := compare(d.history); problem != "" {
			d.t.Fatal(problem)
		}
		return
	}
	with := func(event any, epoch int16, next int64, left int) {
		d.history = append(d.history, event)
		d.walk(epoch, next, left)
		d.history = d.history[:len(d.history)-1]
	}
	with(d.batch(epoch, next), epoch, next+1, left)
	if left == 0 {
		return
	}
	for n := range next + 2 {
		if n != next {
			with(d.batch(epoch, n), epoch, next, left-1)
		}
	}
	with(restart{}, epoch, next, left-1)
	if epoch > 0 {
		with(d.batch(epoch-1, next), epoch, next, left-1)
	} else {
		with(d.batch(epoch+1, 0), epoch+1, 1, left-1)
	}
	if d.kind.Transactional {
		with(Marker{Epoch: epoch, Commit: true}, epoch, next, left-1)
		with(Marker{Epoch: epoch}, epoch, next, left-1)
		with(Marker{Epoch: epoch + 1, BumpsEpoch: true}, epoch+1, 0, left-1)
	}
}
