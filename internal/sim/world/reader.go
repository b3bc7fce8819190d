package world

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/record"
)

// cursor is where a reader is in a partition.
type cursor struct {
	topic     string
	partition int32
	committed bool // isolation level
	offset    int64
	lso, hw   int64
}

func (u *cursor) name() string { return partitionName(u.topic, u.partition) }

// atEnd reports that there is nothing left to read and no transaction open, as of the last fetch.
func (u *cursor) atEnd() bool { return u.offset == u.hw && u.lso == u.hw }

// fetch reads on once, as a consumer does (kafka-eos.md C.5); ok is false if the outcome is not known.
func (c *client) fetch(u *cursor) (values []*value, ok bool) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes, req.SessionEpoch, req.MinBytes = 1<<20, -1, 1
	if c.w.chance(30) {
		req.MaxWaitMillis = c.w.Int32N(400)
	}
	if u.committed {
		req.IsolationLevel = 1
	}
	t := kmsg.NewFetchRequestTopic()
	t.Topic = u.topic
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = u.partition, u.offset, 500+c.w.Int32N(8000), -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp := c.ask(req, []int16{4, 11, 12}[c.w.IntN(3)])
	if resp == nil {
		return nil, false
	}
	rp := &resp.(*kmsg.FetchResponse).Topics[0].Partitions[0]
	if rp.ErrorCode != 0 {
		c.tracef("fetch of %s at %d: code %d", u.name(), u.offset, rp.ErrorCode)
		if rp.ErrorCode == 1 {
			c.w.fail("acknowledged: %s: %s at %d is out of range", c.name, u.name(), u.offset)
		}
		return nil, false
	}
	if rp.LastStableOffset < u.lso || rp.HighWatermark < u.hw {
		c.w.fail("stable offset: %s: %s is stable up to %d of %d, it was up to %d of %d", c.name, u.name(), rp.LastStableOffset, rp.HighWatermark, u.lso, u.hw)
	}
	u.lso, u.hw = rp.LastStableOffset, rp.HighWatermark
	return c.consume(u, rp), true
}

// consume moves u behind the batches of a response and returns the values that its isolation level shows.
func (c *client) consume(u *cursor, rp *kmsg.FetchResponseTopicPartition) (values []*value) {
	aborted := slices.Clone(rp.AbortedTransactions)
	slices.SortFunc(aborted, func(a, b kmsg.FetchResponseTopicPartitionAbortedTransaction) int {
		return cmp.Compare(a.FirstOffset, b.FirstOffset)
	})
	skip := make(map[int64]bool)
	for b := rp.RecordBatches; len(b) > 0; {
		h, err := record.ParseHeader(b)
		if err != nil || int(h.SizeBytes) > len(b) || !record.CheckCRC(b[:h.SizeBytes]) {
			c.w.fail("codec: %s: %s at %d holds no batch: %v", c.name, u.name(), u.offset, err)
		}
		raw := b[:h.SizeBytes]
		b = b[h.SizeBytes:]
		if h.LastOffset() < u.offset {
			continue
		}
		for len(aborted) > 0 && aborted[0].FirstOffset <= h.LastOffset() {
			skip[aborted[0].ProducerID] = true
			aborted = aborted[1:]
		}
		switch {
		case h.Control():
			if m, err := record.ParseMarker(raw); err != nil {
				c.w.fail("codec: %s: %s at %d: %v", c.name, u.name(), h.BaseOffset, err)
			} else if !m.Commit {
				delete(skip, h.ProducerID)
			}
		case u.committed && h.Transactional() && skip[h.ProducerID]:
		default:
			it := record.Records(raw[record.HeaderSize:], h.RecordCount)
			for r := (record.Record{}); it.Next(&r); {
				if at := h.BaseOffset + int64(r.OffsetDelta); at >= u.offset {
					values = append(values, c.w.saw(c.name, u.name(), at, u.committed, r.Value))
				}
			}
		}
		u.offset = h.NextOffset()
	}
	return values
}

// startReaders starts readers that go along, of both isolation levels.
func (w *World) startReaders() {
	for _, topic := range topics {
		for i := range int32(inputPartitions) {
			for _, committed := range []bool{true, false} {
				w.readers++
				name := fmt.Sprintf("reader-%s-%t", partitionName(topic, i), committed)
				w.startClient(name, false, func(c *client) {
					c.follow(&cursor{topic: topic, partition: i, committed: committed})
					w.readers--
				})
			}
		}
	}
}

// follow reads a partition until nothing more can come.
func (c *client) follow(u *cursor) {
	for {
		// Asked before the fetch: the answer may be old when a client that stood still gets to see it.
		last := c.w.healed && c.w.writers == 0
		values, ok := c.fetch(u)
		if u.committed {
			for _, v := range values {
				c.w.history.reading[u.name()] = append(c.w.history.reading[u.name()], v.id)
			}
		}
		if ok && last && u.atEnd() {
			return
		}
		if len(values) == 0 {
			c.sleep(20*msInUs + c.w.Int64N(300*msInUs))
		}
	}
}

// readAll is what a read_committed reader that starts now gets.
func (c *client) readAll(topic string, partition int32) (all []*value) {
	u := &cursor{topic: topic, partition: partition, committed: true}
	for ok := false; !ok || !u.atEnd(); {
		var values []*value
		values, ok = c.fetch(u)
		all = append(all, values...)
		if !ok || len(values) == 0 {
			c.sleep(10 * msInUs)
		}
	}
	return all
}

// runJudge waits for the end of all work, restarts the broker once more and judges what is there.
func (c *client) runJudge() {
	w := c.w
	for !w.healed || w.writers > 0 || w.readers > 0 {
		c.sleep(100 * msInUs)
	}
	c.waitStable()
	w.crash("kill", true)
	final := make(map[string][]*value)
	var names []string
	if !w.mode.lossy {
		for _, topic := range topics {
			for i := range int32(inputPartitions) {
				name := partitionName(topic, i)
				names = append(names, name)
				final[name] = c.readAll(topic, i)
				w.checkReader("reader-"+name, w.history.reading[name], final[name])
			}
		}
	} else {
		c.createTopics() // the broker answers
	}
	w.check(final, names)
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
