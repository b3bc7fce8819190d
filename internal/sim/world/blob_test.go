package world

import (
	"bytes"
	"testing"
)

// TestBlobSeeds runs some seconds of seeds of the world of blob sinks.
func TestBlobSeeds(t *testing.T) {
	from, to := uint64(1), uint64(400)
	if testing.Short() {
		to = 100
	}
	if *oneSeed != 0 {
		from, to = *oneSeed, *oneSeed
	}
	var sum BlobStats
	for seed := from; seed <= to; seed++ {
		r := Run(Options{Seed: seed, Blobs: true})
		sum.Add(r.Stats.Blobs)
		if r.Err != nil {
			t.Fatalf("seed %d: %v\ngo run ./internal/sim -blob -seed %d -v", seed, r.Err, seed)
		}
	}
	t.Logf("%+v", sum)
	if *oneSeed == 0 && (sum.Kills == 0 || sum.PowerLosses == 0 || sum.Takeovers == 0 || sum.Freezes == 0 || sum.Days == 0 || sum.Stops == 0 || sum.Aborts == 0) {
		t.Errorf("the seeds do not cross everything: %+v", sum)
	}
}

// TestSameBlobSeedSameRun: a seed decides everything, to the byte.
func TestSameBlobSeedSameRun(t *testing.T) {
	for seed := uint64(1000); seed < 1010; seed++ {
		var first, second bytes.Buffer
		a := Run(Options{Seed: seed, Blobs: true, Trace: &first})
		b := Run(Options{Seed: seed, Blobs: true, Trace: &second})
		if a.Hash != b.Hash || a.Events != b.Events || !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Errorf("seed %d: hash %x over %d events, then %x over %d", seed, a.Hash, a.Events, b.Hash, b.Events)
		}
		if c := Run(Options{Seed: seed + 1, Blobs: true}); c.Hash == a.Hash {
			t.Errorf("seeds %d and %d have one hash", seed, seed+1)
		}
	}
}
