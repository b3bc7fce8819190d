package blob

import (
	"context"
	"crypto/rand"
	"time"
)

// Runtime is what a sink runs on. The default is goroutines and the clock; a simulation gives its own, and then nothing
// in a sink happens but by its order.
type Runtime interface {
	// Go runs f beside its caller.
	Go(f func())
	// Slots returns n free slots.
	Slots(n int) Slots
	// Context returns a context that ends with parent, when cancel is called, and, unless d is 0, after d.
	Context(parent context.Context, d time.Duration) (ctx context.Context, cancel context.CancelFunc)
	// Sleep waits for d, or until ctx ends.
	Sleep(ctx context.Context, d time.Duration)
}

// Slots is a counting semaphore. Calls may overlap; of those that want more than one slot only one at a time.
type Slots interface {
	// Acquire takes n slots, waiting for them if it must, or returns why ctx has ended, having taken none.
	Acquire(ctx context.Context, n int) error
	Release(n int)
}

// goroutines is the Runtime of the real world.
type goroutines struct{}

func (goroutines) Go(f func())       { go f() }
func (goroutines) Slots(n int) Slots { return make(slots, n) }

func (goroutines) Context(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d == 0 {
		return context.WithCancel(parent)
	}
	return context.WithTimeout(parent, d)
}

func (goroutines) Sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// slots holds one element for each slot that is taken.
type slots chan struct{}

func (s slots) Acquire(ctx context.Context, n int) error {
	for i := range n {
		select {
		case s <- struct{}{}:
			continue
		default:
		}
		select {
		case s <- struct{}{}:
		case <-ctx.Done():
			s.Release(i)
			return context.Cause(ctx)
		}
	}
	return nil
}

func (s slots) Release(n int) {
	for range n {
		<-s
	}
}

func cryptoRandom(p []byte) { rand.Read(p) }
