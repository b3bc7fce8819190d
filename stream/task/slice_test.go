package task

import (
	"testing"
	"time"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/task/core"
)

// Slices together are the batch, each with the cursor at which the rest begins.
func TestSlicesAreTheBatch(t *testing.T) {
	var batch core.Records
	for i := range 100 {
		batch.Records = append(batch.Records, stream.Message{Offset: int64(i * 10), Line: int64(i + 1)})
	}
	batch.Next = core.Position{Offset: 1234, Line: 100}
	released := 0
	var s slicer
	s.put(batch, kafka.TopicPartition{Topic: "t"}, 7, func() { released++ })
	at, steps := int64(0), 0
	for s.holds() {
		e, last := s.next()
		for _, m := range e.Records {
			if m.Offset != at*10 {
				t.Fatalf("offset %d, want %d", m.Offset, at*10)
			}
			at++
		}
		want := core.Position{Offset: at * 10, Line: at}
		if last {
			want = batch.Next
			s.drop()
		}
		if e.Next != want {
			t.Fatalf("after %d records the cursor is %+v, want %+v", at, e.Next, want)
		}
		steps++
	}
	if at != 100 || released != 1 || steps != 7 {
		t.Errorf("%d records in %d steps, released %d times", at, steps, released)
	}
}

// A step takes about sliceTime, however slow the user's code is.
func TestSlicesFollowTheTimeThatRecordsTake(t *testing.T) {
	f := func(perRecord time.Duration, want int) {
		t.Helper()
		var s slicer
		s.size = firstSlice
		for range 20 {
			s.took(s.size, time.Duration(s.size)*perRecord)
		}
		if s.size != want {
			t.Errorf("%v for a record: slices of %d, want %d", perRecord, s.size, want)
		}
	}
	f(time.Second, 1)
	f(5*time.Millisecond, 10)
	f(time.Millisecond, 32)
	f(time.Microsecond, maxSlice)
	f(0, maxSlice)
}
