package group

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine/codec"
)

func TestConfigValidate(t *testing.T) {
	f := func(c Config, problems int) {
		t.Helper()
		err := c.Validate()
		got := 0
		if err != nil {
			got = len(strings.Split(err.Error(), "\n"))
		}
		if got != problems {
			t.Errorf("%d problems, want %d: %v", got, problems, err)
		}
	}
	f(Config{}, 0)
	f(Config{InitialRebalanceDelayMs: -1}, 0)
	f(Config{MaxGroups: -1, OffsetsCheckMs: -5}, 2)
	f(Config{MinSessionTimeoutMs: 2_000_000}, 1)
	f(Config{MinSessionTimeoutMs: 1, MaxSessionTimeoutMs: 1}, 0)
}

// TestTimers drives the heap beside a sorted slice.
func TestTimers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 0))
	var ts timers
	all := make([]*timer, 50)
	for i := range all {
		all[i] = &timer{}
	}
	for range 20_000 {
		tm := all[rng.IntN(len(all))]
		if rng.IntN(3) == 0 {
			ts.stop(tm)
		} else {
			ts.set(tm, rng.Int64N(100))
		}
		var want *timer
		for _, tm := range all {
			if tm.slot > 0 && (want == nil || tm.atMs < want.atMs || tm.atMs == want.atMs && tm.order < want.order) {
				want = tm
			}
		}
		if got := ts.first(); got != want {
			t.Fatalf("first is %+v, want %+v", got, want)
		}
	}
}

// TestSweepSteps: a round over many offsets takes many small steps, and misses none.
func TestSweepSteps(t *testing.T) {
	w := newWorld(t, Config{OffsetsRetentionMs: 1_500_000})
	w.topics["t"], w.topics["u"] = 1500, 1500
	commit := func(group, topic string, n int) {
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Version, req.Group = 9, group
		out := kmsg.OffsetCommitRequestTopic{Topic: topic}
		for p := range n {
			out.Partitions = append(out.Partitions, kmsg.OffsetCommitRequestTopicPartition{Partition: int32(p), Offset: 1})
		}
		req.Topics = append(req.Topics, out)
		w.op++
		w.gs.OffsetCommit(w, req)
	}
	commit("a", "t", 1000)
	commit("a", "u", 1100)
	for i := range 600 {
		commit(fmt.Sprintf("b%03d", i), "t", 1)
	}
	w.wait(1_300_000)
	if n := w.gs.groups.Len(); n != 601 {
		t.Fatalf("%d groups of 601 are left before anything expires", n)
	}
	commit("b300", "t", 1)
	var removed []int
	w.log = func(kind uint8, payload []byte) {
		if kind == kindOffsetsRemoved {
			rec := readOffsetsRemoved(&reader{codec.NewReader(payload)})
			n := 0
			for _, topic := range rec.topics {
				n += len(topic.partitions)
			}
			removed = append(removed, n)
		}
	}
	w.wait(800_000)
	total := 0
	for _, n := range removed {
		if total += n; n > sweepSteps {
			t.Errorf("one step removed %d offsets, the bound is %d", n, sweepSteps)
		}
	}
	if total != 2100+599 {
		t.Errorf("%d offsets expired, want %d", total, 2100+599)
	}
	if keys := w.gs.groups.Keys(); !slices.Equal(keys, []string{"b300"}) {
		t.Errorf("groups left: %v", keys)
	}
}

// TestTickIsBounded: more timers due at once than one tick may handle are handled by the next ones.
func TestTickIsBounded(t *testing.T) {
	w := newWorld(t, Config{InitialRebalanceDelayMs: -1})
	const groups = maxTimersPerTick*2 + 1
	for i := range groups {
		req := kmsg.NewPtrJoinGroupRequest()
		req.Version, req.Group, req.ProtocolType = 3, fmt.Sprint(i), "consumer"
		req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 6000, 60_000
		req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range"}}
		w.op++
		w.gs.JoinGroup(w, req)
	}
	w.advance(6000)
	removed := 0
	w.log = func(kind uint8, _ []byte) {
		if kind == kindRemoved {
			removed++
		}
	}
	for _, want := range []int{maxTimersPerTick, 2 * maxTimersPerTick, groups} {
		if at, ok := w.gs.NextTimer(); !ok || at > w.ms {
			t.Fatalf("the next timer is due at %d, now is %d", at, w.ms)
		}
		w.gs.Tick(w)
		if removed != want {
			t.Fatalf("%d members expired, want %d", removed, want)
		}
	}
	w.check()
}

// TestKeepsNothingOfRequests: byte slices of a request are the caller's again once it is decided.
func TestKeepsNothingOfRequests(t *testing.T) {
	w := newWorld(t, Config{InitialRebalanceDelayMs: 3000})
	req := kmsg.NewPtrJoinGroupRequest()
	metadata := []byte("metadata")
	req.Version, req.Group, req.ProtocolType, req.SessionTimeoutMillis = 3, "g", "consumer", 6000
	req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: metadata}}
	w.op++
	w.gs.JoinGroup(w, req)
	clear(metadata)
	var got *kmsg.JoinGroupResponse
	w.reply = func(_ uint64, resp kmsg.Response) { got = resp.(*kmsg.JoinGroupResponse) }
	w.wait(3000)
	if got == nil || string(got.Members[0].ProtocolMetadata) != "metadata" {
		t.Errorf("the leader is told %+v", got)
	}
}

// TestFirstTimer: what was restored asks for a tick, so that sessions run even if no client ever comes.
func TestFirstTimer(t *testing.T) {
	gs := New(Config{})
	if at, ok := gs.NextTimer(); ok {
		t.Errorf("an empty coordinator wants a tick at %d", at)
	}
	applyAll(sampleRecords(), gs)
	if at, ok := gs.NextTimer(); !ok || at != 0 {
		t.Errorf("a replayed one wants a tick at %d, %v; want 0", at, ok)
	}
	w := newWorld(t, Config{})
	w.gs = gs
	gs.Tick(w)
	if at, ok := gs.NextTimer(); !ok || at <= w.ms {
		t.Errorf("after the first tick the next is due at %d, %v; now is %d", at, ok, w.ms)
	}
}

// TestSameRunTwice: the same operations give the same records and answers, to the byte.
func TestSameRunTwice(t *testing.T) {
	for seed := uint64(1); seed <= 10; seed++ {
		var traces [2]uint64
		for i := range traces {
			r := newRandomRun(t, seed)
			note := func(kind uint8, b []byte) { traces[i] = fold(traces[i]^hashBytes(b), uint64(kind)|1<<40) }
			r.log = note
			r.reply = func(op uint64, resp kmsg.Response) {
				note(uint8(op), resp.AppendTo(nil))
				r.answered(op, resp)
			}
			r.run(200)
		}
		if traces[0] != traces[1] {
			t.Errorf("seed %d: two runs of the same operations differ", seed)
		}
	}
}

// TestGenerationsStartOver: after the largest generation comes the first one, never a negative one.
func TestGenerationsStartOver(t *testing.T) {
	w := newWorld(t, Config{InitialRebalanceDelayMs: -1})
	m := &memberInfo{id: "m", sessionMs: 6000, rebalanceMs: 6000, protocols: []protocol{{name: "range"}}}
	for _, gs := range []*Groups{w.gs, w.shadow} {
		rec := &generationRecord{"g", "consumer", math.MaxInt32, "range", "m", 5, []*memberInfo{m}}
		if err := gs.Apply(kindGeneration, rec.append(nil)); err != nil {
			t.Fatal(err)
		}
	}
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.MemberID, req.ProtocolType, req.SessionTimeoutMillis = 5, "g", "m", "consumer", 6000
	req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte("new")}}
	w.op++
	var got *kmsg.JoinGroupResponse
	w.reply = func(_ uint64, resp kmsg.Response) { got = resp.(*kmsg.JoinGroupResponse) }
	w.gs.JoinGroup(w, req)
	if got == nil || got.ErrorCode != 0 || got.Generation != 1 {
		t.Errorf("the next generation: %+v", got)
	}
	w.check()
}
