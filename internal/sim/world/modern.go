package world

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// modernGroupName is a group whose members speak the consumer protocol (KIP-848) or the classic one, and change between
// lives, so that the group migrates back and forth while it has members.
const modernGroupName = "modern"

const (
	modernSessionMs   = 6000
	modernRebalanceMs = 5000
	// modernDoubtUs is how long a request that was not answered may be under way, if its process lives.
	modernDoubtUs = 30 * secondInUs
)

// modernGroup is what is known of that group.
type modernGroup struct {
	protocol string // of the classic members
	members  []*modernMember
	clients  int // that will be members until the end
	epoch    int32
	holders  map[held][]*modernMember // who takes a partition for its own
	owners   map[held]*owner          // who was given it last
	consumed map[uint64]bool
	over     bool // all is read and shared out
}

// held is a partition that a member may read.
type held struct {
	topic     [16]byte
	partition int32
}

// owner is who was given a partition, at which of its epochs, and when it heard of that.
type owner struct {
	member  string
	epoch   int32
	sinceUs int64
}

// modernMember is one life of one member. Its epoch is member.generation.
type modernMember struct {
	*membership
	group    *modernGroup
	classic  bool
	version  int16 // of heartbeats
	topics   []string
	pattern  *string
	instance *string
	plainID  [16]byte
	joined   bool
	full     bool   // what the broker knows of it is in question: say everything
	told     []held // what it has told that it has
	owned    []held
	target   []held // what it was told last to have
	busy     bool   // at getting there
	cleanUs  int64  // when it sent the last request whose answer left nothing to be given up
	doubts   []doubt
	attempts int
	missed   int  // requests since then that were not answered
	joins    bool // a classic member has to join again
}

// doubt is a request that was not answered: it may come late, and what the broker makes of it is not what the member is by
// then. Its epoch may rise, so that its next words are refused; and a partition that the request does not name, if it tells
// any, is not safe until that is over.
type doubt struct {
	process *process
	untilUs int64
	tells   bool
	names   []held
}

func (w *World) startModern() {
	g := &modernGroup{protocol: []string{"range", "cooperative-sticky"}[w.IntN(2)], holders: map[held][]*modernMember{}, owners: map[held]*owner{}, consumed: map[uint64]bool{}}
	w.modern = g
	for i := range 3 {
		if w.startClient(fmt.Sprintf("modern-%d", i), true, func(c *client) { c.runModern(g) }) {
			g.clients++
		}
	}
}

// runModern is one member after the other.
func (c *client) runModern(g *modernGroup) {
	var doubts []doubt
	plain, _ := c.topicID("plain")
	for life := 1; !g.over; life++ {
		m := c.newModern(g, life)
		m.plainID, m.doubts = plain, doubts
		g.members = append(g.members, m)
		m.live()
		m.giveUp(m.owned)
		g.members = slices.DeleteFunc(g.members, func(o *modernMember) bool { return o == m })
		if doubts = nil; m.instance != nil {
			doubts = m.doubts // of another member with this instance
		}
		c.sleep(c.w.Int64N(2 * secondInUs))
	}
}

// newModern draws what a member is.
func (c *client) newModern(g *modernGroup, life int) *modernMember {
	w := c.w
	m := &modernMember{
		membership: &membership{client: c, member: member{group: modernGroupName, id: fmt.Sprintf("%s-%d", c.name, life)}, topic: "plain"},
		group:      g, classic: w.chance(40), version: int16(w.IntN(2)), topics: []string{"plain"},
	}
	if w.chance(30) {
		m.topics = append(m.topics, volatileTopic)
	}
	switch {
	case w.chance(30):
		m.instance = kmsg.StringPtr("instance of " + c.name)
	case !m.classic && !w.healed && w.chance(30):
		m.instance = kmsg.StringPtr("instance of anybody")
	}
	if m.classic || m.version == 0 && w.chance(30) {
		m.member.id = "" // the broker gives one
	}
	if m.classic {
		m.topics = m.topics[:1]
	} else if m.version == 1 && w.chance(25) {
		m.pattern, m.topics = kmsg.StringPtr("pl.*n"), nil
	}
	return m
}

// live is the member from its first join to its last word.
func (m *modernMember) live() {
	w := m.w
	for !m.group.over {
		switch {
		case !m.joined:
			if m.attempts++; !m.rejoin() {
				m.sleep(w.Int64N(300 * msInUs))
			}
			if !m.joined && m.attempts > 20 && w.chance(20) {
				return // with what is in its way, another name may fare better
			}
		case !w.healed && w.chance(5):
			m.say(goodbye)
			return
		case !w.healed && w.chance(1):
			return // without a word
		default:
			m.step()
		}
	}
	m.say(goodbye)
}

type word int

const (
	goodbye word = iota
	alive
)

// say leaves the group, or tells that the member lives.
func (m *modernMember) say(what word) {
	if what == goodbye {
		m.giveUp(m.owned)
		m.joined = false
	}
	switch {
	case m.classic && what == goodbye:
		m.leaveClassic()
	case m.classic:
		m.heartbeatClassic()
	case what == goodbye:
		m.leaveModern()
	default:
		m.heartbeat()
	}
}

// rejoin becomes a member, for the first time or again.
func (m *modernMember) rejoin() bool {
	if m.classic {
		return m.joinClassic()
	}
	m.giveUp(m.owned)
	m.member.generation, m.full, m.told = 0, true, nil
	m.heartbeat()
	return m.joined
}

// step lives on: it heartbeats, reads and commits.
func (m *modernMember) step() {
	w := m.w
	if m.say(alive); !m.joined {
		return
	}
	if len(m.cursors) > 0 {
		for _, v := range m.fetchAll(m.cursors...) {
			m.group.consumed[v.id] = true
		}
	}
	if !w.healed && w.chance(3) {
		m.sleep(w.Int64N(2 * modernSessionMs * msInUs)) // long enough to lose everything
	}
	if !m.joins && w.chance(60) { // clients do not commit between JoinGroup and SyncGroup
		m.commitModern(m.cursors)
	}
	if w.healed && m.group.converged(m) && m.hasReadAll() {
		m.group.over = true
	}
	m.sleep(w.Int64N(300 * msInUs))
}

// request sends what the group's coordinator is to hear. If that tells what the member has, it is names.
func (m *modernMember) request(req kmsg.Request, version int16, timeoutUs int64, names []held, tells bool) (resp kmsg.Response, sentUs int64) {
	sentUs = m.w.nowUs
	if resp = m.askWithin(req, version, timeoutUs); resp == nil {
		// The process of now, which may have started while the request waited for it.
		m.doubts = append(m.doubts, doubt{m.w.process, sentUs + modernDoubtUs, tells, slices.Clone(names)})
	}
	return resp, sentUs
}

// heartbeat is one ConsumerGroupHeartbeat, and what its answer says.
func (m *modernMember) heartbeat() {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch, req.InstanceID = m.member.group, m.member.id, m.member.generation, m.instance
	joins := m.member.generation == 0
	if m.full = m.full || m.w.chance(10); m.full {
		req.RebalanceTimeoutMillis, req.SubscribedTopicNames, req.SubscribedTopicRegex = modernRebalanceMs, m.topics, m.pattern
	}
	tells := m.full || joins || !slices.Equal(m.told, m.owned)
	if tells {
		req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		for _, h := range m.owned {
			req.Topics = append(req.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: h.topic, Partitions: []int32{h.partition}})
		}
	}
	version := m.version
	if m.member.id == "" {
		version = 0
	}
	seen, told := m.group.epoch, slices.Clone(m.owned)
	resp, sentUs := m.request(req, version, callTimeoutUs, m.owned, tells)
	if resp == nil {
		if m.full, m.missed = true, m.missed+1; joins && m.instance == nil && m.w.chance(50) {
			m.member.id = fmt.Sprintf("%s-%d-%d", m.name, len(m.group.members), m.w.Uint32())
		}
		return
	}
	r := resp.(*kmsg.ConsumerGroupHeartbeatResponse)
	if r.ErrorCode != 0 {
		m.refused(r.ErrorCode, joins)
		return
	}
	if r.MemberEpoch < m.member.generation || joins && r.MemberEpoch < seen {
		m.w.fail("epochs: %s: member %s is told epoch %d, it was at %d, somebody at %d", m.name, *r.MemberID, r.MemberEpoch, m.member.generation, seen)
	}
	if joins {
		m.tracef("joins as %s at epoch %d", *r.MemberID, r.MemberEpoch)
	}
	m.full, m.joined, m.member.id, m.member.generation = false, true, *r.MemberID, r.MemberEpoch
	m.group.epoch = max(m.group.epoch, r.MemberEpoch)
	if tells {
		m.told = told
	}
	if r.Assignment == nil {
		if !m.busy {
			m.clean(sentUs)
		}
		return
	}
	var now []held
	for _, t := range r.Assignment.Topics {
		for _, p := range t.Partitions {
			now = append(now, held{t.TopicID, p})
		}
	}
	m.assigned(now, sentUs)
}

// refused is a heartbeat's refusal. Who is surely a member is not refused.
func (m *modernMember) refused(code int16, joins bool) {
	m.tracef("heartbeat: code %d", code)
	switch {
	case code == kerr.UnknownMemberID.Code, code == kerr.FencedMemberEpoch.Code, code == kerr.GroupIDNotFound.Code, code == kerr.FencedInstanceID.Code:
		if !joins && m.missed <= 1 && m.safe(nil) {
			m.w.fail("members: %s: member %s at epoch %d is refused with code %d, it was well at %d us", m.name, m.member.id, m.member.generation, code, m.cleanUs)
		}
	case code == kerr.UnreleasedInstanceID.Code && joins:
	default:
		m.unexpected("ConsumerGroupHeartbeat", code)
	}
	m.giveUp(m.owned)
	m.joined = false
}

// assigned takes an assignment over: it takes what is new, and gives up what is gone, as a client with callbacks does: until
// it says so, that is still its own.
func (m *modernMember) assigned(now []held, sentUs int64) {
	if m.target = now; m.busy {
		return // it is at it
	}
	m.busy = true
	defer func() { m.busy = false }()
	for m.joined {
		gone, fresh := without(m.owned, m.target), without(m.target, m.owned)
		if len(gone) == 0 {
			m.clean(sentUs)
		}
		if len(gone)+len(fresh) == 0 {
			return
		}
		m.claim(fresh, sentUs)
		if len(gone) > 0 {
			m.revoke(gone)
		}
	}
}

// without returns what of all is not in others.
func without(all, others []held) []held {
	return slices.DeleteFunc(slices.Clone(all), func(h held) bool { return slices.Contains(others, h) })
}

// revoke ends the use of partitions. Meanwhile the member says that it lives, and may commit what it has read.
func (m *modernMember) revoke(gone []held) {
	for m.joined && m.w.chance(60) {
		if m.sleep(m.w.Int64N(500 * msInUs)); !m.classic {
			m.heartbeat()
		}
	}
	if !m.joined {
		return
	}
	var last []*cursor
	for _, u := range m.cursors {
		if slices.Contains(gone, held{m.plainID, u.partition}) {
			last = append(last, u)
		}
	}
	if m.w.chance(50) {
		m.commitModern(last)
	}
	m.giveUp(gone)
	if m.classic {
		m.joins = true // so that others get it
		return
	}
	epoch := m.member.generation
	m.heartbeat()
	if m.joined && m.missed == 0 && len(without(gone, m.target)) == len(gone) && m.member.generation > epoch && m.w.chance(50) {
		m.commitStale(last, epoch)
	}
}

func (m *modernMember) leaveModern() {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch, req.InstanceID = m.member.group, m.member.id, -1, m.instance
	if m.instance != nil && m.w.chance(70) {
		req.MemberEpoch = -2
	}
	if m.member.id != "" {
		m.request(req, m.version, callTimeoutUs, nil, true)
	}
}
