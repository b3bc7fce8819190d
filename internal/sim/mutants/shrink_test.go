//go:build mutants

package mutants

import (
	"testing"

	"github.com/strandline-io/strandline/internal/mutant"
	"github.com/strandline-io/strandline/internal/sim/world"
)

// TestShrink: what is left of a failing seed fails in the same check, with less in it, each time.
func TestShrink(t *testing.T) {
	mutant.Set("stale epoch may end")
	defer mutant.Set("")
	o := world.Options{Seed: 1, ReadersOnly: true}
	whole := world.Run(o)
	for ; whole.Err == nil || world.Check(whole.Err) != "fenced"; whole = world.Run(o) {
		if o.Seed++; o.Seed > 200 {
			t.Fatal("no seed fails")
		}
	}
	small, r := world.Shrink(o)
	if r.Err == nil || world.Check(r.Err) != "fenced" {
		t.Fatalf("it fails with %v, the whole with %v", r.Err, whole.Err)
	}
	if len(r.Faults)*2 > len(whole.Faults) || len(r.Clients)*2 > len(whole.Clients) {
		t.Errorf("the faults %v and the clients %v are left of %v and %v", r.Faults, r.Clients, whole.Faults, whole.Clients)
	}
	if again := world.Run(small); again.Hash != r.Hash || again.Err == nil || again.Err.Error() != r.Err.Error() {
		t.Errorf("it fails with %v, then with %v", r.Err, again.Err)
	}
	t.Logf("seed %d: %v; left are %v and %v", o.Seed, r.Err, r.Faults, r.Clients)
}
