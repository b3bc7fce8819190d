package machine

import (
	"encoding/binary"
	"maps"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/wire"
)

// loopKeys are the APIs whose requests come to the machine as they were decoded: all that are served but those that
// package broker answers by itself, and Produce, for which see FuzzJudge. A key that is missing here panics in Step.
var loopKeys = func() (keys []int16) {
	for _, a := range wire.APIs() {
		if !slices.Contains([]int16{0, 1, 2, 18, 23, 35, 43, 45, 46, 48, 60, 74}, a.Key) {
			keys = append(keys, a.Key)
		}
	}
	return keys
}()

// What a step of FuzzRequests is besides a request.
const (
	stepTick    = 255 // the length is milliseconds
	stepRestart = 254
)

// FuzzRequests steps any requests that can be decoded, with ticks and restarts between them. After each, what was
// journaled replays to the running state (world.follow), and the stable offset has not moved back. An input is a
// sequence of key, version, length in two bytes, body.
func FuzzRequests(f *testing.F) {
	for _, a := range wire.APIs() {
		if slices.Contains(loopKeys, a.Key) {
			f.Add(appendRequest(nil, kmsg.RequestForKey(a.Key), a.Max))
		}
	}
	for _, seed := range requestSeeds() {
		f.Add(seed)
	}
	before := lively(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		w := before.copy(t)
		for steps := 0; len(data) >= 4 && steps < 64; steps++ {
			key, version, size := data[0], int16(data[1]), int(binary.BigEndian.Uint16(data[2:]))
			data = data[4:]
			switch key {
			case stepTick:
				w.tick(int64(size))
				continue
			case stepRestart:
				w.restart()
				continue
			}
			body := data[:min(size, len(data))]
			data = data[len(body):]
			a, ok := wire.Lookup(loopKeys[int(key)%len(loopKeys)])
			if !ok {
				t.Fatalf("key %d is not served", key)
			}
			version = a.Min + version%(a.Max-a.Min+1)
			if req, err := wire.Decode(wire.Header{Key: a.Key, Version: version}, body); err == nil {
				w.do(req)
			}
		}
		w.compare()
		w.restart()
	})
}

// copy returns a world that goes on where w is, and compares hashes only.
func (w *world) copy(t testing.TB) *world {
	c := *w
	c.t, c.quiet, c.journal = t, true, nil
	c.views, c.late, c.logs = maps.Clone(w.views), map[uint64]any{}, map[PartitionID][][]byte{}
	for id, log := range w.logs {
		c.logs[id] = slices.Clip(log)
	}
	snapshot := w.m.AppendSnapshot(nil)
	for _, m := range []**Machine{&c.m, &c.shadow} {
		var err error
		if *m, err = Restore(w.cfg, snapshot); err != nil {
			t.Fatal(err)
		}
	}
	return &c
}

// appendRequest appends a step with the version that the target makes of it.
func appendRequest(dst []byte, req kmsg.Request, version int16) []byte {
	a, _ := wire.Lookup(req.Key())
	req.SetVersion(version)
	body := req.AppendTo(nil)
	dst = append(dst, byte(slices.Index(loopKeys, req.Key())), byte(version-a.Min))
	return append(binary.BigEndian.AppendUint16(dst, uint16(len(body))), body...)
}

// requestSeeds are lives of a group, of transactions and of topics.
func requestSeeds() (seeds [][]byte) {
	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.ProtocolType, join.SessionTimeoutMillis = "g", "consumer", 6000
	join.InstanceID = kmsg.StringPtr("i")
	join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte("m")}}
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Group = "g"
	commit.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Offset: 1}}}}
	fetch := kmsg.NewPtrOffsetFetchRequest()
	fetch.Group = "g"
	fetch.RequireStable = true
	group := appendRequest(nil, join, 5)
	group = append(group, stepTick, 0, 20, 0)
	group = appendRequest(appendRequest(group, commit, 7), fetch, 7)
	group = append(group, stepRestart, 0, 0, 0, stepTick, 0, 60, 0)

	initID := kmsg.NewPtrInitProducerIDRequest()
	initID.TransactionalID, initID.TransactionTimeoutMillis = kmsg.StringPtr("x"), 5000
	end := kmsg.NewPtrEndTxnRequest()
	end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = "x", 1, 1, true
	add := kmsg.NewPtrAddPartitionsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch = "x", 1, 2
	add.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: "t", Partitions: []int32{0, 1}}}
	offsets := kmsg.NewPtrTxnOffsetCommitRequest()
	offsets.TransactionalID, offsets.ProducerID, offsets.ProducerEpoch, offsets.Group, offsets.Generation = "x", 1, 2, "g", -1
	offsets.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{{Offset: 3}}}}
	txn := appendRequest(appendRequest(nil, end, 4), add, 3)
	txn = append(appendRequest(txn, offsets, 3), stepTick, 0, 30, 0)
	txn = appendRequest(append(txn, stepRestart, 0, 0, 0), initID, 4)

	create := kmsg.NewPtrCreateTopicsRequest()
	create.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "new", NumPartitions: 2, ReplicationFactor: 1,
		Configs: []kmsg.CreateTopicsRequestTopicConfig{{Name: "cleanup.policy", Value: kmsg.StringPtr("compact")}}}}
	grow := kmsg.NewPtrCreatePartitionsRequest()
	grow.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "t", Count: 4}}
	remove := kmsg.NewPtrDeleteTopicsRequest()
	remove.TopicNames = []string{"t"}
	topics := appendRequest(appendRequest(appendRequest(nil, create, 5), grow, 2), remove, 3)
	return [][]byte{group, txn, topics, consumerSeed()}
}

// consumerSeed is the life of a group of KIP-848: two members, one of them with a pattern, a restart, offsets.
func consumerSeed() []byte {
	beat := func(member string, epoch int32) *kmsg.ConsumerGroupHeartbeatRequest {
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.Group, req.MemberID, req.MemberEpoch, req.RebalanceTimeoutMillis = "c", member, epoch, 5000
		req.SubscribedTopicNames, req.Topics = []string{"t"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		return req
	}
	first, second, away := beat("a", 0), beat("b", 0), beat("b", -2)
	first.SubscribedTopicRegex = kmsg.StringPtr("t.*")
	second.InstanceID, away.InstanceID = kmsg.StringPtr("i"), kmsg.StringPtr("i")
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Group, commit.MemberID, commit.Generation = "c", "a", 1
	commit.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Offset: 1}}}}
	seed := appendRequest(appendRequest(nil, first, 1), commit, 9)
	seed = append(appendRequest(seed, second, 1), stepTick, 0, 4, 0)
	seed = appendRequest(appendRequest(seed, beat("a", 1), 1), beat("a", 1), 1)
	seed = append(appendRequest(seed, away, 1), stepRestart, 0, 0, 0)
	return append(appendRequest(seed, beat("a", 2), 1), stepTick, 0, 200, 0)
}
