package machine

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine/producer"
	"github.com/strandline-io/strandline/broker/record"
)

// request makes a Produce with one batch of transactional id "pay", which the test may spoil.
func (w *world) request(version int16, d data) *Produce {
	p := &Produce{Version: version, Acks: -1, Partitions: []ProducePartition{d.build(w)}}
	if d.transactional {
		p.TransactionalID = kmsg.StringPtr("pay")
	}
	return p
}

// TestProduceOrder spoils more and more of one request: the error must be that of the earlier step of kafka-eos.md A.3.
func TestProduceOrder(t *testing.T) {
	w := newWorld(t, Config{})
	w.topic("t", 1)
	w.run("init")
	deny := map[Access]bool{}
	w.m.may = func(_ *Client, a Access) bool { return !deny[a] }
	var spoilt []func(*Produce)
	f := func(want *kerr.Error, spoil func(*Produce)) {
		t.Helper()
		spoilt = append(spoilt, spoil)
		d := plain("t", 0, "a")
		d.producerID, d.epoch, d.seq, d.transactional = 0, 0, 5, true
		p := w.request(12, d)
		for _, s := range spoilt {
			s(p)
		}
		if r := w.do(p).(*ProduceReply).Partitions[0]; r.Code != want.Code || r.BaseOffset != -1 {
			t.Errorf("got %s at offset %d (%s), want %v", errorName(r.Code), r.BaseOffset, r.Message, want.Message)
		}
	}
	part := func(p *Produce) *ProducePartition { return &p.Partitions[0] }
	// From the last check to the first.
	f(kerr.OutOfOrderSequenceNumber, func(*Produce) {})
	f(kerr.InvalidRecord, func(p *Produce) { part(p).Header.Attributes |= 0x20 })
	f(kerr.CorruptMessage, func(p *Produce) { part(p).Batch = part(p).Batch[:70] })
	f(kerr.InvalidTimestamp, func(p *Produce) { part(p).Verdict = Verdict{Code: kerr.InvalidTimestamp.Code} })
	f(kerr.InvalidRequiredAcks, func(p *Produce) { p.Acks = 2 })
	f(kerr.InvalidProducerEpoch, func(p *Produce) { part(p).Header.ProducerEpoch = 7 })
	f(kerr.InvalidProducerIDMapping, func(p *Produce) { part(p).Header.ProducerID = 99 })
	f(kerr.UnsupportedCompressionType, func(p *Produce) {
		part(p).Verdict = Verdict{Code: kerr.UnsupportedCompressionType.Code, Container: true}
	})
	f(kerr.UnknownTopicOrPartition, func(p *Produce) { part(p).Partition = 1 })
	f(kerr.TopicAuthorizationFailed, func(p *Produce) {
		deny[Access{kmsg.ACLOperationWrite, kmsg.ACLResourceTypeTopic, "t"}] = true
	})
	f(kerr.UnknownTopicID, func(p *Produce) { part(p).TopicID[0] = 1 })
	f(kerr.TransactionalIDAuthorizationFailed, func(p *Produce) {
		deny[Access{kmsg.ACLOperationWrite, kmsg.ACLResourceTypeTransactionalId, "pay"}] = true
	})
	clear(deny)
	f(kerr.TransactionalIDAuthorizationFailed, func(p *Produce) { p.TransactionalID = nil })
}

func TestProduceRefusals(t *testing.T) {
	w := newWorld(t, Config{})
	w.topic("t", 2)
	w.run("init plain")
	f := func(name string, want *kerr.Error, spoil func(*Produce)) {
		t.Helper()
		d := plain("t", 0, "a")
		d.producerID, d.epoch, d.seq = 0, 0, 0
		p := w.request(9, d)
		spoil(p)
		if r := w.do(p).(*ProduceReply).Partitions[0]; r.Code != want.Code {
			t.Errorf("%s: got %s, want %s", name, errorName(r.Code), want.Message)
		}
	}
	f("acks -2", kerr.InvalidRequiredAcks, func(p *Produce) { p.Acks = -2 })
	f("no sequence", kerr.InvalidRecord, func(p *Produce) { p.Partitions[0].Header.BaseSequence = -1 })
	f("no epoch", kerr.InvalidRecord, func(p *Produce) { p.Partitions[0].Header.ProducerEpoch = -1 })
	f("no records", kerr.InvalidRecord, func(p *Produce) { p.Partitions[0].Header.LastOffsetDelta = -1 })
	f("negative partition", kerr.UnknownTopicOrPartition, func(p *Produce) { p.Partitions[0].Partition = -1 })
	f("unknown topic", kerr.UnknownTopicOrPartition, func(p *Produce) { p.Partitions[0].Topic = "u" })
	f("no batch", kerr.CorruptMessage, func(p *Produce) { p.Partitions[0].Batch = nil })

	// Two producers in one transactional request: none of its transactional batches goes in, plain ones do.
	w.run("init")
	a, b, c := plain("t", 0, "a"), plain("t", 1, "b"), plain("t", 0, "c")
	a.producerID, a.epoch, a.seq, a.transactional = 1, 0, 0, true
	b.producerID, b.epoch, b.seq, b.transactional = 2, 0, 0, true
	replies := w.produce(12, kmsg.StringPtr("pay"), a, b, c)
	if got := fmt.Sprint(replies[0].Code, replies[1].Code, replies[2].Code); got != "49 49 0" {
		t.Errorf("batches of two producers and a plain one are answered %s", got)
	}
	// A transactional batch without a producer.
	a.producerID, a.epoch, a.seq = -1, -1, -1
	if r := w.produce(12, kmsg.StringPtr("pay"), a)[0]; r.Code != kerr.InvalidProducerIDMapping.Code {
		t.Errorf("a transactional batch without producer is answered %s", errorName(r.Code))
	}
	if len(w.do(&Produce{Version: 9, Acks: 1}).(*ProduceReply).Partitions) != 0 {
		t.Error("a request without batches has an answer for one")
	}
}

// The connection's verdict comes back as it was made, with its records.
func TestProduceVerdict(t *testing.T) {
	w := newWorld(t, Config{})
	w.topic("t", 1)
	p := w.request(9, plain("t", 0, "a"))
	p.Partitions[0].Verdict = Verdict{Code: 87, Message: "no key", Records: []RecordError{{Index: 3, Message: "null"}}}
	r := w.do(p).(*ProduceReply).Partitions[0]
	if r.Code != 87 || r.Message != "no key" || len(r.Records) != 1 || r.Records[0].Index != 3 {
		t.Errorf("the verdict came back as %+v", r)
	}
	// An idempotent producer gives the batch up: the next one may go in.
	w.run("init plain")
	d := plain("t", 0, "a")
	d.producerID, d.epoch, d.seq = 0, 0, 0
	p = w.request(9, d)
	p.Partitions[0].SettingsVersion++
	w.do(p) // stale
	p = w.request(9, d)
	p.Partitions[0].Verdict = Verdict{Code: 87}
	w.do(p)
	w.expect("produce plain t/0:1:b", "offset 0")
}

// TestNonsenseSaysNothingOfAProducer: what is no batch has no header; that it reads as one of producer 0 must not disturb
// that producer.
func TestNonsenseSaysNothingOfAProducer(t *testing.T) {
	w := newWorld(t, Config{})
	w.topic("t", 1)
	w.run("init plain")
	nonsense := &Produce{Version: 9, Acks: -1, Partitions: []ProducePartition{{
		Topic: "t", Verdict: Verdict{Code: kerr.InvalidRecord.Code, Container: true},
	}}}
	if r := w.do(nonsense).(*ProduceReply).Partitions[0]; r.Code != kerr.InvalidRecord.Code || r.Stale {
		t.Errorf("nonsense is answered %+v", r)
	}
	d := plain("t", 0, "a")
	d.producerID, d.epoch, d.seq = 0, 0, 5 // unknown here: any sequence will do
	if r := w.produce(9, nil, d)[0]; r.Code != 0 {
		t.Errorf("the producer is answered %s: %s", errorName(r.Code), r.Message)
	}
}

func TestProducePatches(t *testing.T) {
	w := newWorld(t, Config{})
	w.topic("t", 1)
	w.run("produce plain t/0:-:a,b")
	w.restart()
	w.now.WallMs += 5
	p := w.request(9, plain("t", 0, "c"))
	r := w.do(p).(*ProduceReply).Partitions[0]
	h, _ := record.ParseHeader(p.Partitions[0].Batch)
	if h.BaseOffset != 2 || h.LeaderEpoch != 2 || h.LogAppendTime() || r.LogAppendTimeMs != -1 || r.LogStartOffset != 0 {
		t.Errorf("the batch became %+v, answered with %+v", h, r)
	}
	w.expect("show t/0", "end 3, stable 3, aborted [], epochs [{1 0} {2 2}]")
}

func TestLogAppendTime(t *testing.T) {
	w := newWorld(t, Config{})
	w.create("t", kmsg.CreateTopicsRequestTopicConfig{Name: "message.timestamp.type", Value: kmsg.StringPtr("LogAppendTime")})
	w.run("init plain")
	d := plain("t", 0, "a")
	d.producerID, d.epoch, d.seq = 0, 0, 0
	p := w.request(9, d)
	w.now.WallMs += 77
	at := w.now.WallMs
	r := w.do(p).(*ProduceReply).Partitions[0]
	h, _ := record.ParseHeader(p.Partitions[0].Batch)
	if r.LogAppendTimeMs != at || !h.LogAppendTime() || h.MaxTimestamp != at || !record.CheckCRC(p.Partitions[0].Batch) {
		t.Errorf("appended at %d: %+v, answered with %+v", at, h, r)
	}
	w.now.WallMs += 1000
	if r := w.produce(9, nil, d)[0]; r.BaseOffset != 0 || r.LogAppendTimeMs != at {
		t.Errorf("a duplicate is answered %+v, want the time of the first, %d", r, at)
	}
}

func TestProduceByTopicID(t *testing.T) {
	w := newWorld(t, Config{})
	topic := w.topic("t", 1)
	p := w.request(13, plain("t", 0, "a"))
	p.Partitions[0].Topic, p.Partitions[0].TopicID = "", topic.ID
	if r := w.do(p).(*ProduceReply).Partitions[0]; r.Code != 0 || r.BaseOffset != 0 {
		t.Errorf("by id: %+v", r)
	}
	w.run("delete t")
	w.topic("t", 1)
	if r := w.do(p).(*ProduceReply).Partitions[0]; r.Code != kerr.UnknownTopicID.Code {
		t.Errorf("by the id of a deleted topic: %+v", r)
	}
}

// At the bound of producers the one idle for the longest goes; with all of them in transactions a new one waits.
func TestProducerBound(t *testing.T) {
	w := newWorld(t, Config{Producer: producer.Config{MaxEntries: 2}})
	w.topic("t", 1)
	for range 3 {
		w.run("init plain")
	}
	w.run("produce plain pid=0 t/0:0:a")
	w.run("produce plain pid=1 t/0:0:b")
	w.expect("produce plain pid=2 t/0:0:c", "offset 2")
	w.expect("produce plain pid=1 t/0:0:b", "offset 1") // still known
	w.expect("produce plain pid=0 t/0:0:a", "offset 3") // forgotten: written again
	w.run("init id=x")
	w.run("init id=y")
	w.run("produce id=x pid=3 t/0:0:d")
	w.run("produce id=y pid=4 t/0:0:e")
	w.expect("produce plain pid=0 t/0:1:f", "NOT_ENOUGH_REPLICAS")
	// A marker for an unknown producer is never refused.
	w.topic("u", 1)
	w.run("add id=x pid=3 u/0")
	w.expect("end id=x pid=3 commit", "pid=3 epoch=1")
	w.expect("produce plain pid=0 t/0:1:f", "offset 7")
}

// Producing allocates little: the reply, the batch list, and a share of the metadata's chunk.
func TestProduceAllocations(t *testing.T) {
	m, op, out := benchmarkProduce(t)
	got := testing.AllocsPerRun(2000, func() {
		m.stepProduce(op, out)
	})
	if got > 3 {
		t.Errorf("%.1f allocations per batch, want at most 3", got)
	}
}

// benchmarkProduce returns a machine and an operation that appends to it.
func benchmarkProduce(t testing.TB) (*Machine, *Op, *Out) {
	w := newWorld(t, Config{})
	w.quiet = true
	w.topic("some-topic", 8)
	w.run("init plain")
	d := plain("some-topic", 3, "value")
	d.producerID, d.epoch, d.seq = 0, 0, 0
	return w.m, &Op{ID: 1, Now: w.now, Body: w.request(9, d)}, &Out{}
}

// stepProduce appends the operation's batch with the next sequence.
func (m *Machine) stepProduce(op *Op, out *Out) {
	out.Reset()
	m.Step(op, out)
	if r := out.Replies[0].Body.(*ProduceReply).Partitions[0]; r.Code != 0 {
		panic(errorName(r.Code))
	}
	p := &op.Body.(*Produce).Partitions[0]
	p.Header.BaseSequence = record.NextSequence(p.Header.BaseSequence)
	p.Batch[56] = byte(p.Header.BaseSequence)
	p.Batch[55] = byte(p.Header.BaseSequence >> 8)
	p.Batch[54] = byte(p.Header.BaseSequence >> 16)
	p.Batch[53] = byte(p.Header.BaseSequence >> 24)
}

func BenchmarkProduce(b *testing.B) {
	m, op, out := benchmarkProduce(b)
	b.ReportAllocs()
	for b.Loop() {
		m.stepProduce(op, out)
	}
}

func BenchmarkTransaction(b *testing.B) {
	w := newWorld(b, Config{})
	w.topic("t", 4)
	w.run("init")
	m := w.m
	var out Out
	epoch, pid := int16(0), int64(0)
	b.ReportAllocs()
	for b.Loop() {
		p := &Produce{Version: 12, Acks: -1, TransactionalID: kmsg.StringPtr("pay")}
		for n := range int32(4) {
			d := plain("t", n, "value")
			d.producerID, d.epoch, d.seq, d.transactional = pid, epoch, 0, true
			p.Partitions = append(p.Partitions, d.build(w))
		}
		out.Reset()
		m.Step(&Op{ID: 1, Now: w.now, Body: p}, &out)
		req := &kmsg.EndTxnRequest{Version: 5, TransactionalID: "pay", ProducerID: pid, ProducerEpoch: epoch, Commit: true}
		m.Step(&Op{ID: 2, Now: w.now, Body: req}, &out)
		resp := out.Replies[1].Body.(*kmsg.EndTxnResponse)
		if resp.ErrorCode != 0 {
			b.Fatal(errorName(resp.ErrorCode))
		}
		pid, epoch = resp.ProducerID, resp.ProducerEpoch
	}
}

// TestNothingOvertakesABatchWithoutSpace: a batch that was refused for want of space comes again; one behind it that was
// on its way meanwhile must not go in first, and one that is in already is a success. Found by the simulation.
func TestNothingOvertakesABatchWithoutSpace(t *testing.T) {
	w := newWorld(t, Config{})
	w.topic("t", 1)
	send := func(seq int32, noSpace bool, want *kerr.Error, offset int64) {
		t.Helper()
		d := plain("t", 0, "a")
		d.producerID, d.epoch, d.seq = 7, 0, seq
		p := w.request(9, d)
		p.NoSpace = noSpace
		if r := w.do(p).(*ProduceReply).Partitions[0]; want == nil && r.Code != 0 || want != nil && r.Code != want.Code || r.BaseOffset != offset {
			t.Errorf("sequence %d: got %s at offset %d, want %v at %d", seq, errorName(r.Code), r.BaseOffset, want, offset)
		}
	}
	send(0, true, kerr.KafkaStorageError, -1)
	send(1, false, kerr.OutOfOrderSequenceNumber, -1)
	send(0, false, nil, 0)
	send(1, false, nil, 1)
	send(1, true, nil, 1)
	send(2, true, kerr.KafkaStorageError, -1)
	send(2, false, nil, 2)
}
