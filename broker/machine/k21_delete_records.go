package machine

import (
	"encoding/binary"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine/codec"
)

// DeleteRecords (key 21), v0 to 2: a partition's log start moves up (kafka-eos.md C.9). Producers are kept, and so is an open
// transaction that began below: until it ends, the last stable offset stays at the log start.

// endOfLog asks for everything up to the high watermark.
const endOfLog = -1

func (m *Machine) deleteRecords(req *kmsg.DeleteRecordsRequest) {
	resp := req.ResponseKind().(*kmsg.DeleteRecordsResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewDeleteRecordsResponseTopic()
		rt.Topic = t.Topic
		for _, want := range t.Partitions {
			r := kmsg.NewDeleteRecordsResponseTopicPartition()
			r.Partition, r.LowWatermark = want.Partition, -1
			if p, code := m.deletable(t.Topic, want.Partition, want.Offset); code != nil {
				r.ErrorCode = code.Code
			} else {
				m.moveLogStart(p, want.Offset)
				r.LowWatermark = p.logStart
			}
			rt.Partitions = append(rt.Partitions, r)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	m.reply(resp)
}

// deletable finds a partition whose records below offset may go.
func (m *Machine) deletable(topic string, number int32, offset int64) (*partition, *kerr.Error) {
	if !m.mayTopic(kmsg.ACLOperationDelete, topic) {
		return nil, kerr.TopicAuthorizationFailed
	}
	t := m.topics[topic]
	if t == nil || t.find(number) == nil {
		return nil, kerr.UnknownTopicOrPartition
	}
	p := t.find(number)
	switch {
	case t.Settings.CleanupCompact && !t.Settings.CleanupDelete:
		return nil, kerr.PolicyViolation
	case offset < endOfLog || offset > p.end:
		return nil, kerr.OffsetOutOfRange
	}
	return p, nil
}

// moveLogStart moves a partition's log start up to offset. The unit is synced in both durability modes: files go once it is
// published, and a lost tail would make a log begin before its first file.
func (m *Machine) moveLogStart(p *partition, offset int64) {
	if offset == endOfLog {
		offset = p.end
	}
	if offset <= p.logStart {
		return
	}
	payload := binary.AppendUvarint(m.beginRecord(), uint64(p.id))
	m.record(kindLogStart, binary.AppendVarint(payload, offset))
	m.step.mustSync = true
	m.show(p)
}

func (m *Machine) applyLogStart(id PartitionID, offset int64) error {
	p := m.partitions[id]
	if p == nil {
		return codec.Corrupt("the log of partition %d starts at %d, but there is none", id, offset)
	}
	if offset <= p.logStart || offset > p.end {
		return codec.Corrupt("the log of partition %d cannot start at %d, it reaches from %d to %d", id, offset, p.logStart, p.end)
	}
	p.logStart = offset
	p.producers.ForgetAborted(offset)
	// The epoch that reaches beyond the new start begins there. Views share the old slice, so it is not written to.
	gone := 0
	for gone+1 < len(p.epochs) && p.epochs[gone+1].StartOffset <= offset {
		gone++
	}
	if len(p.epochs) > 0 {
		p.epochs = slices.Clone(p.epochs[gone:])
		p.epochs[0].StartOffset = max(p.epochs[0].StartOffset, offset)
	}
	return nil
}
