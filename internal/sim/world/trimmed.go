package world

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// trimmedTopic is one whose oldest records are deleted while others write to it and read it.
const trimmedTopic = "trimmed"

func (w *World) startTrimmed() {
	w.startClient("trimmer", true, (*client).runTrimmer)
	batches := 10 + w.IntN(30)
	w.startProducer("trimmed-writer", func(c *client) { c.runIdempotent(trimmedTopic, batches) })
	for i := range int32(inputPartitions) {
		for _, committed := range []bool{true, false} {
			w.startReader(fmt.Sprintf("reader-%s-%t", partitionName(trimmedTopic, i), committed), func(c *client) { c.followTrimmed(i, committed) })
		}
	}
}

// runTrimmer deletes records and looks below: what was acknowledged to be gone does not come back.
func (c *client) runTrimmer() {
	w := c.w
	for range 24 {
		i := w.Int32N(inputPartitions)
		name := partitionName(trimmedTopic, i)
		end := c.listOffset(trimmedTopic, i, -1)
		before := w.history.starts[name]
		upTo := before + w.Int64N(max(end-before, 0)+1)
		if w.chance(15) {
			upTo = -1 // all
		}
		if resp := c.ask(deleteRecords(trimmedTopic, i, upTo), 2); resp != nil {
			p := resp.(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0]
			if p.ErrorCode != 0 {
				c.unexpected("DeleteRecords", p.ErrorCode)
			}
			if p.LowWatermark < max(upTo, before) {
				w.fail("log start: %s: %s begins at %d after records below %d were deleted, it began at %d", c.name, name, p.LowWatermark, upTo, before)
			}
			w.history.starts[name] = max(w.history.starts[name], p.LowWatermark)
			c.tracef("%s begins at %d", name, p.LowWatermark)
		}
		c.sleep(w.Int64N(600 * msInUs))
		c.lookBelow(i)
		c.sleep(w.Int64N(600 * msInUs))
	}
}

func deleteRecords(topic string, partition int32, upTo int64) kmsg.Request {
	req := kmsg.NewPtrDeleteRecordsRequest()
	t := kmsg.NewDeleteRecordsRequestTopic()
	t.Topic = topic
	p := kmsg.NewDeleteRecordsRequestTopicPartition()
	p.Partition, p.Offset = partition, upTo
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

// lookBelow asks where the log begins, and reads in front of that.
func (c *client) lookBelow(partition int32) {
	w, name := c.w, partitionName(trimmedTopic, partition)
	least := w.history.starts[name]
	if start := c.listOffset(trimmedTopic, partition, -2); start < least {
		w.fail("log start: %s: %s begins at %d, records below %d were deleted", c.name, name, start, least)
	}
	if least == 0 {
		return
	}
	u := &cursor{topic: trimmedTopic, partition: partition, committed: w.chance(50), offset: w.Int64N(least), trimmed: true}
	if _, ok := c.fetch(u); ok {
		w.fail("log start: %s: %s can be read at %d, records below %d were deleted", c.name, name, u.offset, least)
	}
}

// followTrimmed reads to the end; what is deleted in front of it, it leaves out.
func (c *client) followTrimmed(partition int32, committed bool) {
	w, name := c.w, partitionName(trimmedTopic, partition)
	u := &cursor{topic: trimmedTopic, partition: partition, committed: committed, trimmed: true}
	for {
		last := w.healed && w.writers == 0
		at := u.offset
		values, ok := c.fetch(u)
		switch {
		case u.code == kerr.OffsetOutOfRange.Code:
			start := c.listOffset(trimmedTopic, partition, -2)
			if start <= at {
				w.fail("log start: %s: %s at %d is out of range, it begins at %d", c.name, name, at, start)
			}
			u.offset = start
		case ok && last && u.atEnd():
			return
		case len(values) == 0:
			c.sleep(20*msInUs + w.Int64N(300*msInUs))
		}
	}
}

// checkTrimmed: of the topic whose oldest records are deleted, all is there that was acknowledged and not deleted.
func (c *client) checkTrimmed() {
	w := c.w
	if w.mode.lossy || w.leftOut("trimmer") {
		return
	}
	for i := range int32(inputPartitions) {
		name := partitionName(trimmedTopic, i)
		start := c.listOffset(trimmedTopic, i, -2)
		if start < w.history.starts[name] {
			w.fail("log start: %s begins at %d, records below %d were deleted", name, start, w.history.starts[name])
		}
		u := &cursor{topic: trimmedTopic, partition: i, committed: true, offset: start, trimmed: true}
		there := make(map[uint64]bool)
		for ok := false; !ok || !u.atEnd(); {
			var values []*value
			values, ok = c.fetch(u)
			for _, v := range values {
				there[v.id] = true
			}
			if !ok || len(values) == 0 {
				c.sleep(10 * msInUs)
			}
		}
		for _, v := range w.history.values {
			if v.partition == name && v.tx == nil && v.acked && v.at >= start && !there[v.id] {
				w.fail("acknowledged: value %d of %s was acknowledged at %d, is not deleted and not there", v.id, name, v.at)
			}
		}
	}
}
