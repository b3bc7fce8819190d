package journal

const blockBytes = 4096

// alignUp rounds n up to a whole block.
func alignUp(n int64) int64 { return (n + blockBytes - 1) &^ (blockBytes - 1) }

const (
	unitHeadBytes = 48
	headerBytes   = 61 // a record batch's fixed part
	prefixBytes   = 21 // what the unit's CRC covers of a batch
)

// UnitBytes is what u takes of a segment: itself and its part of the segment's footer, without padding.
func UnitBytes(u Unit) int64 {
	n := 2*(unitHeadBytes+int64(len(u.Meta))) + 8
	for _, b := range u.Batches {
		n += int64(len(b)) + headerBytes + 2*4
	}
	return n
}
