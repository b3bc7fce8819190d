package brokertest_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline-io/strandline/broker/brokertest"
)

// holder is a consumer of a KIP-848 group that notes which partitions it has.
type holder struct {
	*kgo.Client
	mu   sync.Mutex
	has  map[string]bool
	seen map[string]int
	done chan struct{}
}

func (h *holder) note(has bool) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
		h.mu.Lock()
		defer h.mu.Unlock()
		for topic, list := range partitions {
			for _, p := range list {
				if name := fmt.Sprintf("%s-%d", topic, p); has {
					h.has[name] = true
				} else {
					delete(h.has, name)
				}
			}
		}
	}
}

func (h *holder) partitions() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.has))
}

// hold starts a consumer of group g.
func hold(t *testing.T, b *brokertest.Broker, n *brokertest.Network, opts ...kgo.Opt) *holder {
	h := &holder{has: map[string]bool{}, seen: map[string]int{}, done: make(chan struct{})}
	h.Client = client(t, b, append([]kgo.Opt{kgo.Dialer(n.DialContext), kgo.ConsumerGroup("g"), kgo.ServerSideBalancer(),
		kgo.Balancers(kgo.StickyBalancer()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(h.note(true)), kgo.OnPartitionsRevoked(h.note(false)), kgo.OnPartitionsLost(h.note(false))}, opts...)...)
	go func() {
		defer close(h.done)
		for {
			fetches := h.PollFetches(context.Background())
			if fetches.IsClientClosed() {
				return
			}
			h.mu.Lock()
			fetches.EachError(func(topic string, p int32, err error) { t.Errorf("%s/%d: %v", topic, p, err) })
			fetches.EachRecord(func(r *kgo.Record) { h.seen[string(r.Value)]++ })
			h.mu.Unlock()
		}
	}()
	return h
}

func (h *holder) close() {
	h.Close()
	<-h.done
}

// pass lets virtual time pass.
func pass(d time.Duration) { <-time.After(d) }

func produceNumbers(t *testing.T, c *kgo.Client, topic string, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		r := &kgo.Record{Topic: topic, Key: fmt.Append(nil, i), Value: fmt.Append(nil, topic, i)}
		if err := c.ProduceSync(context.Background(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestConsumerGroupProtocol: franz-go's members of a KIP-848 group share the partitions, take over from each other
// without reading anything twice, go on after the broker was stopped, and follow a pattern to new topics.
func TestConsumerGroupProtocol(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := brokertest.NewNetwork()
		b := brokertest.Start(t, brokertest.On(network, "broker:9092"), brokertest.Partitions(4))
		c := client(t, b, kgo.Dialer(network.DialContext))
		adm := kadm.NewClient(c)
		produceNumbers(t, c, "in", 0, 40)

		one := hold(t, b, network, kgo.ConsumeTopics("in"))
		pass(20 * time.Second)
		if got := len(one.partitions()); got != 4 {
			t.Fatalf("alone it has %d of 4 partitions", got)
		}
		two := hold(t, b, network, kgo.ConsumeTopics("in"))
		pass(20 * time.Second)
		if a, b := one.partitions(), two.partitions(); len(a) != 2 || len(b) != 2 {
			t.Errorf("together they have %v and %v", a, b)
		}
		groups, err := adm.DescribeConsumerGroups(context.Background(), "g")
		if err != nil || groups["g"].State != "Stable" || len(groups["g"].Members) != 2 {
			t.Errorf("the group is described as %+v, %v", groups["g"], err)
		}
		listed, err := adm.ListGroups(context.Background())
		if err != nil || listed["g"].GroupType != "consumer" {
			t.Errorf("the group is listed as %+v, %v", listed["g"], err)
		}
		one.close()
		pass(20 * time.Second)
		if got := two.partitions(); len(got) != 4 {
			t.Errorf("after the other has left it has %v", got)
		}
		produceNumbers(t, c, "in", 40, 80)
		pass(20 * time.Second)
		two.close()
		for i := range 80 {
			if v := fmt.Sprint("in", i); one.seen[v]+two.seen[v] != 1 {
				t.Errorf("%s was read %d and %d times", v, one.seen[v], two.seen[v])
			}
		}

		follows := hold(t, b, network, kgo.ConsumeTopics("in.*"), kgo.ConsumeRegex(), kgo.ConsumerGroup("patterns"))
		pass(20 * time.Second)
		produceNumbers(t, c, "into", 0, 4)
		produceNumbers(t, c, "out", 0, 4)
		pass(time.Minute)
		if got := follows.partitions(); len(got) != 8 {
			t.Errorf("the pattern leads to %v", got)
		}
		follows.close()
		for i := range 4 {
			if v := fmt.Sprint("into", i); follows.seen[v] != 1 || follows.seen[fmt.Sprint("out", i)] != 0 {
				t.Errorf("%s was read %d times", v, follows.seen[v])
			}
		}
		c.Close()
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestConsumerGroupTransactions moves records exactly once with two workers of a KIP-848 group, while one of them goes
// and comes again and the broker is restarted.
func TestConsumerGroupTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 300
		network, dir := brokertest.NewNetwork(), t.TempDir()
		start := func() *brokertest.Broker {
			return brokertest.Start(t, brokertest.On(network, "broker:9092"), brokertest.Partitions(4), brokertest.Dir(dir))
		}
		b := start()
		c := client(t, b, kgo.Dialer(network.DialContext))
		produceNumbers(t, c, "in", 0, n/2)
		stopOne := move(t, b, network, "one")
		stopTwo := move(t, b, network, "two")
		pass(20 * time.Second)
		stopOne()
		produceNumbers(t, c, "in", n/2, n/2+50)
		pass(7 * time.Second)
		stopOne = move(t, b, network, "one")
		pass(3 * time.Second)
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
		b = start()
		produceNumbers(t, c, "in", n/2+50, n)
		pass(2 * time.Minute)
		stopOne()
		stopTwo()
		seen := map[string]int{}
		out := client(t, b, kgo.Dialer(network.DialContext), kgo.ConsumeTopics("out"), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		for _, v := range read(t, context.Background(), out, n) {
			seen[v]++
		}
		for i := range n {
			if v := fmt.Sprint("in", i); seen[v] != 1 {
				t.Errorf("%s came %d times", v, seen[v])
			}
		}
		out.Close()
		c.Close()
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// move starts a worker that copies from in to out, a transaction for each fetch, until it is stopped.
func move(t *testing.T, b *brokertest.Broker, n *brokertest.Network, id string) (stop func()) {
	s, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(b.Addr()), kgo.Dialer(n.DialContext), kgo.ConsumerGroup("g"),
		kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()), kgo.ConsumeTopics("in"), kgo.TransactionalID(id),
		kgo.DefaultProduceTopic("out"), kgo.AllowAutoTopicCreation(), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer s.Close()
		for ctx.Err() == nil {
			fetches := s.PollFetches(ctx)
			if fetches.NumRecords() == 0 {
				continue
			}
			if err := s.Begin(); err != nil {
				t.Error(err)
				return
			}
			fetches.EachRecord(func(r *kgo.Record) { s.Produce(context.Background(), kgo.StringRecord(string(r.Value)), nil) })
			if _, err := s.End(context.Background(), kgo.TryCommit); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}

// TestLargeConsumerGroup: the assignment of many partitions is made outside of the broker's loop, and comes back.
func TestLargeConsumerGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions = 5000
		network := brokertest.NewNetwork()
		b := brokertest.Start(t, brokertest.On(network, "broker:9092"))
		c := client(t, b, kgo.Dialer(network.DialContext))
		if _, err := kadm.NewClient(c).CreateTopic(context.Background(), partitions, 1, nil, "large"); err != nil {
			t.Fatal(err)
		}
		one := hold(t, b, network, kgo.ConsumeTopics("large"))
		two := hold(t, b, network, kgo.ConsumeTopics("large"))
		pass(time.Minute)
		if x, y := len(one.partitions()), len(two.partitions()); x != partitions/2 || y != partitions/2 {
			t.Errorf("they have %d and %d of %d partitions", x, y, partitions)
		}
		one.close()
		two.close()
		c.Close()
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
}
