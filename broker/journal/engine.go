package journal

import (
	"errors"
	"fmt"
	"sync"
)

// engine is a Core with its disk, to be driven by goroutines (File) or step by step (Stepped).
//
// emit is held while an input is handled and its events are delivered, so that events keep their order; mu guards
// the Core and the lanes and is never held while calling out. Append takes mu only, so an owner may append while its
// callback is running.
type engine struct {
	disk        *disk
	incarnation uint32
	events      func(Event)

	emit  sync.Mutex
	ready []Event // of the input being handled; guarded by emit

	mu       sync.Mutex
	core     *Core
	out      Output
	lanes    [laneCount]lane
	closed   bool
	snapshot bool // one is being written
	wake     [laneCount]chan struct{}
	idle     func() // called with mu held when an input was handled
}

type lane struct {
	queue []Action
	busy  bool
}

func newEngine(d *disk, c *Core, incarnation uint32) *engine {
	e := &engine{disk: d, core: c, incarnation: incarnation}
	for i := range e.wake {
		e.wake[i] = make(chan struct{}, 1)
	}
	return e
}

// start lets the Core begin what is due from the outset.
func (e *engine) start() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.core.background(&e.out)
	e.dispatch()
}

// dispatch moves what the Core wants into the lanes. It is called with mu held.
func (e *engine) dispatch() {
	for _, a := range e.out.Actions {
		e.lanes[a.Lane].queue = append(e.lanes[a.Lane].queue, a)
		select {
		case e.wake[a.Lane] <- struct{}{}:
		default:
		}
	}
	if e.core.failed != nil {
		for i := range e.lanes {
			e.lanes[i].queue = nil
		}
	}
	e.out.Actions = e.out.Actions[:0]
	if e.idle != nil {
		e.idle()
	}
}

// take returns the next action of a lane and marks the lane as busy.
func (e *engine) take(l Lane) (Action, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	lane := &e.lanes[l]
	if lane.busy || len(lane.queue) == 0 {
		return Action{}, false
	}
	a := lane.queue[0]
	lane.queue = append(lane.queue[:0], lane.queue[1:]...)
	lane.busy = true
	return a, true
}

// finish hands over the outcome of a lane's action.
func (e *engine) finish(l Lane, in Input) {
	e.emit.Lock()
	defer e.emit.Unlock()
	e.mu.Lock()
	e.lanes[l].busy = false
	e.handle(in)
	e.mu.Unlock()
	e.deliver()
}

// tell hands over an input that belongs to no lane.
func (e *engine) tell(in Input) {
	e.emit.Lock()
	defer e.emit.Unlock()
	e.mu.Lock()
	if !e.closed {
		e.handle(in)
	}
	e.mu.Unlock()
	e.deliver()
}

func (e *engine) handle(in Input) {
	e.core.Handle(in, &e.out)
	e.ready = append(e.ready, e.out.Events...)
	clear(e.out.Events)
	e.out.Events = e.out.Events[:0]
	e.dispatch()
}

func (e *engine) deliver() {
	for _, ev := range e.ready {
		e.events(ev)
	}
	clear(e.ready)
	e.ready = e.ready[:0]
}

// drained says that no lane has or does anything, and the Core wants nothing more. It is called with mu held.
func (e *engine) drained() bool {
	for _, l := range e.lanes {
		if l.busy || len(l.queue) > 0 {
			return false
		}
	}
	return e.core.Quiet()
}

// Append implements Journal.
func (e *engine) Append(units []Unit) []Placed {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer e.dispatch()
	return e.core.Append(units, &e.out)
}

// Room implements Journal.
func (e *engine) Room() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.core.Room()
}

// Sync implements Journal.
func (e *engine) Sync() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.core.Sync(&e.out)
	e.dispatch()
}

// Space implements Journal.
func (e *engine) Space() (freeBytes int64, low bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.core.Space()
}

// Reserve implements Journal.
func (e *engine) Reserve(sizeBytes int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer e.dispatch()
	return e.core.Reserve(sizeBytes, &e.out)
}

// Incarnation implements Journal.
func (e *engine) Incarnation() uint32 { return e.incarnation }

// LastSeq is the sequence of the newest unit appended or recovered; 0 if there is none.
func (e *engine) LastSeq() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.core.tail.nextSeq - 1
}

// ReadAt implements Journal.
func (e *engine) ReadAt(segment uint64, p []byte, pos int64) error {
	return e.disk.readAt(segment, p, pos)
}

// Hold implements Journal.
func (e *engine) Hold(segment uint64) (release func(), ok bool) {
	if !e.disk.hold(segment) {
		return nil, false
	}
	return sync.OnceFunc(func() {
		if e.disk.release(segment) {
			e.tell(Input{kind: inReleased, segment: segment})
		}
	}), true
}

// Scan implements Journal.
func (e *engine) Scan(segment uint64, f func(Stored) error) error {
	release, ok := e.Hold(segment)
	if !ok {
		return fmt.Errorf("scan journal segment %d: %w", segment, errFreed)
	}
	defer release()
	e.mu.Lock()
	s := e.core.segment(segment)
	sealed := s != nil && s.sealed
	var last uint64
	var footered bool
	if sealed {
		last, footered = s.lastSeq, s.footered
	}
	e.mu.Unlock()
	if !sealed {
		return fmt.Errorf("scan journal segment %d: it is not sealed", segment)
	}
	return scan(e.disk.lookup(segment), segment, last, footered, func(u *unit) error { return f(u.stored(segment, u.pos)) })
}

// Trim implements Journal.
func (e *engine) Trim(seq uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.core.Trim(seq, &e.out)
	e.dispatch()
}

// Segments implements Journal.
func (e *engine) Segments() []SegmentInfo {
	e.mu.Lock()
	defer e.mu.Unlock()
	infos := make([]SegmentInfo, len(e.core.segments))
	for i, s := range e.core.segments {
		infos[i] = SegmentInfo{
			Number: s.number, FirstSeq: s.firstSeq, LastSeq: s.lastSeq, SizeBytes: s.fileBytes, Sealed: s.sealed,
		}
	}
	return infos
}

// WriteSnapshot implements Journal.
func (e *engine) WriteSnapshot(seq uint64, state []byte) error {
	if err := e.beginSnapshot(seq); err != nil {
		return err
	}
	s := snapshot{secret: e.disk.secret, seq: seq, incarnation: e.incarnation}
	err := writeSnapshot(e.disk.fs, e.disk.dir, s, state)
	e.mu.Lock()
	e.snapshot = false
	e.mu.Unlock()
	if err != nil {
		return fmt.Errorf("snapshot of journal %s at unit %d: %w", e.disk.dir, seq, err)
	}
	e.tell(Input{kind: inSnapshot, seq: seq})
	return nil
}

func (e *engine) beginSnapshot(seq uint64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch c := e.core; {
	case c.failed != nil:
		return fmt.Errorf("the journal has failed: %w", c.failed)
	case e.closed || c.stopping:
		return fmt.Errorf("snapshot at unit %d: the journal is closed", seq)
	case e.snapshot:
		return fmt.Errorf("snapshot at unit %d: another one is being written", seq)
	case seq > c.durableSeq:
		return fmt.Errorf("snapshot at unit %d: only units up to %d are durable", seq, c.durableSeq)
	case seq <= c.snapshotSeq:
		return fmt.Errorf("snapshot at unit %d: there is one at %d already", seq, c.snapshotSeq)
	}
	e.snapshot = true
	return nil
}

// stop begins the end and reports whether it already began.
func (e *engine) stop() (already bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.core.stopping {
		return true
	}
	e.core.Stop(&e.out)
	e.dispatch()
	return false
}

// shut closes the files of a drained engine and gives the folder free.
func (e *engine) shut(unlock func() error) error {
	e.mu.Lock()
	e.closed = true
	failed, active, empty := e.core.failed, e.core.active(), e.core.empty()
	e.mu.Unlock()
	var errs []error
	if failed != nil {
		errs = append(errs, fmt.Errorf("journal %s: %w", e.disk.dir, failed))
	} else if empty {
		if s := e.disk.lookup(active.number); s != nil {
			errs = append(errs, s.file.Truncate(dataStart), s.file.Sync())
		}
	}
	errs = append(errs, e.disk.close(failed == nil, active.number), unlock())
	return errors.Join(errs...)
}
