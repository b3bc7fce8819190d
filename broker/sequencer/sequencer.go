package sequencer

import (
	"crypto/rand"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"sync"
	"time"

	"github.com/strandline-io/strandline/broker/journal"
	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/internal/failpoint"
	"github.com/strandline-io/strandline/internal/mutant"
)

// ErrStopped is what Submit returns once the loop has ended.
var ErrStopped = errors.New("the broker has stopped")

// Inbox collects what happens to a loop. It exists before the loop so that a journal can be opened with it.
type Inbox struct {
	wake chan struct{} // room for one signal

	mu       sync.Mutex
	ops      []*Operation
	journal  []journal.Event
	slow     bool
	random   *mrand.ChaCha8
	lastID   uint64
	failed   error // what Fail was given
	stopping bool
	stopped  bool
}

// NewInbox returns an empty inbox.
func NewInbox() *Inbox {
	var seed [32]byte
	rand.Read(seed[:]) // never fails (crypto/rand)
	return &Inbox{wake: make(chan struct{}, 1), random: mrand.NewChaCha8(seed)}
}

// JournalEvent is the callback for the journal's events.
func (in *Inbox) JournalEvent(e journal.Event) {
	in.mu.Lock()
	in.journal = append(in.journal, e)
	in.mu.Unlock()
	in.signal()
}

func (in *Inbox) signal() {
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// take swaps the collected events for the emptied ones of the last call.
func (in *Inbox) take(spare Event) (ev Event, stopping bool, failed error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	// What is held back is decided before the end, or the end would wait for housekeeping that may never come.
	ev = Event{Ops: in.ops, Journal: in.journal, Slow: in.slow && !in.stopping}
	in.ops, in.journal = spare.Ops[:0], spare.Journal[:0]
	return ev, in.stopping, in.failed
}

// Config describes a loop. Everything but the functions On… is required.
type Config struct {
	Machine    *machine.Machine // recovered: every unit up to LastSeq is applied
	Journal    journal.Journal  // opened with Inbox.JournalEvent
	Inbox      *Inbox
	Board      *Board // filled with what the machine knows
	Durability journal.Durability
	LastSeq    uint64
	Limits     Limits
	// Clock gives the time with its monotonic reading. EngineStartMs is the engine time at the start (see EngineStart).
	Clock         func() time.Time
	EngineStartMs int64
	// OnSealed is told of complete journal segments, OnDeleted of partitions that are gone, OnTrimmed of those whose log
	// start has moved up, OnMarks of the state behind each group, before a segment that holds it is sealed. They must not block or keep what they are given.
	OnSealed  func(segments []uint64)
	OnDeleted func([]machine.PartitionID)
	OnTrimmed func([]machine.PartitionID)
	OnMarks   func([]Mark)
	// OnCounts is told what was counted since the last call, when there is something. It must not block.
	OnCounts func(machine.Counts)
}

// EngineStart continues engine time over a restart: the last journaled value plus the wall's difference since, never
// less than the last value (design.md §2.4).
func EngineStart(last machine.Now, wallMs int64) int64 {
	if mutant.On("timeouts stand still after a restart") {
		return max(0, last.EngineMs-60_000) // the machine's time does not go back: it waits
	}
	return last.EngineMs + max(0, wallMs-last.WallMs)
}

// Sequencer drives one Core with one goroutine.
type Sequencer struct {
	cfg   Config
	core  *Core
	start time.Time
	done  chan struct{}
	err   error // read after done
}

// Start runs the loop.
func Start(cfg Config) *Sequencer {
	s := &Sequencer{
		cfg:   cfg,
		core:  NewCore(cfg.Machine, cfg.Journal, cfg.Durability, cfg.LastSeq, cfg.Limits),
		start: cfg.Clock(),
		done:  make(chan struct{}),
	}
	go s.run()
	return s
}

// Board is where published state hangs.
func (s *Sequencer) Board() *Board { return s.cfg.Board }

// Submit queues an operation; it does not block. The operation's ID, Rand and Now are set here and by the loop. An
// error means that it was not queued and Written will not be called.
func (s *Sequencer) Submit(op *Operation) error {
	in := s.cfg.Inbox
	in.mu.Lock()
	if in.stopping || in.stopped {
		in.mu.Unlock()
		return s.stopError()
	}
	in.lastID++
	op.ID = in.lastID
	for i := 0; i < len(op.Rand); i += 8 {
		v := in.random.Uint64()
		for k := range 8 {
			op.Rand[i+k] = byte(v >> (8 * k))
		}
	}
	in.ops = append(in.ops, op)
	in.mu.Unlock()
	in.signal()
	return nil
}

// SetSlow tells the loop whether the journal is over its bound: Produce then waits.
func (s *Sequencer) SetSlow(slow bool) {
	in := s.cfg.Inbox
	in.mu.Lock()
	in.slow = slow
	in.mu.Unlock()
	in.signal()
}

// Fail ends the loop with err: from now on it decides, publishes and answers nothing. A loop that has ended keeps its end.
func (s *Sequencer) Fail(err error) {
	in := s.cfg.Inbox
	in.mu.Lock()
	in.failed = err
	in.mu.Unlock()
	in.signal()
}

// Done is closed when the loop has ended; Err then says why (nil after Close).
func (s *Sequencer) Done() <-chan struct{} { return s.done }

// Err returns what ended the loop. It may be called only after Done is closed.
func (s *Sequencer) Err() error { return s.err }

// Close lets the loop finish what is queued, waits for it to end and returns what Err returns. It does not close the
// journal. Operations that are parked are never answered.
func (s *Sequencer) Close() error {
	in := s.cfg.Inbox
	in.mu.Lock()
	in.stopping = true
	in.mu.Unlock()
	in.signal()
	<-s.done
	return s.err
}

func (s *Sequencer) stopError() error {
	select {
	case <-s.done:
		if s.err != nil {
			return fmt.Errorf("%w: %w", ErrStopped, s.err)
		}
	default:
	}
	return ErrStopped
}

// now is the wall's time and the engine's, which moves with the monotonic clock.
func (s *Sequencer) now() machine.Now {
	t := s.cfg.Clock()
	return machine.Now{
		WallMs:   t.UnixMilli(),
		EngineMs: s.cfg.EngineStartMs + t.Sub(s.start).Milliseconds(),
	}
}

func (s *Sequencer) run() {
	defer s.end()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var ev Event
	var actions Actions
	for {
		var stopping bool
		ev, stopping, s.err = s.cfg.Inbox.take(ev)
		if s.err != nil {
			return
		}
		now := s.now()
		actions.reset()
		s.core.Handle(now, ev, &actions)
		clear(ev.Ops)
		s.carryOut(&actions)
		if actions.Err != nil {
			s.err = actions.Err
			return
		}
		if stopping && s.core.Idle() {
			return
		}
		wait := time.Hour
		if actions.WakeAtEngineMs > 0 {
			wait = min(wait, time.Duration(actions.WakeAtEngineMs-now.EngineMs)*time.Millisecond)
		}
		timer.Reset(wait)
		select {
		case <-s.cfg.Inbox.wake:
		case <-timer.C:
		}
	}
}

func (s *Sequencer) end() {
	in := s.cfg.Inbox
	in.mu.Lock()
	in.stopped = true
	in.mu.Unlock()
	close(s.done)
}

// carryOut publishes before it delivers: a reply that says "committed" must not reach a client before its reader
// could see the records.
func (s *Sequencer) carryOut(a *Actions) {
	if len(a.Deliver) > 0 {
		failpoint.Hit("sequencer.durable")
	}
	for i := range a.Publish {
		p := &a.Publish[i]
		if p.Features != nil {
			s.cfg.Board.SetFeatures(p.Features)
		}
		if trimmed := s.cfg.Board.Publish(p.Topics, p.Updates); len(trimmed) > 0 && s.cfg.OnTrimmed != nil {
			s.cfg.OnTrimmed(trimmed)
		}
		s.tellDeleted(p.Topics)
	}
	if len(a.Publish) > 0 || len(a.Deliver) > 0 {
		failpoint.Hit("sequencer.published")
	}
	for _, d := range a.Deliver {
		d.Box.Deliver(d.Replies)
	}
	for _, release := range a.Release {
		release()
	}
	if len(a.Marks) > 0 && s.cfg.OnMarks != nil {
		s.cfg.OnMarks(a.Marks)
	}
	if a.Counts != (machine.Counts{}) && s.cfg.OnCounts != nil {
		s.cfg.OnCounts(a.Counts)
	}
	if len(a.Sealed) > 0 && s.cfg.OnSealed != nil {
		s.cfg.OnSealed(a.Sealed)
	}
}

func (s *Sequencer) tellDeleted(topics []machine.TopicChange) {
	if s.cfg.OnDeleted == nil {
		return
	}
	for i := range topics {
		if topics[i].Deleted {
			s.cfg.OnDeleted(topics[i].Topic.Partitions)
		}
	}
}

func (a *Actions) reset() {
	clear(a.Deliver)
	clear(a.Publish)
	clear(a.Release)
	*a = Actions{Publish: a.Publish[:0], Deliver: a.Deliver[:0], Release: a.Release[:0], Sealed: a.Sealed[:0], Marks: a.Marks[:0]}
}
