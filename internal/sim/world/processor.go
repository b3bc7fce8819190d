package world

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// processor is a member of a consumer group that reads "in" and writes what it makes of it to "out", with its offsets
// in the same transactions.
type processor struct {
	*client
	session *session
	member  member
	cursors []*cursor
	rounds  int
}

const (
	sessionMs   = 6000
	rebalanceMs = 3000
)

func (c *client) runProcessor(v2 bool) {
	p := &processor{client: c, member: member{group: "processors"}}
	p.session = &session{c: c, id: c.name, rank: 1, v2: v2, current: func() bool { return true }}
	c.w.processing = true
	alive := false
	for !c.w.processed {
		if !alive {
			alive = p.session.init(false) && p.join() && p.resume()
			continue
		}
		alive = p.step()
	}
}

// join becomes a member of the group and learns its partitions.
func (p *processor) join() bool {
	resp := p.ask(p.joinRequest(), 5)
	if resp == nil {
		// The answer may be long in coming: the same member asks again.
		return false
	}
	r := resp.(*kmsg.JoinGroupResponse)
	if r.ErrorCode != 0 {
		if p.member.id = ""; r.ErrorCode == kerr.MemberIDRequired.Code {
			p.member.id = r.MemberID
		}
		return false
	}
	p.member.id, p.member.generation = r.MemberID, r.Generation
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.MemberID, req.Generation = p.member.group, p.member.id, p.member.generation
	if r.LeaderID == r.MemberID {
		req.GroupAssignment = assign(r.Members)
	}
	resp = p.ask(req, 3)
	if resp == nil || resp.(*kmsg.SyncGroupResponse).ErrorCode != 0 {
		return false
	}
	p.cursors = nil
	for _, partition := range resp.(*kmsg.SyncGroupResponse).MemberAssignment {
		p.cursors = append(p.cursors, &cursor{topic: "in", partition: int32(partition), committed: true})
	}
	p.tracef("generation %d, %d partitions", p.member.generation, len(p.cursors))
	return true
}

func (p *processor) joinRequest() *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.MemberID, req.ProtocolType = p.member.group, p.member.id, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = sessionMs, rebalanceMs
	proto := kmsg.NewJoinGroupRequestProtocol()
	proto.Name = "sim"
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

// resume finds out where to go on.
func (p *processor) resume() bool {
	for _, u := range p.cursors {
		u.offset = max(p.committed(p.member.group, u.partition), 0)
	}
	return true
}

// step heartbeats, reads, and commits what it made of it; false means to begin anew.
func (p *processor) step() bool {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = p.member.group, p.member.id, p.member.generation
	resp := p.ask(req, 4)
	if resp == nil {
		return true
	}
	if code := resp.(*kmsg.HeartbeatResponse).ErrorCode; code != 0 {
		p.tracef("heartbeat: code %d", code)
		return false
	}
	var moved []*cursor
	var inputs []*value
	for _, u := range p.cursors {
		before := u.offset
		values, ok := p.fetch(u)
		if !ok {
			continue
		}
		if inputs = append(inputs, values...); u.offset > before {
			moved = append(moved, u)
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
	for _, v := range inputs {
		if !p.session.produce(tx, "out", int32(v.id)%inputPartitions, []uint64{v.id}) {
			return false
		}
	}
	if w.chance(5) {
		p.sleep(w.Int64N(2 * sessionMs * msInUs)) // long enough to lose the partitions
	}
	commit := !w.chance(15)
	return p.session.offsets(p.member, moved) && p.session.end(tx, commit) && commit
}

// lookForEnd lets all processors end when everything has been processed.
func (p *processor) lookForEnd() {
	w := p.w
	if !w.healed || w.producers > 0 {
		return
	}
	for i := range int32(inputPartitions) {
		u := &cursor{topic: "in", partition: i, committed: true, offset: max(p.committed(p.member.group, i), 0)}
		before := u.offset
		if _, ok := p.fetch(u); !ok || !u.atEnd() || u.offset != before {
			return
		}
	}
	w.processed = true
}
