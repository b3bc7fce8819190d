//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/strandline-io/strandline/internal/failpoint"
	"github.com/strandline-io/strandline/stream/blob"
)

const (
	// roundDeadline bounds a round: with its faults over, a job must end.
	roundDeadline = 2 * time.Minute
	readyDeadline = 30 * time.Second
	// startAgain is when a child that asked for it is started again.
	startAgain = 100 * time.Millisecond
	// shortestPause is how long one who is replaced, or stopped at a failpoint, stands still at least: its successor must get
	// ahead, and the line about a failpoint comes before the stop.
	shortestPause = 300 * time.Millisecond
	// maxArmed bounds the failpoints of a round beyond its plan: after them nothing dies any more.
	maxArmed = 4
)

// programs are the binaries of a run, built with the tag failpoints.
type programs struct{ drill, flights string }

// slot is a place for one process at a time.
type slot struct {
	i      int // 0 is the broker
	proc   *process
	done   bool // a worker whose job has ended
	back   time.Duration
	arm    *failure      // of the next start
	again  time.Duration // after the next start
	starts int
}

// round is one job over one data folder. One goroutine, run's, owns it; what others have to tell comes as functions.
type round struct {
	roundPlan
	set      setting
	bin      programs
	dir      string
	log      *roundLog
	tally    *tally
	brokers  string
	external *cluster // Apache Kafka, not ours to start; nil: a broker of our own
	store    string
	storeEnv []string
	rng      *rand.Rand // of what the plan does not foresee
	want     map[row]bool
	names    []string // of the input files

	events  chan func()
	closed  chan struct{}
	slots   []*slot
	zombies map[*process]bool
	armed   int
	next    int  // index of the fault that comes next
	due     bool // its wait is over
	made    int  // rows, those that were made again included
	over    bool // the subject was hit, or its time has passed
	ending  bool
	err     error
}

// run plays the round to its end and returns what is wrong.
func (r *round) run(ctx context.Context) (err error) {
	r.rng = rand.New(rand.NewPCG(r.seed, 5))
	r.events, r.closed, r.zombies = make(chan func(), 64), make(chan struct{}), make(map[*process]bool)
	r.log.printf("%v", r.roundPlan)
	if r.names, r.want, err = writeInput(rand.New(rand.NewPCG(r.seed, 6)), r.dir, r.files, r.lines); err != nil {
		return err
	}
	defer r.stopAll()
	for i := range 1 + r.workers {
		r.slots = append(r.slots, &slot{i: i, arm: r.first[i]})
		if i > 0 || r.external == nil {
			r.begin(r.slots[i])
		}
	}
	r.nextFault()
	deadline := time.NewTimer(roundDeadline)
	defer deadline.Stop()
	for r.err == nil && !r.finished() {
		select {
		case f := <-r.events:
			f()
		case <-deadline.C:
			r.fail(fmt.Errorf("the job has not ended within %v: %s", roundDeadline, r.state()))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if r.err != nil {
		return r.err
	}
	return r.judge(ctx)
}

func (r *round) fail(err error) {
	if r.err == nil {
		r.err = err
		r.log.printf("FAILED: %v", err)
	}
}

// post hands f to the loop.
func (r *round) post(f func()) {
	select {
	case r.events <- f:
	case <-r.closed:
	}
}

func (r *round) after(d time.Duration, f func()) {
	time.AfterFunc(d, func() { r.post(f) })
}

// finished reports whether every worker has left because the job is done, and no zombie is left.
func (r *round) finished() bool {
	for _, s := range r.slots[1:] {
		if !s.done {
			return false
		}
	}
	if !r.ending {
		r.ending = true
		r.log.printf("the job has ended")
		for z := range r.zombies {
			r.after(shortestPause, z.resume)
		}
	}
	return len(r.zombies) == 0
}

func (r *round) state() string {
	var b strings.Builder
	for _, s := range r.slots {
		switch {
		case s.done:
			fmt.Fprintf(&b, "%s has left; ", slotName(s.i))
		case s.proc == nil:
			fmt.Fprintf(&b, "%s is away; ", slotName(s.i))
		default:
			fmt.Fprintf(&b, "%s runs (stopped %v); ", slotName(s.i), s.proc.stopped)
		}
	}
	fmt.Fprintf(&b, "%d zombies", len(r.zombies))
	return b.String()
}

// begin starts the process of a slot.
func (r *round) begin(s *slot) {
	if r.err != nil || s.proc != nil || s.done || r.ending && s.i > 0 {
		return
	}
	arm, again := s.arm, s.again
	s.arm, s.again = nil, 0
	if f := r.subject.at(s.i, s.starts); f != nil && !r.over {
		arm = f
	}
	s.starts++
	cmd := r.command(s.i)
	cmd.Env = append(append(os.Environ(), r.storeEnv...), failpoint.Variable+"="+arm.env())
	p, err := start(slotName(s.i), cmd, r.log, func(p *process, line string) {
		r.post(func() { r.told(s, p, line) })
	}, func(p *process) {
		r.post(func() { r.exited(s, p) })
	})
	if err != nil {
		r.fail(err)
		return
	}
	p.armed = arm
	s.proc = p
	if again > 0 {
		r.after(again, func() {
			if s.proc == p && !p.killed {
				r.tally.kill("killed again at its return")
				p.kill()
			}
		})
	}
}

func (r *round) command(i int) *exec.Cmd {
	switch {
	case i == 0:
		args := []string{asBroker, "-listen", r.brokers, "-data", filepath.Join(r.dir, "broker")}
		if r.write {
			args = append(args, "-write")
		}
		if r.set.power {
			args = append(args, "-power", strconv.FormatUint(r.seed<<8+uint64(r.slots[0].starts), 10))
		}
		return exec.Command(r.bin.drill, args...)
	case r.flights:
		return exec.Command(r.bin.flights, "-replica", strconv.Itoa(i-1), "-brokers", r.brokers, "-v", "-store", r.store,
			"-data", r.dir, "-input", filepath.Join(r.dir, r.names[0]))
	}
	return exec.Command(r.bin.drill, asWorker, "-replica", strconv.Itoa(i-1), "-brokers", r.brokers, "-job", r.jobName(),
		"-dir", r.dir, "-files", strings.Join(r.names, ","), "-store", r.store, "-commit", r.commit.String(), "-pace", r.pace.String())
}

func (r *round) jobName() string {
	if r.flights {
		return "flights"
	}
	return fmt.Sprintf("drill-%d", r.seed)
}

func (r *round) resultTopic() string {
	if r.flights {
		return "daily-delays"
	}
	return jobOptions{name: r.jobName()}.resultTopic()
}

// told handles a line that a process printed.
func (r *round) told(s *slot, p *process, line string) {
	m := failpointLine.FindStringSubmatch(line)
	switch {
	case m == nil && strings.HasPrefix(line, listens):
		p.ready = true
		return
	case m == nil && line == madeRows:
		r.made += rowsALine
		r.tryFault()
		return
	case m == nil:
		if s.i == 0 || !strings.Contains(line, levelError) { // workers say so that no broker answers
			r.fail(fmt.Errorf("%s says: %s", p.name, line))
		}
		return
	}
	r.tally.hit(m[1])
	r.over = r.over || m[1] == r.subject.point
	if p.armed == nil || !p.armed.stop {
		p.killed = true
		return
	}
	p.stopped = true
	if s.i > 0 && s.proc == p && r.rng.IntN(2) == 0 {
		r.tally.kill("stopped at a failpoint and replaced")
		r.succeed(s, p, drawBack(r.rng))
		return
	}
	r.tally.kill("stopped at a failpoint")
	r.after(max(drawBack(r.rng), shortestPause), p.resume)
}

// succeed gives the place of a process that stands still to another one, and lets it go on later.
func (r *round) succeed(s *slot, p *process, back time.Duration) {
	r.zombies[p] = true
	s.proc = nil
	r.begin(s)
	r.after(max(back, shortestPause), func() {
		if r.zombies[p] {
			p.resume()
		}
	})
}

// exited handles the end of a process.
func (r *round) exited(s *slot, p *process) {
	delete(r.zombies, p)
	current := s.proc == p
	if current {
		s.proc = nil
	}
	code := p.status.ExitStatus()
	switch {
	case p.killed && (p.status.Signaled() && p.status.Signal() == syscall.SIGKILL || code == exitOK):
		r.died(s, current)
	case s.i > 0 && code == exitAgain:
		r.tally.kill("left: fenced, or too long without a broker")
		if current {
			r.after(startAgain, func() { r.begin(s) })
		}
	case s.i > 0 && code == exitOK:
		s.done = s.done || current
	case s.i == 0 && strings.Contains(p.output(), "address already in use"):
		r.after(startAgain, func() { r.begin(s) })
	default:
		r.fail(fmt.Errorf("%s ended with %v:\n%s", p.name, p.cmd.ProcessState, p.output()))
	}
}

// died lets a killed process return.
func (r *round) died(s *slot, current bool) {
	if !current {
		return
	}
	if s.back == 0 && s.arm == nil && r.rng.IntN(3) == 0 && r.armed < maxArmed {
		r.armed++
		s.arm = r.set.draw(r.rng, s.i == 0)
	}
	back := s.back
	if back == 0 {
		back = drawBack(r.rng)
	}
	s.back = 0
	r.after(back, func() { r.begin(s) })
}

// nextFault waits for the fault that comes next.
func (r *round) nextFault() {
	if r.next < len(r.faults) {
		r.after(r.faults[r.next].wait, func() {
			r.due = true
			r.tryFault()
		})
	}
}

// tryFault applies the next fault if the work is far enough.
func (r *round) tryFault() {
	if r.ending || !r.due || float64(r.made) < r.faults[r.next].at*float64(len(r.want)) {
		return
	}
	f := r.faults[r.next]
	r.next, r.due = r.next+1, false
	r.apply(f)
	r.nextFault()
}

func (r *round) apply(f fault) {
	r.log.printf("fault with %d of %d rows made: %v (%d)", r.made, len(r.want), f.kind, f.victim)
	worker := r.slots[1+f.victim]
	other := r.slots[1+(f.victim+1)%r.workers]
	switch f.kind {
	case killWorker:
		r.strike(f, worker)
	case killBroker:
		r.strike(f, r.slots[0])
	case killTwoWorkers:
		r.strike(f, worker, other)
	case killBoth:
		r.strike(f, r.slots[0], worker)
	case killAll:
		r.strike(f, r.slots...)
	case pauseWorker:
		for n := 1; worker.proc == nil && n < r.workers; n++ {
			worker = r.slots[1+(f.victim+n)%r.workers]
		}
		r.pause(f, worker)
	case pauseBroker:
		r.pause(f, r.slots[0])
	case replace:
		if p := worker.proc; p != nil && !p.killed && !p.stopped {
			r.tally.kill(f.kind.String())
			p.pause()
			worker.arm = f.arm
			r.succeed(worker, p, f.back)
		}
	}
}

// strike kills at once what runs in the slots. The first of them returns as the fault says.
func (r *round) strike(f fault, slots ...*slot) {
	killed := false
	for n, s := range slots {
		if s.i == 0 && r.external != nil {
			killed = true
			r.post(r.external.killAndRestart)
			continue
		}
		if n == 0 && !s.done {
			s.back, s.arm, s.again = f.back, f.arm, f.again
		}
		if s.proc != nil && !s.proc.killed {
			killed = true
			s.proc.kill()
		}
	}
	if killed {
		r.tally.kill(f.kind.String())
	}
}

func (r *round) pause(f fault, s *slot) {
	p := s.proc
	if p == nil || p.killed || p.stopped {
		return
	}
	r.tally.kill(f.kind.String())
	p.pause()
	r.after(f.back, func() {
		if s.proc == p && p.stopped {
			p.resume()
		}
	})
}

// judge ends the broker, in one of two ways, starts it again over what it left, and checks everything.
func (r *round) judge(ctx context.Context) error {
	if r.external == nil {
		if err := r.restart(ctx); err != nil {
			return err
		}
	}
	store, err := r.openStore()
	if err != nil {
		return err
	}
	err = newJudge(r, store).all(ctx)
	if err == nil && r.external != nil {
		r.external.forget(ctx, r.jobName())
	}
	return err
}

// restart starts the broker, which may be away or dying, once more without a failpoint.
func (r *round) restart(ctx context.Context) error {
	s := r.slots[0]
	if p := s.proc; p != nil {
		if p.resume(); r.seed%2 == 0 && !p.killed && p.armed == nil {
			p.killed = true // that is how `exited` knows that it may end; a graceful end has code 0
			p.stdin.Close()
		} else {
			p.kill()
		}
		select {
		case <-p.done:
		case <-time.After(readyDeadline):
			return fmt.Errorf("the broker did not end within %v:\n%s", readyDeadline, p.output())
		}
		if !p.status.Signaled() && p.status.ExitStatus() != exitOK {
			return fmt.Errorf("the broker ended with %v:\n%s", p.cmd.ProcessState, p.output())
		}
		s.proc = nil
	}
	s.arm, s.again, r.over = nil, 0, true
	r.begin(s)
	deadline := time.After(readyDeadline)
	for r.err == nil && (s.proc == nil || !s.proc.ready) {
		select {
		case f := <-r.events:
			if s.proc == nil {
				r.begin(s)
			}
			f()
		case <-deadline:
			return fmt.Errorf("the broker was not ready within %v", readyDeadline)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return r.err
}

func (r *round) openStore() (blob.Store, error) {
	return blob.OpenStore(r.store, blob.WithEnv(func(name string) string {
		for _, v := range r.storeEnv {
			if value, ok := strings.CutPrefix(v, name+"="); ok {
				return value
			}
		}
		return ""
	}))
}

// stopAll kills what still runs and waits for it.
func (r *round) stopAll() {
	close(r.closed)
	for _, s := range r.slots {
		if s.proc != nil {
			r.zombies[s.proc] = true
		}
	}
	for p := range r.zombies {
		p.kill()
		<-p.done
	}
}

// roundLog takes the output of all processes of a round.
type roundLog struct {
	mu    sync.Mutex
	w     io.Writer
	began time.Time
}

func (l *roundLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func (l *roundLog) printf(format string, args ...any) {
	fmt.Fprintf(l, "-- %.3f "+format+"\n", append([]any{time.Since(l.began).Seconds()}, args...)...)
}
