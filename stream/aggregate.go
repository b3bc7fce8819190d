package stream

import (
	"errors"
	"fmt"
	"time"

	"github.com/strandline-io/strandline/stream/window"
)

// TumblingWindow is a kind of window: one size, side by side, aligned to 1970-01-01 00:00 UTC.
type TumblingWindow struct{ SizeMs int64 }

// Tumbling returns tumbling windows of the given size, at least a millisecond.
func Tumbling(size time.Duration) TumblingWindow { return TumblingWindow{size.Milliseconds()} }

// Windowed is a stream cut into windows, to be aggregated once.
type Windowed[K, V any] struct {
	name       string
	in         Stream[K, V]
	late       Stream[K, V]
	window     TumblingWindow
	aggregated bool
}

// Pane is the result of one window and key.
type Pane[A any] struct {
	StartMs int64 `json:"start_ms"` // [StartMs, EndMs)
	EndMs   int64 `json:"end_ms"`
	Value   A     `json:"value"`
}

// Window cuts a stream into event-time windows per key. name names the store. A window closes when the watermark
// reaches its end; a record for a closed window is late: counted, and given to Late.
func Window[K, V any](s Stream[K, V], name string, w TumblingWindow) *Windowed[K, V] {
	s.job.take("store", name)
	if w.SizeMs < 1 {
		s.job.problem("window %q has a size of %d ms, it must be at least 1", name, w.SizeMs)
	}
	return &Windowed[K, V]{name: name, in: s, late: newStream[K, V](s.job, s.draft()), window: w}
}

// Late returns the records that came after their window had closed.
func (w *Windowed[K, V]) Late() Stream[K, V] { return w.late }

// Aggregate folds the records of each window and key, tombstones included. The result comes once, when the window
// closes, in (end, key) order; its event time is the window's last millisecond. c encodes keys and aggregates in the
// store: two keys are the same when their encodings are. add may change and return the aggregate that it got.
func Aggregate[K, V, A any](w *Windowed[K, V], init func() A, add func(A, Record[K, V]) (A, error), c Codecs[K, A]) Stream[K, Pane[A]] {
	j, d := w.in.job, w.in.draft()
	if w.aggregated {
		j.problem("window %q is aggregated twice", w.name)
	}
	if c.Key == nil || c.Value == nil {
		j.problem("window %q: a codec is missing", w.name)
	}
	w.aggregated = true
	d.stores = append(d.stores, w.name)
	out := newStream[K, Pane[A]](j, d)
	w.in.read(func(b *build) push[K, V] {
		op := &aggregate[K, V, A]{
			store: w.name, windows: window.NewTumbling(w.window.SizeMs), codecs: c, init: init, add: add,
			next: out.node.push(b), late: w.late.node.push(b),
		}
		b.hooks = append(b.hooks, op)
		return op.onRecord
	})
	return out
}

type aggregate[K, V, A any] struct {
	store   string
	windows *window.Tumbling
	codecs  Codecs[K, A]
	init    func() A
	add     func(A, Record[K, V]) (A, error)
	next    push[K, Pane[A]]
	late    push[K, V]
}

var errNullKey = errors.New("a window needs a key, the record's is null")

func (op *aggregate[K, V, A]) onRecord(ctx Context, r Record[K, V]) error {
	if r.NullKey {
		return errNullKey
	}
	key, err := op.codecs.Key.Append(nil, r.Key)
	if err != nil {
		return err
	}
	late, err := op.windows.Add(ctx.Store(op.store), r.TimeMs, key, func(old []byte, ok bool) ([]byte, error) {
		a, err := op.old(old, ok)
		if err != nil {
			return nil, err
		}
		if a, err = op.add(a, r); err != nil {
			return nil, err
		}
		return op.codecs.Value.Append([]byte{}, a)
	})
	if err != nil || !late {
		return err
	}
	ctx.CountLate()
	return op.late(ctx, r)
}

func (op *aggregate[K, V, A]) old(value []byte, ok bool) (A, error) {
	if !ok {
		return op.init(), nil
	}
	a, err := op.codecs.Value.Decode(value)
	if err != nil {
		return a, fmt.Errorf("%w %s: %w", ErrStore, op.store, err)
	}
	return a, nil
}

func (op *aggregate[K, V, A]) onWatermark(ctx Context, watermarkMs int64) (done bool, err error) {
	return op.windows.Close(ctx.Store(op.store), watermarkMs, ctx.Room(), func(startMs, endMs int64, key, value []byte) error {
		k, err := op.codecs.Key.Decode(key)
		if err != nil {
			return err
		}
		a, err := op.codecs.Value.Decode(value)
		if err != nil {
			return err
		}
		return op.next(ctx, Record[K, Pane[A]]{Key: k, Value: Pane[A]{startMs, endMs, a}, TimeMs: endMs - 1})
	})
}
