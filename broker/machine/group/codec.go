package group

import (
	"encoding/binary"
	"math/bits"

	"github.com/strandline-io/strandline/broker/machine/codec"
)

// ErrCorrupt is wrapped by every error of Apply and Restore.
var ErrCorrupt = codec.ErrCorrupt

// reader reads what groups keep.
type reader struct{ codec.Reader }

// hashBytes spreads b over 64 bits. The state's hash is the sum of its items' hashes, so that it can follow each
// change and does not depend on the order of changes.
func hashBytes(b []byte) uint64 {
	const k1, k2 = 0x9e3779b97f4a7c15, 0xd6e8feb86659fd93
	h := uint64(len(b)) ^ k2
	for ; len(b) >= 8; b = b[8:] {
		h = fold(binary.LittleEndian.Uint64(b)^k1, h^k2)
	}
	var tail uint64
	for i, c := range b {
		tail |= uint64(c) << (8 * i)
	}
	h = fold(tail^k1, h^k2)
	return fold(h^k1, h^k2)
}

func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}
