package broker_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker"
	"github.com/strandline-io/strandline/broker/brokertest"
)

// TestOtherSettingsAtTheNextStart: the journal of one start replays to the same state under the settings of another one, however
// tight (each start verifies itself), and what no longer has room is forgotten with a line in the log; open transactions stay.
func TestOtherSettingsAtTheNextStart(t *testing.T) {
	dir := t.TempDir()
	var log syncBuffer
	var id [16]byte
	start := func(also func(*broker.Config)) (*brokertest.Broker, *rawClient) {
		b := brokertest.Start(t, brokertest.Dir(dir), brokertest.Configure(func(c *broker.Config) {
			c.JournalSegmentBytes, c.JournalMaxBytes = smallJournal/4, smallJournal
			c.Logger = log.logger()
			also(c)
		}))
		return b, dial(t, b)
	}
	stop := func(b *brokertest.Broker, c *rawClient) {
		c.conn.Close()
		if err := b.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	write := func(c *rawClient, first, producers int) (open *txnProducer) {
		for i := range producers {
			p := initProducer(c, fmt.Sprint("producer-", first+i))
			p.write("t", id, int32(i%4), strings.Repeat("x", 4000))
			if i > 0 {
				p.end(i%2 == 0)
			} else {
				open = p
			}
		}
		return open
	}
	loose := func(*broker.Config) {}
	tight := func(c *broker.Config) {
		for _, s := range broker.Settings() {
			if s.Name == "max.producer.ids" || s.Name == "max.transactional.ids" {
				s.Set(c, 3)
			} else if !strings.HasPrefix(s.Name, "group.consumer.") {
				s.Set(c, max(s.Low, min(s.High, 2)))
			}
		}
		c.TransactionMaxTimeoutMs, c.MessageMaxBytes = 60_000, 10_000
		c.ProducerIDExpirationMs, c.TransactionalIDExpirationMs = 3_600_000, 3_600_000 // longer than any test
	}
	b, c := start(loose)
	id = createTopic(c, "t", 4)
	open := write(c, 0, 20)
	stop(b, c)

	b, c = start(tight)
	open.c = c
	open.write("t", id, 0, "still open")
	open.end(true)
	write(c, 20, 20)
	stop(b, c)
	if log := string(log.bytes()); !strings.Contains(log, "producers were forgotten") || !strings.Contains(log, "transactional ids were forgotten") ||
		!strings.Contains(log, "limit=3") {
		t.Errorf("the log does not say what was forgotten:\n%s", log)
	}

	b, c = start(loose)
	write(c, 40, 5)
	req := kmsg.NewPtrListTransactionsRequest()
	if n := len(ask[*kmsg.ListTransactionsResponse](c, req).TransactionStates); n > 3+5 {
		t.Errorf("%d transactional ids, want those that the bound had left, and five more", n)
	}
	stop(b, c)
}
