package machine

import (
	"encoding/binary"

	"github.com/strandline-io/strandline/internal/mutant"
)

// startIncarnation is the first operation of a run.
func (m *Machine) startIncarnation(b *Incarnation) {
	kind := kindIncarnation
	if b.Forgets {
		kind = kindForgetfulIncarnation
	}
	m.record(kind, binary.AppendUvarint(m.beginRecord(), uint64(b.Number)))
	m.step.mustSync = true
}

// shelved records what the copying found done. Partitions that were deleted meanwhile, and what is known already, are
// passed over. What the files hold is freed in the journal next, so a lost tail must not take this record along, whatever
// the durability: the files would be cut to the length before, and what lay between gone.
func (m *Machine) shelved(b *Shelved) {
	var there []ShelvedLength
	for _, s := range b.Partitions {
		if p := m.partitions[s.Partition]; p != nil && s.EndOffset > p.shelved.EndOffset {
			there = append(there, s)
		}
	}
	if len(there) > 0 {
		m.record(kindShelved, appendShelved(m.beginRecord(), there))
		m.step.mustSync = !mutant.On("moved lengths not synced")
	}
	m.reply(&ShelvedReply{})
}
