package broker_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker"
	"github.com/strandline-io/strandline/broker/brokertest"
	"github.com/strandline-io/strandline/broker/record"
)

// oldProducer speaks transaction version 1: one epoch for all its transactions.
type oldProducer struct {
	*txnProducer
	topic string
}

// begin opens a transaction and writes into it.
func (p *oldProducer) begin(c *rawClient, value string) {
	c.t.Helper()
	add := kmsg.NewPtrAddPartitionsToTxnRequest()
	add.Version, add.TransactionalID, add.ProducerID, add.ProducerEpoch = 3, p.name, p.id, p.epoch
	add.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: p.topic, Partitions: []int32{0}}}
	if code := ask[*kmsg.AddPartitionsToTxnResponse](c, add).Topics[0].Partitions[0].ErrorCode; code != 0 {
		c.t.Fatalf("AddPartitionsToTxn: code %d", code)
	}
	b := record.NewBuilder()
	b.ProducerID, b.ProducerEpoch, b.BaseSequence, b.Transactional = p.id, p.epoch, p.next[0], true
	b.Add(1, nil, []byte(value))
	p.next[0]++
	req := produceRequest(p.topic, 0, b.Append(nil))
	req.TransactionID = &p.name
	if code := produced(ask[*kmsg.ProduceResponse](c, req)).ErrorCode; code != 0 {
		c.t.Fatalf("Produce: code %d", code)
	}
}

func (p *oldProducer) endRequest(commit bool) *kmsg.EndTxnRequest {
	req := kmsg.NewPtrEndTxnRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = 3, p.name, p.id, p.epoch, commit
	return req
}

func (p *oldProducer) end(c *rawClient, commit bool) {
	c.t.Helper()
	if code := ask[*kmsg.EndTxnResponse](c, p.endRequest(commit)).ErrorCode; code != 0 {
		c.t.Fatalf("EndTxn: code %d", code)
	}
}

// TestLateEndTxnOfVersion1 is KAFKA-17754 over real connections: the first attempt of an EndTxn is still under way when its
// client has lost patience, ended the transaction by another connection, and begun the next one. When it arrives at last, its
// connection is closed, and the open transaction stays as it is.
func TestLateEndTxnOfVersion1(t *testing.T) {
	for _, commit := range []bool{true, false} {
		b := brokertest.Start(t)
		old := dial(t, b)
		createTopic(old, "t", 1)
		p := &oldProducer{initProducer(old, "pay"), "t"}
		p.begin(old, "a")

		arrived, release := make(chan struct{}), make(chan struct{})
		remove := b.Intercept(26, func(ctx context.Context, _ *broker.Request) broker.Fate {
			close(arrived)
			select {
			case <-release:
			case <-ctx.Done():
			}
			return broker.Fate{}
		})
		old.send(p.endRequest(commit))
		<-arrived
		remove()

		second := dial(t, b)
		p.end(second, commit)
		p.begin(second, "b")
		close(release)
		if rest := old.expectClosed(); len(rest) > 0 {
			t.Errorf("the late EndTxn is answered with %d bytes", len(rest))
		}
		p.begin(second, "c") // it is still open
		// Whoever loses its connection comes back by a new one.
		second.conn.Close()
		p.end(dial(t, b), true)

		req := fetchRequest("t", 0, 0)
		req.IsolationLevel = 1
		f := fetched(ask[*kmsg.FetchResponse](dial(t, b), req))
		if diff := cmp.Diff([]string{"a", "b", "c"}, valuesOf(t, f.RecordBatches)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		aborted := 0 // the first transaction, or none
		if !commit {
			aborted = 1
		}
		if f.LastStableOffset != 5 || len(f.AbortedTransactions) != aborted {
			t.Errorf("commit %v: last stable offset %d, aborted %+v", commit, f.LastStableOffset, f.AbortedTransactions)
		}
	}
}
