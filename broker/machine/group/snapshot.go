package group

import (
	"encoding/binary"

	"github.com/strandline-io/strandline/broker/machine/codec"
)

// snapshotVersion is the first byte of the format; docs/formats/group.md has the layout.
const snapshotVersion = 3

// firstSnapshotVersion is the oldest that is still read: it knows classic groups only.
const firstSnapshotVersion = 1

// AppendSnapshot appends the durable state. Equal states give equal bytes.
func (gs *Groups) AppendSnapshot(dst []byte) []byte {
	dst = append(dst, snapshotVersion)
	dst = binary.AppendUvarint(dst, gs.commits)
	count := 0
	gs.groups.Scan(func(_ string, g *group) bool {
		if g.saved.exists {
			count++
		}
		return true
	})
	dst = binary.AppendUvarint(dst, uint64(count))
	gs.groups.Scan(func(_ string, g *group) bool {
		if g.saved.exists {
			dst = appendGroup(dst, g)
		}
		return true
	})
	return gs.appendSettings(dst)
}

func appendGroup(dst []byte, g *group) []byte {
	dst = codec.AppendString(dst, g.name)
	dst = appendHead(dst, &g.saved)
	dst = binary.AppendUvarint(dst, uint64(g.saved.members.Len()))
	g.saved.members.Scan(func(_ string, m *savedMember) bool {
		dst = appendMember(dst, m.info)
		dst = codec.AppendBytes(dst, m.assignment)
		return true
	})
	dst = binary.AppendUvarint(dst, uint64(g.saved.topics.Len()))
	g.saved.topics.Scan(func(_ string, t *topicOffsets) bool {
		dst = codec.AppendString(dst, t.name)
		dst = binary.AppendUvarint(dst, uint64(len(t.entries)))
		for _, e := range t.entries {
			dst = appendEntry(dst, e)
		}
		return true
	})
	return appendConsumers(dst, g.saved.consumer)
}

func appendEntry(dst []byte, e *offsetEntry) []byte {
	dst = binary.AppendVarint(dst, int64(e.partition))
	if e.committed == nil {
		dst = append(dst, 0)
	} else {
		dst = appendOffset(append(dst, 1), e.committed)
	}
	dst = binary.AppendUvarint(dst, uint64(len(e.pending)))
	for _, p := range e.pending {
		dst = binary.AppendVarint(dst, p.producerID)
		dst = appendOffset(dst, p.offset)
	}
	return dst
}

// Restore replaces the state by that of a snapshot; volatile state is gone, and sessions start at the first operation
// or tick. An error wraps ErrCorrupt, and the state is unchanged then. The data stays the caller's.
func (gs *Groups) Restore(data []byte) error {
	next := New(gs.cfg)
	next.cfg = gs.cfg
	r := &reader{codec.NewReader(data)}
	version := r.Byte()
	if version < firstSnapshotVersion || version > snapshotVersion {
		r.Fail("snapshot version %d, this program reads %d to %d", version, firstSnapshotVersion, snapshotVersion)
	}
	next.commits = r.Uvarint()
	last := ""
	for i := range r.Count(minGroupBytes) {
		name := r.String()
		if i > 0 && name <= last {
			r.Fail("group %q after %q", name, last)
		}
		last = name
		g := next.make(name)
		next.restoreGroup(r, g)
		if version > firstSnapshotVersion && r.Err() == nil {
			next.restoreConsumers(r, g, version)
		}
		if r.Err() != nil {
			break
		}
		next.rehash(g)
	}
	if version >= 3 && r.Err() == nil {
		next.restoreSettings(r)
	}
	if err := r.End(); err != nil {
		return err
	}
	*gs = *next
	return nil
}

// minGroupBytes is the least that appendGroup writes: nine lengths and numbers.
const minGroupBytes = 9

func (gs *Groups) restoreGroup(r *reader, g *group) {
	s := &g.saved
	s.phase = phase(r.Byte())
	s.protocolType, s.generation, s.protocol, s.leader, s.sinceMs = r.String(), r.Natural(), r.String(), r.String(), r.Varint()
	last := ""
	for i := range r.Count(minMemberBytes + 1) {
		m := &savedMember{info: r.member(), assignment: r.Bytes()}
		if i > 0 && m.info.id <= last {
			r.Fail("member %q after %q in group %q", m.info.id, last, g.name)
		}
		if r.Err() != nil {
			return
		}
		last = m.info.id
		gs.setMember(g, m)
	}
	if s.phase > phaseStable || (s.phase == phaseEmpty) != (s.members.Len() == 0) {
		r.Fail("group %q is in phase %d with %d members", g.name, byte(s.phase), s.members.Len())
	}
	if _, ok := s.members.Get(s.leader); !ok && s.leader != "" && s.phase != phaseEmpty {
		r.Fail("group %q is led by %q, which is no member", g.name, s.leader)
	}
	last = ""
	for i := range r.Count(2) {
		topic := r.String()
		if i > 0 && topic <= last {
			r.Fail("topic %q after %q in group %q", topic, last, g.name)
		}
		last = topic
		gs.restoreTopic(r, g, topic)
		if r.Err() != nil {
			return
		}
	}
}

func (gs *Groups) restoreTopic(r *reader, g *group, topic string) {
	last := int32(-1)
	n := r.Count(3)
	if n == 0 {
		r.Fail("topic %q of group %q has no offsets", topic, g.name)
	}
	for range n {
		partition := r.Natural()
		if partition <= last {
			r.Fail("partition %d after %d of topic %q in group %q", partition, last, topic, g.name)
		}
		if r.Err() != nil {
			return
		}
		last = partition
		gs.restoreEntry(r, g, topic, partition)
	}
}

func (gs *Groups) restoreEntry(r *reader, g *group, topic string, partition int32) {
	var committed *offset
	switch flag := r.Byte(); flag {
	case 0:
	case 1:
		committed = gs.readOffset(r, g, topic)
	default:
		r.Fail("offset flag %d of topic %q in group %q", flag, topic, g.name)
	}
	n := r.Count(7)
	if n == 0 && committed == nil {
		r.Fail("partition %d of topic %q in group %q holds nothing", partition, topic, g.name)
	}
	if r.Err() != nil {
		return
	}
	e := gs.makeEntry(g, topic, partition)
	if committed != nil {
		gs.setCommitted(g, topic, e, committed)
	}
	last := int64(noProducer)
	for range n {
		id := r.Varint()
		o := gs.readOffset(r, g, topic)
		if id <= last {
			r.Fail("producer id %d after %d of topic %q in group %q", id, last, topic, g.name)
		}
		if r.Err() != nil {
			return
		}
		last = id
		gs.setPending(g, topic, e, id, o)
	}
}

func (gs *Groups) readOffset(r *reader, g *group, topic string) *offset {
	o := r.offset()
	if o.order > gs.commits {
		r.Fail("commit %d of topic %q in group %q, the newest is %d", o.order, topic, g.name, gs.commits)
	}
	return o
}
