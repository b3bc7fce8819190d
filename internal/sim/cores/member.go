package cores

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// member is a consumer in the group g: it joins, syncs, commits with what it was told, and leaves, or just falls silent.
type member struct {
	w          *World
	instance   string // static, or empty
	id         string
	generation int32
	leads      bool
	others     []string
	state      memberState
	busy       bool
	left       int
	waitMs     int64
}

type memberState uint8

const (
	memberOut memberState = iota
	memberJoined
	memberStable
	memberGone
)

func newMember(w *World, n int) *member {
	m := &member{w: w, left: 2 + w.IntN(10), generation: -1}
	if w.IntN(3) == 0 {
		m.instance = fmt.Sprintf("s%d", n%2)
	}
	w.members = append(w.members, m)
	return m
}

func (m *member) over() bool { return m.state == memberGone && !m.busy }

func (m *member) act(c *client) bool {
	if m.busy || m.state == memberGone || m.w.nowMs < m.waitMs {
		return false
	}
	switch m.state {
	case memberOut:
		m.ask(c, &request{kind: kindJoin, version: m.version(0, 9, 5)}, m.joined)
	case memberJoined:
		if m.w.healed || m.w.IntN(6) > 0 {
			m.sync(c)
		} else { // commits what it read before the rebalance
			m.ask(c, m.offsets(), func(*reply) {})
		}
	default:
		m.live(c)
	}
	return true
}

// version is one from lowest to highest, a static member's at least since.
func (m *member) version(lowest, highest, since int) int16 {
	if m.instance != "" {
		lowest = max(lowest, since)
	}
	return int16(lowest + m.w.IntN(highest-lowest+1))
}

func (m *member) ask(c *client, r *request, done func(*reply)) {
	m.busy = true
	r.group, r.member, r.instance, r.generation = "g", m.id, m.instance, m.generation
	c.send(r, func(a *reply) {
		m.busy = false
		if a != nil {
			done(a)
		}
	})
}

func (m *member) joined(a *reply) {
	switch a.code() {
	case 0:
		m.id, m.generation, m.leads, m.others = a.member, a.generation, a.leader == a.member, a.members
		m.state = memberJoined
		if m.leads && len(a.members) == 0 {
			m.leads = false // back in a stable group: there is nothing to assign
		}
	case kerr.MemberIDRequired.Code:
		m.id = a.member
	default:
		m.refused(a.code())
	}
}

func (m *member) refused(code int16) {
	m.state = memberOut
	m.waitMs = m.w.nowMs + 50
	switch code {
	case kerr.RebalanceInProgress.Code, kerr.IllegalGeneration.Code:
	case kerr.FencedInstanceID.Code:
		// Another has the instance id now.
		m.state = memberGone
	default:
		m.id, m.generation = "", -1
	}
}

func (m *member) sync(c *client) {
	r := &request{kind: kindSync, version: m.version(0, 5, 3)}
	if m.leads {
		r.assignments = map[string]string{}
		for _, other := range m.others {
			r.order = append(r.order, other)
			r.assignments[other] = fmt.Sprintf("%d/%s/%d", m.generation, other, m.w.IntN(100))
		}
	}
	m.ask(c, r, func(a *reply) {
		if a.code() != 0 {
			m.refused(a.code())
			return
		}
		m.state = memberStable
	})
}

func (m *member) live(c *client) {
	w := m.w
	if m.left == 0 {
		m.leave(c)
		return
	}
	m.left--
	r := &request{kind: kindHeartbeat, version: m.version(0, 4, 3)}
	if w.IntN(2) == 0 {
		r = m.offsets()
	}
	m.ask(c, r, func(a *reply) {
		if code := a.code(); code != 0 && code != kerr.UnknownTopicOrPartition.Code {
			m.refused(code)
		}
	})
	if w.IntN(16) == 0 && !w.healed {
		// The process starts anew, without knowing who it was.
		m.id, m.generation, m.state = "", -1, memberOut
	}
}

func (m *member) offsets() *request {
	w := m.w
	w.commits++
	at := pick(w, place{"a", 0}, place{"a", 1}, place{"b", 0}, place{"tmp", 0})
	return &request{kind: kindCommit, version: m.version(2, 9, 7), positions: []position{{at, w.commits}}}
}

func (m *member) leave(c *client) {
	if m.w.IntN(2) == 0 {
		m.state = memberGone
		return
	}
	m.ask(c, &request{kind: kindLeave, version: m.version(3, 5, 3)}, func(*reply) { m.state = memberGone })
}
