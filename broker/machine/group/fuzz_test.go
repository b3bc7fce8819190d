package group

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/internal/alloc"
)

// FuzzApply applies records as damaged as can be: an error leaves the state as it was, and what is accepted is a state
// that can be kept and brought back. An input is a sequence of kind, length, payload.
func FuzzApply(f *testing.F) {
	f.Add(sampleRecords())
	f.Add([]byte{kindOffsets, 3, 1, 'g', 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		alloc.Within(t, len(data), 512, func() { applyLeniently(New(Config{}), data) })
		gs := New(Config{})
		for len(data) > 2 {
			n := min(int(data[1]), len(data)-2)
			kind, payload := data[0], data[2:2+n]
			data = data[2+n:]
			before, hash := gs.AppendSnapshot(nil), gs.Hash()
			err := gs.Apply(kind, payload)
			if err == nil {
				continue
			}
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%v does not wrap ErrCorrupt", err)
			}
			if gs.Hash() != hash || !bytes.Equal(gs.AppendSnapshot(nil), before) {
				t.Fatalf("a refused record of kind %d changed the state: %v", kind, err)
			}
		}
		for id := range int64(4) {
			gs.ApplyTxnEnd(id, id%2 == 0)
		}
		gs.ApplyTopicDeleted("t")
		goOn(t, gs)
	})
}

// FuzzRestore restores snapshots as damaged as can be.
func FuzzRestore(f *testing.F) {
	gs := New(Config{})
	applyAll(sampleRecords(), gs)
	f.Add(gs.AppendSnapshot(nil))
	f.Add([]byte{snapshotVersion, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		var gs *Groups
		var err error
		alloc.Within(t, len(data), 512, func() {
			gs = New(Config{})
			err = gs.Restore(data)
		})
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%v does not wrap ErrCorrupt", err)
			}
			if empty := New(Config{}); gs.Hash() != empty.Hash() || gs.groups.Len() > 0 {
				t.Fatalf("a refused snapshot changed the state: %v", err)
			}
			return
		}
		goOn(t, gs)
	})
}

// goOn lets a state of doubtful origin work for a while.
func goOn(t *testing.T, gs *Groups) {
	t.Helper()
	w := newWorld(t, Config{InitialRebalanceDelayMs: -1})
	w.gs = gs
	snapshot := gs.AppendSnapshot(nil)
	if err := w.shadow.Restore(snapshot); err != nil {
		t.Fatalf("own snapshot: %v", err)
	}
	w.check()
	w.topics["t"] = 2
	for _, name := range append(gs.groups.Keys(), "new") {
		join := kmsg.NewPtrJoinGroupRequest()
		join.Version, join.Group, join.ProtocolType, join.SessionTimeoutMillis = 5, name, "consumer", 6000
		join.InstanceID = kmsg.StringPtr("i")
		join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range"}}
		w.op++
		gs.JoinGroup(w, join)
		commit := kmsg.NewPtrOffsetCommitRequest()
		commit.Version, commit.Group = 9, name
		commit.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Offset: 1}}}}
		w.op++
		gs.OffsetCommit(w, commit)
		w.check()
		beat := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		beat.Version, beat.Group, beat.MemberID, beat.InstanceID, beat.RebalanceTimeoutMillis = 1, name, "m", kmsg.StringPtr("k"), 5000
		beat.SubscribedTopicNames, beat.SubscribedTopicRegex = []string{"t"}, kmsg.StringPtr("t.*")
		beat.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		for range 3 {
			w.op++
			gs.ConsumerGroupHeartbeat(w, beat)
			w.check()
			gs.Matched(w, name, 1, MatchedPattern{"t.*", []string{"t"}})
			w.check()
		}
	}
	describe := kmsg.NewPtrDescribeGroupsRequest()
	describe.Groups = gs.groups.Keys()
	gs.DescribeGroups(w, describe)
	consumers := kmsg.NewPtrConsumerGroupDescribeRequest()
	consumers.Groups = describe.Groups
	gs.ConsumerGroupDescribe(w, consumers)
	for range 300 {
		at, ok := w.gs.NextTimer()
		if !ok || at > w.ms+10_000_000 {
			break
		}
		w.advance(max(at-w.ms, 0))
		gs.Tick(w)
	}
	w.check()
}

// sampleRecords has one record of each kind, as FuzzApply reads them.
func sampleRecords() []byte {
	member := func(id string, instance *string) *memberInfo {
		return &memberInfo{id: id, instance: instance, clientID: "c", clientHost: "h", sessionMs: 6000, rebalanceMs: 5000,
			protocols: []protocol{{"range", []byte("x")}}}
	}
	consumer := func(id string, instance *string, pattern string) *consumerInfo {
		return &consumerInfo{id: id, instance: instance, clientID: "c", clientHost: "h", rebalanceMs: 5000, topics: []string{"t"},
			pattern: pattern, assignor: "range"}
	}
	classic := func(id string, instance *string) *consumerInfo {
		info := consumer(id, instance, "")
		info.classic = &classicInfo{6000, []protocol{{"range", []byte("x")}}}
		return info
	}
	id := topicID("t")
	var out []byte
	for _, r := range []struct {
		kind uint8
		rec  durable
	}{
		{kindGeneration, &generationRecord{"g", "consumer", 1, "range", "m1", 5, []*memberInfo{member("m1", nil), member("m2", kmsg.StringPtr("i"))}}},
		{kindAssignment, &assignmentRecord{"g", 1, []memberAssignment{{"m1", []byte("one")}}}},
		{kindReplaced, &replacedRecord{"g", "m2", member("m3", kmsg.StringPtr("i"))}},
		{kindRebalance, &groupRecord{"g"}},
		{kindRemoved, &removedRecord{"g", 6, []string{"m1"}}},
		{kindOffsets, &offsetsRecord{"g", noProducer, 7, -1, []topicCommit{{"t", []partitionCommit{{0, 5, -1, ""}, {1, 6, 2, "m"}}}}}},
		{kindOffsets, &offsetsRecord{"h", 1, 8, 9, []topicCommit{{"t", []partitionCommit{{0, 7, -1, ""}}}, {"s", []partitionCommit{{3, 8, -1, ""}}}}}},
		{kindOffsetsRemoved, &offsetsRemovedRecord{"g", []topicPartitions{{"t", []int32{0}}}}},
		{kindOffsets, &offsetsRecord{"x", noProducer, 7, -1, nil}},
		{kindGroupRemoved, &groupRecord{"x"}},
		{kindConsumerEpoch, &consumerEpochRecord{"c", 4, 77, 9}},
		{kindConsumerMember, &consumerMemberRecord{"c", consumer("m1", nil, "t.*")}},
		{kindConsumerMember, &consumerMemberRecord{"c", consumer("m2", kmsg.StringPtr("i"), "")}},
		{kindConsumerPatterns, &consumerPatternsRecord{"c", []MatchedPattern{{"t.*", []string{"t", "t2"}}}}},
		{kindConsumerTarget, &consumerTargetRecord{"c", 4, []memberTarget{{"m1", []topicPartition{{id, 0}, {id, 1}}}, {"m2", []topicPartition{{id, 2}}}}}},
		{kindConsumerCurrent, &consumerCurrentRecord{"c", "m1", 3, 2, unrevoked, []holding{{topicPartition{id, 0}, 2}}, []holding{{topicPartition{id, 2}, 1}}}},
		{kindConsumerReplaced, &consumerReplacedRecord{"c", "m2", consumer("m3", kmsg.StringPtr("i"), "")}},
		{kindConsumerMember, &consumerMemberRecord{"c", consumer("m4", nil, "")}},
		{kindConsumersRemoved, &removedRecord{"c", 10, []string{"m4"}}},
		{kindClassicMember, &consumerMemberRecord{"c", classic("m5", nil)}},
		{kindClassicMember, &consumerMemberRecord{"c", classic("m6", kmsg.StringPtr("j"))}},
		{kindClassicReplaced, &consumerReplacedRecord{"c", "m6", classic("m7", kmsg.StringPtr("j"))}},
		{kindSettings, &settingsRecord{"c", []Setting{{"consumer.heartbeat.interval.ms", "6000"}, {"consumer.session.timeout.ms", "50000"}}}},
		{kindSettings, &settingsRecord{"d", []Setting{{"consumer.heartbeat.interval.ms", "7000"}}}},
		{kindSettings, &settingsRecord{"d", nil}},
	} {
		payload := r.rec.append(nil)
		out = append(append(out, r.kind, byte(len(payload))), payload...)
	}
	return out
}

func applyLeniently(gs *Groups, data []byte) {
	for len(data) > 2 {
		n := min(int(data[1]), len(data)-2)
		_ = gs.Apply(data[0], data[2:2+n])
		data = data[2+n:]
	}
}

func applyAll(data []byte, gs *Groups) {
	for len(data) > 2 {
		n := int(data[1])
		if err := gs.Apply(data[0], data[2:2+n]); err != nil {
			panic(err)
		}
		data = data[2+n:]
	}
}

// TestDamage cuts and flips good data at each byte: Apply and Restore refuse it, or accept something that is whole.
func TestDamage(t *testing.T) {
	records := sampleRecords()
	for data := records; len(data) > 2; {
		n := int(data[1])
		kind, payload := data[0], data[2:2+n]
		for cut := range payload {
			if err := New(Config{}).Apply(kind, payload[:cut]); !errors.Is(err, ErrCorrupt) {
				t.Errorf("record of kind %d, cut after %d of %d bytes: %v", kind, cut, n, err)
			}
		}
		if err := New(Config{}).Apply(kind, append(slices.Clone(payload), 0)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("record of kind %d with a byte too many: %v", kind, err)
		}
		data = data[2+n:]
	}
	gs := New(Config{})
	applyAll(records, gs)
	snapshot := gs.AppendSnapshot(nil)
	for i := range snapshot {
		if err := New(Config{}).Restore(snapshot[:i]); !errors.Is(err, ErrCorrupt) {
			t.Errorf("snapshot cut after %d of %d bytes: %v", i, len(snapshot), err)
		}
		for bit := range 8 {
			bad := slices.Clone(snapshot)
			bad[i] ^= 1 << bit
			other := New(Config{})
			if err := other.Restore(bad); err == nil && other.Hash() == gs.Hash() {
				t.Errorf("bit %d of byte %d flipped, and the hash is the same", bit, i)
			} else if err == nil {
				goOn(t, other)
			}
		}
	}
	if err := gs.Apply(95, nil); !errors.Is(err, ErrCorrupt) {
		t.Errorf("unknown kind: %v", err)
	}
}

// TestHostileCounts: a few bytes that promise many elements must not be believed.
func TestHostileCounts(t *testing.T) {
	huge := binary.AppendUvarint(nil, 1<<62)
	for kind, prefix := range map[uint8][]byte{
		kindGeneration:       {1, 'g', 0, 0, 0, 0, 0},
		kindAssignment:       {1, 'g', 0},
		kindRemoved:          {1, 'g', 0},
		kindOffsets:          {1, 'g', 1, 0, 1},
		kindOffsetsRemoved:   {1, 'g'},
		kindGroupRemoved:     {},
		kindConsumerMember:   {1, 'g', 1, 'm', 0, 0, 0, 0, 0},
		kindConsumersRemoved: {1, 'g', 0},
		kindConsumerTarget:   {1, 'g', 0},
		kindConsumerCurrent:  {1, 'g', 1, 'm', 0, 0, 0},
		kindConsumerPatterns: {1, 'g'},
		kindClassicMember:    {1, 'g', 1, 'm', 0, 0, 0, 0, 0, 0, 0, 0, 0},
		kindSettings:         {1, 'g'},
	} {
		gs := New(Config{})
		payload := append(slices.Clone(prefix), huge...)
		allocated := testing.AllocsPerRun(1, func() {
			if err := gs.Apply(kind, payload); !errors.Is(err, ErrCorrupt) {
				t.Errorf("kind %d: %v", kind, err)
			}
		})
		if allocated > 20 {
			t.Errorf("kind %d: %v allocations for %d bytes", kind, allocated, len(payload))
		}
	}
}
