package group

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/tidwall/btree"

	"github.com/strandline-io/strandline/broker/machine/codec"
	"github.com/strandline-io/strandline/internal/mutant"
)

// topicOffsets are a group's offsets in one topic, ascending by partition. Every entry has something in it.
type topicOffsets struct {
	name    string
	entries []*offsetEntry
}

// offsetEntry is one partition: what is committed, if anything, and what open transactions may commit.
type offsetEntry struct {
	partition int32
	committed *offset
	pending   []pendingOffset // ascending by producer id
}

type offset struct {
	offset      int64
	leaderEpoch int32
	metadata    string
	commitMs    int64
	expireMs    int64  // -1: by the broker's retention
	order       uint64 // which commit this was; a larger one is newer
	hash        uint64
}

func (o *offset) sizeBytes() int64 { return int64(overheadBytes + len(o.metadata)) }

type pendingOffset struct {
	producerID int64
	*offset
}

// pendingKey is where a producer has a pending offset.
type pendingKey struct {
	group     *group
	topic     string
	partition int32
}

func comparePendingKeys(a, b pendingKey) bool {
	return cmp.Or(cmp.Compare(a.group.name, b.group.name), cmp.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition)) < 0
}

func (t *topicOffsets) find(partition int32) (int, bool) {
	return slices.BinarySearchFunc(t.entries, partition, func(e *offsetEntry, p int32) int { return cmp.Compare(e.partition, p) })
}

func (e *offsetEntry) find(producerID int64) (int, bool) {
	return slices.BinarySearchFunc(e.pending, producerID, func(p pendingOffset, id int64) int { return cmp.Compare(p.producerID, id) })
}

// entry returns what is kept for a partition, nil if nothing.
func (g *group) entry(topic string, partition int32) *offsetEntry {
	t, ok := g.saved.topics.Get(topic)
	if !ok {
		return nil
	}
	i, ok := t.find(partition)
	if !ok {
		return nil
	}
	return t.entries[i]
}

func (gs *Groups) makeEntry(g *group, topic string, partition int32) *offsetEntry {
	t, ok := g.saved.topics.Get(topic)
	if !ok {
		t = &topicOffsets{name: topic}
		g.saved.topics.Set(topic, t)
		holders := gs.byTopic[topic]
		if holders == nil {
			holders = new(btree.Map[string, *group])
			gs.byTopic[topic] = holders
		}
		holders.Set(g.name, g)
	}
	i, ok := t.find(partition)
	if !ok {
		t.entries = slices.Insert(t.entries, i, &offsetEntry{partition: partition})
		g.saved.offsets++
	}
	return t.entries[i]
}

// prune drops an entry that has become empty, and its topic when it was the last one.
func (gs *Groups) prune(g *group, topic string, e *offsetEntry) {
	if e.committed != nil || len(e.pending) > 0 {
		return
	}
	t, _ := g.saved.topics.Get(topic)
	i, _ := t.find(e.partition)
	t.entries = slices.Delete(t.entries, i, i+1)
	g.saved.offsets--
	if len(t.entries) == 0 {
		gs.dropTopic(g, topic)
	}
}

func (gs *Groups) dropTopic(g *group, topic string) {
	g.saved.topics.Delete(topic)
	holders := gs.byTopic[topic]
	holders.Delete(g.name)
	if holders.Len() == 0 {
		delete(gs.byTopic, topic)
	}
}

func (gs *Groups) setCommitted(g *group, topic string, e *offsetEntry, o *offset) {
	gs.clearCommitted(e)
	o.hash = gs.hashOffset(g, topic, e.partition, -1, o)
	gs.sum += o.hash
	gs.sizeBytes += o.sizeBytes()
	e.committed = o
}

func (gs *Groups) clearCommitted(e *offsetEntry) {
	if e.committed != nil {
		gs.sum -= e.committed.hash
		gs.sizeBytes -= e.committed.sizeBytes()
		e.committed = nil
	}
}

func (gs *Groups) setPending(g *group, topic string, e *offsetEntry, producerID int64, o *offset) {
	o.hash = gs.hashOffset(g, topic, e.partition, producerID, o)
	gs.sum += o.hash
	gs.sizeBytes += o.sizeBytes()
	i, ok := e.find(producerID)
	if ok {
		gs.sum -= e.pending[i].hash
		gs.sizeBytes -= e.pending[i].sizeBytes()
		e.pending[i].offset = o
		return
	}
	e.pending = slices.Insert(e.pending, i, pendingOffset{producerID, o})
	g.saved.pending++
	keys := gs.pending[producerID]
	if keys == nil {
		keys = btree.NewBTreeGOptions(comparePendingKeys, btree.Options{NoLocks: true})
		gs.pending[producerID] = keys
	}
	keys.Set(pendingKey{g, topic, e.partition})
}

// clearPending takes a producer's pending offset out of e; the producer's own list stays the caller's to mend.
func (gs *Groups) clearPending(g *group, e *offsetEntry, producerID int64) *offset {
	i, _ := e.find(producerID)
	o := e.pending[i].offset
	gs.sum -= o.hash
	gs.sizeBytes -= o.sizeBytes()
	e.pending = slices.Delete(e.pending, i, i+1)
	g.saved.pending--
	return o
}

// drop removes all that is kept for one partition, what open transactions hold included.
func (gs *Groups) drop(g *group, topic string, e *offsetEntry) {
	gs.clearCommitted(e)
	for len(e.pending) > 0 {
		id := e.pending[len(e.pending)-1].producerID
		gs.clearPending(g, e, id)
		keys := gs.pending[id]
		keys.Delete(pendingKey{g, topic, e.partition})
		if keys.Len() == 0 {
			delete(gs.pending, id)
		}
	}
	gs.prune(g, topic, e)
}

// dropAll removes all of a group's offsets in a topic.
func (gs *Groups) dropAll(g *group, topic string) {
	t, ok := g.saved.topics.Get(topic)
	for ok && len(t.entries) > 0 {
		gs.drop(g, topic, t.entries[len(t.entries)-1])
	}
}

// ApplyTxnEnd ends producerID's transaction: its pending offsets become committed, where nothing newer was committed
// meanwhile, or are dropped. It is part of the machine's own transaction record, replayed or new.
func (gs *Groups) ApplyTxnEnd(producerID int64, commit bool) {
	keys := gs.pending[producerID]
	if keys == nil {
		return
	}
	delete(gs.pending, producerID)
	keys.Scan(func(k pendingKey) bool {
		e := k.group.entry(k.topic, k.partition)
		o := gs.clearPending(k.group, e, producerID)
		if (commit || mutant.On("offsets of aborted transactions kept")) && (e.committed == nil || o.order > e.committed.order || mutant.On("older transaction's offset wins")) {
			gs.setCommitted(k.group, k.topic, e, o)
		}
		gs.prune(k.group, k.topic, e)
		return true
	})
}

// ApplyTopicDeleted drops all offsets of a topic, committed and pending. It is part of the machine's own record.
func (gs *Groups) ApplyTopicDeleted(name string) {
	holders := gs.byTopic[name]
	if holders == nil {
		return
	}
	for _, g := range holders.Values() {
		if mutant.On("offsets outlive their topic") {
			continue
		}
		gs.dropAll(g, name)
	}
}

func appendOffset(dst []byte, o *offset) []byte {
	dst = binary.AppendVarint(dst, o.offset)
	dst = binary.AppendVarint(dst, int64(o.leaderEpoch))
	dst = binary.AppendVarint(dst, o.commitMs)
	dst = binary.AppendVarint(dst, o.expireMs)
	dst = binary.AppendUvarint(dst, o.order)
	return codec.AppendString(dst, o.metadata)
}

func (r *reader) offset() *offset {
	return &offset{offset: r.Varint(), leaderEpoch: r.Int32(), commitMs: r.Varint(), expireMs: r.Varint(),
		order: r.Uvarint(), metadata: r.String()}
}

func (gs *Groups) hashOffset(g *group, topic string, partition int32, producerID int64, o *offset) uint64 {
	b := append(gs.hashBuf[:0], 'O')
	b = codec.AppendString(b, g.name)
	b = codec.AppendString(b, topic)
	b = binary.AppendVarint(b, int64(partition))
	b = binary.AppendVarint(b, producerID)
	b = appendOffset(b, o)
	gs.hashBuf = b
	return hashBytes(b)
}
