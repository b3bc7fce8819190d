package brokertest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline-io/strandline/broker/brokertest"
)

// Lines of kafka-eos.md H.1, what Apache Kafka's own tests assert of transactions, with a client as programs use it. The
// list of all lines is in broker/machine/checklist_test.go.

// bothVersions runs a test with the requests of either transaction version.
func bothVersions(t *testing.T, f func(t *testing.T, opts ...kgo.Opt)) {
	t.Run("transaction version 1", func(t *testing.T) { f(t, kgo.MaxVersions(oldVersions())) })
	t.Run("transaction version 2", func(t *testing.T) { f(t) })
}

// send produces within the client's transaction, which it begins if begin is set.
func send(t *testing.T, ctx context.Context, c *kgo.Client, begin bool, records ...*kgo.Record) {
	t.Helper()
	if begin {
		if err := c.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func end(t *testing.T, ctx context.Context, c *kgo.Client, commit kgo.TransactionEndTry) {
	t.Helper()
	if err := c.EndTransaction(ctx, commit); err != nil {
		t.Fatal(err)
	}
}

func to(topic, value string) *kgo.Record { return &kgo.Record{Topic: topic, Value: []byte(value)} }

// expectRead reads topics from their beginning until as many records came as are wanted, which must be these, in their order
// within each topic.
func expectRead(t *testing.T, ctx context.Context, b *brokertest.Broker, isolation kgo.IsolationLevel, topic string, want ...string) {
	t.Helper()
	c := client(t, b, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(isolation), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer c.Close()
	if diff := cmp.Diff(want, read(t, ctx, c, len(want))); diff != "" {
		t.Errorf("%s (-want +got):\n%s", topic, diff)
	}
}

func TestH1TwoTopics(t *testing.T) {
	bothVersions(t, func(t *testing.T, opts ...kgo.Opt) {
		b := brokertest.Start(t)
		ctx := within(t, patience)
		p := client(t, b, append(opts, kgo.TransactionalID("p"))...)
		send(t, ctx, p, true, to("a", "a aborted"), to("b", "b aborted"))
		end(t, ctx, p, kgo.TryAbort)
		send(t, ctx, p, true, to("a", "a committed"), to("b", "b committed"))
		end(t, ctx, p, kgo.TryCommit)
		for _, topic := range []string{"a", "b"} {
			expectRead(t, ctx, b, kgo.ReadCommitted(), topic, topic+" committed")
			expectRead(t, ctx, b, kgo.ReadUncommitted(), topic, topic+" aborted", topic+" committed")
		}
	})
}

// An undecided transaction hides what comes behind it, also what is committed.
func TestH1Undecided(t *testing.T) {
	bothVersions(t, func(t *testing.T, opts ...kgo.Opt) {
		b := brokertest.Start(t)
		ctx := within(t, patience)
		undecided := client(t, b, append(opts, kgo.TransactionalID("undecided"))...)
		decided := client(t, b, append(opts, kgo.TransactionalID("decided"))...)
		send(t, ctx, decided, true, to("t", "before"))
		send(t, ctx, undecided, true, to("t", "undecided"))
		send(t, ctx, decided, false, to("t", "behind"))
		end(t, ctx, decided, kgo.TryCommit)
		ends := func(want, wantCommitted int64) {
			t.Helper()
			adm := kadm.NewClient(decided)
			all, err := adm.ListEndOffsets(ctx, "t")
			committed, err2 := adm.ListCommittedOffsets(ctx, "t")
			if err := errors.Join(err, err2, all.Error(), committed.Error()); err != nil {
				t.Fatal(err)
			}
			if got, stable := all["t"][0].Offset, committed["t"][0].Offset; got != want || stable != wantCommitted {
				t.Errorf("the ends are %d and %d for read_committed, want %d and %d", got, stable, want, wantCommitted)
			}
		}
		ends(4, 1)
		expectRead(t, ctx, b, kgo.ReadCommitted(), "t", "before")
		expectRead(t, ctx, b, kgo.ReadUncommitted(), "t", "before", "undecided", "behind")
		end(t, ctx, undecided, kgo.TryCommit)
		ends(5, 5)
		expectRead(t, ctx, b, kgo.ReadCommitted(), "t", "before", "undecided", "behind")
	})
}

// One end writes the markers of 20 partitions, all of them.
func TestH1ManyPartitions(t *testing.T) {
	bothVersions(t, func(t *testing.T, opts ...kgo.Opt) {
		b := brokertest.Start(t, brokertest.Partitions(20))
		ctx := within(t, patience)
		p := client(t, b, append(opts, kgo.TransactionalID("p"), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
		many := func(n int, kind string) {
			records := make([]*kgo.Record, n)
			for i := range records {
				records[i] = &kgo.Record{Topic: "t", Partition: int32(i % 20), Value: fmt.Append(nil, kind)}
			}
			send(t, ctx, p, true, records...)
		}
		many(10_000, "aborted")
		end(t, ctx, p, kgo.TryAbort)
		many(1_000, "committed")
		end(t, ctx, p, kgo.TryCommit)
		c := client(t, b, kgo.ConsumeTopics("t"), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		for i, v := range read(t, ctx, c, 1_000) {
			if v != "committed" {
				t.Fatalf("record %d is %s", i, v)
			}
		}
		open, err := kadm.NewClient(p).ListCommittedOffsets(ctx, "t")
		ends, err2 := kadm.NewClient(p).ListEndOffsets(ctx, "t")
		if err := errors.Join(err, err2); err != nil || len(ends["t"]) != 20 {
			t.Fatalf("%d partitions, %v", len(ends["t"]), err)
		}
		for n, o := range ends["t"] {
			if o.Offset != 552 || open["t"][n].Offset != o.Offset {
				t.Errorf("partition %d ends at %d, stable at %d, want 500 and 50 records and two markers", n, o.Offset, open["t"][n].Offset)
			}
		}
	})
}

// After a batch that the broker refused, here for its size, its transaction can only be aborted. Then its producer goes on,
// with version 2 at a higher epoch.
func TestH1FailedBatch(t *testing.T) {
	bothVersions(t, func(t *testing.T, opts ...kgo.Opt) {
		b := brokertest.Start(t)
		ctx := within(t, patience)
		p := client(t, b, append(opts, kgo.TransactionalID("p"), kgo.ProducerBatchMaxBytes(4<<20), kgo.ProducerBatchCompression(kgo.NoCompression()))...)
		send(t, ctx, p, true, to("t", "went in"))
		id, before, err := p.ProducerID(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.ProduceSync(ctx, to("t", string(make([]byte, 2<<20)))).FirstErr(); !errors.Is(err, kerr.MessageTooLarge) {
			t.Fatalf("a batch of 2 MiB: %v", err)
		}
		end(t, ctx, p, kgo.TryAbort)
		send(t, ctx, p, true, to("t", "next"))
		again, epoch, err := p.ProducerID(ctx)
		if err != nil || again != id || epoch < before || epoch == before && opts == nil {
			t.Errorf("producer %d of epoch %d goes on as %d of epoch %d, %v", id, before, again, epoch, err)
		}
		end(t, ctx, p, kgo.TryCommit)
		expectRead(t, ctx, b, kgo.ReadCommitted(), "t", "next")
	})
}

// One request in flight; commits and aborts in turn, an empty transaction behind each (franz-go does not tell the broker of that).
func TestH1OneInFlight(t *testing.T) {
	bothVersions(t, func(t *testing.T, opts ...kgo.Opt) {
		b := brokertest.Start(t)
		ctx := within(t, patience)
		p := client(t, b, append(opts, kgo.TransactionalID("p"), kgo.MaxProduceRequestsInflightPerBroker(1))...)
		var want []string
		for round := range 10 {
			value := fmt.Sprint("round ", round)
			send(t, ctx, p, true, to("t", value), to("t", value+" again"))
			end(t, ctx, p, round%3 != 1)
			if round%3 != 1 {
				want = append(want, value, value+" again")
			}
			if err := p.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			end(t, ctx, p, kgo.TryAbort)
		}
		expectRead(t, ctx, b, kgo.ReadCommitted(), "t", want...)
	})
}

// While the broker is gone, a client's calls end by their own time; nothing of that is there later.
func TestH1BrokerDead(t *testing.T) {
	bothVersions(t, func(t *testing.T, opts ...kgo.Opt) {
		synctest.Test(t, func(t *testing.T) {
			network, dir, ctx := brokertest.NewNetwork(), t.TempDir(), context.Background()
			start := func() *brokertest.Broker {
				return brokertest.Start(t, brokertest.On(network, "broker:9092"), brokertest.Dir(dir))
			}
			b := start()
			opts = append(opts, kgo.Dialer(network.DialContext))
			p := client(t, b, append(opts, kgo.TransactionalID("p"))...)
			send(t, ctx, p, true, to("t", "committed"))
			end(t, ctx, p, kgo.TryCommit)
			send(t, ctx, p, true, to("t", "left open"))
			aborts := client(t, b, append(opts, kgo.TransactionalID("aborts"))...)
			send(t, ctx, aborts, true, to("t", "left open, too"))
			if err := b.Stop(); err != nil {
				t.Fatal(err)
			}
			short := func(what string, call func(context.Context) error) {
				t.Helper()
				short, cancel := context.WithTimeout(ctx, 30*time.Second)
				defer cancel()
				if err := call(short); err == nil {
					t.Errorf("%s succeeds without a broker", what)
				}
			}
			other := client(t, b, append(opts, kgo.TransactionalID("other"))...)
			short("InitProducerId", func(ctx context.Context) error { _, _, err := other.ProducerID(ctx); return err })
			short("commit", func(ctx context.Context) error { return p.EndTransaction(ctx, kgo.TryCommit) })
			short("abort", func(ctx context.Context) error { return aborts.EndTransaction(ctx, kgo.TryAbort) })
			p.Close()
			aborts.Close()
			other.Close()

			b = start()
			p = client(t, b, append(opts, kgo.TransactionalID("p"))...)
			aborts = client(t, b, append(opts, kgo.TransactionalID("aborts"))...)
			for _, c := range []*kgo.Client{p, aborts} {
				if _, _, err := c.ProducerID(ctx); err != nil {
					t.Fatal(err)
				}
			}
			aborts.Close()
			send(t, ctx, p, true, to("t", "after"))
			end(t, ctx, p, kgo.TryCommit)
			c := client(t, b, kgo.Dialer(network.DialContext), kgo.ConsumeTopics("t"), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
			if diff := cmp.Diff([]string{"committed", "after"}, read(t, ctx, c, 2)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			c.Close()
			p.Close()
			if err := b.Stop(); err != nil {
				t.Error(err)
			}
		})
	})
}

// A second producer under the same transactional id: the first is fenced in whatever it does.
func TestH1SecondProducer(t *testing.T) {
	bothVersions(t, func(t *testing.T, opts ...kgo.Opt) {
		b := brokertest.Start(t)
		ctx := within(t, patience)
		first := client(t, b, append(opts, kgo.TransactionalID("p"))...)
		send(t, ctx, first, true, to("t", "first"))
		second := client(t, b, append(opts, kgo.TransactionalID("p"))...)
		send(t, ctx, second, true, to("t", "second"))
		fenced := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, kerr.ProducerFenced) && !errors.Is(err, kerr.InvalidProducerEpoch) {
				t.Errorf("%s of the first: %v", what, err)
			}
		}
		fenced("Produce", first.ProduceSync(ctx, to("t", "zombie")).FirstErr())
		end(t, ctx, second, kgo.TryCommit)
		other := client(t, b, append(opts, kgo.TransactionalID("q"))...)
		send(t, ctx, other, true, to("t", "other"))
		send(t, ctx, client(t, b, append(opts, kgo.TransactionalID("q"))...), true, to("t", "successor"))
		fenced("commit", other.EndTransaction(ctx, kgo.TryCommit))
		expectRead(t, ctx, b, kgo.ReadCommitted(), "t", "second")
	})
}
