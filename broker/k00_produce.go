package broker

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine"
)

// produceWork is a Produce request on its way: its batches in request order, and what is known of their outcome.
type produceWork struct {
	op      machine.Produce
	records [][]byte // each partition's records as they were sent
	replies []machine.ProducePartitionReply
	// sent maps the operation's partitions to those of the request: all of them, or those judged again.
	sent  []int
	grown growth
}

// maxJudgements bounds how often a batch is judged anew because its topic's settings changed meanwhile.
const maxJudgements = 4

// startProduce judges the batches of the request and submits them.
func startProduce(c *conn, s *slot) error {
	req := s.req.(*kmsg.ProduceRequest)
	total := 0
	for i := range req.Topics {
		total += len(req.Topics[i].Partitions)
	}
	w := &produceWork{
		op: machine.Produce{
			Version: req.Version, Acks: req.Acks, TransactionalID: req.TransactionID,
			Partitions: make([]machine.ProducePartition, 0, total),
		},
		records: make([][]byte, 0, total),
		sent:    make([]int, total),
		grown:   growth{budget: c.b.rebuilding, limit: int64(c.b.cfg.MaxRequestBytes) - int64(len(s.frame.B))},
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		for k := range t.Partitions {
			p := &t.Partitions[k]
			w.sent[len(w.records)] = len(w.records)
			w.records = append(w.records, p.Records)
			w.op.Partitions = append(w.op.Partitions, machine.ProducePartition{
				Topic: t.Topic, TopicID: t.TopicID, Partition: p.Partition,
			})
			c.b.judge(req.Version, p.Records, &w.op.Partitions[len(w.op.Partitions)-1], &w.grown)
		}
	}
	s.produce = w
	return c.submitProduce(s)
}

// submitProduce hands the operation to the loop. The bytes of the frame and of rebuilt batches must stay until the
// journal has written them.
func (c *conn) submitProduce(s *slot) error {
	frame, grown := s.frame, s.produce.grown
	frame.Retain()
	s.produce.grown.taken = 0 // the operation gives it back now
	written := func() {
		frame.Release()
		grown.release()
	}
	if err := c.submit(s, &s.produce.op, int64(len(frame.B))+grown.taken, written); err != nil {
		written()
		return err
	}
	return nil
}

// finishProduce judges again what came back stale, and answers when nothing is.
func finishProduce(c *conn, s *slot) (kmsg.Response, error) {
	w := s.produce
	for try := 1; ; try++ {
		reply, ok := s.reply.(*machine.ProduceReply)
		if !ok || len(reply.Partitions) != len(w.sent) {
			panic(fmt.Sprintf("BUG: the loop answered a Produce of %d partitions with %T", len(w.sent), s.reply))
		}
		if w.replies == nil {
			w.replies = make([]machine.ProducePartitionReply, len(w.records))
		}
		stale := w.take(reply, try >= maxJudgements)
		if len(stale) == 0 {
			return c.answerProduce(s)
		}
		for i := range stale {
			c.b.judge(w.op.Version, w.records[w.sent[i]], &stale[i], &w.grown)
		}
		w.op.Partitions = stale
		if err := c.submitProduce(s); err != nil {
			return nil, err
		}
		if err := c.await(s); err != nil {
			return nil, err
		}
	}
}

// take notes the outcomes and returns the partitions that must be judged again; w.sent then maps these.
func (w *produceWork) take(reply *machine.ProduceReply, last bool) []machine.ProducePartition {
	var stale []machine.ProducePartition
	var sent []int
	for i := range reply.Partitions {
		r := reply.Partitions[i]
		if r.Stale && !last {
			stale = append(stale, machine.ProducePartition{
				Topic: w.op.Partitions[i].Topic, TopicID: w.op.Partitions[i].TopicID, Partition: w.op.Partitions[i].Partition,
			})
			sent = append(sent, w.sent[i])
			continue
		}
		if r.Stale {
			r = machine.ProducePartitionReply{
				Code: kerr.NotLeaderForPartition.Code, BaseOffset: -1, LogAppendTimeMs: -1, LogStartOffset: -1,
				Message: "the topic's settings keep changing, send the batch again",
			}
		}
		w.replies[w.sent[i]] = r
	}
	w.sent = sent
	return stale
}

// answerProduce builds the response, or, with acks=0, none: then an error can only be told by closing the connection
// (kafka-eos.md A.3 step 6).
func (c *conn) answerProduce(s *slot) (kmsg.Response, error) {
	req, w := s.req.(*kmsg.ProduceRequest), s.produce
	if req.Acks == 0 {
		for i := range w.replies {
			if code := w.replies[i].Code; code != 0 {
				return nil, fmt.Errorf("a Produce with acks=0 failed: %w: %s", kerr.ErrorForCode(code), w.replies[i].Message)
			}
		}
		return nil, nil
	}
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = req.Version
	resp.Topics = make([]kmsg.ProduceResponseTopic, len(req.Topics))
	at := 0
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := &resp.Topics[i]
		rt.Default()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		rt.Partitions = make([]kmsg.ProduceResponseTopicPartition, len(t.Partitions))
		for k := range t.Partitions {
			fillProduced(&rt.Partitions[k], t.Partitions[k].Partition, &w.replies[at])
			at++
		}
	}
	return resp, nil
}

func fillProduced(p *kmsg.ProduceResponseTopicPartition, index int32, r *machine.ProducePartitionReply) {
	p.Default()
	p.Partition, p.ErrorCode = index, r.Code
	p.BaseOffset, p.LogAppendTime, p.LogStartOffset = r.BaseOffset, r.LogAppendTimeMs, r.LogStartOffset
	if r.Code == 0 {
		return
	}
	if r.Message != "" {
		p.ErrorMessage = kmsg.StringPtr(r.Message)
	}
	for _, e := range r.Records {
		re := kmsg.NewProduceResponseTopicPartitionErrorRecord()
		re.RelativeOffset = e.Index
		if e.Message != "" {
			re.ErrorMessage = kmsg.StringPtr(e.Message)
		}
		p.ErrorRecords = append(p.ErrorRecords, re)
	}
}
