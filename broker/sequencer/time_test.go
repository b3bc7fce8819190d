package sequencer

import (
	"testing"

	"github.com/strandline-io/strandline/broker/machine"
)

// TestEngineTimeOverARestart: the time that the broker was down counts, as the wall clock has it; a clock that was set back
// meanwhile stops engine time, but does not turn it back.
func TestEngineTimeOverARestart(t *testing.T) {
	last := machine.Now{WallMs: 1_700_000_000_000, EngineMs: 5000}
	for downMs, want := range map[int64]int64{0: 5000, 1: 5001, 60_000: 65_000, -1: 5000, -3_600_000: 5000} {
		if got := EngineStart(last, last.WallMs+downMs); got != want {
			t.Errorf("a wall clock %d ms further makes it %d, want %d", downMs, got, want)
		}
	}
}
