package machine

import "encoding/binary"

// startIncarnation is the first operation of a run.
func (m *Machine) startIncarnation(b *Incarnation) {
	m.record(kindIncarnation, binary.AppendUvarint(m.beginRecord(), uint64(b.Number)))
	m.step.mustSync = true
}

// shelved records what the copying found done. Partitions that were deleted meanwhile, and what is known already, are
// passed over.
func (m *Machine) shelved(b *Shelved) {
	var there []ShelvedLength
	for _, s := range b.Partitions {
		if p := m.partitions[s.Partition]; p != nil && s.EndOffset > p.shelved.EndOffset {
			there = append(there, s)
		}
	}
	if len(there) > 0 {
		m.record(kindShelved, appendShelved(m.beginRecord(), there))
	}
	m.reply(&ShelvedReply{})
}
