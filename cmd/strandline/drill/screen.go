package drill

import (
	"fmt"
	"io"
	"os"
	"sync"
	"text/tabwriter"
	"time"

	"golang.org/x/term"
)

const (
	liveEvery = 200 * time.Millisecond
	lineEvery = 10 * time.Second
)

// screen shows events as lines and, on a terminal, a line that changes. Its methods may be called from anywhere.
type screen struct {
	mu       sync.Mutex
	out      io.Writer
	terminal bool
	fd       int  // of the terminal
	shown    bool // the changing line is on the screen
}

func newScreen(out io.Writer) *screen {
	f, ok := out.(*os.File)
	s := &screen{out: out}
	if ok {
		s.fd = int(f.Fd())
		s.terminal = term.IsTerminal(s.fd)
	}
	return s
}

func (s *screen) clear() {
	if s.shown {
		fmt.Fprint(s.out, "\r\033[K")
		s.shown = false
	}
}

func (s *screen) line(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	fmt.Fprintf(s.out, format+"\n", args...)
}

// live shows a status until the returned call: all the time on a terminal, else as a line now and then.
func (s *screen) live(status func() string) (stop func()) {
	every := lineEvery
	if s.terminal {
		every = liveEvery
	}
	stopping, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-stopping:
				return
			case <-tick.C:
				s.show(status())
			}
		}
	}()
	return func() {
		close(stopping)
		<-stopped
		s.mu.Lock()
		defer s.mu.Unlock()
		s.clear()
	}
}

func (s *screen) show(status string) {
	if !s.terminal {
		s.line("%s", status)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// A line that wraps could not be cleared.
	if width, _, err := term.GetSize(s.fd); err == nil && width > 1 && len(status) >= width {
		status = status[:width-1]
	}
	fmt.Fprint(s.out, "\r\033[K"+status)
	s.shown = true
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

func percent(part, all int64) string { return fmt.Sprintf("%.0f %%", 100*float64(part)/float64(all)) }

// status is the line that changes. It may be called while the workers run.
func (d *drill) status() string {
	began := d.counts.began.Load()
	if began == 0 {
		seeded := d.seeded.Load()
		return fmt.Sprintf("%d of %d seeded (%s)", seeded, d.Records, percent(seeded, d.Records))
	}
	moved := d.movedSum()
	down := ""
	if d.counts.down.Load() {
		down = ", broker down"
	}
	return fmt.Sprintf("%8s  %d of %d moved (%s), kills: %d, transactions: %d committed, %d aborted, %d unknown%s",
		seconds(time.Since(time.UnixMilli(began))), moved, d.Records, percent(moved, d.Records), d.counts.kills.Load(),
		d.counts.committed.Load(), d.counts.aborted.Load()+d.counts.givenUp.Load(), d.counts.unknown.Load(), down)
}

// report prints what was killed and what was checked.
func (d *drill) report(c checks) {
	d.screen.mu.Lock()
	defer d.screen.mu.Unlock()
	d.screen.clear()
	out := d.Out
	if len(d.kills) > 0 {
		w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
		fmt.Fprintln(w, "\nKILL\tAT\tMOVED BY THEN\tSHARE\tDOWN")
		for i, k := range d.kills {
			name := fmt.Sprint(i + 1)
			if k.last {
				name = "last"
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", name, seconds(k.at), k.moved, percent(k.moved, d.Records), seconds(k.down))
		}
		w.Flush()
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "CHECKED\tFOUND\t")
	for _, one := range c {
		verdict := "held"
		if !one.held {
			verdict = "BROKEN"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", one.what, one.got, verdict)
	}
	w.Flush()
	fmt.Fprintf(out, "\n%d transactions committed, %d aborted on purpose, %d given up (rebalances), %d left open by workers that died, %d of unknown outcome.\n"+
		"%d clients failed and were replaced; errors that workers saw: %s.\n",
		d.counts.committed.Load(), d.counts.aborted.Load(), d.counts.givenUp.Load(), d.counts.died.Load(),
		d.counts.unknown.Load(), d.counts.replaced.Load(), d.reasonsText())
}
