package world

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The member that speaks the classic protocol, with subscriptions and assignments as consumers have them.

// eager members give everything up before they join again.
func (g *modernGroup) eager() bool { return g.protocol == "range" }

// joinClassic joins, for the first time or again, and takes what it is assigned. It reports whether it is a member.
func (m *modernMember) joinClassic() bool {
	if !m.joined || m.group.eager() {
		m.giveUp(m.owned)
	}
	m.joins = true
	resp, _ := m.request(m.classicJoin(), 7, (modernRebalanceMs+1000)*msInUs, nil, true)
	if resp == nil {
		m.missed++
		return m.joined
	}
	r := resp.(*kmsg.JoinGroupResponse)
	switch r.ErrorCode {
	case 0:
	case kerr.MemberIDRequired.Code:
		m.member.id = r.MemberID
		return false
	case kerr.RebalanceInProgress.Code:
		return m.joined
	case kerr.UnknownMemberID.Code, kerr.FencedInstanceID.Code:
		m.lost()
		return false
	default:
		m.unexpected("JoinGroup", r.ErrorCode)
	}
	m.member.id, m.member.generation = r.MemberID, r.Generation
	m.group.epoch = max(m.group.epoch, r.Generation)
	m.tracef("has joined as %s, generation %d, leads %d members", r.MemberID, r.Generation, len(r.Members))
	m.joined = true
	return m.syncClassic(r)
}

// lost is what a member does that is none any more.
func (m *modernMember) lost() {
	m.giveUp(m.owned)
	m.joined, m.member.id = false, ""
}

func (m *modernMember) classicJoin() *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.MemberID, req.InstanceID, req.ProtocolType = m.member.group, m.member.id, m.instance, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = modernSessionMs, modernRebalanceMs
	sub := kmsg.ConsumerMemberMetadata{Version: 1, Topics: m.topics}
	for _, h := range m.owned {
		sub.OwnedPartitions = append(sub.OwnedPartitions, kmsg.ConsumerMemberMetadataOwnedPartition{Topic: m.topic, Partitions: []int32{h.partition}})
	}
	proto := kmsg.NewJoinGroupRequestProtocol()
	proto.Name, proto.Metadata = m.group.protocol, sub.AppendTo(nil)
	req.Protocols = append(req.Protocols, proto)
	return req
}

func (m *modernMember) syncClassic(joined *kmsg.JoinGroupResponse) bool {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.MemberID, req.Generation, req.InstanceID = m.member.group, m.member.id, m.member.generation, m.instance
	if joined.LeaderID == m.member.id {
		req.GroupAssignment = m.deal(joined.Members)
	}
	resp, sentUs := m.request(req, 3, (modernRebalanceMs+1000)*msInUs, nil, true)
	if resp == nil {
		m.missed++
		return true
	}
	r := resp.(*kmsg.SyncGroupResponse)
	switch r.ErrorCode {
	case 0:
	case kerr.RebalanceInProgress.Code:
		return true
	case kerr.IllegalGeneration.Code:
		m.giveUp(m.owned)
		m.joined = false
		return false
	case kerr.UnknownMemberID.Code, kerr.FencedInstanceID.Code:
		m.lost()
		return false
	default:
		m.unexpected("SyncGroup", r.ErrorCode)
	}
	var now []held
	if len(r.MemberAssignment) > 0 {
		var a kmsg.ConsumerMemberAssignment
		if err := a.ReadFrom(r.MemberAssignment); err != nil {
			m.w.fail("codec: %s: an assignment of %d bytes cannot be read: %v", m.name, len(r.MemberAssignment), err)
		}
		for _, t := range a.Topics {
			for _, p := range t.Partitions {
				now = append(now, held{m.plainID, p})
			}
		}
	}
	m.joins = false
	m.assigned(now, sentUs)
	m.clean(sentUs)
	return m.joined
}

// deal shares the partitions out, somehow. What a cooperative member still has, nobody else gets: it has to join without it
// first.
func (m *modernMember) deal(members []kmsg.JoinGroupResponseMember) []kmsg.SyncGroupRequestGroupAssignment {
	has := map[int32]string{}
	for i := range members {
		var sub kmsg.ConsumerMemberMetadata
		if err := sub.ReadFrom(members[i].ProtocolMetadata); err != nil {
			m.w.fail("codec: %s: a subscription cannot be read: %v", m.name, err)
		}
		for _, t := range sub.OwnedPartitions {
			for _, p := range t.Partitions {
				has[p] = members[i].MemberID
			}
		}
	}
	var all []kmsg.SyncGroupRequestGroupAssignment
	shift := m.w.IntN(len(members))
	for i := range members {
		id := members[i].MemberID
		a := kmsg.ConsumerMemberAssignment{Version: 1}
		for p := range int32(inputPartitions) {
			if (int(p)+shift)%len(members) == i && (has[p] == "" || has[p] == id) {
				a.Topics = append(a.Topics, kmsg.ConsumerMemberAssignmentTopic{Topic: m.topic, Partitions: []int32{p}})
			}
		}
		one := kmsg.NewSyncGroupRequestGroupAssignment()
		one.MemberID, one.MemberAssignment = id, a.AppendTo(nil)
		all = append(all, one)
	}
	return all
}

func (m *modernMember) heartbeatClassic() {
	if m.joins {
		m.joinClassic()
		return
	}
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation, req.InstanceID = m.member.group, m.member.id, m.member.generation, m.instance
	resp, sentUs := m.request(req, 4, callTimeoutUs, nil, false)
	if resp == nil {
		return
	}
	switch code := resp.(*kmsg.HeartbeatResponse).ErrorCode; code {
	case 0:
		m.clean(sentUs)
	case kerr.RebalanceInProgress.Code:
		if m.w.chance(50) {
			m.commitModern(slices.Clone(m.cursors))
		}
		m.joinClassic()
	case kerr.IllegalGeneration.Code:
		// A downgrade takes the group's epoch, which may be above the member's, as Apache Kafka's does.
		m.giveUp(m.owned)
		m.joined = false
	case kerr.UnknownMemberID.Code, kerr.FencedInstanceID.Code:
		m.tracef("heartbeat: code %d", code)
		if m.missed == 0 && m.safe(nil) {
			m.w.fail("members: %s: member %s of generation %d is refused with code %d, it was well at %d us", m.name, m.member.id, m.member.generation, code, m.cleanUs)
		}
		m.lost()
	default:
		m.unexpected("Heartbeat", code)
	}
}

// leaveClassic leaves; who has an instance may just be gone.
func (m *modernMember) leaveClassic() {
	if m.member.id == "" || m.instance != nil && m.w.chance(50) {
		return
	}
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = m.member.group
	leaver := kmsg.NewLeaveGroupRequestMember()
	leaver.MemberID, leaver.InstanceID = m.member.id, m.instance
	req.Members = append(req.Members, leaver)
	m.request(req, 4, callTimeoutUs, nil, true)
}
