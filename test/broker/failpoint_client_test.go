//go:build peers

package broker

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline-io/strandline/test/peers"
)

// TestClientOutlivesEveryPoint is TestKilledAtEveryPoint with franz-go: one client copies records, offsets in the same
// transactions, and the broker dies at each failpoint on the way, each time that a transaction passes it. The client is never
// replaced, and in the end every record is copied once.
func TestClientOutlivesEveryPoint(t *testing.T) {
	bin := peers.Binary(t, "./test/broker/tight", "-tags", "failpoints")
	bothVersions(t, func(t *testing.T, version int) {
		ctx := within(t, 4*patience)
		d := startDrilled(t, bin, quietJournal)
		const records = 120
		d.createTopic("from", 1)
		d.createTopic("to", 2)
		source := client(t, d.Addr)
		want := map[string]int{}
		for i := range records {
			if err := source.ProduceSync(ctx, recordOf("from", 0, fmt.Sprint(i))).FirstErr(); err != nil {
				t.Fatal(err)
			}
			want[fmt.Sprint(i)] = 1
		}
		source.Close()
		c := newOutliver(t, d, version)
		defer c.CloseAllowingRebalance() // while the broker is there
		c.copyOne(ctx)                   // joins, and takes the transactional id
		for _, point := range onTheWay {
			count := 1
			for c.dies(ctx, point, count) && !t.Failed() {
				count++
			}
			if count == 1 {
				t.Errorf("a transaction does not pass %s", point)
			}
		}
		for c.position(ctx) < records && !t.Failed() {
			c.copyOne(ctx)
		}
		allStable(t, ctx, d.Addr, "to")
		if diff := cmp.Diff(want, readAll(t, ctx, d.Addr, kgo.ReadCommitted(), []string{"to"}).values("to")); diff != "" {
			t.Errorf("copied, how often (-want +got):\n%s", diff)
		}
		t.Logf("the broker died %d times in %d transactions, %d of which were aborted", d.deaths, c.tries, c.aborts)
	})
}

// outliver is the client.
type outliver struct {
	*kgo.GroupTransactSession
	t             *testing.T
	d             *drilled
	tries, aborts int
}

func newOutliver(t *testing.T, d *drilled, version int) *outliver {
	t.Helper()
	opts := options(d.Addr, kgo.Dialer(dialUntilThere), kgo.ConsumerGroup("outliver"), kgo.ConsumeTopics("from"), kgo.TransactionalID("outliver"),
		kgo.TransactionTimeout(time.Minute), kgo.ProducerLinger(0), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.SessionTimeout(patience), kgo.RebalanceTimeout(patience), kgo.HeartbeatInterval(200*time.Millisecond))
	if version == 1 {
		opts = append(opts, oldTransactions())
	}
	s, err := kgo.NewGroupTransactSession(opts...)
	if err != nil {
		t.Fatal(err)
	}
	return &outliver{GroupTransactSession: s, t: t, d: d}
}

// dialUntilThere waits for a broker that is away. The client itself gives up for a while when it is refused, and then its
// transaction cannot be ended.
func dialUntilThere(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, addr)
		if err == nil {
			return conn, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// dies copies a record from a broker that dies when that point is passed for the count-th time, and reports whether it did.
func (c *outliver) dies(ctx context.Context, point string, count int) bool {
	c.t.Helper()
	c.d.armAt(point, count)
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		c.copyOne(ctx)
	}()
	died := false
	select {
	case <-c.d.Done():
		died = true
		c.d.buried(point)
		c.d.Again()
	case <-copied:
		c.d.armAt(point, 1<<30)
	}
	<-copied
	return died
}

// copyOne tries until one more record is copied, or nobody knows whether it is.
func (c *outliver) copyOne(ctx context.Context) {
	for ctx.Err() == nil {
		fetches := c.PollRecords(ctx, 1)
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := c.Begin(); err != nil {
			c.t.Errorf("begin: %v", err)
			return
		}
		c.tries++
		fetches.EachRecord(func(r *kgo.Record) {
			c.Produce(ctx, recordOf("to", int32(r.Offset%2), string(r.Value)), nil) // End tells of its error
		})
		committed, err := c.End(ctx, kgo.TryCommit)
		if err != nil {
			c.t.Errorf("end: %v", err)
			return
		}
		if committed {
			return
		}
		c.aborts++
	}
	c.t.Error(ctx.Err())
}

// position is how far the group has come.
func (c *outliver) position(ctx context.Context) int64 {
	at, err := kadm.NewClient(c.Client()).FetchOffsets(ctx, "outliver")
	if err != nil {
		c.t.Fatal(err)
	}
	o, _ := at.Lookup("from", 0)
	return o.At
}
