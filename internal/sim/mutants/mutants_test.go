//go:build mutants

package mutants

import (
	"strings"
	"testing"

	"github.com/strandline-io/strandline/internal/mutant"
	"github.com/strandline-io/strandline/internal/sim/world"
)

// TestEveryMutantIsCaught: each defect must be seen within so many seeds.
func TestEveryMutantIsCaught(t *testing.T) {
	f := func(name string, within uint64) {
		t.Run(name, func(t *testing.T) {
			mutant.Set(name)
			defer mutant.Set("")
			for seed := uint64(1); seed <= within; seed++ {
				if r := world.Run(world.Options{Seed: seed}); r.Err != nil {
					first, _, _ := strings.Cut(r.Err.Error(), "\n")
					t.Logf("seed %d: %s", seed, first)
					return
				}
			}
			t.Errorf("%d seeds see nothing", within)
		})
	}
	f("reply before sync", 60)
	f("published before durable", 60)
	f("reply overtakes the durable position", 60)
	f("producer ids not synced", 60)
	f("no epoch bump", 60)
	f("one bump over an open transaction", 60)
	f("stale epoch may end", 60)
	f("no duplicate check", 60)
	f("stable offset passes open transactions", 60)
	f("aborted list one short", 60)
	f("sequences forgotten at restart", 60)
	f("open transaction forgotten at restart", 60)
	f("pending offsets visible before the commit", 60)
	f("offsets of aborted transactions kept", 60)
	f("replay skips the last unit", 60)
	f("recovery answers before its rewrite is durable", 60)
}
