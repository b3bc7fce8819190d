package world

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// membership is one client's place in a consumer group.
type membership struct {
	*client
	member  member
	topic   string
	cursors []*cursor
	unsure  bool // the last commit was not answered
}

// claimGroup notes that a generation is in force: whoever belongs to an older one may not commit any more.
func (m *membership) claimGroup() {
	h := m.w.history
	if newest := h.generations[m.member.group]; newest == nil || newest.rank < int(m.member.generation) {
		h.generations[m.member.group] = &claim{int(m.member.generation), m.w.nowUs}
	}
}

// commits checks that a success is not that of a member of an old generation, sent when a newer one was in force.
func (m *member) commits(w *World, who string, sentUs int64) {
	newest := w.history.generations[m.group]
	if newest != nil && newest.rank > int(m.generation) && sentUs > newest.sinceUs {
		w.fail("fenced: %s: offsets of generation %d of %s were accepted although generation %d was in force since %d us",
			who, m.generation, m.group, newest.rank, newest.sinceUs)
	}
}

const consumerGroup = "consumers"

// runConsumer reads a topic as a member of a group, commits where it is, and leaves and comes back now and then.
func (c *client) runConsumer() {
	w := c.w
	m := &membership{client: c, member: member{group: consumerGroup}, topic: "plain"}
	for alive := false; !w.consumed; {
		switch {
		case !alive:
			alive = m.join() && m.resume()
		case !w.healed && w.chance(3):
			alive = false
			m.leave()
			c.sleep(w.Int64N(3 * secondInUs))
		default:
			alive = m.consumeOnce()
		}
	}
}

// resume finds out where to go on: never before what was acknowledged.
func (m *membership) resume() bool {
	for _, u := range m.cursors {
		// Asked before: the answer may be old when a consumer that stood still gets to see it.
		least := m.w.history.lowest[m.lowestKey(u)]
		u.offset = max(m.committedOf(m.member.group, m.topic, u.partition), 0)
		if at, late := m.w.history.late[m.lowestKey(u)]; late {
			least = min(least, at)
		}
		if u.offset < least {
			m.w.fail("committed offset: %s: %s goes on at %d, %d was acknowledged", m.name, u.name(), u.offset, least)
		}
	}
	return true
}

func (m *membership) lowestKey(u *cursor) string { return m.member.group + " " + u.name() }

// consumeOnce heartbeats, reads, and commits where it is; false means to begin anew.
func (m *membership) consumeOnce() bool {
	if alive, known := m.heartbeat(); !known || !alive {
		return !known
	}
	moved := false
	if len(m.cursors) > 0 {
		before := make([]int64, len(m.cursors))
		for i, u := range m.cursors {
			before[i] = u.offset
		}
		for _, v := range m.fetchAll(m.cursors...) {
			m.w.history.consumed[v.id] = true
		}
		for i, u := range m.cursors {
			moved = moved || u.offset > before[i]
		}
	}
	if !moved && !m.unsure {
		if m.hasReadAll() {
			m.w.consumed = true
		} else if m.w.healed {
			m.unsure = true // a commit that came late may have set the group back
		}
		m.sleep(m.w.Int64N(300 * msInUs))
		return true
	}
	if m.w.chance(5) {
		m.sleep(m.w.Int64N(2 * sessionMs * msInUs)) // long enough to lose the partitions
	}
	return m.commit()
}

func (m *membership) commit() bool {
	sentUs := m.w.nowUs
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation = m.member.group, m.member.id, m.member.generation
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = m.topic
	for _, u := range m.cursors {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset = u.partition, u.offset
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	resp := m.ask(req, 8)
	if m.unsure = resp == nil; m.unsure {
		// It may still be under way and arrive behind a later one.
		for _, u := range m.cursors {
			key := m.lowestKey(u)
			if at, late := m.w.history.late[key]; !late || u.offset < at {
				m.w.history.late[key] = u.offset
			}
		}
		return true
	}
	for i, p := range resp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions {
		if p.ErrorCode != 0 {
			m.tracef("commit: code %d", p.ErrorCode)
			return false
		}
		m.member.commits(m.w, m.name, sentUs)
		key := m.lowestKey(m.cursors[i])
		m.w.history.lowest[key] = max(m.w.history.lowest[key], m.cursors[i].offset)
	}
	return true
}

// heartbeat says whether the membership stands; known is false if there is no answer.
func (m *membership) heartbeat() (alive, known bool) {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = m.member.group, m.member.id, m.member.generation
	resp := m.ask(req, 4)
	if resp == nil {
		return false, false
	}
	code := resp.(*kmsg.HeartbeatResponse).ErrorCode
	if code != 0 {
		m.tracef("heartbeat: code %d", code)
	}
	return code == 0, true
}

func (m *membership) leave() {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = m.member.group
	leaver := kmsg.NewLeaveGroupRequestMember()
	leaver.MemberID = m.member.id
	req.Members = append(req.Members, leaver)
	m.ask(req, 4)
	m.member.id, m.member.generation, m.cursors = "", 0, nil
}

// hasReadAll reports that nothing more will come and the group has committed behind everything.
func (m *membership) hasReadAll() bool {
	if !m.w.healed || m.w.producers > 0 {
		return false
	}
	for i := range int32(inputPartitions) {
		u := &cursor{topic: m.topic, partition: i, committed: true, offset: max(m.committedOf(m.member.group, m.topic, i), 0)}
		before := u.offset
		if _, ok := m.fetch(u); !ok || !u.atEnd() || u.offset != before {
			return false
		}
	}
	return true
}

// checkGroup: the group has read every committed value.
func (w *World) checkGroup(final map[string][]*value) {
	if !w.consumed {
		return
	}
	for i := range int32(inputPartitions) {
		for _, v := range final[partitionName("plain", i)] {
			if !w.history.consumed[v.id] {
				w.fail("nothing skipped: no member of %s has read value %d of %s", consumerGroup, v.id, partitionName("plain", i))
			}
		}
	}
}
