package orders

import (
	"errors"
	"fmt"
	"testing"

	"github.com/strandline-io/strandline/broker/brokertest"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestOrders(t *testing.T) {
	b := brokertest.Start(t) // milliseconds; a free port, in memory, gone with the test
	c, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.AllowAutoTopicCreation(), kgo.TransactionalID("shop"),
		kgo.DefaultProduceTopic("orders"), kgo.ConsumeTopics("orders"), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, commit := range []bool{false, true} {
		order := kgo.StringRecord(fmt.Sprintf("committed: %t", commit))
		err := errors.Join(c.BeginTransaction(), c.ProduceSync(t.Context(), order).FirstErr(),
			c.EndTransaction(t.Context(), kgo.TransactionEndTry(commit)))
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := c.PollFetches(t.Context()).Records(); len(got) != 1 || string(got[0].Value) != "committed: true" {
		t.Errorf("a read_committed consumer saw %d records", len(got))
	}
}
