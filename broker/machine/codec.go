package machine

import (
	"encoding/binary"
	"math"

	"github.com/strandline-io/strandline/broker/machine/codec"
)

// ErrCorrupt is wrapped by every error of Replay and Restore: the bytes are damaged or do not follow from the state.
var ErrCorrupt = codec.ErrCorrupt

// reader reads what the machine keeps.
type reader struct{ codec.Reader }

func (r *reader) offset() int64   { return r.Within(0, maxOffset) }
func (r *reader) id() PartitionID { return PartitionID(r.Uint32()) }
func (r *reader) millis() int64   { return r.Within(math.MinInt64/4, math.MaxInt64/4) }
func (r *reader) engine() int64   { return r.Within(0, math.MaxInt64/4) }

// maxOffset leaves room so that sums of an offset and a batch's length never overflow.
const maxOffset = math.MaxInt64 / 2

// mix folds a number into the running hash.
func mix(h, v uint64) uint64 {
	h = (h ^ v) * 0x9E3779B97F4A7C15
	return h ^ h>>32
}

// mixBytes folds bytes into the running hash, eight at a time.
func mixBytes(h uint64, b []byte) uint64 {
	h = mix(h, uint64(len(b)))
	for ; len(b) >= 8; b = b[8:] {
		h = mix(h, binary.LittleEndian.Uint64(b))
	}
	var tail uint64
	for i, c := range b {
		tail |= uint64(c) << (8 * i)
	}
	return mix(h, tail)
}
