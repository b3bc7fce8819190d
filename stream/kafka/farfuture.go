package kafka

import (
	"encoding/binary"
	"math"
	"time"
)

// farBatch is a record batch with a timestamp that nanoseconds in 64 bits do not hold, as one whose producer took
// microseconds for milliseconds. kgo turns such a timestamp into another one, which may look like any time.
type farBatch struct{ firstOffset, lastOffset, maxMs int64 }

type farBatches []farBatch

// The fields of a record batch's header that are read here.
const (
	batchLengthAt     = 8
	batchLastDeltaAt  = 23
	batchMaxTimeAt    = 35
	batchHeadBytes    = 61
	batchLengthCounts = 12 // the length counts from here
)

// findFarBatches looks through the batches of a fetch. What is cut or damaged ends the search: kgo reports it.
func findFarBatches(b []byte) (far farBatches) {
	for len(b) >= batchHeadBytes {
		maxMs := int64(binary.BigEndian.Uint64(b[batchMaxTimeAt:]))
		if maxMs > math.MaxInt64/1_000_000 || maxMs < math.MinInt64/1_000_000 {
			base := int64(binary.BigEndian.Uint64(b))
			last := base + int64(int32(binary.BigEndian.Uint32(b[batchLastDeltaAt:])))
			far = append(far, farBatch{base, last, maxMs})
		}
		length := int64(int32(binary.BigEndian.Uint32(b[batchLengthAt:]))) + batchLengthCounts
		if length < batchHeadBytes || length > int64(len(b)) {
			return far
		}
		b = b[length:]
	}
	return far
}

func (f farBatches) find(offset int64) *farBatch {
	for i := range f {
		if f[i].firstOffset <= offset && offset <= f[i].lastOffset {
			return &f[i]
		}
	}
	return nil
}

// timestampMs recovers a timestamp: how far it lies before the batch's newest is right in 64 bits if that is less than
// 584 years. If it is more, the result still is a time too far in the future, and the record is refused as such.
func (f *farBatch) timestampMs(wrapped time.Time) int64 {
	before := uint64(f.maxMs)*1_000_000 - uint64(wrapped.UnixNano())
	return f.maxMs - int64(before/1_000_000)
}
