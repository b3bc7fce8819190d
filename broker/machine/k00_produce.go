package machine

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine/producer"
	"github.com/strandline-io/strandline/broker/machine/txn"
	"github.com/strandline-io/strandline/broker/record"
	"github.com/strandline-io/strandline/internal/mutant"
)

// Produce (key 0). The order of checks is that of kafka-eos.md A.3; what a connection judges alone (steps 3, 9 and 10)
// comes as a verdict. A transactional batch is verified, or its partition added to the transaction, in the same step
// that appends it, so that neither an abort nor a new transaction can come between (KIP-890 part 1).

// Versions from which a client understands more about transactions (kafka-eos.md A.7).
const (
	produceAbortable = 11 // TRANSACTION_ABORTABLE
	produceImplicit  = 12 // transaction version 2: partitions join implicitly, the epoch rises with every EndTxn
)

// oneReply is a ProduceReply with room for the usual single partition.
type oneReply struct {
	ProduceReply
	one [1]ProducePartitionReply
}

func newProduceReply(partitions int) *ProduceReply {
	if partitions == 1 {
		r := &oneReply{}
		r.Partitions = r.one[:]
		return &r.ProduceReply
	}
	return &ProduceReply{Partitions: make([]ProducePartitionReply, partitions)}
}

func (m *Machine) produce(b *Produce) {
	reply := newProduceReply(len(b.Partitions))
	whole := m.checkWholeProduce(b)
	mixed := mixesProducers(b)
	for i := range b.Partitions {
		pp, r := &b.Partitions[i], &reply.Partitions[i]
		*r = ProducePartitionReply{BaseOffset: -1, LogAppendTimeMs: -1, LogStartOffset: -1}
		if whole != nil {
			r.fail(whole, "transactional id is missing or not the client's to use")
			continue
		}
		m.producePartition(b, pp, r, mixed)
	}
	m.reply(reply)
}

func (r *ProducePartitionReply) fail(code *kerr.Error, message string) {
	r.Code, r.Message = code.Code, message
}

// checkWholeProduce is step 1: a transactional batch needs a transactional id that the client may use.
func (m *Machine) checkWholeProduce(b *Produce) *kerr.Error {
	for i := range b.Partitions {
		if !b.Partitions[i].Header.Transactional() {
			continue
		}
		if b.TransactionalID == nil || !m.mayTransactional(kmsg.ACLOperationWrite, *b.TransactionalID) {
			return kerr.TransactionalIDAuthorizationFailed
		}
		return nil
	}
	return nil
}

// mixesProducers is step 4: the transactional batches of a request must come from one producer.
func mixesProducers(b *Produce) bool {
	var first *record.Header
	for i := range b.Partitions {
		h := &b.Partitions[i].Header
		switch {
		case !h.Transactional() || b.Partitions[i].Verdict.Container:
		case first == nil:
			first = h
		case first.ProducerID != h.ProducerID || first.ProducerEpoch != h.ProducerEpoch:
			return true
		}
	}
	return false
}

func (m *Machine) producePartition(b *Produce, pp *ProducePartition, r *ProducePartitionReply, mixed bool) {
	t, p := m.findProduced(pp, r)
	if p == nil {
		return
	}
	if pp.Verdict.Container {
		r.Code, r.Message = pp.Verdict.Code, pp.Verdict.Message
		return
	}
	h := &pp.Header
	if h.Transactional() && mixed {
		r.fail(kerr.InvalidProducerIDMapping, "the transactional batches of one request come from different producers")
		return
	}
	batch := producer.Batch{
		ProducerID: h.ProducerID, Epoch: h.ProducerEpoch,
		FirstSequence: h.BaseSequence, LastSequence: h.LastSequence(),
		Transactional: h.Transactional(), BumpsEpoch: b.Version >= produceImplicit,
	}
	if b.NoSpace {
		refuseForSpace(p, batch, r)
		return
	}
	if h.Transactional() && !m.joinTransaction(b, p, &batch, r) {
		return
	}
	if !checkContent(b, t, pp, r) {
		if r.Code == kerr.InvalidRecord.Code || r.Code == kerr.InvalidTimestamp.Code {
			r.LogStartOffset = p.logStart
		}
		m.rememberRefused(p, &batch, r)
		return
	}
	if h.Idempotent() && !m.checkProducer(p, batch, r) {
		return
	}
	r.BaseOffset, r.LogStartOffset = p.end, p.logStart
	if t.Settings.LogAppendTime {
		r.LogAppendTimeMs = m.step.op.Now.WallMs
	}
	m.appendBatch(t, p, pp)
}

// refuseForSpace answers a batch for which there is no room. The client sends it again; a later one that is on its way
// already must not slip in before it when there is room meanwhile. One that is in already needs none.
func refuseForSpace(p *partition, batch producer.Batch, r *ProducePartitionReply) {
	if batch.ProducerID >= 0 {
		o := p.producers.Check(batch)
		if o.Duplicate {
			r.BaseOffset, r.LogStartOffset, r.LogAppendTimeMs = o.BaseOffset, p.logStart, o.TimestampMs
			return
		}
		if o.Code == 0 {
			p.producers.Refused(batch)
		}
	}
	r.fail(kerr.KafkaStorageError, "the data folder's disk has no space left; free some, then produce again")
}

// findProduced is step 2.
func (m *Machine) findProduced(pp *ProducePartition, r *ProducePartitionReply) (*topic, *partition) {
	var t *topic
	if pp.TopicID != ([16]byte{}) {
		if t = m.topicsByID[pp.TopicID]; t == nil {
			r.fail(kerr.UnknownTopicID, "no topic has this id: it was deleted, refresh the metadata")
			return nil, nil
		}
	} else {
		t = m.topics[pp.Topic]
	}
	name := pp.Topic
	if t != nil {
		name = t.Name
	}
	if !m.mayTopic(kmsg.ACLOperationWrite, name) {
		r.fail(kerr.TopicAuthorizationFailed, "the client may not write to the topic")
		return nil, nil
	}
	if t == nil || t.find(pp.Partition) == nil {
		r.fail(kerr.UnknownTopicOrPartition, "no such topic or partition")
		return nil, nil
	}
	return t, t.find(pp.Partition)
}

// joinTransaction is step 5: unless the producer's transaction is open in this partition, the coordinator decides
// whether the batch may open it. Later batches need no such look: one that comes late there does not have the sequence that must come next.
func (m *Machine) joinTransaction(b *Produce, p *partition, batch *producer.Batch, r *ProducePartitionReply) bool {
	if p.producers.InTransaction(batch.ProducerID, batch.Epoch) {
		return true
	}
	if current, fenced := p.producers.Fenced(batch.ProducerID, batch.Epoch); fenced && !mutant.On("fenced batch asks the coordinator") {
		r.fail(kerr.InvalidProducerEpoch, staleEpoch(batch.Epoch, current))
		return false
	}
	ask := txn.AddRequest{
		Producer:   txn.Producer{ID: *b.TransactionalID, ProducerID: batch.ProducerID, Epoch: batch.Epoch},
		Partitions: []uint32{uint32(p.id)},
	}
	implicit := b.Version >= produceImplicit
	if !implicit && m.late(ask.Producer, txn.Data) {
		return false
	}
	refusal := m.joinOrVerify(ask, implicit)
	if refusal == nil {
		return true
	}
	code := participantError(refusal.Code, b.Version >= produceAbortable)
	if code == kerr.CoordinatorNotAvailable {
		code = kerr.NotEnoughReplicas // what producers know to come again for
	}
	r.fail(code, refusal.Error())
	if code != kerr.InvalidProducerEpoch && code != kerr.InvalidProducerIDMapping {
		p.producers.Refused(*batch)
	}
	return false
}

// checkContent is steps 6, 9 and 10. Internal topics (7) and missing replicas (8) do not exist here.
func checkContent(b *Produce, t *topic, pp *ProducePartition, r *ProducePartitionReply) bool {
	h := &pp.Header
	switch {
	case b.Acks < -1 || b.Acks > 1:
		r.fail(kerr.InvalidRequiredAcks, "acks must be -1, 0 or 1")
	case pp.SettingsVersion != t.SettingsVersion:
		r.Stale = true
	case pp.Verdict.Code != 0:
		r.Code, r.Message, r.Records = pp.Verdict.Code, pp.Verdict.Message, pp.Verdict.Records
	case len(pp.Batch) < record.HeaderSize || int(h.SizeBytes) != len(pp.Batch):
		r.fail(kerr.CorruptMessage, "the batch's length is not what its header says")
	case h.Control() || h.LastOffsetDelta < 0:
		r.fail(kerr.InvalidRecord, "a client cannot write control batches or batches without records")
	case h.Idempotent() && (h.BaseSequence < 0 || h.ProducerEpoch < 0):
		r.fail(kerr.InvalidRecord, "a batch with a producer id needs an epoch and a sequence")
	default:
		return true
	}
	return false
}

// rememberRefused keeps a later batch from overtaking one that did not go in for its content. An idempotent producer
// gives a batch up unless it is asked again; a transactional one may not commit any more (kafka-eos.md A.7).
func (m *Machine) rememberRefused(p *partition, batch *producer.Batch, r *ProducePartitionReply) {
	switch {
	case batch.ProducerID < 0 || batch.FirstSequence < 0:
	case r.Stale || batch.Transactional:
		p.producers.Refused(*batch)
	default:
		p.producers.GaveUp(*batch)
	}
}

// checkProducer is step 12.
func (m *Machine) checkProducer(p *partition, batch producer.Batch, r *ProducePartitionReply) bool {
	o := p.producers.Check(batch)
	switch {
	case o.Duplicate:
		// The time is that of the batch in any topic, as Apache Kafka has it.
		r.BaseOffset, r.LogStartOffset, r.LogAppendTimeMs = o.BaseOffset, p.logStart, o.TimestampMs
		return false
	case o.Code != 0:
		r.Code, r.Message, r.LogStartOffset = o.Code, o.Detail, p.logStart
		return false
	case !p.producers.Known(batch.ProducerID) && !m.makeRoom():
		r.fail(kerr.NotEnoughReplicas, "the broker knows as many producers as it may, all with open transactions; come again")
		return false
	}
	return true
}

// makeRoom forgets the producer that was idle for the longest if there is no place for another.
func (m *Machine) makeRoom() bool {
	if !m.producers.Full() {
		return true
	}
	return m.forgetOldestProducer(true)
}

// forgetOldestProducer forgets the producer that was idle for the longest, because it has expired or is evicted to make room. It
// reports false if all have open transactions.
func (m *Machine) forgetOldestProducer(evicted bool) bool {
	n, ok := m.producers.Oldest()
	if !ok {
		return false
	}
	if evicted {
		m.step.out.Counts.EvictedProducerIDs++
	}
	payload := binary.AppendUvarint(m.beginRecord(), uint64(n.Partition))
	m.record(kindProducerForgotten, binary.AppendVarint(payload, n.ProducerID))
	return true
}

// appendBatch is step 13: the batch gets its place.
func (m *Machine) appendBatch(t *topic, p *partition, pp *ProducePartition) {
	if t.Settings.LogAppendTime {
		record.PatchAppendTime(pp.Batch, m.step.op.Now.WallMs)
	}
	record.PatchOffsets(pp.Batch, p.end, m.LeaderEpoch())
	h, err := record.ParseHeader(pp.Batch)
	if err != nil {
		panic("BUG: an accepted batch has no header: " + err.Error())
	}
	payload := binary.AppendUvarint(m.beginRecord(), uint64(p.id))
	if err := m.applyBatch(p, h); err != nil {
		panic("BUG: an accepted batch cannot be applied: " + err.Error())
	}
	m.recordBatch(kindBatch, payload, Batch{
		Partition: p.id, BaseOffset: h.BaseOffset, LastOffset: h.LastOffset(), MaxTimestamp: h.MaxTimestamp, Bytes: pp.Batch,
	})
	m.show(p)
}
