package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/strandline-io/strandline/stream"
)

// shelf is a sink in memory: what Prepare returns is a token that names rows, Commit makes them visible once.
type shelf struct {
	mu      sync.Mutex
	visible map[string][]string // token → rows
	calls   map[string]int
	// fail, if set, is asked before every call of a writer.
	fail func(call string, n int) error
	// block, if set, may hold a Prepare.
	block func(ctx context.Context, call string, n int)
	t     *testing.T
}

func newShelf(t *testing.T) *shelf {
	return &shelf{t: t, visible: make(map[string][]string), calls: make(map[string]int)}
}

func (s *shelf) Name() string                                    { return "shelf" }
func (s *shelf) Check(context.Context, stream.JobIdentity) error { return nil }
func (s *shelf) Open(_ context.Context, task stream.SinkTask) (stream.SinkWriter, error) {
	return &shelfWriter{s: s, task: task.Task}, nil
}

// enter counts a call and notices when two of one writer overlap.
func (s *shelf) enter(w *shelfWriter, call string) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.busy {
		s.t.Errorf("%s overlaps another call", call)
	}
	w.busy = true
	s.calls[call]++
	if s.fail != nil {
		err = s.fail(call, s.calls[call])
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		w.busy = false
	}, err
}

// rows are the visible rows, as the topic's.
func (s *shelf) rows(t *testing.T) map[string]int64 {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	got := make(map[string]int64)
	for _, rows := range s.visible {
		for _, row := range rows {
			key, value, _ := strings.Cut(row, "=")
			var sum int64
			if _, err := fmt.Sscan(value, &sum); err != nil {
				t.Fatal(err)
			}
			if _, twice := got[key]; twice {
				t.Errorf("row %s is there twice", key)
			}
			got[key] = sum
		}
	}
	return got
}

type shelfWriter struct {
	s    *shelf
	task string
	busy bool
	rows []string
}

// shelfToken is self-contained: its rows are durable with the transaction that carries it.
type shelfToken struct {
	ID   string   `json:"id"`
	Rows []string `json:"rows"`
}

func (w *shelfWriter) Restore(ctx context.Context, token []byte) error {
	leave, err := w.s.enter(w, "restore")
	defer leave()
	if err != nil || token == nil {
		return err
	}
	return w.publish(token)
}

func (w *shelfWriter) publish(token []byte) error {
	var tok shelfToken
	if err := json.Unmarshal(token, &tok); err != nil {
		return err
	}
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.s.visible[tok.ID] = tok.Rows
	return nil
}

func (w *shelfWriter) Write(_ context.Context, r stream.SinkRecord) error {
	leave, err := w.s.enter(w, "write")
	defer leave()
	w.rows = append(w.rows, r.Value.(string))
	return err
}

func (w *shelfWriter) Prepare(ctx context.Context, epoch int64) ([]byte, error) {
	leave, err := w.s.enter(w, "prepare")
	defer leave()
	if w.s.block != nil {
		w.s.mu.Lock()
		n := w.s.calls["prepare"]
		w.s.mu.Unlock()
		w.s.block(ctx, "prepare", n)
	}
	if err != nil || len(w.rows) == 0 {
		return nil, err
	}
	token, err := json.Marshal(shelfToken{fmt.Sprintf("%s %s", w.task, w.rows[0]), w.rows})
	w.rows = nil
	return token, err
}

func (w *shelfWriter) Commit(_ context.Context, token []byte) error {
	leave, err := w.s.enter(w, "commit")
	defer leave()
	if err != nil {
		return err
	}
	return w.publish(token)
}

func (w *shelfWriter) Finish()                {}
func (w *shelfWriter) WantsCommit(int64) bool { return false }
func (w *shelfWriter) Pending() bool          { return false }
func (w *shelfWriter) Close() error           { return nil }

func TestSinkGetsEveryRowOnce(t *testing.T) {
	t.Parallel()
	_, cfg := cluster(t)
	file, want := input(1500)
	s := newShelf(t)
	c := Config{Kafka: cfg, CommitInterval: 5 * time.Millisecond}
	if err := run(t, t.Context(), sums(t, "j", file, s), c); err != nil {
		t.Fatal(err)
	}
	same(t, s.rows(t), want)
	same(t, rows(t, cfg, "j-sums"), want)
}

func TestSinkFailsNowAndThen(t *testing.T) {
	t.Parallel()
	_, cfg := cluster(t)
	file, want := input(1500)
	for _, call := range []string{"write", "prepare", "restore"} {
		name := "j-" + call
		s := newShelf(t)
		s.fail = func(c string, n int) error {
			if c == call && (n == 3 || n == 6) {
				return errors.New("it will pass")
			}
			return nil
		}
		c := Config{Kafka: cfg, CommitInterval: 5 * time.Millisecond}
		if err := run(t, t.Context(), sums(t, name, file, s), c); err != nil {
			t.Fatalf("%s: %v", call, err)
		}
		same(t, s.rows(t), want)
		same(t, rows(t, cfg, name+"-sums"), want)
	}
}

// permanent is an error that says that it stays.
type permanent struct{ error }

func (permanent) Permanent() bool { return true }

// TestCommittedTokenIsPublishedAtTheNextStart: a sink that cannot publish stops the job, and nothing is lost.
func TestCommittedTokenIsPublishedAtTheNextStart(t *testing.T) {
	t.Parallel()
	_, cfg := cluster(t)
	file, want := input(1500)
	s := newShelf(t)
	s.fail = func(call string, n int) error {
		if call == "commit" && n == 2 {
			return permanent{errors.New("the shelf is another's")}
		}
		return nil
	}
	c := Config{Kafka: cfg, CommitInterval: 5 * time.Millisecond}
	err := run(t, t.Context(), sums(t, "j", file, s), c)
	if err == nil || !strings.Contains(err.Error(), "another's") || !strings.Contains(err.Error(), "next start") {
		t.Fatalf("got %v", err)
	}
	if err := run(t, t.Context(), sums(t, "j", file, s), c); err != nil {
		t.Fatal(err)
	}
	same(t, s.rows(t), want)
	same(t, rows(t, cfg, "j-sums"), want)
}

// bad is an error about one record.
type bad struct{ error }

func (bad) BadRecord() bool { return true }

func TestRecordThatASinkCannotWriteStopsTheJob(t *testing.T) {
	t.Parallel()
	_, cfg := cluster(t)
	file, _ := input(600)
	s := newShelf(t)
	s.fail = func(call string, n int) error {
		if call == "write" {
			return bad{errors.New("no such colour")}
		}
		return nil
	}
	err := run(t, t.Context(), sums(t, "j", file, s), Config{Kafka: cfg, CommitInterval: 5 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "no such colour") {
		t.Errorf("got %v", err)
	}
}
