//go:build unix

package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"golang.org/x/term"

	"github.com/strandline-io/strandline/internal/failpoint"
)

// tally counts what happened in all rounds. Its methods may be called from anywhere.
type tally struct {
	o     options
	began time.Time

	mu       sync.Mutex
	rounds   int
	kills    map[string]int
	hits     map[string]int
	failures []string
	out      io.Writer
	shown    bool
}

func newTally(o options) *tally {
	return &tally{o: o, began: time.Now(), kills: make(map[string]int), hits: make(map[string]int), out: os.Stdout}
}

func (t *tally) kill(kind string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kills[kind]++
}

func (t *tally) hit(point string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hits[point]++
}

func (t *tally) ok() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.failures) == 0
}

// played notes the end of a round.
func (t *tally) played(seed uint64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rounds++
	if err != nil {
		t.failures = append(t.failures, fmt.Sprintf("seed %d: %v", seed, err))
		t.clear()
		fmt.Fprintf(t.out, "FAILED: seed %d: %v\n", seed, err)
	}
}

func sum(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

const (
	liveEvery = time.Second
	lineEvery = 30 * time.Second
)

// live shows the progress until the returned call: all the time on a terminal, else as a line now and then.
func (t *tally) live(out *os.File) (stop func()) {
	terminal := term.IsTerminal(int(out.Fd()))
	every := lineEvery
	if terminal {
		every = liveEvery
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				t.show(terminal)
			}
		}
	}()
	return func() {
		close(quit)
		<-done
		t.mu.Lock()
		defer t.mu.Unlock()
		t.clear()
	}
}

func (t *tally) show(terminal bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clear()
	fmt.Fprintf(t.out, "%6.0f s  %d of %d rounds, %d faults, %d of %d failpoints hit, %d failed", time.Since(t.began).Seconds(), t.rounds,
		t.o.to-t.o.from+1, sum(t.kills)+sum(t.hits), len(t.hits), len(t.points()), len(t.failures))
	if t.shown = terminal; !terminal {
		fmt.Fprintln(t.out)
	}
}

func (t *tally) clear() {
	if t.shown {
		fmt.Fprint(t.out, "\r\033[K")
		t.shown = false
	}
}

// points are those that can be hit in this run.
func (t *tally) points() []string {
	points := t.o.points(failpoint.Worker)
	if !t.o.kafka {
		points = append(t.o.points(failpoint.Broker), points...)
	}
	return points
}

// report prints the tables of the end.
func (t *tally) report(out io.Writer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "\nFAULT\tTIMES")
	for _, kind := range slices.Sorted(maps.Keys(t.kills)) {
		fmt.Fprintf(w, "%s\t%d\n", kind, t.kills[kind])
	}
	fmt.Fprintln(w, "\nFAILPOINT\tHIT")
	var missed []string
	for _, p := range t.points() {
		if fmt.Fprintf(w, "%s\t%d\n", p, t.hits[p]); t.hits[p] == 0 {
			missed = append(missed, p)
		}
	}
	w.Flush()
	elapsed := time.Since(t.began)
	fmt.Fprintf(out, "\n%d rounds (seeds %d-%d) in %.0f s, %.1f s each; %d faults from outside, %d at failpoints; %d failed\n", t.rounds,
		t.o.from, t.o.to, elapsed.Seconds(), elapsed.Seconds()*float64(t.o.parallel)/float64(max(1, t.rounds)), sum(t.kills), sum(t.hits), len(t.failures))
	if len(missed) > 0 {
		fmt.Fprintf(out, "failpoints: %d of %d hit; a seed arms a few, the other %d need more rounds\n",
			len(t.points())-len(missed), len(t.points()), len(missed))
		if t.o.verbose {
			fmt.Fprintf(out, "not hit: %s\n", strings.Join(missed, ", "))
		}
	}
	for _, f := range t.failures {
		fmt.Fprintln(out, "FAILED:", f)
	}
}
