package sequencer

import (
	"errors"
	"testing"
	"time"

	"github.com/strandline-io/strandline/broker/journal"
	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/segment"
)

// TestFailEndsTheLoop: after Fail nothing is decided, Done tells, and who comes later learns why.
func TestFailEndsTheLoop(t *testing.T) {
	inbox := NewInbox()
	j := journal.NewMemory(journal.MemoryConfig{}, inbox.JournalEvent)
	defer j.Close()
	noLog := func(machine.PartitionID) *segment.Log { return nil }
	s := Start(Config{Machine: machine.New(machine.Config{}), Journal: j, Inbox: inbox, Board: NewBoard(1, noLog), Clock: time.Now})
	why := errors.New("a bug was found")
	s.Fail(why)
	<-s.Done()
	if s.Err() != why {
		t.Errorf("Err is %v", s.Err())
	}
	if err := s.Submit(&Operation{Op: machine.Op{Body: &machine.Incarnation{Number: 1}}}); !errors.Is(err, ErrStopped) || !errors.Is(err, why) {
		t.Errorf("Submit returns %v", err)
	}
	if err := s.Close(); err != why {
		t.Errorf("Close returns %v", err)
	}
}
