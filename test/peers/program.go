package peers

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// BuildMain is the TestMain of a folder whose tests run programs of this module: it builds packages into a new folder, says
// where, and runs the tests. It returns the exit code.
func BuildMain(m *testing.M, packages []string, where func(dir string)) int {
	dir, err := os.MkdirTemp("", "strandline-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", append([]string{"build", "-o", dir}, packages...)...)
	build.Dir = root()
	if _, err := TryRun(build); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	where(dir)
	return m.Run()
}

// Program is a broker program that is started again and again on one address. Its standard output goes to Process, its
// standard error, of all lives, to a file.
type Program struct {
	*Process
	T    testing.TB
	Addr string
	// Command is the program and its arguments, asked for at each start.
	Command func() []string
	// Alarms are words that its log must not hold at the end, beside those of a crash.
	Alarms []string
	// Prepare, if set, is given the command before each start.
	Prepare func(*exec.Cmd)
	log     string
}

// Open starts the program for the first time and waits until it is ready.
func (p *Program) Open() {
	p.T.Helper()
	p.log = filepath.Join(p.T.TempDir(), "stderr")
	p.T.Cleanup(func() {
		text := p.Stderr()
		for _, alarm := range append([]string{"BUG:", "panic:", "fatal error:", "DATA RACE"}, p.Alarms...) {
			if strings.Contains(text, alarm) {
				p.T.Errorf("the broker's log holds %q", alarm)
			}
		}
		if p.T.Failed() {
			const shown = 16 << 10
			p.T.Logf("standard error of %s:\n%s", p.Command()[0], text[max(0, len(text)-shown):])
		}
	})
	p.Again()
}

// Launch starts the process and does not wait.
func (p *Program) Launch() {
	p.T.Helper()
	command := p.Command()
	args := append([]string{"-c", `log="$1"; shift; exec "$@" 2>>"$log"`, "sh", p.log}, command...)
	cmd := exec.Command("sh", args...)
	if p.Prepare != nil {
		p.Prepare(cmd)
	}
	p.Process = Start(p.T, filepath.Base(command[0]), cmd)
}

// Again starts the process and waits until it is ready.
func (p *Program) Again() {
	p.T.Helper()
	p.Launch()
	p.WaitLine(p.T, "listening on "+p.Addr)
}

// Stderr is what all processes of this program have logged.
func (p *Program) Stderr() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// FreeAddress returns a free address whose port is below those that the kernel gives to outgoing connections: a client
// that dials a broker which is down could otherwise be given the broker's port, and then keep it.
func FreeAddress(t testing.TB) string {
	t.Helper()
	for range 1000 {
		addr := "127.0.0.1:" + strconv.Itoa(15_000+rand.IntN(17_000))
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr
		}
	}
	t.Fatal("no free port")
	return ""
}

// Seed returns the source of a test's random choices: STRANDLINE_SEED, or a new one. It is logged.
func Seed(t testing.TB) *rand.Rand {
	t.Helper()
	n := rand.Uint64()
	if s := os.Getenv("STRANDLINE_SEED"); s != "" {
		var err error
		if n, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("STRANDLINE_SEED=%d", n)
	return rand.New(rand.NewPCG(n, 0))
}
