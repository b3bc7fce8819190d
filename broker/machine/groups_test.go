package machine

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// join brings a member into a group alone; those who are in it already are thrown out for it.
func (w *world) join(group string) (member string) {
	w.t.Helper()
	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.ProtocolType, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = group, "consumer", 10_000, 10_000
	join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range"}}
	w.ask(join, 3)
	parked := w.op
	w.tick(10_000)
	joined, ok := w.late[parked].(*kmsg.JoinGroupResponse)
	if !ok || joined.ErrorCode != 0 {
		w.t.Fatalf("the join is answered %+v", w.late[parked])
	}
	return joined.MemberID
}

// Every group request reaches the coordinator, and what had to wait is answered later under its own operation.
func TestGroupRequests(t *testing.T) {
	w := newWorld(t, Config{})
	id := w.topic("t", 1).ID
	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.ProtocolType, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = "g", "consumer", 10_000, 10_000
	join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range"}}
	if answer := w.ask(join, 3); answer != nil {
		t.Fatalf("the join of an empty group is answered at once: %+v", answer)
	}
	parked := w.op
	w.tick(3000)
	joined, ok := w.late[parked].(*kmsg.JoinGroupResponse)
	if !ok || joined.ErrorCode != 0 || joined.Generation != 1 {
		t.Fatalf("the parked join is answered %+v", w.late[parked])
	}
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.Generation, sync.MemberID = "g", 1, joined.MemberID
	sync.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: joined.MemberID, MemberAssignment: []byte("all")}}
	if r := w.ask(sync, 3).(*kmsg.SyncGroupResponse); string(r.MemberAssignment) != "all" {
		t.Errorf("sync: %+v", r)
	}
	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Group, beat.Generation, beat.MemberID = "g", 1, joined.MemberID
	if r := w.ask(beat, 3).(*kmsg.HeartbeatResponse); r.ErrorCode != 0 {
		t.Errorf("heartbeat: %s", errorName(r.ErrorCode))
	}
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Group, commit.Generation, commit.MemberID = "g", 1, joined.MemberID
	ct := kmsg.NewOffsetCommitRequestTopic()
	ct.TopicID = id
	cp := kmsg.NewOffsetCommitRequestTopicPartition()
	cp.Offset = 7
	ct.Partitions = append(ct.Partitions, cp)
	commit.Topics = append(commit.Topics, ct)
	if r := w.ask(commit, 10).(*kmsg.OffsetCommitResponse); r.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Errorf("commit by topic id: %s", errorName(r.Topics[0].Partitions[0].ErrorCode))
	}
	w.expect("fetch group=g t/0", "offset 7")
	list := w.ask(kmsg.NewPtrListGroupsRequest(), 4).(*kmsg.ListGroupsResponse)
	describe := kmsg.NewPtrDescribeGroupsRequest()
	describe.Groups = []string{"g"}
	described := w.ask(describe, 4).(*kmsg.DescribeGroupsResponse)
	if len(list.Groups) != 1 || len(described.Groups) != 1 || described.Groups[0].State != "Stable" || described.Groups[0].Members[0].ClientHost != "/127.0.0.1" {
		t.Errorf("listed %+v, described %+v", list.Groups, described.Groups)
	}
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group = "g"
	leave.Members = []kmsg.LeaveGroupRequestMember{{MemberID: joined.MemberID}}
	if r := w.ask(leave, 3).(*kmsg.LeaveGroupResponse); r.ErrorCode != 0 {
		t.Errorf("leave: %s", errorName(r.ErrorCode))
	}
	// With its topic the offsets go.
	w.run("delete t")
	w.topic("t", 1)
	w.expect("fetch group=g t/0", "offset -1")
}

// TestPatternsAreMatchedOutside: a heartbeat with a pattern says what is to be matched, and against which topics. What
// comes back is dropped if it is older than what is known.
func TestPatternsAreMatchedOutside(t *testing.T) {
	w := newWorld(t, Config{})
	w.topic("ta", 1)
	beat := func(epoch int32) any {
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.Group, req.MemberID, req.MemberEpoch, req.RebalanceTimeoutMillis = "g", "m", epoch, 5000
		req.SubscribedTopicRegex, req.Topics = kmsg.StringPtr("t.*"), []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		w.tick(2000)
		return w.ask(req, 1)
	}
	first := beat(0).(*GroupReply).Match
	w.topic("tb", 1)
	second := beat(1).(*GroupReply).Match
	if second.TopicsVersion <= first.TopicsVersion || second.Pattern != "t.*" || second.Group != "g" {
		t.Fatalf("to be matched are %+v, then %+v", first, second)
	}
	first.Topics, second.Topics = []string{"ta"}, []string{"ta", "tb"}
	w.do(second)
	w.do(first)
	resp := beat(1).(*kmsg.ConsumerGroupHeartbeatResponse)
	if resp.Assignment == nil || len(resp.Assignment.Topics) != 2 {
		t.Errorf("the member is answered %+v", resp)
	}
}
