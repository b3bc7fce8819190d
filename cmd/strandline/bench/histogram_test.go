package bench

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestQuantilesMatchSortedValues(t *testing.T) {
	const seed = 7
	r := rand.New(rand.NewPCG(seed, 0))
	var h, other histogram
	var all []float64
	for i := range 20_000 {
		d := time.Duration(r.Int64N(1<<r.IntN(36)+1)) * time.Microsecond
		all = append(all, float64(d.Microseconds())/1000)
		if i%2 == 0 {
			h.add(d)
		} else {
			other.add(d)
		}
	}
	h.merge(&other)
	slices.Sort(all)
	for _, q := range []float64{0, 0.5, 0.9, 0.99, 0.999} {
		want := all[int(q*float64(len(all)))]
		if got := h.quantileMs(q); got < want || got > want*(1+1.0/32)+0.001 {
			t.Errorf("seed %d: quantile %v is %v ms, want %v", seed, q, got, want)
		}
	}
	if got, want := h.quantileMs(1), all[len(all)-1]; got != want {
		t.Errorf("maximum %v, want %v", got, want)
	}
}

func TestEveryBucketContainsItsLowerBound(t *testing.T) {
	for b := range histogramBuckets - 1 {
		if got := bucketOf(lowerBound(b)); got != b {
			t.Fatalf("lower bound %d of bucket %d falls into bucket %d", lowerBound(b), b, got)
		}
		if got := bucketOf(lowerBound(b+1) - 1); got != b {
			t.Fatalf("last value of bucket %d falls into bucket %d", b, got)
		}
	}
}
