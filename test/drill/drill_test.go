//go:build peers

package main_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/strandline-io/strandline/test/peers"
)

// TestRounds plays a few rounds of each kind; nothing may be wrong in any. Many are played by hand: see the command.
func TestRounds(t *testing.T) {
	bin := peers.Binary(t, "./test/drill")
	for name, flags := range map[string][]string{
		"killed": {"-rounds", "4-7"}, "power cut": {"-rounds", "8-10", "-power"}, "Azurite": {"-rounds", "11-11", "-azurite"},
		"Apache Kafka": {"-rounds", "12-12", "-kafka"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := exec.CommandContext(t.Context(), bin, flags...).CombinedOutput()
			if err != nil || !strings.Contains(string(out), "; 0 failed") {
				t.Fatalf("%v:\n%s", err, out)
			}
		})
	}
}
