package progress

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

const none = None

func wm(task string, ts int64) Control {
	return Control{Kind: KindWatermark, Task: task, TimestampMs: ts}
}

func eos(task string) Control { return Control{Kind: KindEndOfStream, Task: task, TimestampMs: None} }

func idle(task string) Control {
	return Control{Kind: KindWatermark, Task: task, TimestampMs: None, Idle: true}
}

func apply(t *testing.T, b *Book, c Control) bool {
	t.Helper()
	changed, err := b.Apply(c)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

// Samza's WatermarkStates test (samza.md D.3, testUpdate), with the stream's value as the minimum of its partitions.
func TestSamzaWatermarkTable(t *testing.T) {
	p := [2]*Book{NewBook("s", 0, 1, 2), NewBook("s", 1, 1, 2)}
	f := func(partition int, task string, ts, want0, want1, stream int64) {
		t.Helper()
		apply(t, p[partition], wm(task, ts))
		got := Combine([]State{p[0].State(), p[1].State()}).WatermarkMs
		if p[0].State().WatermarkMs != want0 || p[1].State().WatermarkMs != want1 || got != stream {
			t.Fatalf("got %d %d %d, want %d %d %d", p[0].State().WatermarkMs, p[1].State().WatermarkMs, got, want0, want1, stream)
		}
	}
	f(0, "t0", 6, none, none, none)
	f(0, "t1", 3, 3, none, none)
	f(1, "t0", 10, 3, none, none)
	f(1, "t1", 4, 3, 4, 3)
	f(0, "t1", 8, 6, 4, 4)
	f(1, "t1", 7, 6, 7, 6)
}

// Samza's testIdle, where idleness is not guessed from silence but said by the upstream task.
func TestSamzaIdleTable(t *testing.T) {
	b := NewBook("s", 0, 1, 2)
	f := func(c Control, want int64, isIdle bool) {
		t.Helper()
		apply(t, b, c)
		if got := b.State(); got.WatermarkMs != want || got.Idle != isIdle {
			t.Fatalf("after %+v: got %+v, want %d idle=%v", c, got, want, isIdle)
		}
	}
	f(wm("t0", 1), none, false)
	f(wm("t1", 4), 1, false)
	f(idle("t0"), 4, false)
	f(wm("t1", 5), 5, false)
	f(wm("t0", 3), 5, false) // wakes below: the watermark does not fall
	f(wm("t1", 10), 5, false)
	f(wm("t0", 2), 5, false) // lower than its own: ignored
	f(wm("t0", 7), 7, false)
	f(idle("t1"), 7, false)
	f(idle("t0"), 7, true)
	f(wm("t0", 8), 8, false)
	f(eos("t0"), 8, true) // who has not ended is idle
	f(wm("t1", 11), 11, false)
}

// Samza's EndOfStreamStates test (D.2), and what E.a lists against it: latched, idempotent.
func TestEndOfStream(t *testing.T) {
	p := [2]*Book{NewBook("s", 0, 1, 2), NewBook("s", 1, 1, 2)}
	all := func() bool { return Combine([]State{p[0].State(), p[1].State()}).Ended }
	for _, task := range []string{"task 0", "task 1"} {
		if all() {
			t.Fatal("ended too early")
		}
		for _, b := range p {
			apply(t, b, eos(task))
			if apply(t, b, eos(task)) {
				t.Fatal("an end said twice changed something")
			}
		}
	}
	if !all() {
		t.Fatal("all tasks ended, the stream has not")
	}
	if apply(t, p[0], wm("task 0", 99)) || !p[0].State().Ended {
		t.Fatal("a watermark after the end changed something")
	}
}

// An ended task counts as plus infinity.
func TestEndedTaskHoldsNothing(t *testing.T) {
	b := NewBook("s", 0, 1, 2)
	apply(t, b, wm("t0", 3))
	apply(t, b, wm("t1", 9))
	if !apply(t, b, eos("t0")) || b.State().WatermarkMs != 9 {
		t.Fatalf("got %+v, want 9", b.State())
	}
}

func TestRunsAndCounts(t *testing.T) {
	b := NewBook("s", 3, 5, 0)
	c := wm("t0", 7)
	c.Run, c.TaskCount = 4, 9
	if apply(t, b, c) || b.Expected() != 0 {
		t.Fatal("a message of an older run was counted")
	}
	c.Run, c.TaskCount = 5, 2
	apply(t, b, c)
	c.TaskCount = 3
	var count *TaskCountError
	if _, err := b.Apply(c); !errors.As(err, &count) || count.Have != 2 || count.Got != 3 || !strings.Contains(err.Error(), "reset the job") {
		t.Fatalf("got %v, want a TaskCountError 2, 3", err)
	}
	apply(t, b, wm("t1", 7))
	if _, err := b.Apply(wm("t2", 7)); !errors.As(err, &count) || count.Got != 3 {
		t.Fatalf("a third task of two: got %v", err)
	}
	c.Run, c.TaskCount = 6, 2
	var run *RunError
	if _, err := b.Apply(c); !errors.As(err, &run) || run.Got != 6 {
		t.Fatalf("got %v, want a RunError", err)
	}
	foreign := eos("t0")
	foreign.Stream = "other"
	if _, err := b.Apply(foreign); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("an end of another stream: got %v", err)
	}
}

// model is the book in thirty lines, without any order structure.
type model struct {
	expected int
	wms      map[string]int64
	idle     map[string]bool
	ended    map[string]bool
	state    State
}

func (m *model) apply(c Control) State {
	if !m.ended[c.Task] {
		if _, ok := m.wms[c.Task]; !ok {
			m.wms[c.Task] = None
		}
		m.wms[c.Task] = max(m.wms[c.Task], c.TimestampMs)
		m.idle[c.Task] = c.Idle
		m.ended[c.Task] = c.Kind == KindEndOfStream
	}
	low, active, over := int64(0), 0, 0
	for task, w := range m.wms {
		switch {
		case m.ended[task]:
			over++
		case m.idle[task]:
		case active == 0 || w < low:
			low = w
			active++
		default:
			active++
		}
	}
	if len(m.wms) < m.expected {
		return m.state
	}
	m.state.Ended = over == m.expected
	m.state.Idle = !m.state.Ended && active == 0
	if active > 0 {
		m.state.WatermarkMs = max(m.state.WatermarkMs, low)
	}
	return m.state
}

// Random messages, with a restore from the checkpoint now and then: the book equals the model after each.
func TestBookEqualsModel(t *testing.T) {
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 5))
		n := 1 + rng.IntN(8)
		b := NewBook("s", 0, 1, n)
		m := model{n, map[string]int64{}, map[string]bool{}, map[string]bool{}, State{WatermarkMs: None}}
		for range 120 {
			c := wm(fmt.Sprintf("t%d", rng.IntN(n)), rng.Int64N(50))
			switch rng.IntN(12) {
			case 0:
				c.Idle = true
			case 1:
				c.Idle, c.TimestampMs = true, None
			case 2:
				c = eos(c.Task)
			}
			old := b.State()
			changed := apply(t, b, c)
			if want := m.apply(c); b.State() != want || changed != (old != want) {
				t.Fatalf("seed %d: after %+v: got %+v changed %v, want %+v", seed, c, b.State(), changed, want)
			}
			if rng.IntN(5) == 0 {
				b = restored(t, b)
			}
		}
	}
}

func restored(t *testing.T, b *Book) *Book {
	t.Helper()
	text, err := json.Marshal(b.Checkpoint())
	if err != nil {
		t.Fatal(err)
	}
	var c BookCheckpoint
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	r, err := RestoreBook(c, b.stream, b.partition, b.run, b.expected)
	if err != nil {
		t.Fatal(err)
	}
	if r.State() != b.State() {
		t.Fatalf("restored %+v from %s, want %+v", r.State(), text, b.State())
	}
	return r
}

// The vote that completes a book may lie before the restored offset: the restore itself evaluates.
func TestRestoreEvaluates(t *testing.T) {
	last := int64(2)
	c := BookCheckpoint{Run: 1}
	c.EndOfStream = EndOfStreamCheckpoint{StreamID: "s", TotalTasks: 2, Tasks: []string{"t0"}}
	c.Watermark = WatermarkCheckpoint{StreamID: "s", TotalTasks: 2, TasksToEventTime: map[string]int64{"t1": 8}, LastEmission: &last}
	b, err := RestoreBook(c, "s", 0, 1, 2)
	if err != nil || b.State().WatermarkMs != 8 {
		t.Fatalf("got %+v %v, want watermark 8", b.State(), err)
	}
	if b, err = RestoreBook(c, "s", 0, 2, 2); err != nil || b.State().WatermarkMs != None {
		t.Fatalf("a checkpoint of an older run gave %+v %v", b.State(), err)
	}
	if _, err = RestoreBook(c, "s", 0, 1, 3); err == nil {
		t.Fatal("another number of tasks was accepted")
	}
	if _, err = RestoreBook(c, "other", 0, 1, 2); err == nil {
		t.Fatal("another stream's checkpoint was accepted")
	}
	c.EndOfStream.Tasks = []string{"t0", "t2", "t3"}
	if _, err = RestoreBook(c, "s", 0, 1, 2); err == nil {
		t.Fatal("more tasks than expected were accepted")
	}
}

func TestCombine(t *testing.T) {
	f := func(want State, in ...State) {
		t.Helper()
		if got := Combine(in); got != want {
			t.Fatalf("Combine(%+v) = %+v, want %+v", in, got, want)
		}
	}
	f(State{WatermarkMs: 3}, State{WatermarkMs: 3}, State{WatermarkMs: 5})
	f(State{WatermarkMs: None}, State{WatermarkMs: None}, State{WatermarkMs: 5})
	f(State{WatermarkMs: 5}, State{WatermarkMs: 1, Idle: true}, State{WatermarkMs: 5})
	f(State{WatermarkMs: 5}, State{WatermarkMs: 1, Ended: true}, State{WatermarkMs: 5})
	f(State{WatermarkMs: None, Idle: true}, State{WatermarkMs: 1, Ended: true}, State{WatermarkMs: 5, Idle: true})
	f(State{WatermarkMs: None, Ended: true}, State{WatermarkMs: 1, Ended: true}, State{WatermarkMs: 5, Ended: true})
}

// 1,000 partitions by 1,000 upstream tasks: the cost per message does not grow with the number of tasks by a scan.
func BenchmarkMerge(b *testing.B) {
	for _, tasks := range []int{10, 1000} {
		b.Run(fmt.Sprintf("1000x%d", tasks), func(b *testing.B) {
			var books []*Book
			names := make([]string, tasks)
			for i := range names {
				names[i] = fmt.Sprintf("stage-%d", i)
			}
			for p := range 1000 {
				book := NewBook("s", p, 1, tasks)
				for _, name := range names {
					_, _ = book.Apply(wm(name, 0))
				}
				books = append(books, book)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				_, _ = books[i%1000].Apply(wm(names[(i/1000)%tasks], int64(1+i/(1000*tasks))))
			}
		})
	}
}
