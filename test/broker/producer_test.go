//go:build peers

package broker

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/record"
)

// producer is a transactional producer that does exactly what it is told, by single requests, each on a connection of
// its own, so that it is not impressed by a broker that died.
type producer struct {
	t        testing.TB
	s        *server
	name     string
	implicit bool // transaction version 2
	id       int64
	epoch    int16
	next     map[position]int32 // sequence by partition (the offset is left 0)
}

// newProducer makes a producer of transaction version 1 or 2 and asks for its id.
func newProducer(t testing.TB, s *server, name string, version int, timeout time.Duration) *producer {
	t.Helper()
	p := &producer{t: t, s: s, name: name, implicit: version == 2, id: -1, epoch: -1}
	if code := p.init(timeout); code != 0 {
		t.Fatalf("InitProducerId for %s: %v", name, kerr.ErrorForCode(code))
	}
	return p
}

func (p *producer) ask(req kmsg.Request) kmsg.Response {
	p.t.Helper()
	c := dial(p.t, p.s.Addr)
	defer c.conn.Close()
	return c.ask(req)
}

// init asks for the id and epoch, naming those that the producer has.
func (p *producer) init(timeout time.Duration) int16 {
	p.t.Helper()
	return p.initialized(p.ask(p.initRequest(timeout)).(*kmsg.InitProducerIDResponse))
}

func (p *producer) initRequest(timeout time.Duration) *kmsg.InitProducerIDRequest {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version, req.TransactionalID, req.TransactionTimeoutMillis = 4, &p.name, int32(timeout.Milliseconds())
	req.ProducerID, req.ProducerEpoch = p.id, p.epoch
	return req
}

func (p *producer) initialized(resp *kmsg.InitProducerIDResponse) int16 {
	if resp.ErrorCode == 0 {
		p.id, p.epoch, p.next = resp.ProducerID, resp.ProducerEpoch, map[position]int32{}
	}
	return resp.ErrorCode
}

// write sends one batch in the open transaction and returns its base offset.
func (p *producer) write(topic string, partition int32, values ...string) (baseOffset int64, code int16) {
	p.t.Helper()
	if !p.implicit {
		if code := p.addPartition(topic, partition); code != 0 {
			return -1, code
		}
	}
	at := position{topic: topic, partition: partition}
	baseOffset, code = p.writeAt(topic, partition, p.next[at], values...)
	if code == 0 {
		p.next[at] += int32(len(values))
	}
	return baseOffset, code
}

// writeAt sends a batch with a sequence of the caller's choice.
func (p *producer) writeAt(topic string, partition, sequence int32, values ...string) (baseOffset int64, code int16) {
	p.t.Helper()
	got := p.ask(p.batchRequest(topic, partition, sequence, values...)).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	return got.BaseOffset, got.ErrorCode
}

func (p *producer) batchRequest(topic string, partition, sequence int32, values ...string) *kmsg.ProduceRequest {
	b := record.NewBuilder()
	b.ProducerID, b.ProducerEpoch, b.BaseSequence, b.Transactional = p.id, p.epoch, sequence, true
	for _, v := range values {
		b.Add(time.Now().UnixMilli(), nil, []byte(v))
	}
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TransactionID = 11, -1, &p.name
	if p.implicit {
		req.Version = 12
	}
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = partition, b.Append(nil)
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

// mustWrite fails the test if the batch is refused.
func (p *producer) mustWrite(topic string, partition int32, values ...string) int64 {
	p.t.Helper()
	offset, code := p.write(topic, partition, values...)
	if code != 0 {
		p.t.Fatalf("%s writes to %s/%d: %v", p.name, topic, partition, kerr.ErrorForCode(code))
	}
	return offset
}

func (p *producer) addPartition(topic string, partition int32) int16 {
	p.t.Helper()
	return p.ask(p.addPartitionRequest(topic, partition)).(*kmsg.AddPartitionsToTxnResponse).Topics[0].Partitions[0].ErrorCode
}

func (p *producer) addPartitionRequest(topic string, partition int32) *kmsg.AddPartitionsToTxnRequest {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch = 3, p.name, p.id, p.epoch
	rt := kmsg.NewAddPartitionsToTxnRequestTopic()
	rt.Topic, rt.Partitions = topic, []int32{partition}
	req.Topics = append(req.Topics, rt)
	return req
}

// sendOffset commits an offset within the transaction, from outside any group.
func (p *producer) sendOffset(group, topic string, partition int32, offset int64) int16 {
	p.t.Helper()
	if !p.implicit {
		if code := p.ask(p.addGroupRequest(group)).(*kmsg.AddOffsetsToTxnResponse).ErrorCode; code != 0 {
			return code
		}
	}
	return p.ask(p.offsetRequest(group, topic, partition, offset)).(*kmsg.TxnOffsetCommitResponse).Topics[0].Partitions[0].ErrorCode
}

func (p *producer) addGroupRequest(group string) *kmsg.AddOffsetsToTxnRequest {
	req := kmsg.NewPtrAddOffsetsToTxnRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = 3, p.name, p.id, p.epoch, group
	return req
}

func (p *producer) offsetRequest(group, topic string, partition int32, offset int64) *kmsg.TxnOffsetCommitRequest {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.Version = 3
	if p.implicit {
		req.Version = 5
	}
	req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch = p.name, group, p.id, p.epoch
	rt := kmsg.NewTxnOffsetCommitRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	rp.Partition, rp.Offset = partition, offset
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

// endRequest is the request that ends the transaction.
func (p *producer) endRequest(commit bool) *kmsg.EndTxnRequest {
	req := kmsg.NewPtrEndTxnRequest()
	req.Version = 4
	if p.implicit {
		req.Version = 5
	}
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = p.name, p.id, p.epoch, commit
	return req
}

// end ends the transaction; with transaction version 2 that brings the next epoch.
func (p *producer) end(commit bool) int16 {
	p.t.Helper()
	return p.ended(p.ask(p.endRequest(commit)).(*kmsg.EndTxnResponse))
}

func (p *producer) ended(resp *kmsg.EndTxnResponse) int16 {
	if resp.ErrorCode == 0 && p.implicit {
		p.id, p.epoch, p.next = resp.ProducerID, resp.ProducerEpoch, map[position]int32{}
	}
	return resp.ErrorCode
}

// mustEnd fails the test if the end is refused.
func (p *producer) mustEnd(commit bool) {
	p.t.Helper()
	if code := p.end(commit); code != 0 {
		p.t.Fatalf("%s ends its transaction (commit %t): %v", p.name, commit, kerr.ErrorForCode(code))
	}
}

// committedOffset is what a group has committed for a partition, -1 for nothing. Pending offsets are UNSTABLE_OFFSET_COMMIT
// for those who ask for stable ones.
func committedOffset(t testing.TB, s *server, group, topic string, partition int32, stable bool) (offset int64, code int16) {
	t.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version, req.RequireStable = 8, stable
	rg := kmsg.NewOffsetFetchRequestGroup()
	rg.Group = group
	rt := kmsg.NewOffsetFetchRequestGroupTopic()
	rt.Topic, rt.Partitions = topic, []int32{partition}
	rg.Topics = append(rg.Topics, rt)
	req.Groups = append(req.Groups, rg)
	c := dial(t, s.Addr)
	defer c.conn.Close()
	got := c.ask(req).(*kmsg.OffsetFetchResponse).Groups[0]
	if got.ErrorCode != 0 || len(got.Topics) != 1 {
		t.Fatalf("OffsetFetch of %s: %v, %d topics", group, kerr.ErrorForCode(got.ErrorCode), len(got.Topics))
	}
	return got.Topics[0].Partitions[0].Offset, got.Topics[0].Partitions[0].ErrorCode
}
