package kafka

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestLateCopy: a request whose connection ends before the answer is sent again, and the first copy arrives late, when the
// next transaction is open. It must not touch that one.
func TestLateCopy(t *testing.T) {
	for _, version := range []int16{1, 2} {
		for _, key := range []int16{keyEndTxn, keyTxnOffsetCommit} {
			t.Run(fmt.Sprintf("transaction.version=%d/%s", version, kmsg.NameForKey(key)), func(t *testing.T) { testLateCopy(t, version, key) })
		}
	}
}

func testLateCopy(t *testing.T, version, key int16) {
	fake, c := cluster(t, version)
	create(t, c, TopicSpec{Name: "t", Partitions: 1, KeepForever: true})
	var mu sync.Mutex
	var copied kmsg.Request
	fake.ControlKey(key, func(r kmsg.Request) (kmsg.Response, error, bool) {
		mu.Lock()
		defer mu.Unlock()
		copied = r
		return nil, errors.New("the connection ends"), true
	})
	tp := TopicPartition{"t", 0}
	move := func(p *Producer, value string, offset int64) {
		t.Helper()
		begin(t, p)
		produce(t, p, "t", value)
		if err := p.CommitOffsets(t.Context(), Membership{Group: "g", Generation: -1}, map[TopicPartition]int64{tp: offset}); err != nil {
			t.Fatal(err)
		}
	}
	p := open(t, c, "id")
	move(p, "first", 1)
	switch o, err := p.Commit(t.Context()); {
	case version < 2 && (o != Unknown || !errors.Is(err, errLateCopy)), version >= 2 && (o != CommittedOutcome || err != nil):
		t.Fatalf("commit: %v %v", o, err)
	case o != CommittedOutcome:
		p.Close()
		p = open(t, c, "id")
	}
	move(p, "second", 2)
	mu.Lock()
	if _, err := c.link.Request(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	mu.Unlock()
	if ends, err := c.EndOffsets(t.Context(), []TopicPartition{tp}, Committed); err != nil || ends[tp] != 2 {
		t.Errorf("the second transaction is open behind offset 2: stable up to %d, %v", ends[tp], err)
	}
	commit(t, p)
	if got, err := c.CommittedOffsets(t.Context(), "g", []TopicPartition{tp}); err != nil || got[tp] != 2 {
		t.Errorf("committed offset %d of 2, %v", got[tp], err)
	}
}
