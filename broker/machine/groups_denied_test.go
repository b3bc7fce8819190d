package machine

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupAnswers asks for everything of group "g" and topics "t" and "u" and returns the codes by request.
func (w *world) groupAnswers() map[string]string {
	w.t.Helper()
	got := map[string]string{}
	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.ProtocolType, join.SessionTimeoutMillis = "g", "consumer", 10_000
	join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range"}}
	got["JoinGroup"] = fmt.Sprint(w.ask(join, 4).(*kmsg.JoinGroupResponse).ErrorCode)
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group = "g"
	got["SyncGroup"] = fmt.Sprint(w.ask(sync, 4).(*kmsg.SyncGroupResponse).ErrorCode)
	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Group = "g"
	got["Heartbeat"] = fmt.Sprint(w.ask(beat, 4).(*kmsg.HeartbeatResponse).ErrorCode)
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group = "g"
	got["LeaveGroup"] = fmt.Sprint(w.ask(leave, 4).(*kmsg.LeaveGroupResponse).ErrorCode)
	got["OffsetCommit"] = w.commitBoth()
	txn := kmsg.NewPtrTxnOffsetCommitRequest()
	txn.TransactionalID, txn.Group, txn.Generation = "pay", "g", -1
	txn.ProducerID, txn.ProducerEpoch = 0, 0
	for _, name := range []string{"t", "u"} {
		topic := kmsg.NewTxnOffsetCommitRequestTopic()
		topic.Topic, topic.Partitions = name, []kmsg.TxnOffsetCommitRequestTopicPartition{{Offset: 5, LeaderEpoch: -1}}
		txn.Topics = append(txn.Topics, topic)
	}
	topics := w.ask(txn, 5).(*kmsg.TxnOffsetCommitResponse).Topics
	got["TxnOffsetCommit"] = fmt.Sprint(topics[0].Partitions[0].ErrorCode, " ", topics[1].Partitions[0].ErrorCode)
	for _, version := range []int16{1, 5, 9} {
		got[fmt.Sprint("OffsetFetch v", version)] = w.fetchBoth(version, true)
	}
	got["OffsetFetch of all"] = w.fetchBoth(9, false)
	describe := kmsg.NewPtrDescribeGroupsRequest()
	describe.Groups = []string{"g", "other"}
	described := w.ask(describe, 4).(*kmsg.DescribeGroupsResponse).Groups
	got["DescribeGroups"] = fmt.Sprint(described[0].ErrorCode, " ", described[1].ErrorCode)
	consumers := kmsg.NewPtrConsumerGroupDescribeRequest()
	consumers.Groups = []string{"g", "other"}
	described2 := w.ask(consumers, 0).(*kmsg.ConsumerGroupDescribeResponse).Groups
	got["ConsumerGroupDescribe"] = fmt.Sprint(described2[0].ErrorCode, " ", described2[1].ErrorCode)
	list := ""
	for _, g := range w.ask(kmsg.NewPtrListGroupsRequest(), 4).(*kmsg.ListGroupsResponse).Groups {
		list += g.Group + " "
	}
	got["ListGroups"] = list
	del := kmsg.NewPtrOffsetDeleteRequest()
	del.Group = "g"
	for _, name := range []string{"t", "u"} {
		del.Topics = append(del.Topics, kmsg.OffsetDeleteRequestTopic{Topic: name, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}})
	}
	deleted := w.ask(del, 0).(*kmsg.OffsetDeleteResponse)
	got["OffsetDelete"] = fmt.Sprint(deleted.ErrorCode)
	for _, t := range deleted.Topics {
		got["OffsetDelete"] += fmt.Sprint(" ", t.Partitions[0].ErrorCode)
	}
	groups := kmsg.NewPtrDeleteGroupsRequest()
	groups.Groups = []string{"g", "other"}
	gone := w.ask(groups, 2).(*kmsg.DeleteGroupsResponse).Groups
	got["DeleteGroups"] = fmt.Sprint(gone[0].ErrorCode, " ", gone[1].ErrorCode)
	return got
}

// commitBoth commits offsets of topics "t" and "u", and of one that is not there.
func (w *world) commitBoth() string {
	w.t.Helper()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = "g", -1
	for _, name := range []string{"t", "u", "none"} {
		topic := kmsg.NewOffsetCommitRequestTopic()
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Offset = 4
		topic.Topic, topic.Partitions = name, append(topic.Partitions, p)
		req.Topics = append(req.Topics, topic)
	}
	codes := ""
	for _, t := range w.ask(req, 8).(*kmsg.OffsetCommitResponse).Topics {
		codes += fmt.Sprint(t.Partitions[0].ErrorCode, " ")
	}
	return codes
}

// fetchBoth asks for both offsets, by name or without any: what the group is answered, then each topic.
func (w *world) fetchBoth(version int16, named bool) string {
	w.t.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group = "g"
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = "g"
	for _, name := range []string{"t", "u"} {
		if named {
			g.Topics = append(g.Topics, kmsg.OffsetFetchRequestGroupTopic{Topic: name, Partitions: []int32{0}})
			req.Topics = append(req.Topics, kmsg.OffsetFetchRequestTopic{Topic: name, Partitions: []int32{0}})
		}
	}
	req.Groups = append(req.Groups, g)
	resp := w.ask(req, version).(*kmsg.OffsetFetchResponse)
	got := ""
	if version < 8 {
		got = fmt.Sprint(resp.ErrorCode)
		for _, t := range resp.Topics {
			got += fmt.Sprintf(" %s=%d:%d", t.Topic, t.Partitions[0].ErrorCode, t.Partitions[0].Offset)
		}
		return got
	}
	got = fmt.Sprint(resp.Groups[0].ErrorCode)
	for _, t := range resp.Groups[0].Topics {
		got += fmt.Sprintf(" %s=%d:%d", t.Topic, t.Partitions[0].ErrorCode, t.Partitions[0].Offset)
	}
	return got
}

// TestDeniedGroups: kafka-eos.md D's permissions and F.3, one after another. Each line is what differs from what everybody gets.
func TestDeniedGroups(t *testing.T) {
	start := func() *world {
		w := newWorld(t, Config{})
		w.script("topic t 1 \n topic u 1 \n init")
		w.commitBoth()
		return w
	}
	everything := start().groupAnswers()
	want := map[string]string{
		"JoinGroup": "79", "SyncGroup": "25", "Heartbeat": "25", "LeaveGroup": "0", "OffsetCommit": "0 0 3 ", "TxnOffsetCommit": "0 0",
		"OffsetFetch v1": "0 t=0:4 u=0:4", "OffsetFetch v5": "0 t=0:4 u=0:4", "OffsetFetch v9": "0 t=0:4 u=0:4", "OffsetFetch of all": "0 t=0:4 u=0:4",
		"DescribeGroups": "0 0", "ConsumerGroupDescribe": "69 69", "ListGroups": "g ", "OffsetDelete": "0 0 0", "DeleteGroups": "0 69",
	}
	if fmt.Sprint(everything) != fmt.Sprint(want) {
		t.Fatalf("everybody gets\n%v\nwant\n%v", everything, want)
	}
	f := func(operation, resource, name string, changes map[string]string) {
		t.Helper()
		w := start()
		w.deny(operation, resource, name)
		if resource == "group" && operation == "describe" { // who may see the cluster sees all groups
			if got := w.groupAnswers()["ListGroups"]; got != "g " {
				t.Errorf("with DESCRIBE of the cluster are listed %q", got)
			}
			w = start()
			w.deny(operation, resource, name)
			w.deny("describe", "cluster", "kafka-cluster")
		}
		for request, got := range w.groupAnswers() {
			expected, changed := changes[request]
			if !changed {
				expected = want[request]
			}
			if got != expected {
				t.Errorf("without %s of %s %s, %s is answered %s, want %s", operation, resource, name, request, got, expected)
			}
		}
	}
	f("read", "group", "g", map[string]string{
		"JoinGroup": "30", "SyncGroup": "30", "Heartbeat": "30", "LeaveGroup": "30", "OffsetCommit": "30 30 30 ", "TxnOffsetCommit": "30 30"})
	f("read", "topic", "t", map[string]string{"OffsetCommit": "29 0 3 ", "TxnOffsetCommit": "29 0", "OffsetDelete": "0 29 0"})
	f("read", "topic", "none", map[string]string{"OffsetCommit": "0 0 29 "})
	f("describe", "group", "g", map[string]string{
		"OffsetFetch v1": "0 t=30:-1 u=30:-1", "OffsetFetch v5": "30", "OffsetFetch v9": "30", "OffsetFetch of all": "30",
		"DescribeGroups": "30 0", "ConsumerGroupDescribe": "30 69", "ListGroups": ""})
	f("describe", "topic", "t", map[string]string{
		"OffsetFetch v1": "0 t=29:-1 u=0:4", "OffsetFetch v5": "0 t=29:-1 u=0:4", "OffsetFetch v9": "0 t=29:-1 u=0:4", "OffsetFetch of all": "0 u=0:4"})
	f("delete", "group", "g", map[string]string{"OffsetDelete": "30", "DeleteGroups": "30 69"})
	f("delete", "group", "other", map[string]string{"DeleteGroups": "0 30"})
}

// What a client may not read is not committed either, whatever else the request holds: its offsets stay as they are.
func TestDeniedTopicsAreNotCommitted(t *testing.T) {
	w := newWorld(t, Config{})
	w.script("topic t 1 \n topic u 1 \n init")
	w.deny("read", "topic", "t")
	w.commitBoth()
	w.run("txncommit group=g t/0=5 u/0=5")
	w.run("end commit")
	w.expect("fetch group=g t/0", "offset -1")
	w.expect("fetch group=g u/0", "offset 5")
}
