package task

import (
	"time"

	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/task/core"
)

const (
	// sliceTime is about how long core may work on records at once. Between two slices the loop sees to everything else:
	// commits, revokes, a stop. A fetch may hold many thousand records, and user code may take long for each; without an
	// end to a step a transaction that is open beside it would outlive its timeout.
	sliceTime  = 50 * time.Millisecond
	firstSlice = 16  // records
	maxSlice   = 128 // records; what a function that turns slow all at once may still keep the loop from seeing
)

// slicer cuts what a fetch brought into steps. The loop owns it.
type slicer struct {
	size    int // records of the next slice; 0 means firstSlice
	rest    core.Records
	tp      kafka.TopicPartition
	token   uint64
	release func()
}

// put takes a batch, which is given back with release. The one before must be over.
func (s *slicer) put(e core.Records, tp kafka.TopicPartition, token uint64, release func()) {
	s.rest, s.tp, s.token, s.release = e, tp, token, release
}

// holds reports whether something of a batch is left.
func (s *slicer) holds() bool { return s.release != nil }

// next cuts off the next slice. Its cursor is where the rest begins.
func (s *slicer) next() (e core.Records, last bool) {
	n := s.size
	if n == 0 {
		n = firstSlice
	}
	e = s.rest
	if n >= len(e.Records) {
		return e, true
	}
	after := e.Records[n]
	e.Records, s.rest.Records = e.Records[:n:n], e.Records[n:]
	e.Next = core.Position{Offset: after.Offset, Line: max(0, after.Line-1)}
	return e, false
}

// took adapts the size to how long n records have taken.
func (s *slicer) took(n int, d time.Duration) {
	switch {
	case n == 0:
	case d > sliceTime:
		s.size = max(1, int(int64(n)*int64(sliceTime)/int64(d)))
	case d < sliceTime/2 && n >= s.size:
		s.size = min(maxSlice, 2*max(s.size, n))
	}
}

// drop gives back what is left.
func (s *slicer) drop() {
	if s.release != nil {
		s.release()
	}
	s.rest, s.release = core.Records{}, nil
}

// takeSlice gives core the next slice, if the batch is still wanted.
func (w *worker) takeSlice() {
	s := &w.slices
	if w.fetchOf[s.tp] != s.token {
		s.drop()
		return
	}
	e, last := s.next()
	began := time.Now()
	w.step(e)
	s.took(len(e.Records), time.Since(began))
	if last {
		s.drop()
	}
}
