//go:build peers

package broker

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/test/peers"
)

// TestConsumerGroupSurvivesKill: members of a KIP-848 group, their epochs and what each has are as before, so that they
// go on and commit; nobody gets what another has not given up.
func TestConsumerGroupSurvivesKill(t *testing.T) {
	t.Parallel()
	s, ctx := newTopic(t)
	ask := func(req kmsg.Request) kmsg.Response {
		t.Helper()
		c := dial(t, s.Addr)
		defer c.conn.Close()
		return c.ask(req)
	}
	beat := func(member string, epoch int32, owned map[[16]byte][]int32) *kmsg.ConsumerGroupHeartbeatResponse {
		t.Helper()
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.Version, req.Group, req.MemberID, req.MemberEpoch = 1, "g", member, epoch
		if epoch == 0 {
			req.RebalanceTimeoutMillis, req.SubscribedTopicNames = 60_000, []string{"t"}
		}
		req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		for id, list := range owned {
			req.Topics = append(req.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: id, Partitions: list})
		}
		return ask(req).(*kmsg.ConsumerGroupHeartbeatResponse)
	}
	commit := func(member string, epoch, partition int32, offset int64) int16 {
		t.Helper()
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Version, req.Group, req.Generation, req.MemberID = 9, "g", epoch, member
		req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t",
			Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Partition: partition, Offset: offset}}}}
		return ask(req).(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode
	}
	a := beat("a", 0, nil)
	if a.ErrorCode != 0 || len(a.Assignment.Topics) != 1 || len(a.Assignment.Topics[0].Partitions) != 2 {
		t.Fatalf("alone: %+v", a)
	}
	topic := a.Assignment.Topics[0].TopicID
	both, one := map[[16]byte][]int32{topic: {0, 1}}, map[[16]byte][]int32{topic: {0}}
	s.restart()
	b := beat("b", 0, nil)
	if b.ErrorCode != 0 || len(b.Assignment.Topics) != 0 {
		t.Fatalf("what another has is given on: %+v", b)
	}
	s.restart()
	a = beat("a", 1, both)
	if a.ErrorCode != 0 || a.MemberEpoch != 1 || len(a.Assignment.Topics[0].Partitions) != 1 {
		t.Fatalf("the first is not asked to give one up: %+v", a)
	}
	s.restart()
	if b = beat("b", b.MemberEpoch, nil); b.ErrorCode != 0 || b.Assignment != nil {
		t.Fatalf("what another has not given up is given on: %+v", b)
	}
	if code := commit("a", 1, 1, 5); code != 0 {
		t.Errorf("a commits what it is to give up: %v", kerr.ErrorForCode(code))
	}
	if a = beat("a", 1, one); a.ErrorCode != 0 || a.MemberEpoch != b.MemberEpoch {
		t.Fatalf("the first has given one up: %+v", a)
	}
	s.restart()
	if b = beat("b", b.MemberEpoch, nil); b.ErrorCode != 0 || len(b.Assignment.Topics) != 1 {
		t.Fatalf("what was given up is not given on: %+v", b)
	}
	expectCode(t, "a commits what b has", commit("a", 1, 1, 99), kerr.StaleMemberEpoch)
	if code := commit("b", b.MemberEpoch, 1, 6); code != 0 {
		t.Errorf("b commits what it has: %v", kerr.ErrorForCode(code))
	}
	expectCode(t, "nobody commits", commit("c", 1, 1, 99), kerr.UnknownMemberID)
	groups, err := kadm.NewClient(client(t, s.Addr)).DescribeConsumerGroups(ctx, "g")
	if g := groups["g"]; err != nil || g.State != "Stable" || len(g.Members) != 2 {
		t.Errorf("%s, %v", fmt.Sprintf("%+v", g), err)
	}
}

// TestGroupSettingsByTool: kafka-configs.sh sets and shows what a group has of its own; it survives kill -9.
func TestGroupSettingsByTool(t *testing.T) {
	t.Parallel()
	s, _ := newTopic(t)
	tool := func(args ...string) string {
		t.Helper()
		return peers.Run(t, peers.KafkaTool(t, "kafka-configs", append([]string{"--bootstrap-server", s.Addr, "--entity-type", "groups", "--entity-name", "g"}, args...)...))
	}
	tool("--alter", "--add-config", "consumer.session.timeout.ms=50000,consumer.heartbeat.interval.ms=6000")
	s.restart()
	out := tool("--describe")
	for _, want := range []string{"consumer.session.timeout.ms=50000", "consumer.heartbeat.interval.ms=6000"} {
		if !strings.Contains(out, want) {
			t.Errorf("described is %q, without %s", out, want)
		}
	}
	tool("--alter", "--delete-config", "consumer.session.timeout.ms")
	if out := tool("--describe"); strings.Contains(out, "consumer.session.timeout.ms=50000") || !strings.Contains(out, "consumer.heartbeat.interval.ms=6000") {
		t.Errorf("described is %q", out)
	}
}
