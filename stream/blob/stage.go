package blob

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/strandline-io/strandline/internal/mutant"
)

const (
	firstPause = 100 * time.Millisecond
	maxPause   = 5 * time.Second
)

// caller makes store calls with deadlines and bounded repeats.
type caller struct {
	cfg   *Config
	tries int
}

// once makes one call with the deadline of a call.
func (c caller) once(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := c.cfg.Runtime.Context(ctx, c.cfg.CallTimeout)
	defer cancel()
	return f(ctx)
}

// repeat makes a call until it is answered, tries are used up or ctx ends.
func (c caller) repeat(ctx context.Context, f func(context.Context) error) error {
	for try := 1; ; try++ {
		err := c.once(ctx, f)
		if err == nil || kindOf(err) != ErrTemporary {
			return err
		}
		if err := c.pause(ctx, try, err); err != nil {
			return err
		}
	}
}

// pause waits before the next try, or returns why there is none.
func (c caller) pause(ctx context.Context, try int, cause error) error {
	if try >= c.tries {
		return fmt.Errorf("given up after %d tries: %w", try, cause)
	}
	d := min(firstPause<<min(try-1, 10), maxPause)
	if ctx.Err() == nil {
		c.cfg.Runtime.Sleep(ctx, d)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("given up after %d tries, %w: %w", try, context.Cause(ctx), cause)
	}
	return nil
}

// each calls f(0) to f(n-1), several at a time, and returns all their errors: that one blob fails or hangs does not keep
// the others.
func (s *Sink) each(n int, f func(i int) error) error {
	if n == 1 {
		return f(0)
	}
	errs := make([]error, n)
	size := min(n, s.cfg.Uploads)
	slots := s.cfg.Runtime.Slots(size)
	for i := range n {
		slots.Acquire(context.Background(), 1)
		s.cfg.Runtime.Go(func() {
			errs[i] = f(i)
			slots.Release(1)
		})
	}
	slots.Acquire(context.Background(), size)
	return errors.Join(errs...)
}

// uploads stages a writer's blocks in the background. The slots are the sink's: all its writers share them.
type uploads struct {
	sink    *Sink
	ctx     context.Context // ends with the writer
	cancel  context.CancelFunc
	running Slots // one for each block being staged; there are as many as the sink has

	mu  sync.Mutex
	err error // the first failure; the writer is then of no more use
}

func newUploads(s *Sink) *uploads {
	u := &uploads{sink: s, running: s.cfg.Runtime.Slots(s.cfg.Uploads)}
	u.ctx, u.cancel = s.cfg.Runtime.Context(context.Background(), 0)
	return u
}

// failed returns the first failure.
func (u *uploads) failed() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}

// submit stages data as block id of name in the background and takes data over. It waits for a free slot, which is what
// slows a writer down to the speed of the store.
func (u *uploads) submit(ctx context.Context, name string, id BlockID, data []byte) error {
	if err := u.sink.slots.Acquire(ctx, 1); err != nil {
		err = fmt.Errorf("blob %s: waiting for a free upload (%d are running): %w", name, u.sink.cfg.Uploads, err)
		u.fail(err)
		return err
	}
	u.running.Acquire(context.Background(), 1)
	u.sink.cfg.Runtime.Go(func() {
		u.stage(u.ctx, name, id, data)
		u.sink.slots.Release(1)
		u.running.Release(1)
	})
	return u.failed()
}

func (u *uploads) stage(ctx context.Context, name string, id BlockID, data []byte) {
	err := u.sink.calls().repeat(ctx, func(ctx context.Context) error { return u.sink.store.Stage(ctx, name, id, data) })
	u.sink.buffers.put(data)
	if err != nil && !mutant.On("a failed upload forgotten") {
		u.fail(fmt.Errorf("staging a block of blob %s failed, nothing of this transaction may be committed: %w", name, err))
	}
}

func (u *uploads) fail(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err == nil {
		u.err = err
	}
}

// wait returns when nothing is being staged any more, with the first failure, or when ctx ends.
func (u *uploads) wait(ctx context.Context) error {
	if err := u.running.Acquire(ctx, u.sink.cfg.Uploads); err != nil {
		return fmt.Errorf("waiting for blocks being staged: %w", errors.Join(err, u.failed()))
	}
	u.running.Release(u.sink.cfg.Uploads)
	return u.failed()
}

// close ends what is being staged and returns when all of it has ended.
func (u *uploads) close() {
	u.fail(errors.New("the blob writer is closed"))
	u.cancel()
	u.wait(context.Background())
}

// buffers keeps the memory of staged blocks for the next ones.
type buffers struct {
	mu   sync.Mutex
	free [][]byte
	keep int
}

func (b *buffers) get() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.free)
	if n == 0 {
		return nil
	}
	p := b.free[n-1]
	b.free = b.free[:n-1]
	return p[:0]
}

func (b *buffers) put(p []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.free) < b.keep {
		b.free = append(b.free, p)
	}
}
