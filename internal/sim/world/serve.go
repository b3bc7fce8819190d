package world

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/machine/producer"
	"github.com/strandline-io/strandline/broker/record"
	"github.com/strandline-io/strandline/broker/segment"
	"github.com/strandline-io/strandline/broker/sequencer"
	"github.com/strandline-io/strandline/broker/wire"
)

// conn is the broker's end of a connection: requests in order, answers in order, what reads published state evaluated
// when everything before it was answered, as in package broker.
type conn struct {
	p      *process
	link   *link
	client string
	slots  []*slot
}

type slot struct {
	header wire.Header
	req    kmsg.Request
	op     uint64 // 0: answered from published state
	ready  bool
	reply  any
}

func (c *conn) reset() { c.link.reset() }

func (c *conn) receive(frame []byte) {
	w := c.p.w
	h, body, served, err := wire.ParseHeader(frame, c.client)
	if err != nil || !served {
		w.fail("codec: a request for key %d version %d is not understood: %v", h.Key, h.Version, err)
	}
	req, err := wire.Decode(h, body)
	if err != nil {
		w.fail("codec: %v", err)
	}
	s := &slot{header: h, req: req}
	c.slots = append(c.slots, s)
	switch r := req.(type) {
	case *kmsg.FetchRequest, *kmsg.ListOffsetsRequest:
		c.flush()
	case *kmsg.ProduceRequest:
		c.submit(s, c.judge(r), len(frame))
	default:
		c.submit(s, req, len(frame))
	}
}

func (c *conn) submit(s *slot, body any, size int) {
	op := &sequencer.Operation{
		Op:  machine.Op{Client: machine.Client{ID: c.client, Host: "127.0.0.1", Principal: "User:ANONYMOUS"}, Body: body},
		Box: c, SizeBytes: int64(size),
	}
	c.p.submit(op)
	s.op = op.ID
}

// Deliver implements sequencer.Mailbox.
func (c *conn) Deliver(replies []machine.Reply) {
	for _, r := range replies {
		for _, s := range c.slots {
			if s.op == r.ID {
				s.reply, s.ready = r.Body, true
			}
		}
	}
	c.flush()
}

// flush answers what may be answered.
func (c *conn) flush() {
	for len(c.slots) > 0 {
		s := c.slots[0]
		if s.op != 0 && !s.ready {
			return
		}
		c.slots = c.slots[1:]
		switch req := s.req.(type) {
		case *kmsg.FetchRequest:
			c.link.answer(c.fetch(s, req))
			continue
		case *kmsg.ListOffsetsRequest:
			s.reply = c.listOffsets(req)
		case *kmsg.ProduceRequest:
			s.reply = produced(req, s.reply.(*machine.ProduceReply))
		}
		resp := s.reply.(kmsg.Response)
		resp.SetVersion(s.header.Version)
		c.link.answer(wire.AppendResponse(nil, s.header.CorrelationID, resp))
	}
}

// judge checks batches as a connection does, under the settings that the board shows. Topics here never change theirs.
func (c *conn) judge(req *kmsg.ProduceRequest) *machine.Produce {
	op := &machine.Produce{Version: req.Version, Acks: req.Acks, TransactionalID: req.TransactionID}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			pp := machine.ProducePartition{Topic: t.Topic, TopicID: t.TopicID, Partition: p.Partition}
			batch, h, err := record.OneBatch(p.Records)
			if err != nil {
				c.p.w.fail("codec: a batch is refused: %v", err)
			}
			pp.Batch, pp.Header = batch, h
			if topic, ok := c.p.board.Topic(t.Topic); ok {
				pp.SettingsVersion = topic.SettingsVersion
				r := record.Check(h, batch, batch[record.HeaderSize:], record.Policy{
					NowMs: c.p.w.wall(), MaxBatchBytes: topic.Settings.MaxMessageBytes,
					TimestampBeforeMaxMs: topic.Settings.TimestampBeforeMaxMs, TimestampAfterMaxMs: topic.Settings.TimestampAfterMaxMs,
				})
				if pp.Verdict.Code, pp.Verdict.Message = r.Code, r.Message; r.Code == 0 {
					pp.Header = record.Settle(h, batch, r)
				}
			}
			op.Partitions = append(op.Partitions, pp)
		}
	}
	return op
}

func produced(req *kmsg.ProduceRequest, reply *machine.ProduceReply) *kmsg.ProduceResponse {
	resp := kmsg.NewPtrProduceResponse()
	at := 0
	for _, t := range req.Topics {
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			r := reply.Partitions[at]
			at++
			rp := kmsg.NewProduceResponseTopicPartition()
			rp.Partition, rp.ErrorCode, rp.BaseOffset = p.Partition, r.Code, r.BaseOffset
			if r.Stale {
				rp.ErrorCode = kerr.NotLeaderForPartition.Code
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func (c *conn) partition(topic string, index int32) *sequencer.Partition {
	t, ok := c.p.board.Topic(topic)
	if !ok || int(index) >= len(t.Partitions) {
		return nil
	}
	return c.p.board.Partition(t.Partitions[index])
}

func limitOf(v *sequencer.Published, isolation int8) int64 {
	if isolation == 1 {
		return v.LastStable
	}
	return v.HighWatermark
}

// fetch answers from one load of the partition's view.
func (c *conn) fetch(s *slot, req *kmsg.FetchRequest) []byte {
	rt, rp := &req.Topics[0], &req.Topics[0].Partitions[0]
	out := wire.FetchPartition{Index: rp.Partition, HighWatermark: -1, LastStable: -1, LogStart: -1}
	var records []byte
	part := c.partition(rt.Topic, rp.Partition)
	if part == nil {
		out.ErrorCode = kerr.UnknownTopicOrPartition.Code
	} else {
		records = c.readPartition(part, req, rp, &out)
	}
	var enc wire.FetchResponse
	enc.Begin(req.Version, s.header.CorrelationID, 0, 1)
	enc.Topic(rt.Topic, rt.TopicID, 1)
	enc.Partition(&out, records)
	enc.EndTopic()
	pieces, _ := enc.Finish(nil, nil)
	var frame []byte
	for _, p := range pieces {
		frame = append(frame, p...)
	}
	return frame
}

func (c *conn) readPartition(part *sequencer.Partition, req *kmsg.FetchRequest, rp *kmsg.FetchRequestTopicPartition, out *wire.FetchPartition) []byte {
	v := part.Load()
	out.HighWatermark, out.LastStable, out.LogStart = v.HighWatermark, v.LastStable, v.LogStart
	if rp.FetchOffset < v.LogStart || rp.FetchOffset > v.HighWatermark {
		out.ErrorCode = kerr.OffsetOutOfRange.Code
		return nil
	}
	if req.IsolationLevel == 1 {
		out.Aborted = []wire.FetchAborted{}
	}
	limit := limitOf(v, req.IsolationLevel)
	if rp.FetchOffset >= limit {
		return nil
	}
	records, err := v.Log.Read(nil, rp.FetchOffset, limit, int(rp.PartitionMaxBytes), true)
	switch {
	case errors.Is(err, segment.ErrMoved), err != nil && c.p.w.diskIsDead():
		out.ErrorCode = kerr.NotLeaderForPartition.Code
		return nil
	case err != nil:
		c.p.w.fail("damage: partition %d cannot be read at %d: %v", v.Partition, rp.FetchOffset, err)
	}
	if req.IsolationLevel == 1 {
		for _, a := range producer.AbortedWithin(v.Aborted, rp.FetchOffset, record.EndOffset(records)) {
			out.Aborted = append(out.Aborted, wire.FetchAborted{ProducerID: a.ProducerID, FirstOffset: a.FirstOffset})
		}
	}
	return records
}

func (c *conn) listOffsets(req *kmsg.ListOffsetsRequest) *kmsg.ListOffsetsResponse {
	resp := kmsg.NewPtrListOffsetsResponse()
	rt := kmsg.NewListOffsetsResponseTopic()
	rt.Topic = req.Topics[0].Topic
	for _, p := range req.Topics[0].Partitions {
		rp := kmsg.NewListOffsetsResponseTopicPartition()
		rp.Partition = p.Partition
		if part := c.partition(rt.Topic, p.Partition); part == nil {
			rp.ErrorCode = kerr.UnknownTopicOrPartition.Code
		} else {
			rp.Offset = limitOf(part.Load(), req.IsolationLevel)
		}
		rt.Partitions = append(rt.Partitions, rp)
	}
	resp.Topics = append(resp.Topics, rt)
	return resp
}
