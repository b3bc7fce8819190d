package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
)

func contents(t *testing.T, r Reader, from, to []byte) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.Range(from, to, func(k, v []byte) bool {
		fmt.Fprintf(&b, "%s=%s ", k, v)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func w(kv ...string) []Write {
	var out []Write
	for i := 0; i < len(kv); i += 2 {
		wr := Write{Key: []byte(kv[i])}
		if kv[i+1] != "-" {
			wr.Value = []byte(kv[i+1])
		}
		out = append(out, wr)
	}
	return out
}

func TestApplyAndRange(t *testing.T) {
	m := NewMemory("s", 0)
	if err := m.Apply(w("b", "2", "a", "1", "c", "3"), Stamp{NextOffset: 3}); err != nil {
		t.Fatal(err)
	}
	snap := m.Snapshot()
	if err := m.Apply(w("b", "-", "d", "", "a", "9"), Stamp{NextOffset: 6}); err != nil {
		t.Fatal(err)
	}
	f := func(r Reader, from, to []byte, want string) {
		t.Helper()
		if got := contents(t, r, from, to); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	f(m, nil, nil, "a=9 c=3 d= ")
	f(m, []byte("b"), []byte("d"), "c=3 ")
	f(m, []byte("c"), nil, "c=3 d= ")
	f(snap, nil, nil, "a=1 b=2 c=3 ")
	if v, ok, _ := m.Get([]byte("d")); !ok || v == nil || len(v) != 0 {
		t.Errorf("an empty value is not a deletion: %v %v", v, ok)
	}
	if _, ok, _ := m.Get([]byte("b")); ok {
		t.Error("b is deleted")
	}
	if got := m.Stamp().NextOffset; got != 6 {
		t.Errorf("stamp %d, want 6", got)
	}
	if err := m.Apply(w("x", "1"), Stamp{NextOffset: 5}); err == nil {
		t.Error("the stamp went back")
	}
}

func TestSizeIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	m := NewMemory("s", 0)
	model := map[string]string{}
	for i := range 2000 {
		k := fmt.Sprint(rng.IntN(50))
		if rng.IntN(3) == 0 {
			delete(model, k)
			_ = m.Apply(w(k, "-"), Stamp{NextOffset: int64(i)})
			continue
		}
		v := string(bytes.Repeat([]byte{'v'}, rng.IntN(20)))
		model[k] = v
		_ = m.Apply([]Write{{[]byte(k), []byte(v)}}, Stamp{NextOffset: int64(i)})
	}
	var want int64
	for k, v := range model {
		want += int64(len(k)+len(v)) + entryOverheadBytes
	}
	if m.SizeBytes() != want || m.Len() != len(model) {
		t.Errorf("size %d of %d entries, want %d of %d", m.SizeBytes(), m.Len(), want, len(model))
	}
}

func TestRoom(t *testing.T) {
	m := NewMemory("s", 200)
	if err := m.Apply(w("k", "v"), Stamp{NextOffset: 1}); err != nil {
		t.Fatal(err)
	}
	if err := m.CheckRoom(100); err != nil {
		t.Error(err)
	}
	var full *FullError
	if err := m.CheckRoom(200); !errors.As(err, &full) {
		t.Errorf("got %v", err)
	}
}

// log is a changelog in memory whose offsets have gaps, as markers and compaction leave them.
type log struct {
	offsets []int64
	writes  []Write
	end     int64
}

func (l *log) append(gap int64, ws ...Write) {
	for _, x := range ws {
		l.end += gap
		l.offsets = append(l.offsets, l.end)
		l.writes = append(l.writes, x)
		l.end++
	}
}

func (l *log) read(from *int64) Changelog {
	return func(_ context.Context, at, end int64, f func(k, v []byte) error) (int64, error) {
		*from = at
		for i, o := range l.offsets {
			if o >= at && o < end {
				if err := f(l.writes[i].Key, l.writes[i].Value); err != nil {
					return o, err
				}
			}
		}
		return end, nil
	}
}

func TestRestore(t *testing.T) {
	var l log
	for i := range restoreChunk + 7 {
		l.append(int64(i%3), Write{[]byte(fmt.Sprintf("k%05d", i%100)), []byte(fmt.Sprint(i))})
	}
	l.append(1, w("k00001", "-")...)
	m := NewMemory("s", 0)
	var from int64
	if err := Restore(t.Context(), m, "id", l.end, 1000, l.read(&from)); err != nil {
		t.Fatal(err)
	}
	if m.Len() != 99 || m.Stamp() != (Stamp{"id", l.end, 1000}) {
		t.Fatalf("%d entries, stamp %+v", m.Len(), m.Stamp())
	}
	first := l.end
	l.append(2, w("new", "1")...)
	if err := Restore(t.Context(), m, "id", l.end, 2000, l.read(&from)); err != nil {
		t.Fatal(err)
	}
	if from != first || m.Len() != 100 {
		t.Errorf("read from %d, want %d (%d entries)", from, first, m.Len())
	}
	if err := Restore(t.Context(), m, "other", l.end, 2000, l.read(&from)); err != nil {
		t.Fatal(err)
	}
	if from != 0 || m.Len() != 100 {
		t.Errorf("another topic's content was kept: read from %d", from)
	}
}

func TestReusable(t *testing.T) {
	s := Stamp{TopicID: "a", NextOffset: 10, AtMs: 1000}
	half := DefaultDeleteRetention.Milliseconds() / 2
	f := func(id string, end, now int64, want bool) {
		t.Helper()
		if got := s.Reusable(id, end, now, DefaultDeleteRetention); got != want {
			t.Errorf("got %v", got)
		}
	}
	f("a", 10, 1000, true)
	f("a", 9, 1000, false)
	f("b", 10, 1000, false)
	f("a", 10, 999, false)
	f("a", 10, 1000+half-1, true)
	f("a", 10, 1000+half, false)
}

func TestSnapshotUnderApply(t *testing.T) {
	m := NewMemory("s", 0)
	for i := range 500 {
		_ = m.Apply(w(fmt.Sprintf("%03d", i), "x"), Stamp{NextOffset: int64(i)})
	}
	snap := m.Snapshot()
	done := make(chan int)
	go func() {
		n := 0
		_ = snap.Range(nil, nil, func(k, v []byte) bool { n++; return true })
		done <- n
	}()
	for i := range 500 {
		_ = m.Apply(w(fmt.Sprintf("%03d", i), "-"), Stamp{NextOffset: int64(500 + i)})
	}
	if n := <-done; n != 500 {
		t.Errorf("the snapshot shows %d entries", n)
	}
	if m.Len() != 0 {
		t.Error("entries left")
	}
}
