package progress

import "testing"

func TestSourceWatermark(t *testing.T) {
	s := NewSource(10, 0)
	f := func(timeMs, want int64) {
		t.Helper()
		s.Observe(timeMs)
		if s.State().WatermarkMs != want {
			t.Fatalf("after %d: got %d, want %d", timeMs, s.State().WatermarkMs, want)
		}
	}
	f(3, -7)
	f(50, 40)
	f(45, 40)
	f(51, 41)
	if !s.End() || s.End() || !s.State().Ended {
		t.Fatal("the end must come once")
	}
}

// Only fetches that show an empty partition, from first to last and without a gap, are silence.
func TestSourceIdle(t *testing.T) {
	type step struct {
		nowMs                int64
		records              int
		cursor, lso, highest int64
		idle                 bool
	}
	f := func(name string, steps ...step) {
		t.Helper()
		s := NewSource(0, 100)
		for i, st := range steps {
			if st.records < 0 {
				s.Failed()
				continue
			}
			if st.records > 0 {
				s.Observe(5)
			}
			s.Fetched(st.nowMs, st.records, st.cursor, st.lso, st.highest)
			if s.State().Idle != st.idle {
				t.Fatalf("%s: step %d: idle is %v, want %v", name, i, s.State().Idle, st.idle)
			}
		}
	}
	f("never produced", step{0, 0, 0, 0, 0, false}, step{99, 0, 0, 0, 0, false}, step{100, 0, 0, 0, 0, true}, step{110, 1, 1, 1, 1, false})
	f("behind an open transaction", step{0, 0, 3, 3, 5, false}, step{100, 0, 3, 3, 5, false}, step{200, 0, 3, 3, 5, false})
	f("not caught up", step{0, 0, 3, 5, 5, false}, step{100, 0, 3, 5, 5, false})
	f("an open transaction in between", step{0, 0, 3, 3, 3, false}, step{60, 0, 3, 3, 4, false}, step{100, 0, 4, 4, 4, false}, step{199, 0, 4, 4, 4, false}, step{200, 0, 4, 4, 4, true})
	f("an outage without a word", step{0, 0, 3, 3, 3, false}, step{101, 0, 3, 3, 3, false}, step{150, 0, 3, 3, 3, false}, step{201, 0, 3, 3, 3, true})
	f("a failed fetch", step{0, 0, 3, 3, 3, false}, step{50, -1, 0, 0, 0, false}, step{100, 0, 3, 3, 3, false}, step{200, 0, 3, 3, 3, true})
	f("idle stays until a record", step{0, 0, 3, 3, 3, false}, step{100, 0, 3, 3, 3, true}, step{110, 0, 3, 3, 4, true}, step{120, 1, 4, 4, 4, false})

	never := NewSource(0, 0)
	for now := int64(0); now < 1e6; now += 100 {
		if never.Fetched(now, 0, 0, 0, 0) {
			t.Fatal("idle without a timeout")
		}
	}
	woken := RestoreSource(State{WatermarkMs: 7, Idle: true}, 0, 100)
	if !woken.Observe(3) || woken.State() != (State{WatermarkMs: 7}) {
		t.Fatalf("woken by an older record: %+v, want 7 and active", woken.State())
	}
}
