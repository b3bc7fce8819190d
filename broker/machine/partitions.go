package machine

// BatchPartitions appends to dst the partition of each of a unit's batches, in unit order, without applying anything.
// Housekeeping and recovery use it to find what belongs where. Damaged bytes give an error that wraps ErrCorrupt.
func BatchPartitions(meta []byte, dst []PartitionID) ([]PartitionID, error) {
	r := reader{b: meta}
	if v := r.byte(); v != metaVersion && r.err == nil {
		r.fail("unit of version %d, this program reads %d: it was written by a newer one", v, metaVersion)
	}
	_, _ = r.millis(), r.engine()
	for len(r.b) > 0 && r.err == nil {
		kind, payload := r.byte(), r.take(r.uvarint())
		if r.err != nil || kind != kindBatch && kind != kindMarker {
			continue
		}
		p := reader{b: payload}
		id := p.id()
		if p.err != nil {
			return dst, p.err
		}
		dst = append(dst, id)
	}
	return dst, r.err
}
