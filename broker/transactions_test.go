package broker_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/brokertest"
	"github.com/strandline-io/strandline/broker/record"
)

// The pattern of ListTransactions v2 is an RE2 expression for the whole id (kafka-eos.md B.15).
func TestListTransactionsByPattern(t *testing.T) {
	c := dial(t, brokertest.Start(t))
	for _, id := range []string{"pay-1", "pay-22", "audit"} {
		initProducer(c, id)
	}
	f := func(version int16, pattern *string, wantCode int16, want string) {
		t.Helper()
		req := kmsg.NewPtrListTransactionsRequest()
		req.Version, req.TransactionalIDPattern = version, pattern
		got := ask[*kmsg.ListTransactionsResponse](c, req)
		var ids []string
		for _, s := range got.TransactionStates {
			ids = append(ids, s.TransactionalID)
		}
		if got.ErrorCode != wantCode || strings.Join(ids, " ") != want {
			t.Errorf("version %d: code %d, %q, want %d, %q", version, got.ErrorCode, ids, wantCode, want)
		}
	}
	f(2, nil, 0, "audit pay-1 pay-22")
	f(2, kmsg.StringPtr(""), 0, "audit pay-1 pay-22")
	f(2, kmsg.StringPtr(`pay-\d`), 0, "pay-1")
	f(2, kmsg.StringPtr(`audit|pay`), 0, "audit")
	f(2, kmsg.StringPtr(`pay-(`), 128, "")
	f(1, kmsg.StringPtr(`audit`), 0, "audit pay-1 pay-22")
}

// A fetch that waits for more bytes, while a transaction that it will show is aborted, tells of that when it is answered
// (kafka-eos.md H.1.3).
func TestParkedFetchTellsOfAborted(t *testing.T) {
	b := brokertest.Start(t)
	c, other := dial(t, b), dial(t, b)
	topic := createTopic(other, "t", 1)
	p := initProducer(other, "p")
	id, first := p.id, p.write("t", topic, 0, "aborted")
	req := fetchRequest("t", 0, 0)
	req.IsolationLevel = 1
	req.MaxWaitMillis = int32(2 * patience.Milliseconds())
	req.MinBytes = int32(len(batchOf(1, "aborted"))) + record.MarkerSize + 1 // the marker does not end the wait
	waits := c.send(req)
	p.end(false)
	produce(other, "t", 0, batchOf(1, "behind it, and long enough"))
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	c.receive(waits, resp)
	f := fetched(resp)
	if diff := cmp.Diff([]string{"aborted", "behind it, and long enough"}, valuesOf(t, f.RecordBatches)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if a := f.AbortedTransactions; len(a) != 1 || a[0].ProducerID != id || a[0].FirstOffset != first || f.LastStableOffset != 3 {
		t.Errorf("aborted %v, last stable offset %d, want producer %d from %d on", a, f.LastStableOffset, id, first)
	}
}

// Producer ids that many ask for at once are all different, and nobody is sent away (kafka-eos.md H.1.17).
func TestProducerIDsInParallel(t *testing.T) {
	b := brokertest.Start(t)
	const connections, each = 7, 143 // 1,001 in all: more than one block
	ids := make([][]int64, connections)
	var wg sync.WaitGroup
	for i := range connections {
		c := dial(t, b)
		wg.Go(func() {
			req := kmsg.NewPtrInitProducerIDRequest()
			req.Version, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = 5, 60_000, -1, -1
			for range each {
				c.send(req)
			}
			for n := range each {
				resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
				c.receive(int32(n+1), resp)
				if resp.ErrorCode != 0 || resp.ProducerEpoch != 0 {
					t.Errorf("connection %d, request %d: %+v", i, n, resp)
				}
				ids[i] = append(ids[i], resp.ProducerID)
			}
		})
	}
	wg.Wait()
	seen := map[int64]bool{}
	for _, all := range ids {
		for _, id := range all {
			if seen[id] {
				t.Errorf("producer id %d is given twice", id)
			}
			seen[id] = true
		}
	}
	if len(seen) != connections*each {
		t.Errorf("%d producer ids, want %d", len(seen), connections*each)
	}
}
