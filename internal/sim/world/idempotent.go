package world

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/record"
)

// batch is one batch of a producer until it is acknowledged.
type batch struct {
	partition int32
	raw       []byte
	sequence  int32
	values    []*value
	call      *call // nil: to be sent
}

// build makes a batch of one to three values.
func (c *client) build(b *record.Builder, topic string, partition int32, producer string, tx *transaction, of []uint64) *batch {
	out := &batch{partition: partition, sequence: b.BaseSequence}
	if of == nil {
		of = make([]uint64, 1+c.w.IntN(3))
	}
	for _, id := range of {
		v, bytes := c.w.write(partitionName(topic, partition), producer, tx, id)
		out.values = append(out.values, v)
		b.Add(c.w.wall(), nil, bytes)
	}
	out.raw = b.Append(nil)
	return out
}

func produceRequest(topic string, partition int32, raw []byte, transactionalID *string) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TransactionID = -1, transactionalID
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, slices.Clone(raw)
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

// maxInFlight is how many batches an idempotent producer has under way.
const maxInFlight = 4

// runIdempotent writes batches, several in flight, and repeats each until it is acknowledged.
func (c *client) runIdempotent(topic string, batches int) {
	pid := c.initIdempotent()
	producer := c.name
	sequences := make([]int32, inputPartitions)
	var window []*batch
	for batches > 0 || len(window) > 0 {
		for batches > 0 && len(window) < maxInFlight {
			partition := c.w.Int32N(inputPartitions)
			b := record.NewBuilder()
			b.ProducerID, b.ProducerEpoch, b.BaseSequence = pid, 0, sequences[partition]
			made := c.build(b, topic, partition, producer, nil, nil)
			sequences[partition] += int32(len(made.values))
			window = append(window, made)
			batches--
		}
		window = c.exchange(topic, window)
		if c.w.mode.lossy && slices.ContainsFunc(window, func(b *batch) bool { return b.partition < 0 }) {
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

// exchange sends what is to be sent, waits for something to come back, and returns what is not acknowledged.
func (c *client) exchange(topic string, window []*batch) []*batch {
	l := c.connected()
	for _, b := range window {
		if b.call == nil {
			req := produceRequest(topic, b.partition, b.raw, nil)
			req.Version = 9
			b.call = l.send(req)
			c.tracef("sends %s sequence %d", partitionName(topic, b.partition), b.sequence)
		}
	}
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
			again[max(b.partition, 0)] = true
		case b.call.failed || c.link == nil:
			b.call, c.link = nil, nil
			again[b.partition] = true
		default:
			again[b.partition] = true
		}
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
	p := b.call.resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	c.tracef("sequence %d of partition %d: code %d, offset %d", b.sequence, b.partition, p.ErrorCode, p.BaseOffset)
	switch p.ErrorCode {
	case 0:
		for i, v := range b.values {
			v.acked = true
			if v.offset >= 0 && v.offset != p.BaseOffset+int64(i) && !c.w.mode.lossy {
				c.w.fail("acknowledged: %s: value %d is acknowledged at %d, it was seen at %d", c.name, v.id, p.BaseOffset+int64(i), v.offset)
			}
		}
		return true
	case kerr.KafkaStorageError.Code, kerr.NotLeaderForPartition.Code, kerr.NotEnoughReplicas.Code:
		c.sleep(c.w.Int64N(100 * msInUs))
		return false
	case kerr.UnknownTopicOrPartition.Code:
		if c.w.mode.lossy {
			c.createTopics() // lost with the power
			return false
		}
	case kerr.OutOfOrderSequenceNumber.Code:
		if behind {
			return false
		}
		if c.w.mode.lossy {
			b.partition = -1
			return false
		}
	}
	c.unexpected("Produce", p.ErrorCode) // it ends the run
	return false
}
