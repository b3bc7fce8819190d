package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/strandline-io/strandline/cmd/strandline/admin"
	"github.com/strandline-io/strandline/cmd/strandline/drill"
)

func TestExitCodes(t *testing.T) {
	failed := &drill.FailedError{What: "lost: 1"}
	f := func(command string, err error, want int) {
		t.Helper()
		if got := exitCode(command, err); got != want {
			t.Errorf("%s: %v: exit %d, want %d", command, err, got, want)
		}
	}
	f("drill", errors.Join(failed, errors.New("read: timeout")), 1)
	f("drill", errors.New("no broker"), 2)
	f("serve", errors.New("no broker"), 1)
	f("topics", fmt.Errorf("%w: 1", admin.ErrFound), 2)
}

func TestMisuse(t *testing.T) {
	f := func(line, want string) {
		t.Helper()
		cmd := root()
		cmd.SetArgs(strings.Fields(line))
		if err := cmd.Execute(); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
	f("topic alter a --set x", "unknown flag: --set; see strandline topic alter --help")
	f("topic alter a --partitions", "flag needs an argument: --partitions; see strandline topic alter --help")
	f("topic alter a -set x", "unknown shorthand flag: 's' in -set; see strandline topic alter --help (flags have two dashes)")
	f("topic lost", `unknown command "lost"; see strandline topic --help`)
	for _, line := range []string{"serve", "drill", "version", "bench produce"} {
		f(line+" word", `the argument "word" is one too many; usage: strandline `+line+" [flags]")
	}
}

func TestVersion(t *testing.T) {
	out := func(word string) string {
		cmd := root()
		var b strings.Builder
		cmd.SetOut(&b)
		cmd.SetArgs([]string{word})
		if err := cmd.Execute(); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if command, flag := out("version"), out("--version"); command != flag || !strings.HasPrefix(command, "strandline version ") {
		t.Errorf("strandline version prints %q, --version %q", command, flag)
	}
}
