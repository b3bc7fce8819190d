package world

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// What members of the group that migrates take for theirs, and what of that the broker has to stand for.

// clean notes that the broker knew at sentUs, or later, that the member has what it has, and asked it for nothing.
func (m *modernMember) clean(sentUs int64) {
	if m.joined {
		m.cleanUs, m.missed = max(m.cleanUs, sentUs), 0
		m.checkOwners()
	}
}

// safe reports whether the broker must count on the member: it cannot have missed a session or the time to give something
// up, and nothing that it said earlier can still reach the broker and be misunderstood. h, if not nil, is what it is about.
func (m *modernMember) safe(h *held) bool {
	w := m.w
	m.doubts = slices.DeleteFunc(m.doubts, func(d doubt) bool { return d.process != w.process || w.nowUs >= d.untilUs })
	if !m.joined || w.nowUs >= m.cleanUs+min(modernSessionMs, modernRebalanceMs)*msInUs {
		return false
	}
	return !slices.ContainsFunc(m.doubts, func(d doubt) bool { return h == nil || d.tells && !slices.Contains(d.names, *h) })
}

// claim takes partitions, and finds out where to go on with those that it reads.
func (m *modernMember) claim(fresh []held, sentUs int64) {
	g := m.group
	m.tracef("gets %d partitions at epoch %d", len(fresh), m.member.generation)
	m.w.stats.Moved += len(fresh)
	var begun []*cursor
	for _, h := range fresh {
		m.owned = append(m.owned, h)
		g.holders[h] = append(g.holders[h], m)
		if last := g.owners[h]; last == nil || last.epoch <= m.member.generation {
			g.owners[h] = &owner{m.member.id, m.member.generation, m.w.nowUs}
		}
		if h.topic == m.plainID {
			begun = append(begun, &cursor{topic: m.topic, partition: h.partition, committed: true})
		}
	}
	if m.w.nowUs < sentUs+modernRebalanceMs*msInUs {
		m.checkOwners()
	}
	one := &membership{client: m.client, member: m.member, cursors: begun, topic: m.topic}
	if one.resume(); m.joined {
		m.cursors = append(m.cursors, begun...)
	}
}

// giveUp is for partitions that the member does not read any more.
func (m *modernMember) giveUp(gone []held) {
	for _, h := range slices.Clone(gone) {
		m.group.holders[h] = slices.DeleteFunc(m.group.holders[h], func(o *modernMember) bool { return o == m })
		m.owned = slices.DeleteFunc(m.owned, func(o held) bool { return o == h })
		m.cursors = slices.DeleteFunc(slices.Clone(m.cursors), func(u *cursor) bool { return h == held{m.plainID, u.partition} })
	}
}

// checkOwners: nobody else has what the member has, as far as the broker must count on both.
func (m *modernMember) checkOwners() {
	for _, h := range m.owned {
		for _, o := range m.group.holders[h] {
			if o != m && m.safe(&h) && o.safe(&h) {
				m.w.fail("two owners: partition %d of %x belongs to %s (%s, epoch %d, well at %d us) and to %s (%s, epoch %d, well at %d us)", h.partition,
					h.topic[:4], m.name, m.member.id, m.member.generation, m.cleanUs, o.name, o.member.id, o.member.generation, o.cleanUs)
			}
		}
	}
}

// commitModern commits where the member is with some of its partitions.
func (m *modernMember) commitModern(cursors []*cursor) {
	if len(cursors) == 0 {
		return
	}
	cursors = slices.Clone(cursors)
	epoch, offsets := m.member.generation, positions(cursors)
	resp, sentUs := m.offsetCommit(cursors, epoch)
	if m.unsure = resp == nil; m.unsure {
		for i, u := range cursors {
			if at, late := m.w.history.late[m.lowestKey(u)]; !late || offsets[i] < at {
				m.w.history.late[m.lowestKey(u)] = offsets[i]
			}
		}
		return
	}
	for i, p := range resp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions {
		u := cursors[i]
		h := held{m.plainID, u.partition}
		if p.ErrorCode != 0 {
			m.tracef("commit: code %d", p.ErrorCode)
			if !m.classic && m.missed == 0 && m.safe(&h) && slices.Contains(m.owned, h) {
				m.w.fail("members: %s: %s may not commit for partition %d at epoch %d: code %d", m.name, m.member.id, u.partition, epoch, p.ErrorCode)
			}
			continue
		}
		// Of a classic member only the generation is judged, as in Apache Kafka.
		if last := m.group.owners[h]; !m.classic && last != nil && last.member != m.member.id && last.epoch >= epoch && sentUs > last.sinceUs {
			m.w.fail("fenced: %s: an offset for partition %d was accepted from %s at epoch %d, it is %s's since epoch %d, %d us", m.name, u.partition,
				m.member.id, epoch, last.member, last.epoch, last.sinceUs)
		}
		m.w.history.lowest[m.lowestKey(u)] = max(m.w.history.lowest[m.lowestKey(u)], offsets[i])
	}
}

// commitStale commits at an epoch that is over, for what the member has given up since, and must be refused.
func (m *modernMember) commitStale(cursors []*cursor, epoch int32) {
	if len(cursors) == 0 {
		return
	}
	resp, _ := m.offsetCommit(cursors, epoch)
	if resp == nil {
		return
	}
	for i, p := range resp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions {
		if p.ErrorCode == 0 {
			m.w.fail("fenced: %s: an offset for partition %d was accepted from %s at epoch %d, which has given it up and is at %d", m.name, cursors[i].partition,
				m.member.id, epoch, m.member.generation)
		}
	}
}

func (m *modernMember) offsetCommit(cursors []*cursor, epoch int32) (resp kmsg.Response, sentUs int64) {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation, req.InstanceID = m.member.group, m.member.id, epoch, m.instance
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic, t.TopicID = m.topic, m.plainID
	for _, u := range cursors {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset = u.partition, u.offset
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	return m.request(req, 9+int16(m.w.IntN(2)), callTimeoutUs, nil, false)
}

// converged reports that everybody is a member, and each partition that is read has one owner. m has just found itself well.
func (g *modernGroup) converged(m *modernMember) bool {
	joined := 0
	for _, o := range g.members {
		if o.joined {
			joined++
		}
	}
	for p := range int32(inputPartitions) {
		if len(g.holders[held{m.plainID, p}]) != 1 {
			return false
		}
	}
	return joined == g.clients
}

// checkModern: the group has read every committed value.
func (w *World) checkModern(final map[string][]*value) {
	if w.modern == nil || !w.modern.over {
		return
	}
	for i := range int32(inputPartitions) {
		for _, v := range final[partitionName("plain", i)] {
			if !w.modern.consumed[v.id] {
				w.fail("nothing skipped: no member of %s has read value %d of %s", modernGroupName, v.id, partitionName("plain", i))
			}
		}
	}
}
