package world

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"

	"github.com/strandline-io/strandline/stream/blob"
	"github.com/strandline-io/strandline/stream/blob/blobtest"
)

const (
	dayInUs = 24 * 3600 * secondInUs
	// blobExpiryUs is how long uncommitted blocks live after the last one was staged under their name.
	blobExpiryUs = 7 * dayInUs
)

// blobService is the fake with Azure's rules behind a network: a request lands some time after it was sent, whether its
// sender still lives or not, or never; its answer comes some time later, or never.
type blobService struct {
	p        *blobPlace
	fake     *blobtest.Fake
	store    blob.Store
	inFlight int
	staged   map[string]int64 // when the last block was staged, by name
	expired  map[string]int64 // when names lost uncommitted blocks to time
}

func newBlobService(p *blobPlace) *blobService {
	f := blobtest.NewFake()
	return &blobService{p: p, fake: f, store: f.Client("service"), staged: map[string]int64{}, expired: map[string]int64{}}
}

// delay is how long a message is on its way.
func (s *blobService) delay() int64 {
	w := s.p.World
	switch n := w.IntN(100); {
	case s.p.calm || n < 85:
		return 200 + w.Int64N(3000)
	case n < 95:
		return w.Int64N(500 * msInUs)
	case n < 99:
		return w.Int64N(8 * secondInUs)
	}
	return w.Int64N(s.p.longestUs)
}

// expire does what time does to uncommitted blocks.
func (s *blobService) expire(name string) {
	if at, ok := s.staged[name]; ok && s.p.nowUs-at > blobExpiryUs {
		delete(s.staged, name)
		s.fake.Expire(name)
		s.expired[name] = at + blobExpiryUs
		s.p.tracef("the blocks of %s expire", name)
	}
}

// blobClient is the service as one process sees it.
type blobClient struct {
	s *blobService
	r *blobRuntime
}

var _ blob.Store = (*blobClient)(nil)

var (
	errNoAnswer = errors.New("no answer")
	errBusy     = errors.New("503 ServerBusy")
)

// call sends a request and waits for its answer. do runs when the request lands.
func (c *blobClient) call(ctx context.Context, op, name string, do func() error) error {
	s, w := c.s, c.s.p.World
	failed := func(err error) error {
		return &blob.StoreError{Kind: blob.ErrTemporary, Op: op, Name: name, Where: "service", Err: err}
	}
	if err := ctx.Err(); err != nil {
		return failed(err)
	}
	var result error
	answered := false
	answer := func(err error) {
		w.after(s.delay(), func() {
			result, answered = err, true
			c.r.poke()
		})
	}
	bad := 0
	if !s.p.calm && w.IntN(100) < s.p.badPercent {
		bad = 1 + w.IntN(4)
	}
	switch bad {
	case 1: // the request is lost
	case 2, 3:
		answer(failed(errBusy))
	default:
		s.inFlight++
		w.after(s.delay(), func() {
			s.inFlight--
			s.expire(name)
			err := do()
			w.tracef("%s: %s %s lands: %v", c.r.name, op, name, err)
			if bad == 0 {
				answer(err)
			}
		})
	}
	s.p.hooks.inCall(c.r)
	c.r.until(ctx, forever, func() bool { return answered })
	if !answered {
		return failed(errors.Join(errNoAnswer, context.Cause(ctx)))
	}
	return result
}

func (c *blobClient) String() string { return "service" }

func (c *blobClient) Ensure(ctx context.Context) error {
	return c.call(ctx, "ensure", "", func() error { return nil })
}

func (c *blobClient) Stage(ctx context.Context, name string, id blob.BlockID, data []byte) error {
	data = bytes.Clone(data)
	return c.call(ctx, "stage", name, func() error {
		err := c.s.store.Stage(context.Background(), name, id, data)
		if err == nil {
			c.s.staged[name] = c.s.p.nowUs
		}
		return err
	})
}

func (c *blobClient) Commit(ctx context.Context, name string, blocks []blob.BlockID, metadata map[string]string) error {
	blocks = slices.Clone(blocks)
	return c.call(ctx, "commit", name, func() error {
		c.s.p.hooks.checkBlocks(name, len(blocks))
		err := c.s.store.Commit(context.Background(), name, blocks, metadata)
		if err == nil {
			delete(c.s.staged, name)
			c.s.p.hooks.published(name)
		}
		return err
	})
}

func (c *blobClient) Props(ctx context.Context, name string) (blob.Props, error) {
	var p blob.Props
	err := c.call(ctx, "props", name, func() (err error) {
		p, err = c.s.store.Props(context.Background(), name)
		return err
	})
	return p, err
}

func (c *blobClient) Read(ctx context.Context, name string) (io.ReadCloser, error) {
	var r io.ReadCloser
	err := c.call(ctx, "read", name, func() (err error) {
		r, err = c.s.store.Read(context.Background(), name)
		return err
	})
	return r, err
}

func (c *blobClient) List(ctx context.Context, prefix string, visit func(blob.Entry) error) error {
	var all []blob.Entry
	err := c.call(ctx, "list", prefix, func() error {
		return c.s.store.List(context.Background(), prefix, func(e blob.Entry) error {
			all = append(all, e)
			return nil
		})
	})
	for _, e := range all {
		if err == nil {
			err = visit(e)
		}
	}
	return err
}

func (c *blobClient) Delete(ctx context.Context, name string) error {
	return c.call(ctx, "delete", name, func() error { return c.s.store.Delete(context.Background(), name) })
}

func (c *blobClient) Uncommitted(ctx context.Context, name string) ([]string, error) {
	var ids []string
	err := c.call(ctx, "uncommitted", name, func() (err error) {
		ids, err = c.s.store.Uncommitted(context.Background(), name)
		return err
	})
	return ids, err
}
