package machine

import "github.com/strandline-io/strandline/broker/machine/codec"

// BatchPartitions appends to dst the partition of each of a unit's batches, in unit order, without applying anything.
// Housekeeping and recovery use it to find what belongs where. Damaged bytes give an error that wraps ErrCorrupt.
func BatchPartitions(meta []byte, dst []PartitionID) ([]PartitionID, error) {
	r := reader{codec.NewReader(meta)}
	if v := r.Byte(); v != metaVersion && r.Err() == nil {
		r.Fail("unit of version %d, this program reads %d: it was written by a newer one", v, metaVersion)
	}
	_, _ = r.millis(), r.engine()
	for r.Len() > 0 && r.Err() == nil {
		kind, payload := r.Byte(), r.Take(r.Uvarint())
		if r.Err() != nil || kind != kindBatch && kind != kindMarker {
			continue
		}
		p := reader{codec.NewReader(payload)}
		id := p.id()
		if p.Err() != nil {
			return dst, p.Err()
		}
		dst = append(dst, id)
	}
	return dst, r.Err()
}
