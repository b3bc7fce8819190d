package alloc

import "testing"

// failing is a testing.TB that notes that it failed.
type failing struct {
	testing.TB
	failed bool
}

func (f *failing) Helper()               {}
func (f *failing) Fatalf(string, ...any) { f.failed = true }

var sink []byte

func TestWithin(t *testing.T) {
	f := func(takes int, want bool) {
		t.Helper()
		tb := &failing{TB: t}
		Within(tb, 100, 1000, func() { sink = make([]byte, takes) })
		if tb.failed != want {
			t.Errorf("%d bytes for 100: failed %v", takes, tb.failed)
		}
	}
	f(10, false)
	f(90_000, false)
	f(SlackBytes+90_000, false)
	f(SlackBytes+110_000, true)
	f(10<<20, true)
	first := true
	tb := &failing{TB: t}
	Within(tb, 0, 0, func() {
		if first {
			sink = make([]byte, 10<<20)
		}
		first = false
	})
	if tb.failed {
		t.Error("what the first call takes counts")
	}
}
