package world

import (
	"iter"
	"math/rand/v2"
	"runtime/debug"
)

// coroutine is code that reads better blocking: a client, a step of the journal's disk work, housekeeping. Only one
// runs at a time, and only while an event resumes it.
type coroutine struct {
	w      *World
	name   string
	client bool
	onDisk bool // it pauses within every call of the disk
	next   func() (struct{}, bool)
	stop   func()
	yield  func(struct{}) bool
	rand   *rand.Rand
	// pausedUs is until when a client stands still, as a process does that gets no processor.
	pausedUs int64
	token    uint64 // of the pause that it is in
	inside   bool
	done     bool
}

// crashedCoroutine carries a panic out of a coroutine with the stack it came from.
type crashedCoroutine struct {
	value any
	stack []byte
}

// newCoroutine returns body, to be resumed.
func (w *World) newCoroutine(name string, body func(c *coroutine)) *coroutine {
	c := &coroutine{w: w, name: name, rand: w.stream(name)}
	c.next, c.stop = iter.Pull(func(yield func(struct{}) bool) {
		c.yield = yield
		defer func() {
			if p := recover(); p != nil {
				switch p.(type) {
				case stopped:
				case violation, *crashedCoroutine:
					panic(p)
				default:
					panic(&crashedCoroutine{p, debug.Stack()})
				}
			}
		}()
		body(c)
	})
	w.coroutines = append(w.coroutines, c)
	return c
}

// stopped unwinds a client that is not needed any more.
type stopped struct{}

// resume runs c up to its next pause.
func (c *coroutine) resume() {
	before, rng := c.w.current, c.w.Rand
	c.w.current, c.w.Rand, c.inside = c, c.rand, true
	_, more := c.next()
	c.w.current, c.w.Rand, c.inside = before, rng, false
	if !more {
		c.done = true
	}
}

// end unwinds c. What it still asks of a dead disk fails.
func (c *coroutine) end() {
	if c.done {
		return
	}
	before := c.w.current
	c.w.current, c.inside = c, true
	c.stop()
	c.w.current, c.inside, c.done = before, false, true
}

// pause gives the turn back until c is woken. A client that is ended unwinds; other code is told, and ends by itself.
func (c *coroutine) pause() bool {
	more := c.yield(struct{}{})
	if !more && c.client {
		panic(stopped{})
	}
	return more
}

// sleep pauses for a while.
func (c *coroutine) sleep(us int64) { c.await(us, func() bool { return false }) }

// await pauses until ready, which is asked at every signal, or until the time is over.
func (c *coroutine) await(us int64, ready func() bool) bool {
	deadline := c.w.nowUs + us
	timed := false
	for !ready() {
		if c.w.nowUs >= deadline && timed {
			return false
		}
		c.token++
		token := c.token
		c.w.after(max(deadline-c.w.nowUs, 0), func() { c.wake(token) })
		timed = true
		if !c.pause() {
			return false
		}
	}
	return true
}

func (c *coroutine) wake(token uint64) {
	if c.token != token || c.inside || c.done {
		return
	}
	if until := c.standsUntil(); until > c.w.nowUs {
		c.w.after(until-c.w.nowUs, func() { c.wake(token) })
		return
	}
	c.token++
	c.resume()
}

// standsUntil is when c may go on: it, or the process that it belongs to, may be paused.
func (c *coroutine) standsUntil() int64 {
	if p := c.w.process; c.onDisk && p != nil {
		return p.pausedUs
	}
	return c.pausedUs
}

// signal lets await ask again.
func (c *coroutine) signal() {
	token := c.token
	c.w.after(0, func() { c.wake(token) })
}
