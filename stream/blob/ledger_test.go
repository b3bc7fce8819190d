package blob

import (
	"math"
	"strings"
	"testing"
)

// TestTokenBoundHolds: no token is larger than what was promised before the rows were taken.
func TestTokenBoundHolds(t *testing.T) {
	cfg := Config{}.withDefaults("out")
	l := &ledger{who: identity{strings.Repeat("j", 200), "run", strings.Repeat("s", 300), "task"}, limits: &cfg}
	for i := range 300 {
		f := &file{Blob: Blob{Name: blobName(strings.Repeat("p", i), 1<<30, math.MaxInt64, math.MaxInt64), Codec: Null,
			Rows: math.MaxInt64, Bytes: math.MaxInt64, RawBytes: math.MaxInt64, Checksum: math.MaxUint32, OpenedMs: math.MinInt64}}
		for range i % maxRunsPerBlob {
			f.Runs = append(f.Runs, Run{First: MaxUncommittedBlocks, Count: MaxBlocksPerBlob})
		}
		l.open = append(l.open, f)
	}
	bound := l.tokenBound()
	for _, f := range l.open {
		f.Runs = append(f.Runs, Run{First: MaxUncommittedBlocks, Count: MaxBlocksPerBlob})
		f.ours = true
	}
	if n := len(l.token(math.MinInt64).AppendTo(nil)); n > bound || n < bound/2 {
		t.Errorf("a token of %d bytes, the bound was %d", n, bound)
	}
	if again := l.tokenBound(); again != bound {
		t.Errorf("the bound went from %d to %d", bound, again)
	}
}
