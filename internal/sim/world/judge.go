package world

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/record"
)

// runJudge waits for the end of all work, restarts the broker once more and judges what is there.
func (c *client) runJudge() {
	w := c.w
	for !w.healed || w.writers > 0 || w.readers > 0 {
		c.sleep(100 * msInUs)
	}
	c.waitStable()
	w.crash("kill", true)
	c.createTopics() // where power was lost, they may be
	final := make(map[string][]*value)
	var names []string
	for _, topic := range topics {
		for i := range int32(inputPartitions) {
			name := partitionName(topic, i)
			names = append(names, name)
			final[name] = c.readAll(topic, i, true, nil)
			if reader := fmt.Sprintf("reader-%s-true", name); !w.leftOut(reader) && !w.mode.lossy {
				w.checkReader(reader, w.history.reading[name], final[name])
			}
			c.checkOffsets(topic, i)
		}
	}
	w.check(final, names)
	c.checkTrimmed()
	w.checkGroup(final)
	w.checkModern(final)
	w.tracef("all is well")
	w.ended = true
}

// waitStable waits until no transaction is open: the stable offset of every partition is its end.
func (c *client) waitStable() {
	for {
		stable := c.w.process != nil
		if stable {
			for _, v := range c.w.process.machine.Views() {
				stable = stable && v.LastStable == v.HighWatermark
			}
		}
		if stable {
			return
		}
		c.sleep(100 * msInUs)
	}
}

// stamp is the time of a record, be it a marker.
type stamp struct{ offset, timestampMs int64 }

// checkOffsets compares what ListOffsets and OffsetForLeaderEpoch say with what a reader finds.
func (c *client) checkOffsets(topic string, partition int32) {
	first := make(map[int32]int64) // offset of each leader epoch
	var epochs []int32
	var all []stamp
	values := c.readAll(topic, partition, false, func(h record.Header) {
		if _, known := first[h.LeaderEpoch]; !known {
			first[h.LeaderEpoch] = h.BaseOffset
			epochs = append(epochs, h.LeaderEpoch)
		}
		if h.Control() {
			all = append(all, stamp{h.BaseOffset, h.MaxTimestamp})
		}
	})
	for _, v := range values {
		all = append(all, stamp{v.offset, v.timestampMs})
	}
	slices.SortFunc(all, func(a, b stamp) int { return cmp.Compare(a.offset, b.offset) })
	name := partitionName(topic, partition)
	end := c.listOffset(topic, partition, -1)
	if start := c.listOffset(topic, partition, -2); start != 0 {
		c.w.fail("offsets: %s begins at %d", name, start)
	}
	for range min(3, len(all)) {
		ms := all[c.w.IntN(len(all))].timestampMs + c.w.Int64N(3) - 1
		want := int64(-1)
		if i := slices.IndexFunc(all, func(s stamp) bool { return s.timestampMs >= ms }); i >= 0 {
			want = all[i].offset
		}
		if got := c.listOffset(topic, partition, ms); got != want {
			c.w.fail("offsets: %s: the first record of %d or later is said to be at %d, it is at %d", name, ms, got, want)
		}
	}
	for i, epoch := range epochs {
		want := end
		if i+1 < len(epochs) {
			want = first[epochs[i+1]]
		}
		if got, at := c.epochEnd(topic, partition, epoch); got != epoch || at != want {
			c.w.fail("offsets: %s: leader epoch %d ends at %d of epoch %d, the next one begins at %d", name, epoch, at, got, want)
		}
	}
}

func (c *client) listOffset(topic string, partition int32, timestampMs int64) int64 {
	for {
		resp, _ := c.insist(func() kmsg.Request {
			req := kmsg.NewPtrListOffsetsRequest()
			req.ReplicaID = -1
			t := kmsg.NewListOffsetsRequestTopic()
			t.Topic = topic
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Partition, p.Timestamp, p.CurrentLeaderEpoch = partition, timestampMs, -1
			t.Partitions = append(t.Partitions, p)
			req.Topics = append(req.Topics, t)
			return req
		}, 7)
		if p := resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]; p.ErrorCode == 0 {
			return p.Offset
		} else if !takesAgain(p.ErrorCode) {
			c.unexpected("ListOffsets", p.ErrorCode)
		}
		c.sleep(10 * msInUs)
	}
}

func (c *client) epochEnd(topic string, partition, epoch int32) (got int32, end int64) {
	resp, _ := c.insist(func() kmsg.Request {
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.ReplicaID = -1
		t := kmsg.NewOffsetForLeaderEpochRequestTopic()
		t.Topic = topic
		p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		p.Partition, p.LeaderEpoch, p.CurrentLeaderEpoch = partition, epoch, -1
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
		return req
	}, 4)
	p := resp.(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		c.unexpected("OffsetForLeaderEpoch", p.ErrorCode)
	}
	return p.LeaderEpoch, p.EndOffset
}
