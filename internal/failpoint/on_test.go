//go:build failpoints

package failpoint

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

const child = "STRANDLINE_FAILPOINT_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(child) == "" {
		os.Exit(m.Run())
	}
	for i := range 3 {
		if later := os.Getenv(child); i == 2 && later != "1" {
			if err := Arm(later); err != nil {
				fmt.Println(err)
			}
		}
		Hit("journal.written")
		os.Stdout.WriteString("x")
	}
}

// run runs this program anew; it hits journal.written three times and prints an x after each.
func run(t *testing.T, env string) (out, stderr string, status syscall.WaitStatus) {
	t.Helper()
	var b strings.Builder
	cmd := exec.Command(os.Args[0])
	first, later, _ := strings.Cut(env, " then ")
	cmd.Env, cmd.Stderr = append(os.Environ(), child+"="+cmp.Or(later, "1"), Variable+"="+first), &b
	got, err := cmd.Output()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		t.Fatal(err)
	}
	return string(got), b.String(), cmd.ProcessState.Sys().(syscall.WaitStatus)
}

func TestHitKillsAtItsCount(t *testing.T) {
	for env, want := range map[string]string{"journal.written:1": "", "journal.synced:1,journal.written:3": "xx"} {
		out, stderr, status := run(t, env)
		if !status.Signaled() || status.Signal() != syscall.SIGKILL || out != want || !strings.Contains(stderr, "failpoint journal.written hit") {
			t.Errorf("%s: %v, printed %q and %q", env, status, out, stderr)
		}
	}
	if out, stderr, status := run(t, "journal.written:4"); status != 0 || out != "xxx" || stderr != "" {
		t.Errorf("not reached: %v, printed %q and %q", status, out, stderr)
	}
}

// TestArmReplacesAndCountsAnew: before the third hit the program is told something else.
func TestArmReplacesAndCountsAnew(t *testing.T) {
	if out, stderr, status := run(t, "journal.synced:1 then journal.written:1"); status.Signal() != syscall.SIGKILL || out != "xx" {
		t.Errorf("armed later: %v, printed %q and %q", status, out, stderr)
	}
	if out, stderr, status := run(t, "journal.written:3 then journal.synced:1"); status != 0 || out != "xxx" {
		t.Errorf("disarmed: %v, printed %q and %q", status, out, stderr)
	}
	out, stderr, status := run(t, "journal.written:3 then nonsense:1")
	if status.Signal() != syscall.SIGKILL || !strings.HasPrefix(out, "xx") || !strings.Contains(out, "nonsense") {
		t.Errorf("armed with nonsense: %v, printed %q and %q", status, out, stderr)
	}
}

func TestMisspeltPointsAreRefusedAtStart(t *testing.T) {
	for _, env := range []string{"journal.writen:1", "journal.written", "journal.written:0", "journal.written:1:halt", ","} {
		if out, stderr, status := run(t, env); status.ExitStatus() != 2 || out != "" || stderr == "" {
			t.Errorf("%s: exit code %d, printed %q and %q", env, status.ExitStatus(), out, stderr)
		}
	}
}

func TestHitStops(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), child+"=1", Variable+"=journal.written:2:stop")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("%v, %v", status, err)
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
