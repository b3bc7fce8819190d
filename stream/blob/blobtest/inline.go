package blobtest

import (
	"context"
	"time"

	"github.com/strandline-io/strandline/stream/blob"
)

// Inline is a blob.Runtime that does everything at once, in its caller, and never waits.
type Inline struct{}

var _ blob.Runtime = Inline{}

// Go calls f.
func (Inline) Go(f func()) { f() }

// Slots are always free: what took one has ended.
func (Inline) Slots(int) blob.Slots { return free{} }

// Context ends with parent or cancel, whatever d is.
func (Inline) Context(parent context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
	return context.WithCancel(parent)
}

// Sleep returns at once.
func (Inline) Sleep(context.Context, time.Duration) {}

type free struct{}

func (free) Acquire(context.Context, int) error { return nil }
func (free) Release(int)                        {}
