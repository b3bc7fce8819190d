package brokertest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/strandline-io/strandline/broker"
)

// Any is the key that stands for all keys.
const Any int16 = -1

// Faults decides about requests before the broker sees them. Rules are asked in the order in which they were made;
// the first that does more than let the request pass decides. The zero value lets everything pass.
type Faults struct {
	mu    sync.Mutex
	rules []*rule
	gates []*Gate
}

type rule struct {
	key int16
	ask func(ctx context.Context, r *broker.Request) broker.Fate
}

// Intercept asks f about every request of an API key, or of all (Any), until remove is called. f runs in the
// connection's goroutine: while it blocks, which it may until ctx ends with the connection, nothing more is read from
// that connection. Calls for several connections overlap. See broker.Fate for what it can decide.
func (f *Faults) Intercept(key int16, ask func(ctx context.Context, r *broker.Request) broker.Fate) (remove func()) {
	r := &rule{key: key, ask: ask}
	f.mu.Lock()
	f.rules = append(f.rules, r)
	f.mu.Unlock()
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.rules = slices.DeleteFunc(slices.Clone(f.rules), func(x *rule) bool { return x == r })
	}
}

func (f *Faults) decide(ctx context.Context, r *broker.Request) broker.Fate {
	f.mu.Lock()
	rules := f.rules
	f.mu.Unlock()
	for _, rule := range rules {
		if rule.key != Any && rule.key != r.Key {
			continue
		}
		if fate := rule.ask(ctx, r); fate != (broker.Fate{}) {
			return fate
		}
	}
	return broker.Fate{}
}

// Observe tells see of every request of a key, or of all, before it is handled. Calls may overlap.
func (f *Faults) Observe(key int16, see func(*broker.Request)) (remove func()) {
	return f.Intercept(key, func(_ context.Context, r *broker.Request) broker.Fate {
		see(r)
		return broker.Fate{}
	})
}

// Delay lets every request of a key wait before it is handled.
func (f *Faults) Delay(key int16, wait time.Duration) (remove func()) {
	return f.Intercept(key, func(ctx context.Context, _ *broker.Request) broker.Fate {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		return broker.Fate{}
	})
}

// LoseRequests closes the connection of the next n requests of a key before they are handled.
func (f *Faults) LoseRequests(key int16, n int) (remove func()) {
	return f.next(key, n, broker.Fate{LoseRequest: true})
}

// LoseReplies handles the next n requests of a key and closes their connections instead of answering: their clients
// cannot know the outcome.
func (f *Faults) LoseReplies(key int16, n int) (remove func()) {
	return f.next(key, n, broker.Fate{LoseReply: true})
}

// next gives the next n requests of a key the same fate.
func (f *Faults) next(key int16, n int, fate broker.Fate) (remove func()) {
	var mu sync.Mutex
	return f.Intercept(key, func(context.Context, *broker.Request) broker.Fate {
		mu.Lock()
		defer mu.Unlock()
		if n <= 0 {
			return broker.Fate{}
		}
		n--
		return fate
	})
}

// Gate holds requests back until it is opened.
type Gate struct {
	arrived chan struct{}
	open    chan struct{}
	once    sync.Once
	remove  func()
}

// Hold holds all requests of a key back until the gate is opened.
func (f *Faults) Hold(key int16) *Gate {
	g := &Gate{arrived: make(chan struct{}, 1), open: make(chan struct{})}
	f.mu.Lock()
	f.gates = append(f.gates, g)
	f.mu.Unlock()
	g.remove = f.Intercept(key, func(ctx context.Context, _ *broker.Request) broker.Fate {
		select {
		case g.arrived <- struct{}{}:
		default:
		}
		select {
		case <-g.open:
		case <-ctx.Done():
		}
		return broker.Fate{}
	})
	return g
}

// Arrived receives when a request has come to the gate; several that come before it is read count as one.
func (g *Gate) Arrived() <-chan struct{} { return g.arrived }

// Open lets through what waits and what comes later.
func (g *Gate) Open() {
	g.once.Do(func() { close(g.open) })
	g.remove()
}

// Heal removes all rules and opens all gates.
func (f *Faults) Heal() {
	f.mu.Lock()
	gates := f.gates
	f.rules, f.gates = nil, nil
	f.mu.Unlock()
	for _, g := range gates {
		g.Open()
	}
}
