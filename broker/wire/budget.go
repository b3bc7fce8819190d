package wire

import "sync"

// Budget is a number of bytes that many connections share. Whoever needs memory takes its share first and waits, in
// order of arrival, while there is none.
type Budget struct {
	total int64

	mu      sync.Mutex
	used    int64
	waiting []*waiter // first in, first out
}

type waiter struct {
	n       int64
	granted chan struct{}
}

// NewBudget returns a budget of total bytes.
func NewBudget(total int64) *Budget { return &Budget{total: total} }

// Acquire takes n bytes, waiting for them if need be, until cancel is closed; then it returns false and has taken
// nothing. More than the whole budget counts as the whole budget. It returns what must be given back.
func (b *Budget) Acquire(n int64, cancel <-chan struct{}) (taken int64, ok bool) {
	n = min(n, b.total)
	b.mu.Lock()
	if len(b.waiting) == 0 && b.used+n <= b.total {
		b.used += n
		b.mu.Unlock()
		return n, true
	}
	w := &waiter{n: n, granted: make(chan struct{})}
	b.waiting = append(b.waiting, w)
	b.mu.Unlock()
	select {
	case <-w.granted:
		return n, true
	case <-cancel:
	}
	if b.forget(w) {
		return 0, false
	}
	// It was granted in the same moment.
	b.Release(n)
	return 0, false
}

// TryAcquire takes n bytes if they are there and nobody waits before.
func (b *Budget) TryAcquire(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) > 0 || b.used+n > b.total {
		return false
	}
	b.used += n
	return true
}

// Release gives n bytes back.
func (b *Budget) Release(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.used < 0 {
		panic("BUG: more bytes given back to a budget than were taken")
	}
	b.grant()
}

// InUse is how many bytes are taken at the moment.
func (b *Budget) InUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// forget removes w from the queue; false means that it was granted before.
func (b *Budget) forget(w *waiter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, x := range b.waiting {
		if x == w {
			b.waiting = append(b.waiting[:i], b.waiting[i+1:]...)
			// The one behind may fit where w did not.
			b.grant()
			return true
		}
	}
	return false
}

func (b *Budget) grant() {
	n := 0
	for n < len(b.waiting) && b.used+b.waiting[n].n <= b.total {
		b.used += b.waiting[n].n
		close(b.waiting[n].granted)
		n++
	}
	if n > 0 {
		m := copy(b.waiting, b.waiting[n:])
		clear(b.waiting[m:])
		b.waiting = b.waiting[:m]
	}
}

// Contended reports whether somebody waits.
func (b *Budget) Contended() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting) > 0
}

// smallChargeBytes divides the lanes of frames that are still arriving.
const smallChargeBytes = 4 << 20

// Admission decides when a request's bytes may be read. It has three lanes, so that those who announce much and then
// stall cannot keep others out: one for frames that have arrived whole in their connection's read buffer, and, for
// those that are still arriving, one for small and one for large charges.
type Admission struct{ whole, small, large *Budget }

// NewAdmission divides total bytes: half for large requests, a quarter for each other lane.
func NewAdmission(total int64) *Admission {
	return &Admission{whole: NewBudget(total / 4), small: NewBudget(total / 4), large: NewBudget(total - 2*(total/4))}
}

// InUse is how many bytes are admitted at the moment.
func (a *Admission) InUse() int64 { return a.whole.InUse() + a.small.InUse() + a.large.InUse() }

func (a *Admission) lane(charge int64, whole bool) *Budget {
	switch {
	case whole:
		return a.whole
	case charge <= smallChargeBytes:
		return a.small
	}
	return a.large
}
