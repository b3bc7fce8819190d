package brokertest_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/strandline-io/strandline/broker"
	"github.com/strandline-io/strandline/broker/brokertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func client(t testing.TB, b *brokertest.Broker, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	opts = append([]kgo.Opt{kgo.SeedBrokers(b.Addr()), kgo.AllowAutoTopicCreation()}, opts...)
	c, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// read polls until n records came.
func read(t testing.TB, ctx context.Context, c *kgo.Client, n int) (values []string) {
	t.Helper()
	for len(values) < n {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatalf("after %d of %d records: %v", len(values), n, err)
		}
		fetches.EachError(func(topic string, p int32, err error) { t.Errorf("%s/%d: %v", topic, p, err) })
		fetches.EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
	}
	return values
}

func TestProduceAndConsume(t *testing.T) {
	b := brokertest.Start(t)
	ctx := within(t, patience)
	p := client(t, b, kgo.DefaultProduceTopic("t"))
	var want []string
	for i := range 1000 {
		want = append(want, fmt.Sprint("value ", i))
		p.Produce(ctx, kgo.StringRecord(want[i]), func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	got := read(t, ctx, client(t, b, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())), len(want))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestGroupAndTransactions(t *testing.T) {
	for name, opts := range map[string][]kgo.Opt{
		"transaction version 2": nil,
		"transaction version 1": {kgo.MaxVersions(oldVersions())},
	} {
		t.Run(name, func(t *testing.T) {
			b := brokertest.Start(t, brokertest.Partitions(3))
			ctx := within(t, patience)
			const n = 500
			in := client(t, b, kgo.DefaultProduceTopic("in"))
			for i := range n {
				in.Produce(ctx, kgo.KeyStringRecord(fmt.Sprint(i), fmt.Sprint(i)), nil)
			}
			if err := in.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			s, err := kgo.NewGroupTransactSession(append(opts,
				kgo.SeedBrokers(b.Addr()), kgo.AllowAutoTopicCreation(), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("in"),
				kgo.TransactionalID("etl"), kgo.DefaultProduceTopic("out"), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
				kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for done, round := 0, 0; done < n; round++ {
				if err := s.Begin(); err != nil {
					t.Fatal(err)
				}
				moved := 0
				s.PollRecords(ctx, 20).EachRecord(func(r *kgo.Record) {
					moved++
					s.Produce(ctx, kgo.StringRecord(string(r.Value)), nil)
				})
				// Every other transaction is aborted and done again.
				committed, err := s.End(ctx, kgo.TransactionEndTry(round%2 != 0))
				if err != nil {
					t.Fatal(err)
				}
				if committed {
					done += moved
				}
			}
			out := client(t, b, kgo.ConsumeTopics("out"), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
			seen := map[string]int{}
			for _, v := range read(t, ctx, out, n) {
				seen[v]++
			}
			for i := range n {
				if seen[fmt.Sprint(i)] != 1 {
					t.Errorf("value %d came %d times", i, seen[fmt.Sprint(i)])
				}
			}
		})
	}
}

// TestInsideABubble runs broker and client under virtual time: minutes pass at once.
func TestInsideABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := brokertest.NewNetwork()
		b := brokertest.Start(t, brokertest.On(network, "broker:9092"))
		start := time.Now()
		c := client(t, b, kgo.Dialer(network.DialContext), kgo.DefaultProduceTopic("t"), kgo.TransactionalID("x"),
			kgo.TransactionTimeout(time.Minute))
		ctx := context.Background()
		if err := c.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := c.ProduceSync(ctx, kgo.StringRecord("left open")).FirstErr(); err != nil {
			t.Fatal(err)
		}
		// The broker ends the transaction when its time is over; then the last stable offset moves past its marker.
		reader := client(t, b, kgo.Dialer(network.DialContext), kgo.ConsumeTopics("t"), kgo.KeepControlRecords(),
			kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				t.Errorf("aborted record %q is visible", r.Value)
			}
		})
		if passed := time.Since(start); passed < time.Minute || passed > 2*time.Minute {
			t.Errorf("the transaction ended after %v", passed)
		}
		c.Close()
		reader.Close()
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestFaults(t *testing.T) {
	b := brokertest.Start(t)
	ctx := within(t, patience)
	c := client(t, b, kgo.DefaultProduceTopic("t"), kgo.MetadataMinAge(10*time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return time.Millisecond }))
	var produces atomic.Int32
	b.Observe(0, func(*broker.Request) { produces.Add(1) })
	send := func(value string) {
		t.Helper()
		if err := c.ProduceSync(ctx, kgo.StringRecord(value)).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	count := func(what string, want int32) {
		t.Helper()
		if got := produces.Swap(0); got != want {
			t.Errorf("%s: the broker got %d Produce requests, want %d", what, got, want)
		}
	}
	send("a")
	count("plain", 1)
	b.LoseRequests(0, 2)
	send("b")
	count("lost requests", 3)
	// The broker has written it; the retry must not write it again.
	b.LoseReplies(0, 1)
	send("c")
	count("lost reply", 2)
	remove := b.Intercept(0, func(_ context.Context, r *broker.Request) broker.Fate {
		resp := r.Body.ResponseKind().(*kmsg.ProduceResponse)
		req := r.Body.(*kmsg.ProduceRequest)
		t0 := kmsg.NewProduceResponseTopic()
		t0.Topic, t0.TopicID = req.Topics[0].Topic, req.Topics[0].TopicID
		p := kmsg.NewProduceResponseTopicPartition()
		p.ErrorCode = kerr.InvalidRecord.Code
		t0.Partitions = append(t0.Partitions, p)
		resp.Topics = append(resp.Topics, t0)
		return broker.Fate{Reply: resp}
	})
	if err := c.ProduceSync(ctx, kgo.StringRecord("never")).FirstErr(); !errors.Is(err, kerr.InvalidRecord) {
		t.Errorf("an answered request ends with %v", err)
	}
	remove()
	gate := b.Hold(0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		send("d")
	}()
	<-gate.Arrived()
	select {
	case <-done:
		t.Error("a held request was answered")
	default:
	}
	gate.Open()
	<-done
	start := time.Now()
	b.Delay(0, 20*time.Millisecond)
	send("e")
	if time.Since(start) < 20*time.Millisecond {
		t.Errorf("a delayed request was answered after %v", time.Since(start))
	}
	got := read(t, ctx, client(t, b, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())), 5)
	if diff := cmp.Diff([]string{"a", "b", "c", "d", "e"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := brokertest.NewNetwork()
		ctx := context.Background()
		if _, err := n.DialContext(ctx, "tcp", "a:1"); err == nil {
			t.Error("dialed nobody")
		}
		if _, err := n.Listen("no port"); err == nil {
			t.Error("listens without a port")
		}
		l, err := n.Listen("a:1")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.Listen("a:1"); err == nil {
			t.Error("two listen on one address")
		}
		client, server := connect(t, n, l, "a:1")
		// A writer does not wait for its reader until much is under way.
		if _, err := client.Write(make([]byte, 100_000)); err != nil {
			t.Fatal(err)
		}
		client.SetWriteDeadline(time.Now().Add(time.Second))
		if n, err := client.Write(make([]byte, 1_000_000)); !errors.Is(err, os.ErrDeadlineExceeded) || n >= 1_000_000 {
			t.Errorf("%d bytes fit, %v", n, err)
		}
		client.Close()
		buf := make([]byte, 1<<20)
		if n, err := server.Read(buf); n == 0 || err != nil {
			t.Errorf("what was written before the close cannot be read: %v", err)
		}
		server.SetReadDeadline(time.Now().Add(-time.Second))
		if _, err := server.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("past deadline: %v", err)
		}
		server.Close()

		client, server = connect(t, n, l, "a:1")
		failed := make(chan error, 1)
		go func() {
			_, err := server.Read(buf)
			failed <- err
		}()
		synctest.Wait()
		n.Cut()
		if err := <-failed; err == nil {
			t.Error("a cut connection reads on")
		}
		if _, err := client.Write(buf); err == nil {
			t.Error("a cut connection writes on")
		}
		l.Close()
		if _, err := n.DialContext(ctx, "tcp", "a:1"); err == nil {
			t.Error("dialed a closed listener")
		}
	})
}

func connect(t *testing.T, n *brokertest.Network, l net.Listener, address string) (client, server net.Conn) {
	t.Helper()
	client, err := n.DialContext(context.Background(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	if server.LocalAddr().String() != address || server.RemoteAddr().String() != client.LocalAddr().String() {
		t.Errorf("addresses: %v, %v, %v", server.LocalAddr(), server.RemoteAddr(), client.LocalAddr())
	}
	return client, server
}

// BenchmarkStart measures a broker in memory from nothing to its first answer, and its end; median-ms is the first
// part alone, which is to stay below 20.
func BenchmarkStart(b *testing.B) {
	var took []time.Duration
	for range b.N {
		begin := time.Now()
		br := brokertest.Start(b)
		c, err := net.Dial("tcp", br.Addr())
		if err != nil {
			b.Fatal(err)
		}
		c.Write(kmsg.NewRequestFormatter().AppendRequest(nil, kmsg.NewPtrApiVersionsRequest(), 1))
		if _, err := c.Read(make([]byte, 4)); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(begin))
		c.Close()
		if err := br.Stop(); err != nil {
			b.Fatal(err)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "median-ms")
}
