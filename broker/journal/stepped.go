package journal

import (
	"errors"
	"fmt"
)

// Stepped is a file journal without goroutines, for simulations: it does nothing to the disk, and delivers no event,
// except in Step and Tick. The same Core and the same disk code run as in a File.
type Stepped struct {
	*engine
	unlock func() error
}

// OpenStepped opens a journal as OpenFile does.
func OpenStepped(cfg FileConfig, replay func(Stored) error, events func(Event)) (*Stepped, error) {
	e, unlock, err := recoverJournal(cfg, replay, events)
	if err != nil {
		return nil, err
	}
	s := &Stepped{engine: e, unlock: unlock}
	s.start()
	return s, nil
}

// Ready lists the lanes that have something to do, in a fixed order.
func (s *Stepped) Ready() []Lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ready []Lane
	for l := range laneCount {
		if !s.lanes[l].busy && len(s.lanes[l].queue) > 0 {
			ready = append(ready, l)
		}
	}
	return ready
}

// Step does one action of a lane and delivers the events it causes; false means that there was none. It blocks only
// in the file system. Steps of different lanes may overlap.
func (s *Stepped) Step(l Lane) bool {
	a, ok := s.take(l)
	if ok {
		s.finish(l, s.disk.do(a))
	}
	return ok
}

// Tick is what a File's timer does while WantsTick holds.
func (s *Stepped) Tick() { s.tell(Input{kind: inTick}) }

// WantsTick says whether Tick would do anything, now or after some more.
func (s *Stepped) WantsTick() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.WantsTick()
}

// Close implements Journal: it does every remaining step itself.
func (s *Stepped) Close() error {
	if s.stop() {
		return errors.New("the journal is closed already")
	}
	for ready := s.Ready(); len(ready) > 0; ready = s.Ready() {
		s.Step(ready[0])
	}
	s.mu.Lock()
	drained := s.drained()
	s.mu.Unlock()
	if !drained {
		panic(fmt.Sprintf("BUG: a journal without steps is not drained: %+v", s.core.pool))
	}
	return s.shut(s.unlock)
}
