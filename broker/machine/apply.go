package machine

import (
	"github.com/strandline-io/strandline/broker/machine/codec"
	"github.com/strandline-io/strandline/broker/machine/producer"
	"github.com/strandline-io/strandline/broker/machine/txn"
	"github.com/strandline-io/strandline/broker/record"
	"github.com/strandline-io/strandline/internal/mutant"
)

// Apply is the only way in which durable state moves: a running Step comes here with what it decided, Replay with what
// was journaled. Every apply function returns an error if its record cannot follow from the state; from Step that is a
// bug.

// batchSource hands out the headers of a unit's batches, in order.
type batchSource struct {
	headers [][]byte
}

func (s *batchSource) next() (record.Header, error) {
	if len(s.headers) == 0 {
		return record.Header{}, codec.Corrupt("more records of batches than batches")
	}
	h, err := record.ParseHeader(s.headers[0])
	if err != nil {
		return record.Header{}, codec.Corrupt("batch header: %v", err)
	}
	s.headers = s.headers[1:]
	return h, nil
}

// Replay applies one journaled unit: its Meta and the first 61 bytes of each of its batches, in unit order. An error
// wraps ErrCorrupt; the machine must not be used afterwards. The bytes stay the caller's.
func (m *Machine) Replay(meta []byte, headers [][]byte) error {
	r := reader{codec.NewReader(meta)}
	if v := r.Byte(); v != metaVersion && r.Err() == nil {
		r.Fail("unit of version %d, this program reads %d: it was written by a newer one", v, metaVersion)
	}
	now := Now{WallMs: r.millis(), EngineMs: r.engine()}
	if now.EngineMs < m.lastNow.EngineMs {
		r.Fail("engine time %d after %d", now.EngineMs, m.lastNow.EngineMs)
	}
	if r.Err() != nil {
		return r.Err()
	}
	if mutant.On("replay forgets the wall clock") {
		now.WallMs = m.lastNow.WallMs
	}
	m.applyNow(now)
	batches := batchSource{headers: headers}
	for r.Len() > 0 {
		kind, payload := r.Byte(), r.Take(r.Uvarint())
		if r.Err() != nil {
			return r.Err()
		}
		if err := m.applyReplayed(kind, payload, &batches); err != nil {
			return err
		}
	}
	if n := len(batches.headers); n > 0 {
		return codec.Corrupt("%d batches without a record", n)
	}
	// Ids of a block that was begun may have been given out without a trace.
	if !mutant.On("producer ids of a begun block given again") {
		m.nextProducerID = m.producerIDsEnd
	}
	return nil
}

func (m *Machine) applyReplayed(kind uint8, payload []byte, batches *batchSource) error {
	switch kind {
	case kindBatch, kindMarker:
		h, err := batches.next()
		if err != nil {
			return err
		}
		return m.applyBatchRecord(kind, payload, h)
	}
	return m.apply(kind, payload)
}

func (m *Machine) applyNow(now Now) {
	m.lastNow = now
	m.hash = mix(mix(m.hash, uint64(now.WallMs)), uint64(now.EngineMs))
}

// applyBatchRecord applies a record that names one of the unit's batches.
func (m *Machine) applyBatchRecord(kind uint8, payload []byte, h record.Header) error {
	r := reader{codec.NewReader(payload)}
	id := r.id()
	var commit, bumped bool
	if kind == kindMarker {
		commit, bumped = readFlags(&r)
	}
	if err := r.End(); err != nil {
		return err
	}
	p := m.partitions[id]
	if p == nil {
		return codec.Corrupt("batch at offset %d for partition %d, which is unknown", h.BaseOffset, id)
	}
	if kind == kindMarker {
		return m.applyMarker(p, h, commit, bumped)
	}
	return m.applyBatch(p, h)
}

// applyBatch takes over a data batch.
func (m *Machine) applyBatch(p *partition, h record.Header) error {
	if h.Control() {
		return codec.Corrupt("control batch at offset %d of partition %d stands for data", h.BaseOffset, p.id)
	}
	if err := m.applyPlace(p, h); err != nil {
		return err
	}
	if h.Idempotent() {
		if h.BaseSequence < 0 || h.ProducerEpoch < 0 {
			return codec.Corrupt("batch at offset %d of partition %d has producer epoch %d, sequence %d", h.BaseOffset, p.id, h.ProducerEpoch, h.BaseSequence)
		}
		b := producer.Batch{
			ProducerID: h.ProducerID, Epoch: h.ProducerEpoch,
			FirstSequence: h.BaseSequence, LastSequence: h.LastSequence(), Transactional: h.Transactional(),
		}
		m.hash = mix(m.hash, p.producers.ApplyBatch(b, h.BaseOffset, h.LastOffset(), h.MaxTimestamp, m.lastNow.EngineMs))
	} else if h.Transactional() {
		return codec.Corrupt("transactional batch at offset %d of partition %d without a producer id", h.BaseOffset, p.id)
	}
	m.hash = mix(m.hash, uint64(p.lastStable()))
	return nil
}

// applyMarker takes over a transaction marker, whose type the header does not say.
func (m *Machine) applyMarker(p *partition, h record.Header, commit, bumped bool) error {
	if !h.Control() || h.LastOffsetDelta != 0 || h.ProducerID < 0 || h.ProducerEpoch < 0 {
		return codec.Corrupt("batch at offset %d of partition %d stands for a marker", h.BaseOffset, p.id)
	}
	if err := m.applyPlace(p, h); err != nil {
		return err
	}
	marker := producer.Marker{
		ProducerID: h.ProducerID, Epoch: h.ProducerEpoch, CoordinatorEpoch: m.LeaderEpoch(), Commit: commit, BumpsEpoch: bumped,
	}
	if code, detail := p.producers.CheckMarker(marker); code != 0 {
		return codec.Corrupt("marker at offset %d of partition %d: %s", h.BaseOffset, p.id, detail)
	}
	m.hash = mix(m.hash, p.producers.ApplyMarker(marker, h.BaseOffset, h.MaxTimestamp, m.lastNow.EngineMs))
	m.hash = mix(mix(m.hash, uint64(len(p.producers.Aborted()))), uint64(p.lastStable()))
	return nil
}

// applyPlace gives a batch its place at the partition's end.
func (m *Machine) applyPlace(p *partition, h record.Header) error {
	if h.BaseOffset != p.end || h.LastOffsetDelta < 0 || h.NextOffset() > maxOffset {
		return codec.Corrupt("batch of offsets %d to %d for partition %d, which ends at %d", h.BaseOffset, h.LastOffset(), p.id, p.end)
	}
	epoch := m.LeaderEpoch()
	if h.LeaderEpoch != epoch {
		return codec.Corrupt("batch at offset %d of partition %d has leader epoch %d in incarnation %d", h.BaseOffset, p.id, h.LeaderEpoch, epoch)
	}
	if n := len(p.epochs); n == 0 || p.epochs[n-1].Epoch < epoch {
		p.epochs = append(p.epochs, EpochStart{Epoch: epoch, StartOffset: p.end})
	}
	p.end = h.NextOffset()
	m.hash = mix(mix(mix(m.hash, uint64(p.id)), uint64(p.end)), uint64(h.CRC)<<32|uint64(uint32(h.SizeBytes)))
	return nil
}

// apply applies a record without a batch.
func (m *Machine) apply(kind uint8, payload []byte) error {
	m.hash = mixBytes(mix(m.hash, uint64(kind)), payload)
	if kind >= firstGroupKind && kind <= lastGroupKind {
		return m.groups.Apply(kind, payload)
	}
	if kind >= kindTxnInit {
		return m.applyTxn(kind, payload)
	}
	r := reader{codec.NewReader(payload)}
	switch kind {
	case kindIncarnation, kindForgetfulIncarnation:
		number := r.Uint32()
		return r.then(func() error { return m.applyIncarnation(number, kind == kindForgetfulIncarnation) })
	case kindTopicCreated:
		t := readTopicCreated(&r)
		return r.then(func() error { return m.applyTopicCreated(t) })
	case kindTopicDeleted:
		name := r.String()
		return r.then(func() error { return m.applyTopicDeleted(name) })
	case kindPartitionsAdded:
		a := readPartitionsAdded(&r)
		return r.then(func() error { return m.applyPartitionsAdded(a) })
	case kindFeature:
		name, level := r.String(), r.Int16()
		return r.then(func() error { return m.applyFeature(name, level) })
	case kindLogStart:
		id, offset := r.id(), r.offset()
		return r.then(func() error { return m.applyLogStart(id, offset) })
	case kindTopicSettings:
		c := readSettingsChanged(&r)
		return r.then(func() error { return m.applySettingsChanged(c) })
	case kindShelved:
		all := readShelved(&r)
		return r.then(func() error { return m.applyShelved(all) })
	case kindProducerIDs:
		end := r.offset()
		return r.then(func() error { return m.applyProducerIDs(end) })
	case kindProducerForgotten:
		id, producerID := r.id(), r.Varint()
		return r.then(func() error { return m.applyProducerForgotten(id, producerID) })
	}
	return codec.Corrupt("unknown record kind %d: it was written by a newer program", kind)
}

// then calls f if everything was read well.
func (r *reader) then(f func() error) error {
	if err := r.End(); err != nil {
		return err
	}
	return f()
}

func (m *Machine) applyTxn(kind uint8, payload []byte) error {
	r := reader{codec.NewReader(payload)}
	var sum uint64
	var err error
	now := m.lastNow.EngineMs
	switch kind {
	case kindTxnInit:
		i := readInit(&r)
		err = r.then(func() error { sum, err = m.txns.ApplyInit(i, now); return err })
	case kindTxnAdd:
		a := readAdd(&r)
		err = r.then(func() error { sum, err = m.txns.ApplyAdd(a, now); return err })
	case kindTxnEnd:
		e := readEnd(&r)
		err = r.then(func() error { sum, err = m.applyTxnEnd(e, now); return err })
	case kindTxnExpire:
		e := txn.Expire{ID: r.String()}
		err = r.then(func() error { return m.txns.ApplyExpire(e) })
	default:
		return codec.Corrupt("unknown record kind %d: it was written by a newer program", kind)
	}
	if err != nil {
		return codec.Corrupt("%w", err)
	}
	m.hash = mix(m.hash, sum)
	return nil
}

// applyTxnEnd ends a transaction for the coordinator and for the offsets that hang on it.
func (m *Machine) applyTxnEnd(e txn.End, now int64) (uint64, error) {
	before, _ := m.txns.Get(e.ID)
	sum, err := m.txns.ApplyEnd(e, now)
	if err != nil {
		return 0, err
	}
	m.groups.ApplyTxnEnd(before.ProducerID, e.Commit)
	return sum, nil
}

func (m *Machine) applyIncarnation(number uint32, forgets bool) error {
	if number <= m.incarnation || number > maxIncarnation {
		return codec.Corrupt("incarnation %d after %d", number, m.incarnation)
	}
	if m.forgets && !mutant.On("epochs of a forgetful run trusted") {
		m.txns.Doubt(m.producerIDsEnd)
	}
	m.incarnation, m.forgets = number, forgets
	return nil
}

// maxIncarnation is the highest leader epoch that the protocol can carry.
const maxIncarnation = 1<<31 - 1

func (m *Machine) applyProducerIDs(end int64) error {
	if end <= m.producerIDsEnd {
		return codec.Corrupt("producer ids are reserved up to %d, they were up to %d", end, m.producerIDsEnd)
	}
	m.producerIDsEnd = end
	return nil
}

func (m *Machine) applyProducerForgotten(id PartitionID, producerID int64) error {
	p := m.partitions[id]
	if p == nil || !p.producers.Remove(producerID) {
		return codec.Corrupt("producer %d of partition %d is forgotten, but is unknown or has an open transaction", producerID, id)
	}
	return nil
}
