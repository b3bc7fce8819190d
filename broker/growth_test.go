package broker_test

import (
	"bytes"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker"
	"github.com/strandline-io/strandline/broker/brokertest"
	"github.com/strandline-io/strandline/broker/record"
)

// TestBatchesThatGrowAreBounded: a small request whose batches unpack to much more than the broker takes in one
// request is refused in part, whatever the sum of its batches; memory comes back, and the broker goes on.
func TestBatchesThatGrowAreBounded(t *testing.T) {
	const limit, each, n = 4 << 20, 500_000, 40
	c := dial(t, brokertest.Start(t, atNow(), brokertest.Configure(func(c *broker.Config) {
		c.MaxRequestBytes = limit
		c.RequestMemoryBytes = 2 * limit
	})))
	createTopic(c, "t", n, "compression.type", "uncompressed")
	batch := compressed(t, record.CodecZstd, string(make([]byte, each)))
	for round := range 5 {
		req := produceRequest("t", 0, bytes.Clone(batch))
		for i := int32(1); i < n; i++ {
			p := kmsg.NewProduceRequestTopicPartition()
			p.Partition, p.Records = i, bytes.Clone(batch)
			req.Topics[0].Partitions = append(req.Topics[0].Partitions, p)
		}
		accepted := 0
		for _, p := range ask[*kmsg.ProduceResponse](c, req).Topics[0].Partitions {
			switch p.ErrorCode {
			case 0:
				accepted++
			case kerr.MessageTooLarge.Code:
			default:
				t.Fatalf("round %d: partition %d answered %v", round, p.Partition, kerr.ErrorForCode(p.ErrorCode))
			}
		}
		// Less than a round's share would mean that memory of the round before is not given back.
		if want := limit/each - 1; accepted < want || accepted > limit/each {
			t.Fatalf("round %d: %d batches of %d bytes accepted in a request of at most %d", round, accepted, each, limit)
		}
	}
	produce(c, "t", n-1, batchOf(nowMs, "still here"))
}
