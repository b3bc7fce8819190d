package edge

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine"
)

// Produce is a Produce request on its way: its batches in request order, and what is known of their outcome.
type Produce struct {
	// Op is what is to be submitted to the loop. Its bytes, and the request's, must stay until the journal has written
	// them.
	Op machine.Produce

	edge    *Edge
	req     *kmsg.ProduceRequest
	records [][]byte // each partition's records as they were sent
	replies []machine.ProducePartitionReply
	// sent maps the operation's partitions to those of the request: all of them, or those judged again.
	sent  []int
	tries int
	grown growth
}

// MaxJudgements bounds how often a batch is judged because its topic's settings changed meanwhile.
const MaxJudgements = 4

// Produce judges the batches of a request. Those that are stored in another compression than they came in may take
// growthLimit bytes more than the request.
func (e *Edge) Produce(req *kmsg.ProduceRequest, growthLimit int64) *Produce {
	total := 0
	for i := range req.Topics {
		total += len(req.Topics[i].Partitions)
	}
	w := &Produce{
		edge: e, req: req,
		Op: machine.Produce{
			Version: req.Version, Acks: req.Acks, TransactionalID: req.TransactionID,
			Partitions: make([]machine.ProducePartition, 0, total),
		},
		records: make([][]byte, 0, total),
		sent:    make([]int, total),
		grown:   growth{budget: e.rebuilding, limit: growthLimit},
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		for k := range t.Partitions {
			p := &t.Partitions[k]
			w.sent[len(w.records)] = len(w.records)
			w.records = append(w.records, p.Records)
			w.Op.Partitions = append(w.Op.Partitions, machine.ProducePartition{
				Topic: t.Topic, TopicID: t.TopicID, Partition: p.Partition,
			})
			e.judge(req.Version, p.Records, &w.Op.Partitions[len(w.Op.Partitions)-1], &w.grown)
		}
	}
	return w
}

// Grown is how much memory Op takes beside the request's, and what gives it back: to be called once Op is written or
// refused.
func (w *Produce) Grown() (sizeBytes int64, release func()) {
	grown := w.grown
	w.grown.taken = 0
	return grown.taken, grown.release
}

// Again takes the loop's reply to Op. It reports whether Op, made anew of what came back stale, is to be submitted
// again.
func (w *Produce) Again(reply *machine.ProduceReply) bool {
	if len(reply.Partitions) != len(w.sent) {
		panic(fmt.Sprintf("BUG: the loop answered a Produce of %d partitions with %d", len(w.sent), len(reply.Partitions)))
	}
	if w.replies == nil {
		w.replies = make([]machine.ProducePartitionReply, len(w.records))
	}
	w.tries++
	stale := w.take(reply, w.tries >= MaxJudgements)
	for i := range stale {
		w.edge.judge(w.Op.Version, w.records[w.sent[i]], &stale[i], &w.grown)
	}
	w.Op.Partitions = stale
	return len(stale) > 0
}

// take notes the outcomes and returns the partitions that must be judged again; w.sent then maps these.
func (w *Produce) take(reply *machine.ProduceReply, last bool) []machine.ProducePartition {
	var stale []machine.ProducePartition
	var sent []int
	for i := range reply.Partitions {
		r := reply.Partitions[i]
		if r.Stale && !last {
			stale = append(stale, machine.ProducePartition{
				Topic: w.Op.Partitions[i].Topic, TopicID: w.Op.Partitions[i].TopicID, Partition: w.Op.Partitions[i].Partition,
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

// Response is what the client is told, or, with acks=0, nil: then an error can only be told by closing the connection
// (kafka-eos.md A.3 step 6).
func (w *Produce) Response() (*kmsg.ProduceResponse, error) {
	req := w.req
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
