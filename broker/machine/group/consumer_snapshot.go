package group

import (
	"encoding/binary"

	"github.com/strandline-io/strandline/broker/machine/codec"
)

// appendConsumers writes what makes a group a consumer group: 0 for a classic one.
func appendConsumers(dst []byte, c *consumerState) []byte {
	dst = appendConsumerHead(dst, c)
	if c == nil {
		return dst
	}
	dst = binary.AppendUvarint(dst, uint64(c.members.Len()))
	c.members.Scan(func(_ string, m *consumerMember) bool {
		dst = appendConsumerMember(dst, m)
		return true
	})
	dst = binary.AppendUvarint(dst, uint64(c.patterns.Len()))
	c.patterns.Scan(func(text string, p *pattern) bool {
		dst = appendNames(codec.AppendString(dst, text), p.names)
		return true
	})
	return dst
}

// minConsumerBytes is the least that appendConsumerMember has ever written: fifteen lengths and numbers.
const minConsumerBytes = 15

func (gs *Groups) restoreConsumers(r *reader, g *group, version uint8) {
	if !r.Bool() || r.Err() != nil {
		return
	}
	c := newConsumerState()
	g.saved.consumer = c
	c.targetEpoch, c.metadataHash = r.Natural(), r.Uvarint()
	if c.targetEpoch > g.saved.generation || g.saved.members.Len() > 0 {
		r.Fail("consumer group %q has epochs %d and %d and %d classic members", g.name, g.saved.generation, c.targetEpoch,
			g.saved.members.Len())
	}
	last := ""
	for i := range r.Count(minConsumerBytes) {
		m := &consumerMember{info: r.consumer()}
		if version >= 3 && r.Bool() {
			m.info.classic = r.classic()
		}
		rec := consumerCurrentRecord{group: g.name, id: m.info.id}
		r.current(&rec)
		m.take(&rec)
		m.target = r.target()
		if i > 0 && m.info.id <= last {
			r.Fail("member %q after %q in group %q", m.info.id, last, g.name)
		}
		last = m.info.id
		for _, err := range [...]error{c.checkInstance(m.info, ""), c.checkCurrent(&rec, g.saved.generation)} {
			if err != nil {
				r.Fail("%v", err)
			}
		}
		if r.Err() != nil {
			return
		}
		gs.setConsumer(g, m)
	}
	gs.restorePatterns(r, g)
}

// restorePatterns reads exactly the patterns to which members subscribe.
func (gs *Groups) restorePatterns(r *reader, g *group) {
	all := g.saved.consumer.patterns.Keys()
	if n := r.Count(2); n != len(all) {
		r.Fail("group %q has %d patterns, and members with %d", g.name, n, len(all))
		return
	}
	for _, text := range all {
		if got := r.String(); got != text {
			r.Fail("group %q has pattern %q in the place of %q", g.name, got, text)
			return
		}
		p, _ := g.saved.consumer.patterns.Get(text)
		gs.setPattern(g, text, p, r.names())
	}
}
