package machine

import (
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/strandline-io/strandline/broker/machine/codec"
	"github.com/strandline-io/strandline/broker/machine/producer"
	"github.com/strandline-io/strandline/broker/machine/txn"
	"github.com/strandline-io/strandline/broker/record"
	"github.com/strandline-io/strandline/internal/mutant"
)

// joinOrVerify lets a partition or group into the producer's transaction: implicitly for transaction version 2, for
// older clients only if it is in already.
func (m *Machine) joinOrVerify(r txn.AddRequest, implicit bool) *txn.Refusal {
	if !implicit {
		if mutant.On("batch outside of its transaction accepted") {
			return nil
		}
		return m.txns.Verify(r)
	}
	add, refusal := m.txns.Add(r)
	if refusal == nil && add != nil {
		m.record(kindTxnAdd, appendAdd(m.beginRecord(), add))
	}
	return refusal
}

// participantError translates the coordinator's refusal for those who hear it from a partition or a group
// (kafka-eos.md A.7): PRODUCER_FENCED is the coordinator's own word, TRANSACTION_ABORTABLE is for clients that know it.
func participantError(code *kerr.Error, knowsAbortable bool) *kerr.Error {
	switch {
	case code == kerr.ProducerFenced:
		return kerr.InvalidProducerEpoch
	case code == kerr.TransactionAbortable && !knowsAbortable:
		return kerr.InvalidTxnState
	}
	return code
}

// coordinatorError translates a refusal for clients from before PRODUCER_FENCED existed (kafka-eos.md B.3).
func coordinatorError(r *txn.Refusal, version, fencedSince int16) int16 {
	if r.Code == kerr.ProducerFenced && version < fencedSince {
		return kerr.InvalidProducerEpoch.Code
	}
	return r.Code.Code
}

func staleEpoch(got, current int16) string {
	return fmt.Sprintf("producer epoch %d is behind the current %d: a newer producer has taken over", got, current)
}

// endTransaction makes a transaction's end part of the unit: a marker in every partition that still exists, and the
// coordinator's record, which also settles the offsets. All of it becomes durable together or not at all. A partition where
// the producer id was seen with a higher epoch gets no marker: nothing of this transaction can be open there
// (kafka-eos.md I.2, last row).
func (m *Machine) endTransaction(e *txn.Ending) {
	buf := make([]byte, 0, len(e.Partitions)*record.MarkerSize)
	marker := producer.Marker{
		ProducerID: e.ProducerID, Epoch: e.Epoch, CoordinatorEpoch: m.LeaderEpoch(), Commit: e.Record.Commit, BumpsEpoch: e.Bumped,
	}
	for i, id := range e.Partitions {
		p := m.partitions[PartitionID(id)]
		if p == nil || mutant.On("last partition gets no marker") && i > 0 && i == len(e.Partitions)-1 {
			continue
		}
		if code, detail := p.producers.CheckMarker(marker); code == 0 {
			buf = m.appendMarker(buf, p, marker)
		} else if p.producers.Open(e.ProducerID) {
			panic(fmt.Sprintf("BUG: the transaction of producer %d cannot end in partition %d: %s", e.ProducerID, p.id, detail))
		} else {
			m.step.out.Counts.SkippedMarkers++
		}
	}
	m.record(kindTxnEnd, appendEnd(m.beginRecord(), &e.Record))
}

// appendMarker writes a marker that CheckMarker has passed, behind buf.
func (m *Machine) appendMarker(buf []byte, p *partition, marker producer.Marker) []byte {
	if !p.producers.Known(marker.ProducerID) {
		m.makeRoom()
	}
	start := len(buf)
	buf = record.AppendMarker(buf, p.end, m.LeaderEpoch(), record.Marker{
		ProducerID: marker.ProducerID, ProducerEpoch: marker.Epoch, CoordinatorEpoch: m.LeaderEpoch(),
		Commit: marker.Commit, TimestampMs: m.step.op.Now.WallMs,
	})
	bytes := buf[start:len(buf):len(buf)]
	h, err := record.ParseHeader(bytes)
	if err != nil {
		panic("BUG: a marker has no header: " + err.Error())
	}
	payload := binary.AppendUvarint(m.beginRecord(), uint64(p.id))
	payload = append(payload, flags(marker.Commit, marker.BumpsEpoch))
	if err := m.applyMarker(p, h, marker.Commit, marker.BumpsEpoch); err != nil {
		panic("BUG: a marker cannot be applied: " + err.Error())
	}
	m.recordBatch(kindMarker, payload, Batch{
		Partition: p.id, BaseOffset: h.BaseOffset, LastOffset: h.BaseOffset, MaxTimestamp: h.MaxTimestamp, Bytes: bytes,
	})
	m.show(p)
	return buf
}

// Bounds of one Tick, which becomes one unit; what is left comes with the next.
const (
	maxTimeoutsPerTick = 100
	maxExpiriesPerTick = 1000
)

func (m *Machine) tick() {
	now := m.step.op.Now.EngineMs
	for range maxTimeoutsPerTick {
		ending, due := m.txns.TimedOut(now, m.newProducerID)
		if !due {
			break
		}
		m.endTransaction(&ending)
	}
	for range maxExpiriesPerTick {
		e, evicted, due := m.txns.Expired(now)
		if !due {
			break
		}
		m.forgetTransactionalID(e.ID, evicted)
	}
	for range maxExpiriesPerTick {
		if at, ok := m.producers.NextExpiry(); !ok || at > now {
			break
		}
		m.forgetOldestProducer(!m.producers.Expired(now))
	}
	m.groups.Tick((*groupContext)(m))
}

// forgetTransactionalID forgets an id that has expired, or that is evicted to make room.
func (m *Machine) forgetTransactionalID(id string, evicted bool) {
	if evicted {
		m.step.out.Counts.EvictedTransactionalIDs++
	}
	m.record(kindTxnExpire, codec.AppendString(m.beginRecord(), id))
}
