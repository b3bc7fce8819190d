package world

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/record"
	"github.com/strandline-io/strandline/internal/compress"
)

// batch is one batch of a producer until it is acknowledged.
type batch struct {
	topic     string
	topicID   [16]byte // instead of the name, if set
	partition int32
	raw       []byte
	sequence  int32
	values    []*value
	call      *call // nil: to be sent
	lost      bool  // it cannot go in any more
}

// build makes a batch of one to three values. place names the partition in the history.
func (c *client) build(b *record.Builder, place, topic string, partition int32, producer string, tx *transaction, of []uint64) *batch {
	out := &batch{topic: topic, partition: partition, sequence: b.BaseSequence}
	if of == nil {
		of = make([]uint64, 1+c.w.IntN(3))
	}
	for _, id := range of {
		v, bytes := c.w.write(place, producer, tx, id)
		out.values = append(out.values, v)
		b.Add(c.w.wall(), nil, bytes)
	}
	if !c.w.chance(5) {
		out.raw = b.Append(nil)
		return out
	}
	codec := 1 + int8(c.w.IntN(int(record.CodecZstd)))
	packed, err := compress.Encode(codec, b.Section(), nil)
	if err != nil {
		c.w.fail("codec: %v", err)
	}
	out.raw = b.AppendCompressed(nil, codec, packed)
	return out
}

// produceRequest sends batches, at most one for each partition.
func produceRequest(acks int16, transactionalID *string, batches ...*batch) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TransactionID = acks, transactionalID
	for _, b := range batches {
		at := slices.IndexFunc(req.Topics, func(t kmsg.ProduceRequestTopic) bool { return t.Topic == b.topic && t.TopicID == b.topicID })
		if at < 0 {
			t := kmsg.NewProduceRequestTopic()
			t.Topic, t.TopicID = b.topic, b.topicID
			at = len(req.Topics)
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = b.partition, slices.Clone(b.raw)
		req.Topics[at].Partitions = append(req.Topics[at].Partitions, p)
	}
	return req
}

// outcome finds what a response says of b.
func (b *batch) outcome(resp kmsg.Response) *kmsg.ProduceResponseTopicPartition {
	r := resp.(*kmsg.ProduceResponse)
	for i := range r.Topics {
		t := &r.Topics[i]
		for k := range t.Partitions {
			if t.Topic == b.topic && t.TopicID == b.topicID && t.Partitions[k].Partition == b.partition {
				return &t.Partitions[k]
			}
		}
	}
	panic(violation{fmt.Errorf("codec: a response to Produce says nothing of %s/%d", b.topic, b.partition)})
}

// takesAgain are the codes after which the same batch may be sent again.
func takesAgain(code int16) bool {
	return slices.Contains([]int16{
		kerr.KafkaStorageError.Code, kerr.NotLeaderForPartition.Code, kerr.NotEnoughReplicas.Code, kerr.RequestTimedOut.Code,
	}, code)
}

// acknowledged notes that a batch is in.
func (c *client) acknowledged(b *batch, baseOffset int64) {
	for i, v := range b.values {
		v.acked, v.at = true, baseOffset+int64(i)
		if at := baseOffset + int64(i); v.offset >= 0 && v.offset != at && !v.byName() {
			c.w.fail("acknowledged: %s: value %d is acknowledged at %d, it was seen at %d", c.name, v.id, at, v.offset)
		}
		if !v.byName() {
			c.w.history.ends[v.partition] = max(c.w.history.ends[v.partition], baseOffset+int64(i)+1)
		}
	}
}

// runPlain writes without a producer id: what is acknowledged is there, what is not may be, once.
func (c *client) runPlain(topic string, requests int) {
	var link *link
	links := 0
	for range requests {
		var all []*batch
		for i := range int32(inputPartitions) {
			if len(all) > 0 && c.w.chance(50) {
				break
			}
			if l := c.connected(); l != link {
				link, links = l, links+1
			}
			// A connection keeps its order; two do not.
			producer := fmt.Sprintf("%s@%d", c.name, links)
			all = append(all, c.build(record.NewBuilder(), partitionName(topic, i), topic, i, producer, nil, nil))
		}
		if c.w.chance(30) {
			req := produceRequest(0, nil, all...)
			req.Version = 9
			link.send(req)
			c.tracef("sends %d batches without acks", len(all))
		} else if resp := c.ask(produceRequest(1, nil, all...), 9); resp != nil {
			for _, b := range all {
				if p := b.outcome(resp); p.ErrorCode == 0 {
					c.acknowledged(b, p.BaseOffset)
				} else if !takesAgain(p.ErrorCode) && !c.w.mode.lossy {
					c.unexpected("Produce", p.ErrorCode)
				}
			}
		}
		if c.w.chance(60) {
			c.sleep(c.w.Int64N(2 * secondInUs))
		}
	}
}
