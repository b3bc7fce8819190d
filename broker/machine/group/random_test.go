package group

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var seedFlag = flag.Uint64("seed", 0, "run only this seed of TestRandom")

// TestRandom lets clients do all that they can do, in any order, with restarts between. After each operation replayed,
// restored and running state are the same, every request has at most one answer, and offsets are what a model of ten
// lines says. In the end, when all is quiet, nobody waits for an answer.
func TestRandom(t *testing.T) {
	first, last := uint64(1), uint64(80)
	if *seedFlag != 0 {
		first, last = *seedFlag, *seedFlag
	}
	for seed := first; seed <= last; seed++ {
		if !t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { newRandomRun(t, seed).run(400) }) {
			t.Fatalf("again: go test ./broker/machine/group -run TestRandom -seed=%d", seed)
		}
	}
}

type randomRun struct {
	*world
	rng      *rand.Rand
	waiting  map[uint64]kmsg.Request
	clients  []client
	deadline map[uint64]int64 // engine ms by which a request must have been answered
	model    offsetModel
}

// client is what one client believes.
type client struct {
	group, member string
	instance      *string
	generation    int32
	leads         bool
	others        []string
}

// offsetModel keeps offsets as kafka-eos.md D.5 tells it.
type offsetModel struct {
	order     int
	committed map[string]modelOffset
	pending   map[string]map[int64]modelOffset // by partition, then by producer
}

type modelOffset struct {
	offset int64
	order  int
}

func newRandomRun(t *testing.T, seed uint64) *randomRun {
	cfg := Config{MaxGroupSize: 4, MaxPendingMembers: 3, MaxOffsetsPerGroup: 6, OffsetsRetentionMs: 1 << 50}
	if seed%2 == 0 {
		cfg.InitialRebalanceDelayMs = -1
	}
	r := &randomRun{world: newWorld(t, cfg), rng: rand.New(rand.NewPCG(seed, 0)), waiting: map[uint64]kmsg.Request{},
		deadline: map[uint64]int64{},
		model:    offsetModel{committed: map[string]modelOffset{}, pending: map[string]map[int64]modelOffset{}}}
	r.topics["t"], r.topics["s"] = 3, 2
	r.clients = make([]client, 8)
	for i := range r.clients {
		r.clients[i].group = pick(r.rng, "g", "h")
		if i%3 == 0 {
			r.clients[i].instance = kmsg.StringPtr(fmt.Sprintf("i%d", i%2))
		}
	}
	r.reply = r.answered
	return r
}

func pick[T any](rng *rand.Rand, list ...T) T { return list[rng.IntN(len(list))] }

func (r *randomRun) run(steps int) {
	for range steps {
		r.step()
		r.check()
	}
	r.wait(2_000_000)
	r.quiet()
	r.compareOffsets()
}

// quiet demands that nothing waits any more: all sessions have ended long ago.
func (r *randomRun) quiet() {
	r.t.Helper()
	if len(r.waiting) > 0 {
		r.t.Fatalf("%d requests were never answered: %v", len(r.waiting), r.waiting)
	}
	r.gs.groups.Scan(func(name string, g *group) bool {
		if g.live.phase != phaseEmpty || g.live.members.Len() > 0 || g.live.pending.Len() > 0 {
			r.t.Fatalf("group %q is %v with %d members and %d pending ones, though nobody is there any more",
				name, g.live.phase, g.live.members.Len(), g.live.pending.Len())
		}
		return true
	})
}

func (r *randomRun) step() {
	switch n := r.rng.IntN(100); {
	case n < 3:
		r.restart()
		clear(r.waiting)
		clear(r.deadline)
	case n < 15:
		r.wait(pick[int64](r.rng, 1, 100, 3000, 7000, 20_000))
		r.compareOffsets()
	case n < 20:
		r.endTxn(r.rng.Int64N(3), r.rng.IntN(2) == 0)
	case n < 21:
		r.deleteTopic(pick(r.rng, "t", "s"))
	default:
		r.request(&r.clients[r.rng.IntN(len(r.clients))])
	}
}

func (r *randomRun) ask(req kmsg.Request, version int16) kmsg.Request {
	r.op++
	req.SetVersion(version)
	r.waiting[r.op] = req
	return req
}

func (r *randomRun) request(c *client) {
	r.client = fmt.Sprintf("c%d", r.rng.IntN(3))
	generation := c.generation + pick[int32](r.rng, 0, 0, 0, 0, 0, 0, -1, 1)
	switch r.rng.IntN(10) {
	case 0, 1, 2:
		r.join(c)
	case 3, 4:
		req := kmsg.NewPtrSyncGroupRequest()
		req.Group, req.MemberID, req.InstanceID, req.Generation = c.group, c.member, c.instance, generation
		if c.leads {
			for _, id := range append(c.others, "nobody") {
				req.GroupAssignment = append(req.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: id,
					MemberAssignment: fmt.Appendf(nil, "%s@%d", id, c.generation)})
			}
		}
		r.gs.SyncGroup(r, r.ask(req, int16(r.rng.IntN(6))).(*kmsg.SyncGroupRequest))
	case 5:
		req := kmsg.NewPtrHeartbeatRequest()
		req.Group, req.MemberID, req.InstanceID, req.Generation = c.group, c.member, c.instance, generation
		r.gs.Heartbeat(r, r.ask(req, int16(r.rng.IntN(5))).(*kmsg.HeartbeatRequest))
	case 6:
		if r.rng.IntN(3) > 0 {
			return
		}
		req := kmsg.NewPtrLeaveGroupRequest()
		req.Group, req.MemberID = c.group, c.member
		req.Members = []kmsg.LeaveGroupRequestMember{{MemberID: c.member, InstanceID: c.instance}}
		if c.instance != nil && r.rng.IntN(2) == 0 {
			req.Members[0].MemberID = ""
		}
		r.gs.LeaveGroup(r, r.ask(req, int16(r.rng.IntN(6))).(*kmsg.LeaveGroupRequest))
	case 7:
		r.plainCommit(c, generation)
	case 8:
		r.txnCommit(c, generation)
	default:
		r.read(c)
	}
}

func (r *randomRun) join(c *client) {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.MemberID, req.InstanceID, req.ProtocolType = c.group, c.member, c.instance, "consumer"
	if r.rng.IntN(8) == 0 {
		req.MemberID = ""
	}
	req.SessionTimeoutMillis = pick[int32](r.rng, 6000, 10_000)
	req.RebalanceTimeoutMillis = pick[int32](r.rng, 0, 5000, 15_000)
	for _, name := range pick(r.rng, []string{"a"}, []string{"a", "b"}, []string{"b", "a"}, []string{"c"}) {
		req.Protocols = append(req.Protocols, kmsg.JoinGroupRequestProtocol{Name: name, Metadata: []byte(pick(r.rng, "x", "x", "y"))})
	}
	r.deadline[r.op+1] = r.ms + 600_000
	r.gs.JoinGroup(r, r.ask(req, int16(r.rng.IntN(10))).(*kmsg.JoinGroupRequest))
}

func (r *randomRun) read(c *client) {
	if r.rng.IntN(2) == 0 {
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Groups = []string{"g", "h", "none"}
		r.gs.DescribeGroups(r, r.ask(req, int16(r.rng.IntN(7))).(*kmsg.DescribeGroupsRequest))
		return
	}
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group, req.RequireStable = c.group, true
	req.Groups = []kmsg.OffsetFetchRequestGroup{{Group: c.group}}
	r.gs.OffsetFetch(r, r.ask(req, int16(1+r.rng.IntN(10))).(*kmsg.OffsetFetchRequest))
}

// answered takes an answer as a client would.
func (r *randomRun) answered(op uint64, resp kmsg.Response) {
	req, ok := r.waiting[op]
	if !ok {
		r.t.Fatalf("operation %d is answered twice, or was never asked: %T", op, resp)
	}
	if req.Key() != resp.Key() || req.GetVersion() != resp.GetVersion() {
		r.t.Fatalf("%T v%d is answered by %T v%d", req, req.GetVersion(), resp, resp.GetVersion())
	}
	delete(r.waiting, op)
	if by, ok := r.deadline[op]; ok && r.ms > by {
		r.t.Fatalf("operation %d waited %d ms longer than any timeout", op, r.ms-by)
	}
	switch a := resp.(type) {
	case *kmsg.JoinGroupResponse:
		r.joined(req.(*kmsg.JoinGroupRequest), a)
	case *kmsg.SyncGroupResponse:
		s := req.(*kmsg.SyncGroupRequest)
		if want := fmt.Sprintf("%s@%d", s.MemberID, s.Generation); a.ErrorCode == 0 && len(a.MemberAssignment) > 0 &&
			s.InstanceID == nil && string(a.MemberAssignment) != want {
			r.t.Fatalf("member %q gets assignment %q, not %q", s.MemberID, a.MemberAssignment, want)
		}
	case *kmsg.OffsetCommitResponse:
		for i, topic := range a.Topics {
			for j, p := range topic.Partitions {
				q := req.(*kmsg.OffsetCommitRequest)
				r.model.commit(p.ErrorCode, noProducer, q.Group, topicOf(q, i), p.Partition, q.Topics[i].Partitions[j].Offset)
			}
		}
		r.model.order++
	}
}

func topicOf(q *kmsg.OffsetCommitRequest, i int) string {
	if q.Version >= 10 {
		return string(q.Topics[i].TopicID[:1])
	}
	return q.Topics[i].Topic
}

func (r *randomRun) joined(req *kmsg.JoinGroupRequest, a *kmsg.JoinGroupResponse) {
	for i := range r.clients {
		c := &r.clients[i]
		if c.group != req.Group || c.member != req.MemberID {
			continue
		}
		switch {
		case a.ErrorCode == 0:
			c.member, c.generation, c.leads, c.others = a.MemberID, a.Generation, a.MemberID == a.LeaderID, nil
			for _, m := range a.Members {
				c.others = append(c.others, m.MemberID)
			}
			if c.leads && len(c.others) > r.cfg.MaxGroupSize+2 {
				r.t.Fatalf("a generation of %d members, the bound is %d and two static ones", len(c.others), r.cfg.MaxGroupSize)
			}
		case a.MemberID != req.MemberID:
			c.member = a.MemberID
		case r.rng.IntN(2) == 0:
			c.member = ""
		}
		return
	}
}
