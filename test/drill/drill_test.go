//go:build peers

package main_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/strandline-io/strandline/test/peers"
)

// play runs the drill to its end; it must find nothing wrong.
func play(t *testing.T, flags ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), peers.Binary(t, "./test/drill"), flags...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "; 0 failed") {
		t.Fatalf("%v:\n%s", err, out)
	}
}

// TestRounds plays a few rounds of each kind; CONTRIBUTING.md says how to play many.
func TestRounds(t *testing.T) {
	play(t, "-rounds", "1-8")
	play(t, "-rounds", "9-11", "-power")
	play(t, "-rounds", "12-13", "-azurite")
	play(t, "-rounds", "14-15", "-kafka")
}
