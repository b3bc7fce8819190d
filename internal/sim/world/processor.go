package world

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// processor is a member of a consumer group that reads "in" and writes what it makes of it to "out", with its offsets
// in the same transactions.
type processor struct {
	*membership
	session *session
	rounds  int
}

const (
	sessionMs   = 6000
	rebalanceMs = 3000
)

func (c *client) runProcessor(v2 bool) {
	m := &membership{client: c, member: member{group: "processors"}, topic: "in"}
	p := &processor{membership: m}
	p.session = &session{c: c, id: c.name, rank: 1, v2: v2, current: func() bool { return true }}
	c.w.processing = true
	alive := false
	for !c.w.processed {
		if !alive {
			alive = p.session.init(false) && p.join() && p.resume()
			continue
		}
		alive = p.step()
		if alive && !c.w.healed && c.w.chance(2) {
			p.leave()
			alive = false
			p.sleep(c.w.Int64N(3 * secondInUs))
		}
	}
}

// join becomes a member of the group and learns its partitions.
func (m *membership) join() bool {
	resp := m.ask(m.joinRequest(), 5)
	if resp == nil {
		// The answer may be long in coming: the same member asks again.
		return false
	}
	r := resp.(*kmsg.JoinGroupResponse)
	if r.ErrorCode != 0 {
		if m.member.id = ""; r.ErrorCode == kerr.MemberIDRequired.Code {
			m.member.id = r.MemberID
		}
		return false
	}
	m.member.id, m.member.generation = r.MemberID, r.Generation
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.MemberID, req.Generation = m.member.group, m.member.id, m.member.generation
	if r.LeaderID == r.MemberID {
		req.GroupAssignment = assign(r.Members)
	}
	resp = m.ask(req, 3)
	if resp == nil || resp.(*kmsg.SyncGroupResponse).ErrorCode != 0 {
		return false
	}
	m.claimGroup()
	m.cursors = nil
	for _, partition := range resp.(*kmsg.SyncGroupResponse).MemberAssignment {
		m.cursors = append(m.cursors, &cursor{topic: m.topic, partition: int32(partition), committed: true})
	}
	m.tracef("generation %d, %d partitions", m.member.generation, len(m.cursors))
	return true
}

func (m *membership) joinRequest() *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.MemberID, req.ProtocolType = m.member.group, m.member.id, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = sessionMs, rebalanceMs
	proto := kmsg.NewJoinGroupRequestProtocol()
	proto.Name, proto.Metadata = "sim", []byte(m.name)
	req.Protocols = append(req.Protocols, proto)
	return req
}

// assign deals the partitions out; an assignment is a byte for each.
func assign(members []kmsg.JoinGroupResponseMember) []kmsg.SyncGroupRequestGroupAssignment {
	all := make([]kmsg.SyncGroupRequestGroupAssignment, len(members))
	for i := range members {
		all[i] = kmsg.NewSyncGroupRequestGroupAssignment()
		all[i].MemberID = members[i].MemberID
	}
	for partition := range inputPartitions {
		a := &all[partition%len(all)]
		a.MemberAssignment = append(a.MemberAssignment, byte(partition))
	}
	return all
}

// step heartbeats, reads, and commits what it made of it; false means to begin anew.
func (p *processor) step() bool {
	if alive, known := p.heartbeat(); !known || !alive {
		return !known
	}
	var moved []*cursor
	var inputs []*value
	if len(p.cursors) > 0 {
		before := make([]int64, len(p.cursors))
		for i, u := range p.cursors {
			before[i] = u.offset
		}
		inputs = p.fetchAll(p.cursors...)
		for i, u := range p.cursors {
			if u.offset > before[i] {
				moved = append(moved, u)
			}
		}
	}
	if len(moved) == 0 {
		p.lookForEnd()
		p.sleep(p.w.Int64N(200 * msInUs))
		return true
	}
	return p.commit(inputs, moved)
}

func (p *processor) commit(inputs []*value, moved []*cursor) bool {
	w := p.w
	p.rounds++
	tx := w.beginTransaction(fmt.Sprintf("%s-%d", p.name, p.rounds))
	var all []destination
	for i := range int32(inputPartitions) {
		var of []uint64
		for _, v := range inputs {
			if int32(v.id)%inputPartitions == i {
				of = append(of, v.id)
			}
		}
		if len(of) > 0 {
			all = append(all, destination{topic: "out", partition: i, of: of})
		}
	}
	if len(all) > 0 && !p.session.produceAll(tx, all...) {
		return false
	}
	if w.chance(5) {
		p.sleep(w.Int64N(2 * sessionMs * msInUs)) // long enough to lose the partitions
	}
	commit := !w.chance(15)
	return p.session.offsets(p.member, moved) && p.session.end(tx, commit) && commit
}

// lookForEnd lets all processors end when everything has been processed.
func (p *processor) lookForEnd() {
	if p.hasReadAll() {
		p.w.processed = true
	}
}
