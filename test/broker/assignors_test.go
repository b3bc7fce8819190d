//go:build peers

package broker

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/test/peers"
)

// assigned is who has what: member → partitions, as TOPIC-PARTITION.
type assigned map[string][]string

// assignedGroup is a group of KIP-848 on one broker, whose members all subscribe to the same topics.
type assignedGroup struct {
	t        *testing.T
	c        *kgo.Client
	name     string
	assignor string
	members  []*assignedMember
}

type assignedMember struct {
	id       string
	instance *string
	epoch    int32
	has      []kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic
}

func newAssignedGroup(t *testing.T, addr, assignor string) *assignedGroup {
	t.Helper()
	g := &assignedGroup{t: t, c: client(t, addr), name: assignor, assignor: assignor}
	ctx := within(t, patience)
	alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, g.name
	r.Configs = []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "consumer.assignment.interval.ms", Value: kmsg.StringPtr("0")}}
	alter.Resources = append(alter.Resources, r)
	if resp, err := alter.RequestWith(ctx, g.c); err != nil || resp.Resources[0].ErrorCode != 0 {
		t.Fatalf("%v, %+v", err, resp)
	}
	return g
}

// beat sends a full heartbeat; it tells whether something changed.
func (g *assignedGroup) beat(m *assignedMember) bool {
	g.t.Helper()
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.InstanceID, req.MemberEpoch = g.name, m.id, m.instance, m.epoch
	req.RebalanceTimeoutMillis, req.ServerAssignor = 60_000, &g.assignor
	req.SubscribedTopicNames = []string{"five", "one", "seven"}
	req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	for _, t := range m.has {
		req.Topics = append(req.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: t.TopicID, Partitions: t.Partitions})
	}
	ctx := within(g.t, patience)
	resp, err := req.RequestWith(ctx, g.c)
	for ctx.Err() == nil && (err != nil || kerr.IsRetriable(kerr.ErrorForCode(resp.ErrorCode))) {
		resp, err = req.RequestWith(ctx, g.c) // the coordinator is being made
	}
	if err != nil || resp.ErrorCode != 0 {
		g.t.Fatalf("%s of %s: %v, %+v", m.id, g.name, err, resp)
	}
	before := fmt.Sprint(m.epoch, m.has)
	m.epoch, m.has = resp.MemberEpoch, resp.Assignment.Topics
	return fmt.Sprint(m.epoch, m.has) != before
}

func (g *assignedGroup) join(id string, instance *string) {
	g.t.Helper()
	m := &assignedMember{id: id, instance: instance}
	g.beat(m)
	g.members = append(g.members, m)
}

func (g *assignedGroup) leave(id string) {
	g.t.Helper()
	i := slices.IndexFunc(g.members, func(m *assignedMember) bool { return m.id == id })
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.InstanceID, req.MemberEpoch = g.name, id, g.members[i].instance, -1
	if resp, err := req.RequestWith(within(g.t, patience), g.c); err != nil || resp.ErrorCode != 0 {
		g.t.Fatalf("%v, %+v", err, resp)
	}
	g.members = slices.Delete(g.members, i, i+1)
}

// settle lets all send heartbeats until nothing changes, and returns who has what.
func (g *assignedGroup) settle(names map[[16]byte]string) assigned {
	g.t.Helper()
	quiet := 0
	for deadline := time.Now().Add(patience); quiet < 3; {
		changed := false
		for _, m := range g.members {
			changed = g.beat(m) || changed
		}
		if quiet++; changed {
			quiet = 0
		}
		if time.Now().After(deadline) {
			g.t.Fatalf("group %s does not settle", g.name)
		}
	}
	out := assigned{}
	for _, m := range g.members {
		for _, t := range m.has {
			for _, p := range t.Partitions {
				out[m.id] = append(out[m.id], fmt.Sprintf("%s-%d", names[t.TopicID], p))
			}
		}
		slices.Sort(out[m.id])
	}
	return out
}

// counts are how many partitions members have, fewest first.
func (a assigned) counts() []int {
	var counts []int
	for _, list := range a {
		counts = append(counts, len(list))
	}
	slices.Sort(counts)
	return counts
}

// kept is how many partitions stayed where they were, and how many could have: each member's fair share of what it had.
func (a assigned) kept(before assigned) (kept, most int) {
	counts := a.counts()
	least := counts[0]
	extra := 0
	for _, n := range counts {
		extra += n - least
	}
	for id, list := range a {
		for _, p := range list {
			if slices.Contains(before[id], p) {
				kept++
			}
		}
		if most += min(len(before[id]), least); len(before[id]) > least && extra > 0 {
			most++
			extra--
		}
	}
	return kept, most
}

// TestAssignorsAsApacheKafka lets the same members come and go in groups here and on Apache Kafka. With range each has the very
// same partitions; with uniform, whose choices there depend on hashes, members have as many, and as much stays with them.
func TestAssignorsAsApacheKafka(t *testing.T) {
	t.Parallel()
	s := start(t)
	addrs := []string{s.Addr, peers.StartApacheKafka(t).Addr}
	names := make([]map[[16]byte]string, len(addrs))
	for i, addr := range addrs {
		names[i] = map[[16]byte]string{}
		for name, n := range map[string]int32{"five": 5, "one": 1, "seven": 7} {
			made, err := kadm.NewClient(client(t, addr)).CreateTopic(within(t, patience), n, 1, nil, name)
			if err != nil {
				t.Fatal(err)
			}
			names[i][made.ID] = name
		}
	}
	for _, assignor := range []string{"range", "uniform"} {
		groups := make([]*assignedGroup, len(addrs))
		before := make([]assigned, len(addrs))
		for i, addr := range addrs {
			groups[i] = newAssignedGroup(t, addr, assignor)
		}
		for n, step := range []func(g *assignedGroup){
			func(g *assignedGroup) { g.join("c", nil) },
			func(g *assignedGroup) { g.join("b", nil) },
			func(g *assignedGroup) { g.join("z", kmsg.StringPtr("i")) },
			func(g *assignedGroup) { g.join("a", nil) },
			func(g *assignedGroup) { g.join("y", kmsg.StringPtr("h")) },
			func(g *assignedGroup) { g.leave("b") },
			func(g *assignedGroup) { g.join("d", nil) },
			func(g *assignedGroup) { g.leave("z") },
			func(g *assignedGroup) { g.leave("c") },
			func(g *assignedGroup) { g.leave("y") },
		} {
			var after [2]assigned
			for i, g := range groups {
				step(g)
				after[i] = g.settle(names[i])
			}
			switch here, there := fmt.Sprint(after[0]), fmt.Sprint(after[1]); {
			case assignor == "range" && here != there:
				t.Errorf("step %d, range: here %s, on Apache Kafka %s", n, here, there)
			case assignor == "uniform" && !slices.Equal(after[0].counts(), after[1].counts()):
				t.Errorf("step %d, uniform: here %s, on Apache Kafka %s", n, here, there)
			}
			if kept, most := after[0].kept(before[0]); assignor == "uniform" && kept != most {
				theirs, _ := after[1].kept(before[1])
				t.Errorf("step %d, uniform: %d of %d partitions stay, on Apache Kafka %d: %v becomes %v", n, kept, most, theirs, before[0], after[0])
			}
			before = after[:]
		}
	}
}
