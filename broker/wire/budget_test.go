package wire

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
)

func TestBudgetServesInOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(10)
		if _, ok := b.Acquire(8, nil); !ok {
			t.Fatal("no room in an empty budget")
		}
		order := make(chan int64, 3)
		cancel := make(chan struct{})
		ask := func(n int64, cancel chan struct{}) {
			go func() {
				if got, ok := b.Acquire(n, cancel); ok {
					order <- got
				} else {
					order <- -n
				}
			}()
			synctest.Wait()
		}
		ask(5, cancel)
		ask(2, nil)  // would fit, but came later
		ask(99, nil) // more than there is counts as all
		if b.TryAcquire(1) {
			t.Error("TryAcquire overtook those who wait")
		}
		close(cancel)
		if got := <-order; got != -5 {
			t.Errorf("first %d", got)
		}
		if got := <-order; got != 2 {
			t.Errorf("second %d", got)
		}
		b.Release(8)
		b.Release(2)
		if got := <-order; got != 10 {
			t.Errorf("third %d", got)
		}
		if b.InUse() != 10 {
			t.Errorf("%d in use", b.InUse())
		}
	})
}

// TestBudgetNeverExceeded lets many take and give at random, some giving up.
func TestBudgetNeverExceeded(t *testing.T) {
	const total, workers, rounds = 100, 16, 300
	b := NewBudget(total)
	done := make(chan struct{})
	for w := range uint64(workers) {
		go func() {
			defer func() { done <- struct{}{} }()
			r := rand.New(rand.NewPCG(1, w))
			for range rounds {
				cancel := make(chan struct{})
				if r.IntN(3) == 0 {
					close(cancel)
				}
				if n, ok := b.Acquire(1+r.Int64N(60), cancel); ok {
					if used := b.InUse(); used > total {
						t.Errorf("%d of %d bytes in use", used, total)
					}
					b.Release(n)
				}
			}
		}()
	}
	for range workers {
		<-done
	}
	if b.InUse() != 0 || len(b.waiting) != 0 {
		t.Errorf("%d in use, %d waiting at the end", b.InUse(), len(b.waiting))
	}
}

func TestBuffersReturnToTheirClass(t *testing.T) {
	var p Pool
	f := func(size, wantCap int) {
		t.Helper()
		b := p.Get(size)
		if len(b.B) != 0 || cap(b.B) != wantCap {
			t.Errorf("Get(%d): length %d, capacity %d", size, len(b.B), cap(b.B))
		}
		b.Release()
	}
	f(0, 4<<10)
	f(4<<10, 4<<10)
	f(4<<10+1, 8<<10)
	f(16<<20, 16<<20)
	f(16<<20+1, 16<<20+1)

	b := p.Get(10)
	b.B = append(b.B, "kept"...)
	b.grow(100_000)
	if string(b.B) != "kept" || cap(b.B) < 100_000 {
		t.Errorf("after growing: %q, capacity %d", b.B, cap(b.B))
	}
	b.Retain()
	b.Release()
	if string(b.B) != "kept" {
		t.Error("released too early")
	}
	b.Release()
	defer func() {
		if recover() == nil {
			t.Error("a release too many went unnoticed")
		}
	}()
	b.Release()
}
