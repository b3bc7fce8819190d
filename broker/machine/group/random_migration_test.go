package group

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestRandomMigration is TestRandomConsumers with members of the classic protocol in the same group, eager and cooperative ones
// and a static one: the group changes its protocol again and again. No two members that the group knows read one partition.
func TestRandomMigration(t *testing.T) {
	first, last := uint64(1), uint64(150)
	if *seedFlag != 0 {
		first, last = *seedFlag, *seedFlag
	}
	upgrades, downgrades := 0, 0
	for seed := first; seed <= last; seed++ {
		if !t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			r := newMigrationRun(t, seed)
			r.run(400)
			upgrades += r.upgrades
			downgrades += r.downgrades
		}) {
			t.Fatalf("again: go test ./broker/machine/group -run TestRandomMigration -seed=%d", seed)
		}
	}
	if *seedFlag == 0 && (upgrades < 150 || downgrades < 150) {
		t.Errorf("only %d upgrades and %d downgrades", upgrades, downgrades)
	}
}

type migrationRun struct {
	*consumerRun
	classics              []*classicClient
	waiting               map[uint64]func(kmsg.Response)
	upgrades, downgrades  int
	hadConsumers, hadLive bool
}

// classicClient is what one member of the classic protocol believes.
type classicClient struct {
	r           *migrationRun
	instance    *string
	cooperative bool
	id          string
	op          uint64 // of the request that it waits for, 0 for none
	generation  int32
	protocol    string
	leads       []kmsg.JoinGroupResponseMember
	synced      bool // it has an assignment, and sends heartbeats
	joins       bool // it has joined, and owes a SyncGroup
	has         []topicPartition
	// outside: it was no member any more when it joined, and does not know before its next assignment, as on Apache Kafka.
	outside bool
}

func newMigrationRun(t *testing.T, seed uint64) *migrationRun {
	r := &migrationRun{consumerRun: newConsumerRun(t, seed), waiting: map[uint64]func(kmsg.Response){}}
	r.clients = r.clients[:3]
	r.cfg.MaxGroupSize = 6
	for i := range 3 {
		c := &classicClient{r: r, cooperative: i > 0}
		if i == 2 {
			c.instance = kmsg.StringPtr("static")
		}
		r.classics = append(r.classics, c)
	}
	return r
}

func (r *migrationRun) run(steps int) {
	r.listen()
	for range steps {
		if r.rng.IntN(2) == 0 {
			r.stepConsumer()
		} else {
			pick(r.rng, r.classics...).step()
		}
		r.check()
		r.apart()
		r.count()
	}
	for range 60 {
		for _, c := range r.classics {
			c.live()
			r.apart()
		}
		r.settleOnce()
		r.wait(2000)
	}
	if g, ok := r.gs.groups.Get("g"); ok && g.hasConsumers() {
		r.judge(g)
	}
}

// listen brings replies to whom they are for, also those of other requests' making.
func (r *migrationRun) listen() {
	r.reply = func(op uint64, resp kmsg.Response) {
		if f := r.waiting[op]; f != nil {
			delete(r.waiting, op)
			f(resp)
		}
	}
}

func (r *migrationRun) stepConsumer() {
	c := pick(r.rng, r.clients...)
	switch n := r.rng.IntN(100); {
	case n < 1:
		r.restart()
		r.topicsVersion = 1
		r.matches, r.assignments = nil, nil
		clear(r.waiting)
		for _, c := range r.classics {
			c.op = 0
		}
	case n < 5:
		for _, c := range r.clients {
			r.leave(c, -1)
			r.leave(c, -1)
		}
	case n < 12:
		r.wait(pick[int64](r.rng, 1, 500, 1000, 5000))
	case n < 15:
		r.changeTopics()
		for _, c := range r.classics {
			c.has = slices.DeleteFunc(c.has, func(p topicPartition) bool {
				name, ok := r.TopicByID(p.topic)
				return !ok || p.partition >= r.topics[name]
			})
		}
	case n < 20:
		r.matched()
	case n < 26:
		r.assigned()
	case n < 40:
		c.act()
	case n < 50:
		r.leave(c, pick[int32](r.rng, -1, -1, leftEpoch))
	default:
		r.heartbeat(c)
	}
}

// count sees the group change its protocol while it has members.
func (r *migrationRun) count() {
	g, ok := r.gs.groups.Get("g")
	consumers, live := ok && g.hasConsumers(), ok && g.classic()
	if consumers && r.hadLive {
		r.upgrades++
	}
	if live && r.hadConsumers {
		r.downgrades++
	}
	r.hadConsumers, r.hadLive = consumers, live
}

// knows tells whether the group has the member, with this id and protocol.
func (r *migrationRun) knows(c *classicClient) bool {
	g, ok := r.gs.groups.Get("g")
	if !ok || c.id == "" {
		return false
	}
	if g.saved.consumer != nil {
		if m, ok := g.saved.consumer.members.Get(c.id); ok {
			return m.info.classic != nil
		}
	}
	_, ok = g.live.members.Get(c.id)
	return ok
}

// apart is exclusive, for members of both protocols.
func (r *migrationRun) apart() {
	r.t.Helper()
	r.exclusive()
	owner := map[topicPartition]string{}
	for _, c := range r.clients {
		if c.joined && r.member(c) != nil {
			for _, p := range c.has {
				owner[p] = c.id
			}
		}
	}
	for _, c := range r.classics {
		if !r.knows(c) || c.outside {
			continue
		}
		for _, p := range c.has {
			if other, taken := owner[p]; taken {
				r.t.Fatalf("%q and the classic member %q both read %s-%d", other, c.id, topicName("", p.topic), p.partition)
			}
			owner[p] = c.id
		}
	}
}

func (c *classicClient) step() {
	switch n := c.r.rng.IntN(20); {
	case n == 0 && c.id != "" && c.op == 0:
		c.leave()
	case n == 1 && c.op == 0:
		c.joins, c.synced = false, false // a lost answer, or a client that wants to join again
	default:
		c.live()
	}
}

// live sends what a client would send next.
func (c *classicClient) live() {
	switch {
	case c.op != 0:
	case c.joins:
		c.sync()
	case c.synced:
		c.heartbeat()
	default:
		c.join()
	}
}

func (c *classicClient) lose() {
	c.id, c.has, c.joins, c.synced = "", nil, false, false
}

// fail takes an error as a client would.
func (c *classicClient) fail(code int16) {
	c.joins, c.synced = false, false
	if code != kerr.RebalanceInProgress.Code {
		c.lose()
	}
}

// send sends a request; its answer may be a while.
func (c *classicClient) send(request func(), answered func(kmsg.Response)) {
	c.r.op++
	c.op = c.r.op
	c.r.waiting[c.op] = func(resp kmsg.Response) { c.op = 0; answered(resp) }
	request()
}

func (c *classicClient) join() {
	sub := kmsg.NewConsumerMemberMetadata()
	sub.Version, sub.Topics = 1, []string{"s", "t"}
	if !c.cooperative {
		c.has = nil
	}
	for _, p := range c.has {
		if name, ok := c.r.TopicByID(p.topic); ok {
			sub.OwnedPartitions = append(sub.OwnedPartitions, kmsg.ConsumerMemberMetadataOwnedPartition{Topic: name, Partitions: []int32{p.partition}})
		}
	}
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.ProtocolType, req.MemberID, req.InstanceID = 5, "g", "consumer", c.id, c.instance
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 10_000, 8000
	req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "any", Metadata: sub.AppendTo(nil)}}
	c.outside = !c.r.knows(c)
	c.send(func() { c.r.work(c.r.gs.JoinGroup(c.r, req)) }, func(resp kmsg.Response) {
		j := resp.(*kmsg.JoinGroupResponse)
		switch j.ErrorCode {
		case 0:
			c.id, c.generation, c.protocol, c.joins, c.leads = j.MemberID, j.Generation, *j.Protocol, true, j.Members
		case kerr.MemberIDRequired.Code:
			c.id = j.MemberID
		default:
			c.fail(j.ErrorCode)
		}
	})
}

func (c *classicClient) sync() {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID, req.Generation = 5, "g", c.id, c.instance, c.generation
	req.ProtocolType, req.Protocol = kmsg.StringPtr("consumer"), &c.protocol
	req.GroupAssignment = c.r.lead(c.leads)
	c.joins = false
	c.send(func() { c.r.gs.SyncGroup(c.r, req) }, func(resp kmsg.Response) {
		s := resp.(*kmsg.SyncGroupResponse)
		if s.ErrorCode != 0 {
			c.fail(s.ErrorCode)
			return
		}
		var a kmsg.ConsumerMemberAssignment
		if len(s.MemberAssignment) > 0 {
			if err := a.ReadFrom(s.MemberAssignment); err != nil {
				panic(err)
			}
		}
		before := c.has
		c.has, c.synced, c.outside = nil, true, false
		for _, t := range a.Topics {
			for _, p := range t.Partitions {
				c.has = append(c.has, topicPartition{topicID(t.Topic), p})
			}
		}
		for _, p := range before {
			if !slices.Contains(c.has, p) {
				c.synced = false // what it gave up others can have once it has joined again
			}
		}
	})
}

// lead assigns as a leader does: who owns something keeps it, who has least gets the rest.
func (r *migrationRun) lead(members []kmsg.JoinGroupResponseMember) (out []kmsg.SyncGroupRequestGroupAssignment) {
	if len(members) == 0 {
		return nil
	}
	owner, count := map[topicPartition]string{}, map[string]int{}
	for _, m := range members {
		sub, _ := subscriptionOf(m.ProtocolMetadata)
		for _, t := range sub.OwnedPartitions {
			for _, p := range t.Partitions {
				owner[topicPartition{topicID(t.Topic), p}] = m.MemberID
				count[m.MemberID]++
			}
		}
	}
	places := map[string][]position{}
	for _, name := range []string{"s", "t"} {
		for p := range r.topics[name] {
			to, owned := owner[topicPartition{topicID(name), p}]
			if !owned {
				to = slices.MinFunc(members, func(a, b kmsg.JoinGroupResponseMember) int { return cmp.Compare(count[a.MemberID], count[b.MemberID]) }).MemberID
				count[to]++
			}
			places[to] = append(places[to], position{topic: name, partition: p})
		}
	}
	for _, m := range members {
		out = append(out, kmsg.SyncGroupRequestGroupAssignment{MemberID: m.MemberID, MemberAssignment: assignment(places[m.MemberID], "")})
	}
	return out
}

func (c *classicClient) heartbeat() {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID, req.Generation = 4, "g", c.id, c.instance, c.generation
	c.send(func() { c.r.work(c.r.gs.Heartbeat(c.r, req)) }, func(resp kmsg.Response) {
		if code := resp.(*kmsg.HeartbeatResponse).ErrorCode; code != 0 {
			c.fail(code)
		}
	})
}

func (c *classicClient) leave() {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Version, req.Group = 3, "g"
	req.Members = []kmsg.LeaveGroupRequestMember{{MemberID: c.id, InstanceID: c.instance}}
	c.send(func() { c.r.gs.LeaveGroup(c.r, req) }, func(kmsg.Response) {})
	c.lose()
}

// settleOnce lets all members of the consumer protocol send a heartbeat.
func (r *migrationRun) settleOnce() {
	for _, c := range r.clients {
		if r.member(c) == nil || !c.joined {
			continue
		}
		r.fullHeartbeat(c)
		r.check()
		r.apart()
	}
}

// judge demands of a group with members of the consumer protocol that it is stable and that everything is read by one.
func (r *migrationRun) judge(g *group) {
	r.t.Helper()
	if g.state() != "Stable" {
		r.t.Fatalf("the group is %s when all have sent heartbeats for two minutes", g.state())
	}
	read, want := 0, 0
	for _, c := range r.clients {
		if r.member(c) != nil && c.joined {
			read += len(c.has)
		}
	}
	for _, c := range r.classics {
		if r.knows(c) {
			read += len(c.has)
		}
	}
	for _, name := range g.saved.consumer.subscribers.Keys() {
		want += int(r.topics[name])
	}
	if read != want {
		r.t.Fatalf("%d partitions are read of %d", read, want)
	}
}
