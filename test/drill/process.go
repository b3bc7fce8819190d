//go:build unix

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
)

// process is a running child. Everything of it but the reading of its output belongs to its round's loop.
type process struct {
	name    string
	cmd     *exec.Cmd
	stdin   io.WriteCloser // held open: its end tells the child that the drill is gone
	done    chan struct{}
	status  syscall.WaitStatus // after done
	killed  bool               // by the drill, or about to kill itself
	stopped bool               // stands still
	ready   bool
	armed   *failure // what its failpoint does

	mu   sync.Mutex
	tail []string // newest lines of its output
}

// failure is a failpoint that a process is started with.
type failure struct {
	point string
	count int
	stop  bool
}

func (f *failure) env() string {
	if f == nil {
		return ""
	}
	s := fmt.Sprintf("%s:%d", f.point, f.count)
	if f.stop {
		s += ":stop"
	}
	return s
}

const tailLines = 40

var failpointLine = regexp.MustCompile(`^failpoint (\S+) hit \d+$`)

// levelError marks what a child logs as an error.
const levelError = "level=ERROR"

// alarming reports whether a line should not be there.
func alarming(line string) bool {
	for _, text := range []string{levelError, "panic: ", "BUG: ", "fatal error: "} {
		if strings.Contains(line, text) {
			return true
		}
	}
	return false
}

// start runs cmd. Its output goes to log; lines that tell something, and in the end its exit, go to the functions, which
// are called from other goroutines.
func start(name string, cmd *exec.Cmd, log io.Writer, line func(*process, string), exit func(*process)) (*process, error) {
	p := &process{name: name, cmd: cmd, done: make(chan struct{})}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = w, w
	dieWithParent(cmd)
	if p.stdin, err = cmd.StdinPipe(); err == nil {
		err = cmd.Start()
	}
	w.Close()
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	fmt.Fprintf(log, "-- %s starts as process %d\n", name, cmd.Process.Pid)
	go func() {
		defer r.Close()
		s := bufio.NewScanner(r)
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			text := s.Text()
			fmt.Fprintln(log, text)
			p.keep(text)
			if failpointLine.MatchString(text) || strings.HasPrefix(text, listens) || text == madeRows || alarming(text) {
				line(p, text)
			}
		}
		_, _ = io.Copy(io.Discard, r)
		_ = cmd.Wait()
		p.status, _ = cmd.ProcessState.Sys().(syscall.WaitStatus)
		fmt.Fprintf(log, "-- %s ended: %v\n", name, cmd.ProcessState)
		close(p.done)
		exit(p)
	}()
	return p, nil
}

func (p *process) keep(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tail = append(p.tail, text); len(p.tail) > 2*tailLines {
		p.tail = append(p.tail[:0], p.tail[tailLines:]...)
	}
}

// output is the newest lines.
func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.tail[max(0, len(p.tail)-tailLines):], "\n")
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

func (p *process) kill() {
	p.killed = true
	p.signal(syscall.SIGKILL)
}

func (p *process) pause() {
	p.stopped = true
	p.signal(syscall.SIGSTOP)
}

func (p *process) resume() {
	p.stopped = false
	p.signal(syscall.SIGCONT)
}
