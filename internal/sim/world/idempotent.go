package world

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/record"
)

// maxInFlight is how many batches an idempotent producer has under way.
const maxInFlight = 5

// runIdempotent writes batches, several in flight, and repeats each until it is acknowledged.
func (c *client) runIdempotent(topic string, batches int) {
	acks := int16(-1 + 2*c.w.IntN(2))
	pid := c.initIdempotent()
	sequences := make([]int32, inputPartitions)
	var window []*batch
	for batches > 0 || len(window) > 0 {
		for batches > 0 && len(window) < maxInFlight {
			partition := c.w.Int32N(inputPartitions)
			b := record.NewBuilder()
			b.ProducerID, b.ProducerEpoch, b.BaseSequence = pid, 0, sequences[partition]
			made := c.build(b, partitionName(topic, partition), topic, partition, c.name, nil, nil)
			sequences[partition] += int32(len(made.values))
			window = append(window, made)
			batches--
		}
		window = c.exchange(acks, window)
		if slices.ContainsFunc(window, func(b *batch) bool { return b.lost }) {
			// What was acknowledged is lost with the power: begin anew.
			pid, window = c.initIdempotent(), nil
			clear(sequences)
		}
		if c.w.chance(30) {
			c.sleep(c.w.Int64N(2 * secondInUs))
		}
	}
}

func (c *client) initIdempotent() int64 {
	resp, _ := c.insist(func() kmsg.Request { return kmsg.NewPtrInitProducerIDRequest() }, 4)
	r := resp.(*kmsg.InitProducerIDResponse)
	if r.ErrorCode != 0 {
		c.unexpected("InitProducerId", r.ErrorCode)
	}
	c.freshProducerID(r.ProducerID)
	return r.ProducerID
}

// send puts the batches on their way that are not, in as few requests as chance wants: one request holds at most one
// batch of a partition.
func (c *client) send(acks int16, window []*batch) {
	l := c.connected()
	var together []*batch
	flush := func() {
		if len(together) == 0 {
			return
		}
		req := produceRequest(acks, nil, together...)
		req.Version = 9
		sent := l.send(req)
		for _, b := range together {
			b.call = sent
			c.tracef("sends %s sequence %d", partitionName(b.topic, b.partition), b.sequence)
		}
		together = nil
	}
	for _, b := range window {
		if b.call != nil {
			continue
		}
		if c.w.chance(40) || slices.ContainsFunc(together, func(o *batch) bool { return o.partition == b.partition }) {
			flush()
		}
		together = append(together, b)
	}
	flush()
}

// exchange sends what is to be sent, waits for something to come back, and returns what is not acknowledged.
func (c *client) exchange(acks int16, window []*batch) []*batch {
	c.send(acks, window)
	settled := func(b *batch) bool { return b.call.done || b.call.failed }
	if !c.await(callTimeoutUs, func() bool { return slices.ContainsFunc(window, settled) }) {
		c.link = nil
	}
	again := make([]bool, inputPartitions) // of partitions of which an earlier batch is not in
	var left []*batch
	for _, b := range window {
		switch {
		case b.call.done:
			if c.take(b, again[b.partition]) {
				continue
			}
			b.call = nil
		case b.call.failed || c.link == nil:
			b.call, c.link = nil, nil
		}
		again[b.partition] = true
		left = append(left, b)
	}
	if c.link == nil {
		for _, b := range left {
			b.call = nil
		}
	}
	return left
}

// take judges a batch's answer and reports whether it is in. behind says that an earlier batch is not.
func (c *client) take(b *batch, behind bool) bool {
	p := b.outcome(b.call.resp)
	c.tracef("sequence %d of partition %d: code %d, offset %d", b.sequence, b.partition, p.ErrorCode, p.BaseOffset)
	switch {
	case p.ErrorCode == 0:
		c.acknowledged(b, p.BaseOffset)
		return true
	case takesAgain(p.ErrorCode):
		c.sleep(c.w.Int64N(100 * msInUs))
		return false
	case p.ErrorCode == kerr.UnknownTopicOrPartition.Code && c.w.mode.lossy:
		c.createTopics() // lost with the power
		return false
	case p.ErrorCode == kerr.OutOfOrderSequenceNumber.Code && !c.w.mode.lossy && c.w.settingsMoved():
		// One before it was judged again under new settings, and has gone in behind it.
		return false
	case p.ErrorCode == kerr.OutOfOrderSequenceNumber.Code && (behind || c.w.mode.lossy):
		b.lost = !behind
		return false
	}
	c.unexpected("Produce", p.ErrorCode) // it ends the run
	return false
}
