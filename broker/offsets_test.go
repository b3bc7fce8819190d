package broker_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/brokertest"
)

// TestListOffsets is kafka-eos.md C.7, row by row.
func TestListOffsets(t *testing.T) {
	c := dial(t, brokertest.Start(t))
	topic := createTopic(c, "t", 1)
	createTopic(c, "empty", 1)
	produce(c, "t", 0, batchOf(1000, "a", "b")) // 0, 1
	produce(c, "t", 0, batchOf(3000, "c"))      // 2
	produce(c, "t", 0, batchOf(2000, "d"))      // 3
	open := initProducer(c, "open")
	open.write("t", topic, 0, "e") // 4, at time 1, not decided

	const epoch = 1
	f := func(name string, version int16, isolation int8, timestamp, wantOffset, wantTimestamp int64, wantEpoch int32, wantCode int16) {
		t.Helper()
		req := listOffsetsRequest("t", version, timestamp)
		req.IsolationLevel = isolation
		got := ask[*kmsg.ListOffsetsResponse](c, req).Topics[0].Partitions[0]
		if version < 4 {
			wantEpoch = -1
		}
		if got.ErrorCode != wantCode || got.Offset != wantOffset || got.Timestamp != wantTimestamp || got.LeaderEpoch != wantEpoch {
			t.Errorf("%s: code %d, offset %d, timestamp %d, epoch %d", name, got.ErrorCode, got.Offset, got.Timestamp, got.LeaderEpoch)
		}
	}
	for version := int16(1); version <= 11; version++ {
		f("latest", version, 0, -1, 5, -1, epoch, 0)
		if version >= 2 {
			f("latest committed", version, 1, -1, 4, -1, epoch, 0)
		}
		f("earliest", version, 0, -2, 0, -1, epoch, 0)
		f("at", version, 0, 1000, 0, 1000, epoch, 0)
		f("between", version, 0, 1001, 2, 3000, epoch, 0)
		f("too late", version, 0, 3001, -1, -1, -1, 0)
	}
	f("max timestamp", 7, 0, -3, 2, 3000, epoch, 0)
	f("max timestamp too early", 6, 0, -3, -1, -1, -1, 35)
	f("earliest local", 8, 0, -4, 0, -1, epoch, 0)
	f("earliest local too early", 7, 0, -4, -1, -1, -1, 35)
	f("latest tiered", 9, 0, -5, -1, -1, -1, 0)
	f("latest tiered too early", 8, 0, -5, -1, -1, -1, 35)
	f("pending upload", 11, 0, -6, -1, -1, -1, 0)
	f("pending upload too early", 10, 0, -6, -1, -1, -1, 35)
	f("nonsense", 11, 0, -7, -1, -1, -1, 35)
	f("from the epoch of time", 11, 0, 0, 0, 1000, epoch, 0)
}

func TestListOffsetsBeyondTheLastStable(t *testing.T) {
	c := dial(t, brokertest.Start(t))
	topic := createTopic(c, "t", 1)
	produce(c, "t", 0, batchOf(0, "a"))
	initProducer(c, "open").write("t", topic, 0, "b") // at time 1
	f := func(isolation int8, want int64) {
		t.Helper()
		req := listOffsetsRequest("t", 5, 1)
		req.IsolationLevel = isolation
		if got := ask[*kmsg.ListOffsetsResponse](c, req).Topics[0].Partitions[0]; got.Offset != want || got.ErrorCode != 0 {
			t.Errorf("isolation %d: %+v, want offset %d", isolation, got, want)
		}
	}
	f(0, 1)
	f(1, -1)
}

func TestListOffsetsRefusals(t *testing.T) {
	c := dial(t, brokertest.Start(t))
	createTopic(c, "t", 1)
	f := func(name string, want int16, change func(*kmsg.ListOffsetsRequestTopic)) {
		t.Helper()
		req := listOffsetsRequest("t", 6, -1)
		change(&req.Topics[0])
		for _, p := range ask[*kmsg.ListOffsetsResponse](c, req).Topics[0].Partitions {
			if p.ErrorCode != want || p.Offset != -1 {
				t.Errorf("%s: %+v, want code %d", name, p, want)
			}
		}
	}
	f("twice", 42, func(t *kmsg.ListOffsetsRequestTopic) { t.Partitions = append(t.Partitions, t.Partitions[0]) })
	f("unknown topic", 3, func(t *kmsg.ListOffsetsRequestTopic) { t.Topic = "u" })
	f("unknown partition", 3, func(t *kmsg.ListOffsetsRequestTopic) { t.Partitions[0].Partition = 1 })
	f("older epoch", 74, func(t *kmsg.ListOffsetsRequestTopic) { t.Partitions[0].CurrentLeaderEpoch = 0 })
	f("newer epoch", 75, func(t *kmsg.ListOffsetsRequestTopic) { t.Partitions[0].CurrentLeaderEpoch = 2 })
}

func TestOffsetForLeaderEpoch(t *testing.T) {
	c := dial(t, brokertest.Start(t))
	createTopic(c, "t", 1)
	produce(c, "t", 0, batchOf(1, "a", "b"))
	f := func(current, asked, wantEpoch int32, wantEnd int64, wantCode int16) {
		t.Helper()
		for version := int16(2); version <= 4; version++ {
			req := kmsg.NewPtrOffsetForLeaderEpochRequest()
			req.Version = version
			rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
			rt.Topic = "t"
			p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			p.CurrentLeaderEpoch, p.LeaderEpoch = current, asked
			rt.Partitions = append(rt.Partitions, p)
			req.Topics = append(req.Topics, rt)
			got := ask[*kmsg.OffsetForLeaderEpochResponse](c, req).Topics[0].Partitions[0]
			if got.LeaderEpoch != wantEpoch || got.EndOffset != wantEnd || got.ErrorCode != wantCode {
				t.Errorf("version %d, epoch %d: %+v", version, asked, got)
			}
		}
	}
	f(-1, 1, 1, 2, 0)
	f(1, 1, 1, 2, 0)
	f(-1, 0, 0, 0, 0) // below all that are known
	f(-1, 2, -1, -1, 0)
	f(0, 1, -1, -1, 74)
	f(2, 1, -1, -1, 75)
}

// listOffsetsRequest asks for the offset of a topic's first partition at a time, or by one of the special timestamps.
func listOffsetsRequest(topic string, version int16, timestamp int64) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID = version, -1
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp = timestamp
	rt.Partitions = append(rt.Partitions, p)
	req.Topics = append(req.Topics, rt)
	return req
}

// listOffset sends it.
func listOffset(c *rawClient, topic string, timestamp int64) kmsg.ListOffsetsResponseTopicPartition {
	c.t.Helper()
	return ask[*kmsg.ListOffsetsResponse](c, listOffsetsRequest(topic, 8, timestamp)).Topics[0].Partitions[0]
}
