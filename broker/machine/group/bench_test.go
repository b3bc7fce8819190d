package group

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// bare is a Context that costs next to nothing.
type bare struct {
	gs *Groups
	ms int64
}

func (b *bare) WallMs() int64                             { return b.ms }
func (b *bare) EngineMs() int64                           { return b.ms }
func (b *bare) OpID() uint64                              { return 1 }
func (b *bare) ClientID() string                          { return "c" }
func (b *bare) ClientHost() string                        { return "h" }
func (b *bare) NewID() string                             { return "u" }
func (b *bare) Reply(uint64, kmsg.Response)               {}
func (b *bare) Topic(name string) ([16]byte, int32, bool) { return topicID(name), 64, true }
func (b *bare) TopicByID([16]byte) (string, bool)         { return "", false }
func (b *bare) TopicsVersion() uint64                     { return 1 }
func (b *bare) May(kmsg.ACLOperation, kmsg.ACLResourceType, string) bool {
	return true
}
func (b *bare) Record(kind uint8, payload []byte) {
	if err := b.gs.Apply(kind, payload); err != nil {
		panic(err)
	}
}

// BenchmarkOffsetCommit commits one partition of a group that holds 64, decision and apply.
func BenchmarkOffsetCommit(b *testing.B) {
	ctx := &bare{gs: New(Config{})}
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group = 9, "group"
	req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "topic", Partitions: make([]kmsg.OffsetCommitRequestTopicPartition, 1)}}
	p := &req.Topics[0].Partitions[0]
	b.ReportAllocs()
	for i := range b.N {
		p.Partition, p.Offset = int32(i%64), int64(i)
		ctx.gs.OffsetCommit(ctx, req)
	}
}

// BenchmarkTxnOffsets is the offsets' share of a transaction: one partition pending, then committed.
func BenchmarkTxnOffsets(b *testing.B) {
	ctx := &bare{gs: New(Config{})}
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.Version, req.Group = 5, "group"
	req.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: "topic", Partitions: make([]kmsg.TxnOffsetCommitRequestTopicPartition, 1)}}
	req.Generation = -1
	b.ReportAllocs()
	for i := range b.N {
		req.Topics[0].Partitions[0].Offset = int64(i)
		ctx.gs.TxnOffsetCommit(ctx, int64(i%8), req)
		ctx.gs.ApplyTxnEnd(int64(i%8), true)
	}
}

// BenchmarkHeartbeat is one member of a stable group of 1,000.
func BenchmarkHeartbeat(b *testing.B) {
	ctx := &bare{gs: New(Config{})}
	rec := &generationRecord{group: "g", protocolType: "consumer", generation: 1, protocol: "range", leader: "m0"}
	ids := make([]string, 1000)
	for i := range ids {
		ids[i] = "member-" + string(rune('a'+i%26)) + string(rune('a'+i/26))
		rec.members = append(rec.members, &memberInfo{id: ids[i], sessionMs: 45_000, rebalanceMs: 60_000})
	}
	rec.leader = ids[0]
	ctx.Record(kindGeneration, rec.append(nil))
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.Generation, req.Version = "g", 1, 4
	b.ReportAllocs()
	for i := range b.N {
		ctx.ms++
		req.MemberID = ids[i%len(ids)]
		ctx.gs.Heartbeat(ctx, req)
	}
}

// BenchmarkAssignment makes a target for 1,000 members and 64,000 partitions in 1,000 topics anew, and keeps it: within
// the loop, and outside.
func BenchmarkAssignment(b *testing.B) {
	ctx := &bare{gs: New(Config{InlineAssignment: -1, AssignmentIntervalMs: -1})}
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprintf("topic-%04d", i))
	}
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Version, req.Group, req.RebalanceTimeoutMillis, req.SubscribedTopicNames = 1, "g", 1000, names
	req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	var a *Assignment
	for i := range 1000 {
		req.MemberID = fmt.Sprintf("m%03d", i)
		_, work := ctx.gs.ConsumerGroupHeartbeat(ctx, req)
		a = work.Assignment
	}
	g, _ := ctx.gs.groups.Get("g")
	b.Run("collect", func(b *testing.B) {
		for range b.N {
			a = g.saved.consumer.assignment(ctx, g)
		}
	})
	b.Run("make", func(b *testing.B) {
		for range b.N {
			a = g.saved.consumer.assignment(ctx, g)
			a.Make()
		}
	})
	b.Run("take", func(b *testing.B) {
		for range b.N {
			g.saved.consumer.targetEpoch = 0
			for _, id := range g.saved.consumer.members.Keys() {
				m, _ := g.saved.consumer.members.Get(id)
				next := *m
				next.target = nil
				ctx.gs.setConsumer(g, &next)
			}
			ctx.gs.Assigned(ctx, a)
		}
	})
	b.Run("heartbeat", func(b *testing.B) {
		m, _ := g.saved.consumer.members.Get("m000")
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.Version, req.Group, req.MemberID, req.RebalanceTimeoutMillis = 1, "g", "m000", -1
		for range b.N {
			req.MemberEpoch = m.epoch
			ctx.gs.ConsumerGroupHeartbeat(ctx, req)
			m, _ = g.saved.consumer.members.Get("m000")
		}
	})
}
