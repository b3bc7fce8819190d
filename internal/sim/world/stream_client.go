package world

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/record"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/task/protocol"
)

// streamVersions are the versions that stream clients speak; what differs by transaction version is in versionOf.
var streamVersions = map[int16]int16{
	kmsg.Fetch.Int16(): 12, kmsg.ListOffsets.Int16(): 7, kmsg.Metadata.Int16(): 12, kmsg.OffsetFetch.Int16(): 7,
	kmsg.CreateTopics.Int16(): 7, kmsg.DescribeConfigs.Int16(): 4, kmsg.Heartbeat.Int16(): 4, kmsg.JoinGroup.Int16(): 9,
	kmsg.SyncGroup.Int16(): 5, kmsg.LeaveGroup.Int16(): 5, kmsg.AddPartitionsToTxn.Int16(): 3, kmsg.AddOffsetsToTxn.Int16(): 3,
	kmsg.OffsetCommit.Int16(): 8,
}

func versionOf(req kmsg.Request, v2 bool) int16 {
	pick := func(one, two int16) int16 {
		if v2 {
			return two
		}
		return one
	}
	switch req.(type) {
	case *kmsg.ProduceRequest:
		return pick(11, 12)
	case *kmsg.EndTxnRequest, *kmsg.InitProducerIDRequest, *kmsg.TxnOffsetCommitRequest:
		return pick(4, 5)
	}
	return streamVersions[req.Key()]
}

// linkTries is how often a request is repeated before its caller hears that nobody answers.
const linkTries = 8

var errUnanswered = errors.New("the simulated network has lost every try")

// streamLink carries a kafka.Client's requests over a client's connection, as franz-go does over its own.
type streamLink struct {
	c  *client
	v2 bool
	// unanswered, if set, counts what kafka.EndOutcome wants to know of.
	unanswered *int
}

func (l *streamLink) Broker(int32) kmsg.Requestor { return l }

func (l *streamLink) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	for range linkTries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if resp := l.c.ask(req, versionOf(req, l.v2)); resp != nil {
			return resp, nil
		}
		if l.unanswered != nil && kafka.Outlives(req.Key()) {
			*l.unanswered++
		}
		l.c.sleep(l.c.w.Int64N(50 * msInUs))
	}
	return nil, errUnanswered
}

func (l *streamLink) Pause(ctx context.Context, d time.Duration) error {
	l.c.sleep(d.Microseconds())
	return ctx.Err()
}

func (l *streamLink) client() *kafka.Client { return kafka.Over(l, transactionVersion(l.v2)) }

func transactionVersion(v2 bool) int16 {
	if v2 {
		return 2
	}
	return 1
}

// askFor is ask for a request that may be held for long.
func (c *client) askFor(req kmsg.Request, version int16, us int64) kmsg.Response {
	req.SetVersion(version)
	l := c.connected()
	sent := l.send(req)
	c.await(us, func() bool { return sent.done || sent.failed })
	if !sent.done {
		c.link = nil
		return nil
	}
	return sent.resp
}

// txnProducer is a transactional id as franz-go's producer is one: records are sent as they come, by a coroutine of its own.
type txnProducer struct {
	w         *World
	id        string
	v2        bool
	timeoutMs int64
	pid       int64
	epoch     int16
	sequences map[kafka.TopicPartition]int32
	added     map[kafka.TopicPartition]bool
	buffer    []unsent
	sending   bool
	err       error
	sender    *client
	waiting   []*coroutine
	closed    bool
	// unanswered is what kafka.EndOutcome wants to know.
	unanswered int
}

type unsent struct {
	kafka.Record
	done func(offset int64, err error)
}

// openProducer takes the transactional id over, and starts the sender with spawn.
func openProducer(ctx context.Context, c *client, id string, v2 bool, timeoutMs int64, spawn func(name string, body func(*client)) *coroutine) (*txnProducer, error) {
	l := &streamLink{c: c, v2: v2}
	p := &txnProducer{w: c.w, id: id, v2: v2, timeoutMs: timeoutMs}
	for {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID, req.TransactionTimeoutMillis = &id, int32(timeoutMs)
		resp, err := req.RequestWith(ctx, l)
		if err != nil {
			return nil, err
		}
		err = kerr.ErrorForCode(resp.ErrorCode)
		if errors.Is(err, kerr.ConcurrentTransactions) {
			c.sleep(20*msInUs + c.w.Int64N(20*msInUs))
			continue
		}
		if errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch) {
			return nil, errors.Join(kafka.ErrFenced, err)
		}
		if err != nil {
			return nil, err
		}
		p.pid, p.epoch = resp.ProducerID, resp.ProducerEpoch
		break
	}
	p.sequences = make(map[kafka.TopicPartition]int32)
	c.w.owns(c.name, identity{p.pid, p.epoch})
	c.tracef("owns %s as %d epoch %d", id, p.pid, p.epoch)
	spawn("sender", p.run)
	return p, nil
}

// over binds the producer to the connection of the coroutine that calls it.
func (p *txnProducer) over(c *client) *boundProducer {
	return &boundProducer{p, c, func() {}, func() {}}
}

type boundProducer struct {
	*txnProducer
	c *client
	// stall may stop the whole process for a while, where it matters.
	stall func()
	// ending is called when the end is about to be asked for.
	ending func()
}

var _ protocol.Producer = (*boundProducer)(nil)

func (p *txnProducer) Begin() error {
	p.err = nil
	p.added = make(map[kafka.TopicPartition]bool)
	return nil
}

func (p *txnProducer) Produce(_ context.Context, r kafka.Record, done func(int64, error)) {
	p.buffer = append(p.buffer, unsent{r, done})
	if p.sender != nil {
		p.sender.signal()
	}
}

func (p *boundProducer) Flush(context.Context) error {
	p.waiting = append(p.waiting, p.c.coroutine)
	p.c.await(p.timeoutMs*msInUs, func() bool { return p.closed || len(p.buffer) == 0 && !p.sending })
	if p.err == nil && (p.closed || len(p.buffer) > 0 || p.sending) {
		return errUnanswered
	}
	return p.err
}

func (p *boundProducer) CommitOffsets(ctx context.Context, m kafka.Membership, offsets map[kafka.TopicPartition]int64) error {
	p.stall()
	l := &streamLink{p.c, p.v2, &p.unanswered}
	return l.client().SendOffsets(ctx, kafka.TxnID{ID: p.id, ProducerID: p.pid, Epoch: p.epoch}, m, offsets)
}

func (p *boundProducer) Commit(ctx context.Context) (kafka.Outcome, error) {
	p.stall()
	p.ending()
	return p.end(true)
}

// forget says that the connection ends between EndTxn and its answer.
func (p *boundProducer) forget() bool { return !p.w.healed && !p.w.mode.calm && p.w.chance(4) }

// sendLate gives up on a request that arrives long after.
func (p *boundProducer) sendLate(req *kmsg.EndTxnRequest) {
	req.SetVersion(versionOf(req, p.v2))
	l := p.c.connected()
	l.lastSend = max(l.lastSend, p.w.nowUs+p.w.Int64N(5*secondInUs))
	l.send(req)
	p.c.link = nil
	p.unanswered++
}

// end sends EndTxn. After some tries without an answer the outcome stays unknown.
func (p *boundProducer) end(commit bool) (kafka.Outcome, error) {
	for try := p.w.IntN(5); ; {
		req := kmsg.NewPtrEndTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = p.id, p.pid, p.epoch, commit
		if p.forget() {
			req.SetVersion(versionOf(req, p.v2))
			p.c.connected().send(req)
			p.c.link = nil
			p.c.tracef("%s: nobody hears what became of EndTxn", p.id)
			return kafka.Unknown, errUnanswered
		}
		if !p.v2 && p.forget() {
			p.sendLate(req)
		}
		resp := p.c.ask(req, versionOf(req, p.v2))
		if resp == nil {
			p.unanswered++
			if try--; try < 0 {
				p.c.tracef("%s: the outcome of EndTxn is not known", p.id)
				return kafka.Unknown, errUnanswered
			}
			continue
		}
		r := resp.(*kmsg.EndTxnResponse)
		err := kerr.ErrorForCode(r.ErrorCode)
		if errors.Is(err, kerr.ConcurrentTransactions) {
			p.c.sleep(20 * msInUs)
			continue
		}
		if err == nil && p.v2 && (p.pid != r.ProducerID || p.epoch != r.ProducerEpoch) {
			p.pid, p.epoch = r.ProducerID, r.ProducerEpoch
			p.w.owns(p.c.name, identity{p.pid, p.epoch})
			clear(p.sequences)
		}
		return kafka.EndOutcome(err, transactionVersion(p.v2), p.unanswered)
	}
}

func (p *txnProducer) Close() {
	p.closed, p.buffer = true, nil
	if p.sender != nil {
		p.sender.signal()
	}
	p.wakeAll()
}

func (p *txnProducer) wakeAll() {
	for _, c := range p.waiting {
		c.signal()
	}
	p.waiting = nil
}

// run sends what is in the buffer, a batch of one partition at a time, each until it is acknowledged.
func (p *txnProducer) run(c *client) {
	p.sender = c
	for !p.closed {
		if len(p.buffer) == 0 {
			c.await(secondInUs, func() bool { return p.closed || len(p.buffer) > 0 })
			continue
		}
		tp := p.buffer[0].TopicPartition
		var now, later []unsent
		for _, u := range p.buffer {
			if u.TopicPartition == tp && len(now) < 30 {
				now = append(now, u)
			} else {
				later = append(later, u)
			}
		}
		p.buffer, p.sending = later, true
		base, err := p.send(c, tp, now)
		p.sending = false
		if err != nil && p.err == nil {
			p.err = err
		}
		for i, u := range now {
			if u.done != nil {
				u.done(base+int64(i), err)
			}
		}
		if len(p.buffer) == 0 {
			p.wakeAll()
		}
	}
}

// send is one batch. After an error nothing more of the transaction is sent.
func (p *txnProducer) send(c *client, tp kafka.TopicPartition, records []unsent) (base int64, err error) {
	if p.err != nil {
		return 0, p.err
	}
	if !p.v2 && !p.added[tp] {
		if err := p.add(c, tp); err != nil {
			return 0, err
		}
		p.added[tp] = true
	}
	b := record.NewBuilder()
	b.Transactional, b.ProducerID, b.ProducerEpoch, b.BaseSequence = true, p.pid, p.epoch, p.sequences[tp]
	for _, u := range records {
		b.Add(u.TimestampMs, u.Key, u.Value)
	}
	raw := b.Append(nil)
	for range 4 * linkTries {
		req := produceRequest(-1, &p.id, &batch{topic: tp.Topic, partition: tp.Partition, raw: raw})
		resp := c.ask(req, versionOf(req, p.v2))
		if p.closed {
			return 0, errUnanswered
		}
		if resp == nil {
			continue
		}
		rp := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		switch err := kerr.ErrorForCode(rp.ErrorCode); {
		case err == nil:
			p.sequences[tp] = record.NextSequence(record.LastSequence(b.BaseSequence, int32(len(records))))
			return rp.BaseOffset, nil
		case kerr.IsRetriable(err), errors.Is(err, kerr.ConcurrentTransactions):
			c.sleep(20*msInUs + c.w.Int64N(100*msInUs))
		default:
			return 0, err
		}
	}
	return 0, errUnanswered
}

func (p *txnProducer) add(c *client, tp kafka.TopicPartition) error {
	for range 4 * linkTries {
		req := kmsg.NewPtrAddPartitionsToTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch = p.id, p.pid, p.epoch
		t := kmsg.NewAddPartitionsToTxnRequestTopic()
		t.Topic, t.Partitions = tp.Topic, []int32{tp.Partition}
		req.Topics = append(req.Topics, t)
		resp := c.ask(req, versionOf(req, p.v2))
		if resp == nil {
			continue
		}
		err := kerr.ErrorForCode(resp.(*kmsg.AddPartitionsToTxnResponse).Topics[0].Partitions[0].ErrorCode)
		if err == nil {
			return nil
		}
		if !kerr.IsRetriable(err) && !errors.Is(err, kerr.ConcurrentTransactions) {
			return err
		}
		c.sleep(20*msInUs + c.w.Int64N(100*msInUs))
	}
	return errUnanswered
}
