// Package alloc asserts in tests what hostile bytes may make a call allocate.
package alloc

import (
	"runtime"
	"runtime/metrics"
	"testing"
)

// SlackBytes is what a call may take beside a multiple of its input: pools that fill, and what the runtime counts late.
const SlackBytes = 1 << 20

// Within fails t if do allocates more than perByte bytes for each of inputBytes, and SlackBytes. Nothing else may
// allocate much meanwhile. do may run several times: what only the first call takes, to fill a pool, does not count.
func Within(t testing.TB, inputBytes, perByte int, do func()) {
	t.Helper()
	limit := SlackBytes + uint64(inputBytes)*uint64(perByte)
	if cheap(do) <= limit {
		return
	}
	exact(do)
	if got := exact(do); got > limit {
		t.Fatalf("%d bytes make it allocate %d, allowed are %d for each and %d", inputBytes, got, perByte, SlackBytes)
	}
}

// cheap counts large allocations exactly and small ones late.
func cheap(do func()) uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	before := sample[0].Value.Uint64()
	do()
	metrics.Read(sample)
	return sample[0].Value.Uint64() - before
}

func exact(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
