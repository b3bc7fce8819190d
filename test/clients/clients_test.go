//go:build peers

package clients

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/strandline-io/strandline/test/peers"
)

// binary is the program under test.
var binary string

// broker starts one `strandline serve` with extra flags over a new folder. Its log may hold no error.
func broker(t *testing.T, flags ...string) *peers.Program {
	t.Helper()
	return brokerAt(t, peers.FreeAddress(t), "", flags...)
}

// brokerAt is a broker that listens on addr and tells its clients that it is advertised.
func brokerAt(t *testing.T, addr, advertised string, flags ...string) *peers.Program {
	t.Helper()
	dir, listen := t.TempDir(), addr
	if advertised != "" {
		listen += "=" + advertised
	}
	b := &peers.Program{T: t, Addr: addr, Alarms: []string{"level=ERROR"}}
	b.Command = func() []string {
		return append([]string{binary, "serve", "--listen", listen, "--data-dir", dir, "--verify"}, flags...)
	}
	b.Open()
	return b
}

func run(t *testing.T, stdin, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	return peers.Run(t, cmd)
}

// killsMax bounds the kills that a program meets: members that died with the broker away end by their session's time, which
// starts anew with each broker, so that after the last kill all must come to rest.
const killsMax = 10

// runUnderKills runs a program to its end while the broker is killed and started again, time after time, and returns its
// standard output. A program that ends before the broker was killed twice has met nothing: the test fails.
func runUnderKills(t *testing.T, b *peers.Program, every time.Duration, cmd *exec.Cmd) string {
	t.Helper()
	type result struct {
		out string
		err error
	}
	done := make(chan result, 1)
	go func() {
		out, err := peers.TryRun(cmd)
		done <- result{out, err}
	}()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 0; ; {
		select {
		case r := <-done:
			switch {
			case r.err != nil:
				t.Fatalf("%s, the broker killed %d times: %v", strings.Join(cmd.Args, " "), n, r.err)
			case n < 2:
				t.Fatalf("%s ended after %d kills of the broker", strings.Join(cmd.Args, " "), n)
			}
			return r.out
		case <-tick.C:
			if n < killsMax {
				n++
				b.Kill()
				b.Again()
			}
		}
	}
}

func contains(t *testing.T, what, got, want string) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Fatalf("%s: %q is missing in:\n%s", what, want, got)
	}
}
