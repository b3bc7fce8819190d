package record

import "math"

// EndOffset is the first offset behind the whole batches in b. Bytes that are no batches give the largest offset, so
// that what is selected by it is rather too much than too little.
func EndOffset(b []byte) int64 {
	end := int64(0)
	for len(b) > 0 {
		h, err := ParseHeader(b)
		if err != nil || int(h.SizeBytes) > len(b) {
			return math.MaxInt64
		}
		end = h.NextOffset()
		b = b[h.SizeBytes:]
	}
	return end
}
