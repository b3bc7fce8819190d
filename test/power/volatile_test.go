//go:build peers

package power

import (
	"path/filepath"
	"strconv"
	"testing"

	"github.com/strandline-io/strandline/test/peers"
)

// TestVolatile cuts the power of a broker on a disk that forgets what is not synced. With Durability write it must be
// seen that it forgets, and still that what is there is whole: each life's beginning, whole transactions.
func TestVolatile(t *testing.T) {
	t.Run("fsync", func(t *testing.T) { volatile(t, "fsync", 25) })
	t.Run("write", func(t *testing.T) {
		if f := volatile(t, "write", 25); f.lostRecords == 0 || f.lostTransactions == 0 {
			t.Error("nothing was lost that was not synced: this disk proves nothing")
		}
	})
}

func volatile(t *testing.T, durability string, cuts int) figures {
	rng := peers.Seed(t)
	p := &plant{Program: peers.Program{T: t, Addr: peers.FreeAddress(t)}}
	dir := filepath.Join(t.TempDir(), "data")
	p.Command = func() []string {
		return []string{filepath.Join(binaries, "tight"), p.Addr, dir, durability, strconv.FormatUint(rng.Uint64(), 10)}
	}
	p.Open()
	return run(t, p, rng, cuts, durability == "fsync")
}
