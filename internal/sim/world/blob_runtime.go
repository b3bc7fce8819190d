package world

import (
	"context"
	"time"

	"github.com/strandline-io/strandline/stream/blob"
)

// forever is later than any run ends.
const forever = int64(1) << 50

// blobRuntime is what one process's sink runs on: coroutines of the world and its clock. A process that is killed stops
// within the call that it is in; one that is frozen goes on later as if nothing had happened.
type blobRuntime struct {
	w             *World
	name          string
	process       *blobProcess // in a world of sinks
	worker        *worker      // in a job
	coroutines    []*coroutine
	waiting       []*coroutine
	frozenUntilUs int64
	dead          bool
}

var _ blob.Runtime = (*blobRuntime)(nil)

func (r *blobRuntime) start(name string, f func()) {
	c := r.w.newCoroutine(r.name+" "+name, func(*coroutine) { f() })
	c.client = true
	r.coroutines = append(r.coroutines, c)
	if p := r.worker; p != nil {
		c.pausedUs = p.pausedUs
		p.coroutines = append(p.coroutines, c)
	}
	r.w.after(r.w.Int64N(500), func() { c.wake(0) })
}

func (r *blobRuntime) Go(f func()) { r.start("helper", f) }

// kill ends the process.
func (r *blobRuntime) kill() {
	r.dead = true
	for _, c := range r.coroutines {
		c.end()
	}
}

// freeze stops the process for a while.
func (r *blobRuntime) freeze(us int64) {
	r.frozenUntilUs = max(r.frozenUntilUs, r.w.nowUs+us)
	r.w.after(us, r.poke)
}

// poke lets all that waits look again.
func (r *blobRuntime) poke() {
	if r.dead {
		return
	}
	for _, c := range r.waiting {
		c.signal()
	}
}

// until pauses the running coroutine until ready, the end of ctx, or the end of the time.
func (r *blobRuntime) until(ctx context.Context, us int64, ready func() bool) {
	c := r.w.current
	end := r.w.nowUs + us
	wake := min(end, deadlineOf(ctx))
	over := func() bool { return ready() || ctx.Err() != nil || r.w.nowUs >= end }
	thawed := func() bool { return r.w.nowUs >= r.frozenUntilUs }
	if over() && thawed() {
		return
	}
	r.waiting = append(r.waiting, c)
	for !over() || !thawed() {
		c.await(max(wake, r.frozenUntilUs)-r.w.nowUs, func() bool { return over() && thawed() })
	}
	for i := range r.waiting {
		if r.waiting[i] == c {
			r.waiting = append(r.waiting[:i], r.waiting[i+1:]...)
			break
		}
	}
}

func (r *blobRuntime) sleep(us int64) {
	r.until(context.Background(), us, func() bool { return false })
}

func (r *blobRuntime) Sleep(ctx context.Context, d time.Duration) {
	r.until(ctx, d.Microseconds(), func() bool { return false })
}

func (r *blobRuntime) Slots(n int) blob.Slots { return &blobSlots{r, n} }

type blobSlots struct {
	r    *blobRuntime
	free int
}

func (s *blobSlots) Acquire(ctx context.Context, n int) error {
	s.r.until(ctx, forever, func() bool { return s.free >= n })
	if s.free < n {
		return context.Cause(ctx)
	}
	s.free -= n
	return nil
}

func (s *blobSlots) Release(n int) {
	s.free += n
	s.r.poke()
}

// blobContext ends by the virtual clock.
type blobContext struct {
	context.Context
	r          *blobRuntime
	deadlineUs int64
	cancelled  bool
}

func (r *blobRuntime) Context(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	c := &blobContext{Context: parent, r: r, deadlineUs: deadlineOf(parent)}
	if d != 0 {
		c.deadlineUs = min(c.deadlineUs, r.w.nowUs+d.Microseconds())
	}
	return c, func() {
		if !c.cancelled {
			c.cancelled = true
			r.poke()
		}
	}
}

func (c *blobContext) Err() error {
	switch {
	case c.Context.Err() != nil:
		return c.Context.Err()
	case c.cancelled:
		return context.Canceled
	case c.r.w.nowUs >= c.deadlineUs:
		return context.DeadlineExceeded
	}
	return nil
}

// deadlineOf is when ctx ends at the latest.
func deadlineOf(ctx context.Context) int64 {
	if c, ok := ctx.(*blobContext); ok {
		return c.deadlineUs
	}
	return forever
}
