package group

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestRandomConsumers lets members of consumer groups do all that they can do, in any order, with lost answers, silence
// and restarts between. No two members that the group knows ever have the same partition; in the end, when all send
// heartbeats, the group is stable, everything is read by somebody, and evenly so.
func TestRandomConsumers(t *testing.T) {
	first, last := uint64(1), uint64(150)
	if *seedFlag != 0 {
		first, last = *seedFlag, *seedFlag
	}
	for seed := first; seed <= last; seed++ {
		if !t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { newConsumerRun(t, seed).run(300) }) {
			t.Fatalf("again: go test ./broker/machine/group -run TestRandomConsumers -seed=%d", seed)
		}
	}
}

type consumerRun struct {
	*world
	rng         *rand.Rand
	clients     []*consumerClient
	matches     []matchTask
	assignments []*Assignment
	same        bool // all subscribe to the same topics
}

// consumerClient is what one member believes.
type consumerClient struct {
	id       string
	instance *string
	joined   bool
	epoch    int32
	has      []topicPartition
	assigned []topicPartition // what it was told, and has not acted upon yet
	told     bool
	whole    bool // the next heartbeat says all: the last answer was lost
	topics   []string
	pattern  string
}

// matchTask is a pattern that somebody is matching, outside.
type matchTask struct {
	version uint64
	match   MatchedPattern
}

func newConsumerRun(t *testing.T, seed uint64) *consumerRun {
	r := &consumerRun{world: newWorld(t, Config{MaxGroupSize: 5, MaxConsumerGroupSize: 5, OffsetsRetentionMs: 1 << 50, InitialRebalanceDelayMs: -1}),
		rng: rand.New(rand.NewPCG(seed, 0)), same: seed%2 == 0}
	if seed%3 == 0 {
		r.world = newWorld(t, Config{MaxGroupSize: 5, MaxConsumerGroupSize: 5, OffsetsRetentionMs: 1 << 50, InitialRebalanceDelayMs: -1, InlineAssignment: -1})
	}
	r.topics["s"], r.topics["t"] = 3, 5
	for i := range 6 {
		c := &consumerClient{}
		if i%3 == 0 {
			c.instance = kmsg.StringPtr("static")
		}
		r.clients = append(r.clients, c)
	}
	return r
}

func (r *consumerRun) run(steps int) {
	for range steps {
		r.step()
		r.check()
		r.exclusive()
	}
	r.settle()
}

func (r *consumerRun) step() {
	c := pick(r.rng, r.clients...)
	switch n := r.rng.IntN(100); {
	case n < 2:
		r.restart()
		r.topicsVersion = 1
		r.matches, r.assignments = nil, nil
	case n < 12:
		r.wait(pick[int64](r.rng, 1, 500, 1000, 5000, 20_000))
	case n < 16:
		r.changeTopics()
	case n < 22:
		r.matched()
	case n < 28:
		r.assigned()
	case n < 40:
		c.act()
	case n < 45:
		r.leave(c, pick[int32](r.rng, -1, leftEpoch))
	case n < 50:
		r.commit(c)
	case n < 53:
		r.classic()
	default:
		r.heartbeat(c)
	}
}

func (r *consumerRun) changeTopics() {
	name := pick(r.rng, "s", "t", "u")
	if n := r.topics[name]; n > 0 && r.rng.IntN(3) == 0 {
		delete(r.topics, name)
		r.change(func(gs *Groups) { gs.ApplyTopicDeleted(name) })
		for _, c := range r.clients {
			// Whoever reads what is gone gives it up by itself.
			gone := func(p topicPartition) bool { return p.topic == topicID(name) }
			c.has, c.assigned = slices.DeleteFunc(c.has, gone), slices.DeleteFunc(c.assigned, gone)
		}
	} else {
		r.topics[name] = min(n+1+r.rng.Int32N(2), 8)
	}
	r.topicsVersion++
}

// matched brings back what one pattern matched when it was looked at.
func (r *consumerRun) matched() {
	if len(r.matches) == 0 {
		return
	}
	i := r.rng.IntN(len(r.matches))
	m := r.matches[i]
	r.matches = slices.Delete(r.matches, i, i+1)
	r.gs.Matched(r, "g", m.version, m.match)
}

// assigned brings back an assignment, of this epoch or an older one.
func (r *consumerRun) assigned() {
	if len(r.assignments) == 0 {
		return
	}
	i := r.rng.IntN(len(r.assignments))
	a := r.assignments[i]
	r.assignments = slices.Delete(r.assignments, i, i+1)
	a.Make()
	r.gs.Assigned(r, a)
}

func (r *consumerRun) work(w Work) {
	if w.Pattern != "" {
		r.match(w.Pattern)
	}
	if w.Assignment != nil {
		r.assignments = append(r.assignments, w.Assignment)
	}
}

func (r *consumerRun) match(pattern string) {
	m := matchTask{r.topicsVersion, MatchedPattern{Pattern: pattern}}
	for name := range r.topics {
		if regexp.MustCompile("^(?:" + pattern + ")$").MatchString(name) {
			m.match.Topics = append(m.match.Topics, name)
		}
	}
	slices.Sort(m.match.Topics)
	r.matches = append(r.matches, m)
}

// act takes over what it was told: it gives up the rest, and has the new.
func (c *consumerClient) act() {
	if c.told {
		c.told, c.has = false, c.assigned
	}
}

func (c *consumerClient) lose() { *c = consumerClient{instance: c.instance, id: c.id} }

func (r *consumerRun) heartbeat(c *consumerClient) {
	r.op++
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Version, req.Group, req.InstanceID, req.RebalanceTimeoutMillis = 1, "g", c.instance, -1
	if !c.joined {
		if c.id == "" || r.rng.IntN(3) == 0 {
			c.id = fmt.Sprintf("m%d", r.op)
		}
		c.topics, c.pattern = []string{"s", "t"}, ""
		if !r.same {
			c.topics, c.pattern = pick(r.rng, []string{"s"}, []string{"t", "u"}, []string{}), pick(r.rng, "", "", "s|u", "t+")
		}
		c.epoch, c.has, c.told, c.whole = 0, nil, false, true
	} else if !r.same && r.rng.IntN(20) == 0 {
		c.topics = pick(r.rng, []string{"s"}, []string{"s", "t"})
		req.SubscribedTopicNames = c.topics
	}
	// What a client says it has must not lag behind what it was told, or it would be taken to have given up the rest.
	if c.whole {
		c.act()
	}
	req.MemberID, req.MemberEpoch = c.id, c.epoch
	if c.joined && r.rng.IntN(30) == 0 {
		req.MemberEpoch += pick[int32](r.rng, 1, -1)
		req.MemberEpoch = max(req.MemberEpoch, 1)
	}
	if c.whole {
		req.SubscribedTopicNames, req.SubscribedTopicRegex = c.topics, &c.pattern
		req.RebalanceTimeoutMillis = pick[int32](r.rng, 5000, 60_000)
		if r.rng.IntN(4) == 0 {
			req.ServerAssignor = kmsg.StringPtr(pick(r.rng, "uniform", "uniform", "range"))
		}
	}
	if c.whole || !c.told && r.rng.IntN(3) > 0 {
		req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		for _, p := range c.has {
			req.Topics = append(req.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: p.topic, Partitions: []int32{p.partition}})
		}
	}
	resp, work := r.gs.ConsumerGroupHeartbeat(r, req)
	r.work(work)
	if r.rng.IntN(8) == 0 {
		c.whole = true
		return
	}
	c.answered(req, resp)
}

// answered takes an answer as a client would.
func (c *consumerClient) answered(req *kmsg.ConsumerGroupHeartbeatRequest, resp *kmsg.ConsumerGroupHeartbeatResponse) {
	if resp.ErrorCode != 0 {
		c.lose()
		return
	}
	c.joined, c.epoch, c.whole = true, resp.MemberEpoch, false
	if c.epoch <= 0 {
		panic("a member is told that it has not joined")
	}
	if resp.Assignment == nil {
		return
	}
	c.told, c.assigned = true, nil
	for _, t := range resp.Assignment.Topics {
		for _, p := range t.Partitions {
			c.assigned = append(c.assigned, topicPartition{t.TopicID, p})
		}
	}
}

func (r *consumerRun) leave(c *consumerClient, epoch int32) {
	if !c.joined || r.rng.IntN(2) == 0 {
		return
	}
	r.op++
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID, req.MemberEpoch = 1, "g", c.id, c.instance, epoch
	c.lose()
	c.id = ""
	r.gs.ConsumerGroupHeartbeat(r, req)
}

// commit must succeed for a partition that the member has and the group knows of, and only then.
func (r *consumerRun) commit(c *consumerClient) {
	if !c.joined || len(c.has) == 0 {
		return
	}
	p := pick(r.rng, c.has...)
	name, _ := r.TopicByID(p.topic)
	if p.partition >= r.topics[name] {
		return // the topic came back smaller
	}
	m := r.member(c)
	r.op++
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 9, "g", c.id, c.epoch
	req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: name, Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Partition: p.partition}}}}
	r.reply = func(_ uint64, resp kmsg.Response) {
		code := resp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode
		if (code == 0) != (m != nil && m.epoch >= 0) {
			r.t.Fatalf("member %q at epoch %d commits for %s-%d: code %d, known as %+v", c.id, c.epoch, name, p.partition, code, m)
		}
	}
	r.gs.OffsetCommit(r, req)
	r.reply = func(uint64, kmsg.Response) {}
}

// classic tries the other protocol, which is refused, or takes the group over for a while, and describes.
func (r *consumerRun) classic() {
	r.op++
	describe := kmsg.NewPtrConsumerGroupDescribeRequest()
	describe.Groups = []string{"g"}
	r.gs.ConsumerGroupDescribe(r, describe)
	r.op++
	r.gs.ListGroups(r, kmsg.NewPtrListGroupsRequest())
	var member string
	r.reply = func(_ uint64, resp kmsg.Response) {
		if j := resp.(*kmsg.JoinGroupResponse); j.ErrorCode == 0 {
			member = j.MemberID
		}
	}
	r.op++
	join := kmsg.NewPtrJoinGroupRequest()
	join.Version, join.Group, join.ProtocolType, join.SessionTimeoutMillis = 3, "g", "consumer", 6000
	join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range"}}
	r.gs.JoinGroup(r, join)
	r.check()
	r.reply = func(uint64, kmsg.Response) {}
	if member != "" && r.rng.IntN(2) == 0 {
		r.op++
		leave := kmsg.NewPtrLeaveGroupRequest()
		leave.Group, leave.MemberID = "g", member
		r.gs.LeaveGroup(r, leave)
	}
}

// member is what the group knows of a client, nil if it is none of its members any more.
func (r *consumerRun) member(c *consumerClient) *consumerMember {
	g, ok := r.gs.groups.Get("g")
	if !ok || g.saved.consumer == nil {
		return nil
	}
	m, _ := g.saved.consumer.members.Get(c.id)
	return m
}

// exclusive demands that no partition is read by two members that the group knows.
func (r *consumerRun) exclusive() {
	r.t.Helper()
	owner := map[topicPartition]string{}
	for _, c := range r.clients {
		if !c.joined || r.member(c) == nil {
			continue
		}
		for _, p := range c.has {
			if other, taken := owner[p]; taken && other != c.id {
				r.t.Fatalf("%q and %q both read %s-%d", other, c.id, topicName("", p.topic), p.partition)
			}
			owner[p] = c.id
		}
	}
}

// settle lets everybody send heartbeats until nothing moves, and looks at the outcome.
func (r *consumerRun) settle() {
	r.t.Helper()
	// What is left of members that say nothing ends.
	for range 60 {
		for _, c := range r.clients {
			if r.member(c) != nil && c.joined {
				r.fullHeartbeat(c)
				r.check()
				r.exclusive()
			}
		}
		r.wait(2000)
	}
	g, ok := r.gs.groups.Get("g")
	if !ok || !g.hasConsumers() {
		return
	}
	if g.state() != "Stable" {
		r.t.Fatalf("the group is %s when all have sent heartbeats for two minutes", g.state())
	}
	r.complete(g)
}

// fullHeartbeat says all that there is to say, and takes the answer.
func (r *consumerRun) fullHeartbeat(c *consumerClient) {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID, req.MemberEpoch = 1, "g", c.id, c.instance, c.epoch
	req.RebalanceTimeoutMillis, req.SubscribedTopicNames, req.SubscribedTopicRegex = 5000, c.topics, &c.pattern
	req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	for _, p := range c.has {
		req.Topics = append(req.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: p.topic, Partitions: []int32{p.partition}})
	}
	r.op++
	resp, work := r.gs.ConsumerGroupHeartbeat(r, req)
	c.answered(req, resp)
	r.work(work)
	c.act()
	r.matched()
	r.assigned()
}

// complete demands that every subscribed partition is read, and that equals have as much as each other.
func (r *consumerRun) complete(g *group) {
	r.t.Helper()
	read, fewest, most := 0, 1<<30, 0
	for _, c := range r.clients {
		if m := r.member(c); m == nil || !c.joined {
			continue
		}
		read, fewest, most = read+len(c.has), min(fewest, len(c.has)), max(most, len(c.has))
	}
	want := 0
	for _, name := range g.saved.consumer.subscribers.Keys() {
		want += int(r.topics[name])
	}
	if read != want {
		r.t.Fatalf("%d partitions are read of %d", read, want)
	}
	if r.same && g.saved.consumer.assignor() == defaultAssignor && most-fewest > 1 {
		r.t.Fatalf("of members with equal subscriptions one has %d partitions, one %d", fewest, most)
	}
}
