package peers

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// readyWithin bounds how long a started program may take until it is ready.
const readyWithin = 90 * time.Second

// Process is a running program of a test.
type Process struct {
	Name string
	cmd  *exec.Cmd

	mu    sync.Mutex
	out   bytes.Buffer // newest output, standard output and error together
	done  chan struct{}
	exit  error
	lines chan string
}

// outputKept bounds the output that is kept for a failure's message.
const outputKept = 64 << 10

// Start runs a program. It is killed at the end of the test. If the test fails, its last output is logged.
func Start(t testing.TB, name string, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{Name: name, cmd: cmd, done: make(chan struct{}), lines: make(chan string, 1024)}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	dieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	w.Close()
	go p.read(r)
	go func() {
		p.exit = cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("last output of %s:\n%s", name, p.Output())
		}
	})
	return p
}

func (p *Process) read(r io.ReadCloser) {
	defer r.Close()
	defer close(p.lines)
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 64<<10), 1<<20)
	for s.Scan() {
		line := s.Text()
		p.mu.Lock()
		if p.out.Len() > outputKept {
			p.out.Next(p.out.Len() / 2)
		}
		p.out.WriteString(line + "\n")
		p.mu.Unlock()
		select {
		case p.lines <- line:
		default: // nobody waits for lines any more
		}
	}
}

// Output returns the newest output.
func (p *Process) Output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// WaitLine waits for an output line that contains text and returns it.
func (p *Process) WaitLine(t testing.TB, text string) string {
	t.Helper()
	deadline := time.After(readyWithin)
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				<-p.done
				t.Fatalf("%s ended (%v) before it printed %q:\n%s", p.Name, p.exit, text, p.Output())
			}
			if strings.Contains(line, text) {
				return line
			}
		case <-deadline:
			t.Fatalf("%s did not print %q within %v:\n%s", p.Name, text, readyWithin, p.Output())
		}
	}
}

// Kill sends SIGKILL and waits for the end.
func (p *Process) Kill() {
	p.cmd.Process.Kill()
	<-p.done
}

// Interrupt sends SIGINT, waits for the end and returns how it ended.
func (p *Process) Interrupt() error {
	p.cmd.Process.Signal(os.Interrupt)
	return p.Wait()
}

// Terminate sends SIGTERM, waits for the end and returns how it ended.
func (p *Process) Terminate() error {
	p.cmd.Process.Signal(syscall.SIGTERM)
	return p.Wait()
}

// Wait waits for the end and returns how it ended; it kills the process after two minutes.
func (p *Process) Wait() error {
	select {
	case <-p.done:
	case <-time.After(2 * time.Minute):
		p.Kill()
		return fmt.Errorf("%s did not end within two minutes and was killed", p.Name)
	}
	return p.exit
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Pid is the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Run runs a program to its end and returns its standard output; the test fails if the program does.
func Run(t testing.TB, cmd *exec.Cmd) string {
	t.Helper()
	out, err := TryRun(cmd)
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(cmd.Args, " "), err)
	}
	return out
}

// TryRun runs a program to its end; the error holds its standard error.
func TryRun(cmd *exec.Cmd) (string, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	dieWithParent(cmd)
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%w\n%s%s", err, out, stderr.String())
	}
	return string(out), nil
}

// FreePort returns a TCP port of the loopback interface that was free a moment ago, for programs that must be told
// their port before they start.
func FreePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// WaitPort waits until a program answers on an address.
func (p *Process) WaitPort(t testing.TB, addr string) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(readyWithin)
	for {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			c.Close()
			return
		}
		select {
		case <-p.done:
			t.Fatalf("%s ended (%v) before it answered on %s:\n%s", p.Name, p.exit, addr, p.Output())
		case <-deadline:
			t.Fatalf("%s did not answer on %s within %v:\n%s", p.Name, addr, readyWithin, p.Output())
		case <-tick.C:
		}
	}
}

// CacheDir is where downloaded peers are kept between runs.
func CacheDir(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("STRANDLINE_PEERS")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		dir = filepath.Join(cache, "strandline-peers")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// root is the folder of this module: a test begins in the folder of its package. (What the compiler knows of a source file's
// place is gone with -trimpath.)
var root = sync.OnceValue(func() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	for start := dir; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			panic(fmt.Sprintf("no go.mod in %s or above it", start))
		}
	}
})

// here is the folder of this package's source, where the pom and the settings lie.
func here() string { return filepath.Join(root(), "test", "peers") }

// once builds or installs something at most once for all test processes on the machine: f runs under a lock and only
// if the marker is missing; a failure leaves no marker.
func once(t testing.TB, marker string, f func() error) {
	t.Helper()
	if _, err := os.Stat(marker); err == nil {
		return
	}
	if err := os.MkdirAll(filepath.Dir(marker), 0o755); err != nil {
		t.Fatal(err)
	}
	unlock, err := lockFile(marker + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if _, err := os.Stat(marker); err == nil {
		return
	}
	if err := f(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(marker, nil, 0o644); err != nil {
		t.Fatal(err)
	}
}
