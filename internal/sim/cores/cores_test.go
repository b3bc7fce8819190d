package cores

import (
	"bytes"
	"flag"
	"testing"
)

var oneSeed = flag.Uint64("seed", 0, "run TestSeeds with this seed only")

// TestSeeds runs some seconds of seeds.
func TestSeeds(t *testing.T) {
	from, to := uint64(1), uint64(2000)
	if testing.Short() {
		to = 200
	}
	if *oneSeed != 0 {
		from, to = *oneSeed, *oneSeed
	}
	var sum Stats
	for seed := from; seed <= to; seed++ {
		r := Run(Options{Seed: seed})
		sum.Add(r.Stats)
		if r.Err != nil {
			n, s := Shrink(Options{Seed: seed})
			t.Fatalf("seed %d: %v\nwith %d operations: %v\ngo run ./internal/sim -cores -seed %d -v", seed, r.Err, n, s.Err, seed)
		}
	}
	t.Logf("%+v", sum)
	if *oneSeed == 0 && (sum.Crashes == 0 || sum.Lost == 0 || sum.Snapshots == 0 || sum.Commits == 0 || sum.Aborts == 0 || sum.Read == 0 || sum.Results == 0) {
		t.Errorf("the seeds do not cross everything: %+v", sum)
	}
}

// TestSameSeedSameRun: a seed decides everything, to the byte.
func TestSameSeedSameRun(t *testing.T) {
	for seed := uint64(1000); seed < 1030; seed++ {
		var first, second bytes.Buffer
		a, b := Run(Options{Seed: seed, Trace: &first}), Run(Options{Seed: seed, Trace: &second})
		if a.Hash != b.Hash || a.Operations != b.Operations || !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Errorf("seed %d: hash %x over %d operations, then %x over %d", seed, a.Hash, a.Operations, b.Hash, b.Operations)
		}
		if c := Run(Options{Seed: seed}); c.Hash != a.Hash {
			t.Errorf("seed %d: hash %x without a trace, %x with one", seed, c.Hash, a.Hash)
		}
		if c := Run(Options{Seed: seed + 1}); c.Hash == a.Hash {
			t.Errorf("seeds %d and %d have one hash", seed, seed+1)
		}
	}
}

// TestFoundSeeds runs the seeds that found a defect in the product, in the world that found it.
func TestFoundSeeds(t *testing.T) {
	f := func(seed uint64, what string) {
		t.Helper()
		if r := Run(Options{Seed: seed}); r.Err != nil {
			t.Errorf("seed %d, %s: %v", seed, what, r.Err)
		}
	}
	f(503656, "a revoked task gave out windows that were never committed by it, and its transaction went on")
	f(355448, "the same, and the transaction stayed open when the worker left")
}
