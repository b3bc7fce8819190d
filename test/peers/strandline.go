package peers

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// Binary builds a command of this repository and returns its path.
func Binary(t testing.TB, pkg string, flags ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), filepath.Base(pkg))
	args := append([]string{"build"}, flags...)
	args = append(args, "-o", out, pkg)
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = root()
	Run(t, cmd)
	return out
}

// Broker is a running `strandline serve`.
type Broker struct {
	*Process
	Addr string
	Dir  string
	bin  string
	args []string
}

var readyLine = regexp.MustCompile(`listening on ([^\s,]+)`)

// StartBroker starts `strandline serve` on a free port over dir, with extra flags.
func StartBroker(t testing.TB, dir string, flags ...string) *Broker {
	t.Helper()
	b := &Broker{Dir: dir, bin: Binary(t, "./cmd/strandline")}
	b.args = append([]string{"serve", "--listen", "127.0.0.1:0", "--data-dir", dir}, flags...)
	b.Again(t)
	b.args[2] = b.Addr // the same address next time, as clients expect
	return b
}

// Again starts the broker once more over the data that it left.
func (b *Broker) Again(t testing.TB) {
	t.Helper()
	b.Process = Start(t, "strandline serve", exec.Command(b.bin, b.args...))
	line := b.WaitLine(t, "listening")
	m := readyLine.FindStringSubmatch(line)
	if m == nil {
		t.Fatalf("the ready line names no address: %q", line)
	}
	b.Addr = m[1]
}
