package machine

import (
	"encoding/binary"
	"iter"

	"github.com/strandline-io/strandline/broker/machine/codec"
	"github.com/strandline-io/strandline/broker/machine/producer"
	"github.com/strandline-io/strandline/broker/machine/txn"
	"github.com/strandline-io/strandline/internal/mutant"
)

// snapshotVersion is the first byte of the format (docs/formats/machine.md).
const snapshotVersion = 3

// AppendSnapshot appends the durable state to dst. Equal states give equal bytes.
func (m *Machine) AppendSnapshot(dst []byte) []byte {
	dst = append(dst, snapshotVersion)
	dst = binary.AppendVarint(dst, m.lastNow.WallMs)
	dst = binary.AppendVarint(dst, m.lastNow.EngineMs)
	dst = binary.LittleEndian.AppendUint64(dst, m.hash)
	dst = binary.AppendUvarint(dst, uint64(m.incarnation))
	dst = binary.AppendVarint(dst, m.producerIDsEnd)
	dst = binary.AppendUvarint(dst, uint64(m.nextPartition))
	dst = binary.AppendUvarint(dst, uint64(m.settingsVersion))
	dst = m.features.append(dst)
	dst = append(dst, flags(m.forgets, false))
	dst = binary.AppendVarint(dst, m.txns.Doubted())
	dst = binary.AppendUvarint(dst, uint64(len(m.sorted)))
	for _, t := range m.sorted {
		dst = appendTopic(dst, t)
	}
	for _, p := range m.sortedPartitions() {
		dst = appendPartition(dst, p)
	}
	dst = appendEntries(dst, m.producers.Idle(), true)
	dst = appendTransactions(dst, m.txns.Idle())
	dst = appendTransactions(dst, m.txns.Open())
	groups := m.groups.AppendSnapshot(nil)
	return append(binary.AppendUvarint(dst, uint64(len(groups))), groups...)
}

func appendTopic(dst []byte, t *topic) []byte {
	dst = codec.AppendString(dst, t.Name)
	dst = append(dst, t.ID[:]...)
	dst = binary.AppendUvarint(dst, uint64(t.SettingsVersion))
	dst = t.Settings.append(dst)
	dst = binary.AppendUvarint(dst, uint64(len(t.partitions)))
	for _, p := range t.partitions {
		dst = binary.AppendUvarint(dst, uint64(p.id))
	}
	return dst
}

func appendPartition(dst []byte, p *partition) []byte {
	dst = binary.AppendUvarint(dst, uint64(p.id))
	for _, v := range [...]int64{p.logStart, p.end, p.shelved.FileBase, p.shelved.FileBytes, p.shelved.EndOffset} {
		dst = binary.AppendVarint(dst, v)
	}
	dst = binary.AppendUvarint(dst, uint64(len(p.epochs)))
	for _, e := range p.epochs {
		dst = binary.AppendVarint(dst, int64(e.Epoch))
		dst = binary.AppendVarint(dst, e.StartOffset)
	}
	aborted := p.producers.Aborted()
	dst = binary.AppendUvarint(dst, uint64(len(aborted)))
	for _, a := range aborted {
		for _, v := range [...]int64{a.ProducerID, a.FirstOffset, a.LastOffset, a.LastStable} {
			dst = binary.AppendVarint(dst, v)
		}
	}
	return appendEntries(dst, p.producers.OpenEntries(), false)
}

// appendEntries writes producers, each behind a 1, and a 0 behind the last. Idle ones name their partition, an open
// one's is the one that it stands in.
func appendEntries(dst []byte, all iter.Seq[producer.Entry], idle bool) []byte {
	for e := range all {
		dst = append(dst, 1)
		if idle {
			dst = binary.AppendUvarint(dst, uint64(e.Partition))
		} else {
			dst = binary.AppendVarint(dst, e.TxnFirstOffset)
		}
		for _, v := range [...]int64{e.ProducerID, int64(e.Epoch), int64(e.CoordinatorEpoch), e.LastTimestampMs, e.TouchedMs} {
			dst = binary.AppendVarint(dst, v)
		}
		dst = append(dst, byte(len(e.Batches)))
		for _, b := range e.Batches {
			for _, v := range [...]int64{int64(b.LastSequence), int64(b.Delta), b.LastOffset, b.TimestampMs} {
				dst = binary.AppendVarint(dst, v)
			}
		}
	}
	return append(dst, 0)
}

// appendTransactions writes transactional ids, each behind a 1, and a 0 behind the last.
func appendTransactions(dst []byte, all iter.Seq[txn.Entry]) []byte {
	for e := range all {
		dst = append(dst, 1)
		dst = codec.AppendString(dst, e.ID)
		dst = append(dst, byte(e.State))
		for _, v := range [...]int64{
			e.ProducerID, e.PrevProducerID, int64(e.Epoch), int64(e.LastEpoch), int64(e.TimeoutMs), e.StartMs, e.UpdatedMs,
		} {
			dst = binary.AppendVarint(dst, v)
		}
		dst = appendPartitions(dst, e.Partitions)
		dst = appendStrings(dst, e.Groups)
	}
	return append(dst, 0)
}

// Restore returns the machine that AppendSnapshot wrote: its Hash is that of the machine that wrote it, its later
// behaviour that of one that replayed everything up to the snapshot. An error wraps ErrCorrupt. The bytes stay the
// caller's.
func Restore(cfg Config, data []byte) (*Machine, error) {
	m := New(cfg)
	r := &reader{codec.NewReader(data)}
	version := r.Byte()
	if (version < 1 || version > snapshotVersion) && r.Err() == nil {
		r.Fail("snapshot of version %d, this program reads 1 to %d: it was written by a newer one", version, snapshotVersion)
	}
	m.lastNow = Now{WallMs: r.millis(), EngineMs: r.engine()}
	if b := r.Take(8); len(b) == 8 {
		m.hash = binary.LittleEndian.Uint64(b)
	}
	m.incarnation = uint32(r.Below(maxIncarnation + 1))
	m.producerIDsEnd = r.offset()
	m.nextProducerID = m.producerIDsEnd
	m.nextPartition = r.id()
	m.settingsVersion = r.Uint32()
	if version >= 2 {
		if m.features = readFeatures(r); mutant.On("feature levels forgotten at restart") {
			m.features = features{}
		}
	}
	if version >= 3 {
		m.forgets, _ = readFlags(r)
		m.txns.Doubt(r.Within(0, m.producerIDsEnd))
	}
	for range r.Count(1) {
		m.restoreTopic(r)
	}
	for _, p := range m.sortedPartitions() {
		m.restorePartition(r, p)
	}
	m.restoreIdle(r)
	m.restoreTransactions(r)
	m.restoreTransactions(r)
	groups := r.Take(r.Uvarint())
	if err := r.End(); err != nil {
		return nil, err
	}
	if err := m.groups.Restore(groups); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *Machine) restoreTopic(r *reader) {
	t := &topic{Topic: &Topic{Name: r.String(), ID: r.UUID(), SettingsVersion: r.Uint32(), Settings: readSettings(r)}}
	if m.topics[t.Name] != nil || m.topicsByID[t.ID] != nil || t.SettingsVersion > m.settingsVersion {
		r.Fail("topic %q with id %x and settings version %d comes twice or is ahead of %d", t.Name, t.ID, t.SettingsVersion, m.settingsVersion)
	}
	for range r.Count(1) {
		p := &partition{id: r.id(), topic: t.Name, number: int32(len(t.partitions))}
		if p.id >= m.nextPartition || m.partitions[p.id] != nil {
			r.Fail("partition %d of topic %q comes twice or is not below %d", p.id, t.Name, m.nextPartition)
			break
		}
		p.producers = m.producers.NewPartition(uint32(p.id))
		t.partitions = append(t.partitions, p)
		t.Partitions = append(t.Partitions, p.id)
		m.partitions[p.id] = p
	}
	if r.Err() != nil {
		// Half a topic must not be looked at.
		for _, p := range t.partitions {
			delete(m.partitions, p.id)
		}
		return
	}
	if n := len(m.sorted); n > 0 && m.sorted[n-1].Name >= t.Name {
		r.Fail("topic %q comes behind %q", t.Name, m.sorted[n-1].Name)
	}
	m.topics[t.Name], m.topicsByID[t.ID] = t, t
	m.collisions[collisionKey(t.Name)] = t.Name
	m.sorted = append(m.sorted, t)
}

func (m *Machine) restorePartition(r *reader, p *partition) {
	if id := r.id(); id != p.id {
		r.Fail("partition %d in the place of %d", id, p.id)
	}
	p.logStart, p.end = r.offset(), r.offset()
	p.shelved = ShelvedLength{FileBase: r.offset(), FileBytes: r.offset(), EndOffset: r.offset()}
	if p.shelved.EndOffset > 0 {
		p.shelved.Partition = p.id
	}
	if p.logStart > p.end || p.shelved.EndOffset > p.end {
		r.Fail("partition %d starts at %d, is shelved up to %d and ends at %d", p.id, p.logStart, p.shelved.EndOffset, p.end)
	}
	for range r.Count(2) {
		e := EpochStart{Epoch: r.Int32(), StartOffset: r.offset()}
		if n := len(p.epochs); e.StartOffset > p.end || (n > 0 && (e.Epoch <= p.epochs[n-1].Epoch || e.StartOffset < p.epochs[n-1].StartOffset)) {
			r.Fail("epoch %d of partition %d starts at %d, not behind its predecessor", e.Epoch, p.id, e.StartOffset)
		}
		p.epochs = append(p.epochs, e)
	}
	aborted := make([]producer.Aborted, r.Count(4))
	for i := range aborted {
		aborted[i] = producer.Aborted{ProducerID: r.Varint(), FirstOffset: r.offset(), LastOffset: r.offset(), LastStable: r.offset()}
	}
	r.check(p.producers.RestoreAborted(aborted))
	for r.more() {
		e := producer.Entry{Partition: uint32(p.id), TxnFirstOffset: r.offset()}
		if e.TxnFirstOffset >= p.end {
			r.Fail("transaction at offset %d of partition %d, which ends at %d", e.TxnFirstOffset, p.id, p.end)
		}
		m.restoreEntry(r, p, e)
	}
}

// more reads whether another element follows.
func (r *reader) more() bool { return r.Bool() && r.Err() == nil }

// check takes over a problem that somebody else found.
func (r *reader) check(err error) {
	if err != nil {
		r.Fail("%w", err)
	}
}

func (m *Machine) restoreIdle(r *reader) {
	for r.more() {
		e := producer.Entry{Partition: r.Uint32(), TxnFirstOffset: -1}
		p := m.partitions[PartitionID(e.Partition)]
		if p == nil {
			r.Fail("producer of partition %d, which is unknown", e.Partition)
			return
		}
		m.restoreEntry(r, p, e)
	}
}

func (m *Machine) restoreEntry(r *reader, p *partition, e producer.Entry) {
	forgotten := mutant.On("sequences forgotten at restart") && e.TxnFirstOffset < 0 || mutant.On("open transaction forgotten at restart") && e.TxnFirstOffset >= 0
	e.ProducerID, e.Epoch, e.CoordinatorEpoch = r.Varint(), r.Int16(), r.Int32()
	e.LastTimestampMs, e.TouchedMs = r.Varint(), r.Within(0, m.lastNow.EngineMs)
	e.Batches = make([]producer.CachedBatch, min(r.Count(4), 255))
	for i := range e.Batches {
		e.Batches[i] = producer.CachedBatch{LastSequence: r.Int32(), Delta: r.Int32(), LastOffset: r.Within(0, p.end), TimestampMs: r.Varint()}
	}
	if r.Err() == nil && !forgotten {
		r.check(p.producers.Restore(e))
	}
}

func (m *Machine) restoreTransactions(r *reader) {
	for r.more() {
		e := txn.Entry{ID: r.String(), State: txn.State(r.Byte())}
		e.ProducerID, e.PrevProducerID, e.Epoch, e.LastEpoch = r.Varint(), r.Varint(), r.Int16(), r.Int16()
		e.TimeoutMs, e.StartMs, e.UpdatedMs = r.Int32(), r.Within(-1, m.lastNow.EngineMs), r.Within(0, m.lastNow.EngineMs)
		e.Partitions, e.Groups = readPartitions(r), readStrings(r)
		if r.Err() == nil {
			r.check(m.txns.Restore(e, m.lastNow.EngineMs))
		}
	}
}
