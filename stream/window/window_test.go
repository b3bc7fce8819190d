package window

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// sorted is a store as a sorted slice.
type sorted struct {
	keys   []string
	values map[string]string
	reads  int
	fail   error
}

func newSorted() *sorted { return &sorted{values: map[string]string{}} }

func (s *sorted) Get(key []byte) ([]byte, bool, error) {
	v, ok := s.values[string(key)]
	return []byte(v), ok, s.fail
}

func (s *sorted) Put(key, value []byte) error {
	if i, ok := slices.BinarySearch(s.keys, string(key)); !ok {
		s.keys = slices.Insert(s.keys, i, string(key))
	}
	s.values[string(key)] = string(value)
	return s.fail
}

func (s *sorted) Delete(key []byte) error {
	if i, ok := slices.BinarySearch(s.keys, string(key)); ok {
		s.keys = slices.Delete(s.keys, i, i+1)
	}
	delete(s.values, string(key))
	return s.fail
}

func (s *sorted) Range(from, to []byte, f func(key, value []byte) bool) error {
	s.reads++
	for _, k := range s.keys {
		if k >= string(from) && (to == nil || k < string(to)) && !f([]byte(k), []byte(s.values[k])) {
			break
		}
	}
	return s.fail
}

// play runs a script of words: add KEY@TIME, close W/LIMIT, restart; it returns what happened.
func play(t *testing.T, sizeMs int64, script string) string {
	t.Helper()
	s, w := newSorted(), NewTumbling(sizeMs)
	var out []string
	for _, line := range strings.Split(strings.TrimSpace(script), ";") {
		verb, arg, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch verb {
		case "add":
			var timeMs int64
			key, at, _ := strings.Cut(arg, "@")
			if _, err := fmt.Sscan(at, &timeMs); err != nil {
				t.Fatal(err)
			}
			late, err := w.Add(s, timeMs, []byte(key), func(old []byte, ok bool) ([]byte, error) { return append(old, '+'), nil })
			if err != nil {
				t.Fatal(err)
			}
			if late {
				out = append(out, fmt.Sprintf("late %s@%d", key, timeMs))
			}
		case "close":
			var watermark int64
			limit := 100
			if _, err := fmt.Sscanf(arg, "%d/%d", &watermark, &limit); err != nil && limit == 100 && watermark == 0 {
				t.Fatal(err)
			}
			done, err := w.Close(s, watermark, limit, func(startMs, endMs int64, key, value []byte) error {
				out = append(out, fmt.Sprintf("[%d,%d) %s%s", startMs, endMs, key, value))
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if !done {
				out = append(out, "more")
			}
		case "restart":
			w = NewTumbling(sizeMs)
		default:
			t.Fatalf("unknown verb %q", verb)
		}
	}
	return strings.Join(out, "; ")
}

func TestTumbling(t *testing.T) {
	f := func(script, want string) {
		t.Helper()
		if got := play(t, 10, script); got != want {
			t.Fatalf("%s\ngot  %s\nwant %s", script, got, want)
		}
	}
	f("add a@3; close 9; close 10; close 11", "[0,10) a+")
	f("add a@0; add a@9; add a@10; close 10; close 20", "[0,10) a++; [10,20) a+")
	f("add b@5; add a@15; add c@1; add a@2; close 20", "[0,10) a+; [0,10) b+; [0,10) c+; [10,20) a+")
	f("add a@5; close 10; add a@9; add a@10; close 20", "[0,10) a+; late a@9; [10,20) a+")
	f("close 10; add a@5; close 30", "late a@5")
	f("add a@1; add b@1; add c@1; close 10/2; close 10/2", "[0,10) a+; [0,10) b+; more; [0,10) c+")
	f("add a@1; add b@1; close 10/1; add a@2; close 10/1", "[0,10) a+; more; late a@2; [0,10) b+")
	f("add a@1; close 10/0; close 10/1", "more; [0,10) a+")
	// Restored: the watermark of the checkpoint is told again, then nothing has changed.
	f("add a@1; add a@11; close 10; restart; close 10; add a@2; close 20", "[0,10) a+; late a@2; [10,20) a+")
	f("add a@1; add b@1; close 10/1; restart; close 10/1; close 10/1", "[0,10) a+; more; [0,10) b+")
	// The end closes everything, also the window at the end of time.
	f("add a@9223372036854775807; add b@5; close 9223372036854775807", "[0,10) b+; [9223372036854775800,9223372036854775807) a+")
}

func TestBounds(t *testing.T) {
	f := func(sizeMs, timeMs, start, end int64) {
		t.Helper()
		if s, e := NewTumbling(sizeMs).Bounds(timeMs); s != start || e != end {
			t.Fatalf("window of %d: [%d,%d), want [%d,%d)", timeMs, s, e, start, end)
		}
	}
	f(10, 0, 0, 10)
	f(10, 9, 0, 10)
	f(10, 10, 10, 20)
	f(86_400_000, 978_310_020_000, 978_307_200_000, 978_393_600_000)
	f(math.MaxInt64, 5, 0, math.MaxInt64)
}

// A watermark that closes nothing reads nothing.
func TestCloseIsCheap(t *testing.T) {
	s, w := newSorted(), NewTumbling(1000)
	emit := func(_, _ int64, _, _ []byte) error { return nil }
	for now := int64(1); now < 1000; now++ {
		if _, err := w.Add(s, now, []byte("k"), func([]byte, bool) ([]byte, error) { return []byte("v"), nil }); err != nil {
			t.Fatal(err)
		}
		if done, err := w.Close(s, now, 10, emit); !done || err != nil {
			t.Fatal(done, err)
		}
	}
	if s.reads > 2 {
		t.Fatalf("999 watermarks inside a window cost %d reads of the store, want at most 2", s.reads)
	}
}

func TestErrors(t *testing.T) {
	w, broken := NewTumbling(10), errors.New("broken")
	add := func([]byte, bool) ([]byte, error) { return nil, nil }
	emit := func(_, _ int64, _, _ []byte) error { return broken }
	if _, err := w.Add(newSorted(), -1, nil, add); err == nil {
		t.Fatal("a negative time was accepted")
	}
	s := newSorted()
	s.fail = broken
	if _, err := w.Add(s, 1, nil, add); !errors.Is(err, broken) {
		t.Fatalf("got %v", err)
	}
	s.fail = nil
	_ = s.Put([]byte("short"), nil)
	if _, err := w.Close(s, 10, 5, emit); err == nil || !strings.Contains(err.Error(), "no key of a window") {
		t.Fatalf("a damaged key: %v", err)
	}
	s = newSorted()
	if _, err := w.Add(s, 15, []byte("k"), add); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Close(s, 20, 5, emit); !errors.Is(err, broken) {
		t.Fatalf("got %v", err)
	}
	if len(s.keys) != 1 {
		t.Fatal("the entry whose emit failed is gone")
	}
}

// Random records and watermarks against a model without a store: everything comes out once, in order, never early.
func TestAgainstModel(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 6))
		s, w := newSorted(), NewTumbling(7)
		open := map[string]int{}
		closed, lateWant, lateGot := int64(0), 0, 0
		var got []string
		for range 200 {
			timeMs, key := rng.Int64N(100), string(rune('a'+rng.IntN(4)))
			end := timeMs - timeMs%7 + 7
			if end <= closed {
				lateWant++
			} else {
				open[fmt.Sprintf("%04d%s", end, key)]++
			}
			late, err := w.Add(s, timeMs, []byte(key), func(old []byte, _ bool) ([]byte, error) { return append(old, '.'), nil })
			if err != nil {
				t.Fatal(err)
			}
			if late {
				lateGot++
			}
			if rng.IntN(10) > 0 {
				continue
			}
			closed = max(closed, rng.Int64N(110))
			for done := false; !done; {
				if done, err = w.Close(s, closed, 1+rng.IntN(3), func(_, end int64, key, value []byte) error {
					id := fmt.Sprintf("%04d%s", end, key)
					if end > closed || open[id] != len(value) {
						t.Fatalf("seed %d: %s came out with %d records at watermark %d, want %d", seed, id, len(value), closed, open[id])
					}
					delete(open, id)
					got = append(got, id)
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			for id := range open {
				if id <= fmt.Sprintf("%04d~", closed) {
					t.Fatalf("seed %d: %s was not closed at %d", seed, id, closed)
				}
			}
		}
		if lateGot != lateWant || !slices.IsSorted(got) {
			t.Fatalf("seed %d: late %d want %d, order %v", seed, lateGot, lateWant, got)
		}
	}
}
