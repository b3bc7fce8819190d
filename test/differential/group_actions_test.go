//go:build peers

package differential

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var groupActions = []action{
	{8, (*world).join},
	{12, (*world).heartbeat},
	{6, (*world).leave},
	{6, (*world).wrongJoin},
	{5, (*world).wrongSync},
	{30, (*world).offsetCommit},
	{40, (*world).offsetFetch},
	{7, (*world).describeGroups},
	{6, (*world).listGroups},
	{3, (*world).deleteGroups},
	{3, (*world).offsetDelete},
	{7, (*world).findCoordinator},
}

// membership is what a request says about its sender's place in a group: rarely a wrong one.
func (w *world) membership(g *group) (generation int32, id string, static *string) {
	if len(g.members) == 0 || w.chance(10) {
		return pick(w, int32(-1), -1, 0, 3), pick(w, "", "", "stranger"), nil
	}
	m := g.members[w.IntN(len(g.members))]
	generation = g.generation
	if w.chance(6) {
		generation += pick(w, int32(-1), 1)
	}
	return generation, m.id, m.static
}

func (w *world) joinRequest(g *group, m member) *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	w.version(req, 5, 9)
	if m.static == nil && (m.id != "" || len(g.members) == 0) {
		w.version(req, 0, 9) // which without a member id joins at once, so nobody else may be there
	}
	req.Group, req.MemberID, req.InstanceID = g.name, m.id, m.static
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 600000, 600000
	req.ProtocolType = "consumer"
	for _, name := range []string{"range", "sticky"} {
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name, p.Metadata = name, []byte(name+m.id[:min(len(m.id), 0)])
		req.Protocols = append(req.Protocols, p)
	}
	return req
}

// join brings a group together again: those who are there, and as a rule one more.
func (w *world) join() step {
	g := w.groups[w.IntN(len(w.groups)-1)]
	if len(g.members) > 0 && (len(g.members) >= 3 || w.chance(30)) {
		return w.rebalance(g)
	}
	m := member{client: w.clients}
	w.clients++
	if w.chance(25) {
		name := fmt.Sprintf("static-%d", w.clients)
		m.static = &name
		if len(g.members) > 0 { // joins without a word before: the others must come too
			g.members = append(g.members, m)
			return w.rebalance(g)
		}
	}
	return one(m.client, w.joinRequest(g, m), func(r kmsg.Response) {
		resp := r.(*kmsg.JoinGroupResponse)
		m.id = resp.MemberID
		switch {
		case resp.ErrorCode == 79:
			g.members = append(g.members, m)
			w.queue = append(w.queue, func() step { return w.rebalance(g) })
		case resp.ErrorCode == 0: // static members join at once when they are alone
			g.members = append(g.members, m)
			g.generation, g.leader = resp.Generation, resp.LeaderID
			w.queue = append(w.queue, func() step { return w.sync(g) })
		}
	})
}

func (w *world) rebalance(g *group) step {
	var s step
	// Who comes first makes the others wait: a new member, else the leader. Any other would get the generation that is.
	slices.SortStableFunc(g.members, func(a, b member) int { return cmp.Compare(a.turn(g), b.turn(g)) })
	for _, m := range g.members {
		s.exchanges = append(s.exchanges, exchange{m.client, w.joinRequest(g, m)})
	}
	s.after = func(rs []kmsg.Response) {
		ok := true
		for i, r := range rs {
			resp, _ := r.(*kmsg.JoinGroupResponse)
			if resp == nil || resp.ErrorCode != 0 {
				ok = false
				continue
			}
			g.members[i].id = resp.MemberID
			g.generation, g.leader = resp.Generation, resp.LeaderID
		}
		if ok {
			w.queue = append(w.queue, func() step { return w.sync(g) })
		}
	}
	return s
}

func (m member) turn(g *group) int {
	switch m.id {
	case "":
		return 0
	case g.leader:
		return 1
	}
	return 2
}

// withStatic picks a version that can name a static member, if it must.
func (w *world) withStatic(req kmsg.Request, static *string) {
	if static != nil {
		w.version(req, 3, 99)
		return
	}
	w.anyVersion(req)
}

func (w *world) syncRequest(g *group, m member) *kmsg.SyncGroupRequest {
	req := kmsg.NewPtrSyncGroupRequest()
	w.withStatic(req, m.static)
	req.Group, req.MemberID, req.InstanceID, req.Generation = g.name, m.id, m.static, g.generation
	if req.Version >= 5 {
		consumer, protocol := "consumer", "range"
		req.ProtocolType, req.Protocol = &consumer, &protocol
	}
	if m.id == g.leader {
		for i, o := range g.members {
			a := kmsg.NewSyncGroupRequestGroupAssignment()
			a.MemberID, a.MemberAssignment = o.id, []byte{byte(i)}
			req.GroupAssignment = append(req.GroupAssignment, a)
		}
	}
	return req
}

func (w *world) sync(g *group) step {
	var s step
	for _, m := range g.members {
		s.exchanges = append(s.exchanges, exchange{m.client, w.syncRequest(g, m)})
	}
	return s
}

func (w *world) heartbeat() step {
	g := w.groups[w.IntN(len(w.groups))]
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group = g.name
	req.Generation, req.MemberID, req.InstanceID = w.membership(g)
	w.withStatic(req, req.InstanceID)
	return one(0, req, nil)
}

// leave takes out one member, by its id or its static name; the others come together again.
func (w *world) leave() step {
	g := w.groups[w.IntN(len(w.groups))]
	req := kmsg.NewPtrLeaveGroupRequest()
	w.version(req, 3, 5)
	req.Group = g.name
	m := kmsg.NewLeaveGroupRequestMember()
	if req.MemberID = "stranger"; w.chance(10) {
		w.version(req, 0, 2)
		return one(0, req, nil)
	}
	if len(g.members) == 0 || w.chance(15) {
		m.MemberID = "stranger"
		if w.chance(50) {
			name := "nobody"
			m.InstanceID = &name
		}
		req.Members = append(req.Members, m)
		return one(0, req, nil)
	}
	i := w.IntN(len(g.members))
	gone := g.members[i]
	if len(g.members) > 2 && gone.id == g.leader { // who leads next is for each broker to say
		i = (i + 1) % len(g.members)
		gone = g.members[i]
	}
	m.MemberID, m.InstanceID = gone.id, gone.static
	if gone.static != nil && w.chance(50) {
		m.MemberID = ""
	}
	req.Members = append(req.Members, m)
	if req.MemberID = gone.id; gone.static == nil {
		w.anyVersion(req)
	}
	return one(0, req, func(r kmsg.Response) {
		resp := r.(*kmsg.LeaveGroupResponse)
		if resp.ErrorCode != 0 || len(resp.Members) == 1 && resp.Members[0].ErrorCode != 0 {
			return
		}
		g.members = append(g.members[:i:i], g.members[i+1:]...)
		if len(g.members) > 0 {
			w.queue = append(w.queue, func() step { return w.rebalance(g) })
		}
	})
}

func (w *world) wrongJoin() step {
	g := w.groups[w.IntN(len(w.groups))]
	req := w.joinRequest(g, member{id: "stranger"})
	w.version(req, 0, 9)
	switch w.IntN(4) {
	case 0:
		req.Group = ""
	case 1:
		req.SessionTimeoutMillis = pick(w, int32(10), 1<<30, 0)
	case 2:
		if len(g.members) > 0 {
			req.MemberID, req.ProtocolType = "", "connect"
		}
	}
	return one(9, req, nil)
}

func (w *world) wrongSync() step {
	g := w.groups[w.IntN(len(w.groups))]
	req := w.syncRequest(g, member{id: "stranger"})
	return one(9, req, nil)
}

func (w *world) offsetCommit() step {
	g := w.groups[w.IntN(len(w.groups))]
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = g.name
	req.Generation, req.MemberID, req.InstanceID = w.membership(g)
	if req.InstanceID != nil {
		w.version(req, 7, 10)
	} else {
		w.anyVersion(req)
	}
	if w.chance(2) {
		req.Group, req.Generation, req.MemberID, req.InstanceID = "", -1, "", nil
	}
	for _, at := range w.places(1 + w.IntN(2)) {
		t := kmsg.NewOffsetCommitRequestTopic()
		t.Topic, t.TopicID = at.topic, w.idOf(at.topic)
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = at.partition, int64(w.IntN(100)), -1, w.metadata(g)
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
	}
	return one(0, req, func(r kmsg.Response) {
		for _, t := range r.(*kmsg.OffsetCommitResponse).Topics {
			g.exists = g.exists || t.Partitions[0].ErrorCode == 0
		}
	})
}

func (w *world) offsetFetch() step {
	g := w.groups[w.IntN(len(w.groups))]
	req := kmsg.NewPtrOffsetFetchRequest()
	w.anyVersion(req)
	req.RequireStable = w.chance(50)
	if w.chance(30) && req.Version >= 2 {
		if req.Version >= 8 {
			rg := kmsg.NewOffsetFetchRequestGroup()
			rg.Group, rg.MemberEpoch = g.name, -1
			req.Groups = append(req.Groups, rg)
		}
		req.Group, req.Topics = g.name, nil
		return one(0, req, nil)
	}
	req.Group = g.name
	rg := kmsg.NewOffsetFetchRequestGroup()
	rg.Group, rg.MemberEpoch = g.name, -1
	for _, at := range w.places(3) {
		t := kmsg.NewOffsetFetchRequestTopic()
		t.Topic, t.Partitions = at.topic, []int32{at.partition}
		req.Topics = append(req.Topics, t)
		gt := kmsg.NewOffsetFetchRequestGroupTopic()
		gt.Topic, gt.TopicID, gt.Partitions = at.topic, w.idOf(at.topic), []int32{at.partition}
		rg.Topics = append(rg.Topics, gt)
	}
	req.Groups = append(req.Groups, rg)
	return one(0, req, nil)
}

// idOf is a topic's id, or one that no topic has.
func (w *world) idOf(topic string) [16]byte {
	if id := w.topics[topic]; id != ([16]byte{}) {
		return id
	}
	return [16]byte{1, 2, 3}
}

func (w *world) groupNames() []string {
	var out []string
	for _, g := range w.groups {
		if w.chance(60) {
			out = append(out, g.name)
		}
	}
	if w.chance(10) {
		out = append(out, w.prefix+"nogroup")
	}
	return out
}

func (w *world) describeGroups() step {
	req := kmsg.NewPtrDescribeGroupsRequest()
	w.anyVersion(req)
	req.Groups = w.groupNames()
	return one(0, req, nil)
}

func (w *world) listGroups() step {
	req := kmsg.NewPtrListGroupsRequest()
	w.anyVersion(req)
	for _, s := range []string{"Stable", "Empty", "PreparingRebalance", "Dead"} {
		if w.chance(30) {
			req.StatesFilter = append(req.StatesFilter, s)
		}
	}
	if w.chance(20) {
		req.TypesFilter = append(req.TypesFilter, pick(w, "classic", "consumer"))
	}
	return one(0, req, nil)
}

func (w *world) deleteGroups() step {
	req := kmsg.NewPtrDeleteGroupsRequest()
	w.anyVersion(req)
	req.Groups = w.groupNames()
	for _, g := range w.groups {
		g.exists = false
	}
	return one(0, req, nil)
}

func (w *world) offsetDelete() step {
	g := w.groups[w.IntN(len(w.groups))]
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = g.name
	for _, at := range w.places(2) {
		t := kmsg.NewOffsetDeleteRequestTopic()
		t.Topic = at.topic
		p := kmsg.NewOffsetDeleteRequestTopicPartition()
		p.Partition = at.partition
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
	}
	return one(0, req, nil)
}

func (w *world) findCoordinator() step {
	req := kmsg.NewPtrFindCoordinatorRequest()
	w.anyVersion(req)
	req.CoordinatorType = pick(w, int8(0), 1, 1, 3)
	key := pick(w, w.groups[0].name, *w.producers[0].id, "")
	req.CoordinatorKey = key
	req.CoordinatorKeys = []string{key, w.prefix + "other"}
	return one(0, req, nil)
}
