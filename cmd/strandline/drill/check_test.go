package drill

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline-io/strandline/broker/brokertest"
)

const (
	topic   = "judged"
	records = 300
)

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func newClient(t *testing.T, addr string, more ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(clientOptions([]string{addr}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func createTopics(t *testing.T, addr string, names ...string) {
	t.Helper()
	made, err := kadm.NewClient(newClient(t, addr)).CreateTopics(within(t), 3, 1, nil, names...)
	if err == nil {
		err = made.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func good(n int64) *kgo.Record {
	return &kgo.Record{Topic: topic, Key: keyOf(n), Value: valueOf(keyOf(n))}
}

// TestReadFindsWhatIsWrong writes every key but those of skip, then more, and reads.
func TestReadFindsWhatIsWrong(t *testing.T) {
	f := func(name string, want Found, skip int64, more ...*kgo.Record) {
		t.Run(name, func(t *testing.T) {
			b, ctx := brokertest.Start(t), within(t)
			createTopics(t, b.Addr(), topic)
			c := newClient(t, b.Addr())
			for n := range int64(records) {
				if n != skip {
					more = append(more, good(n))
				}
			}
			if err := c.ProduceSync(ctx, more...).FirstErr(); err != nil {
				t.Fatal(err)
			}
			got, err := Read(ctx, []string{b.Addr()}, topic, records)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
			if clean := cmp.Equal(want, Found{Records: records}); got.OK() != clean {
				t.Errorf("OK() is %t", got.OK())
			}
		})
	}
	const none = -1
	f("nothing", Found{Records: records}, none)
	f("missing", Found{Records: records - 1, Missing: 1, MissingKeys: []string{"k000000064"}}, 64)
	f("the last missing", Found{Records: records - 1, Missing: 1, MissingKeys: []string{"k000000299"}}, 299)
	f("doubled", Found{Records: records + 1, Doubled: 1, DoubledKeys: []string{"k000000007"}}, none, good(7))
	f("doubled twice", Found{Records: records + 2, Doubled: 2, DoubledKeys: []string{"k000000000"}}, none, good(0), good(0))
	f("one missing, one doubled",
		Found{Records: records, Missing: 1, Doubled: 1, MissingKeys: []string{"k000000001"}, DoubledKeys: []string{"k000000002"}}, 1, good(2))
	f("altered", Found{Records: records, Altered: 1, AlteredKeys: []string{"k000000005"}}, 5,
		&kgo.Record{Topic: topic, Key: keyOf(5), Value: valueOf(keyOf(6))})
	f("foreign", Found{Records: records + 4, Foreign: 4}, none, &kgo.Record{Topic: topic, Key: keyOf(records)},
		&kgo.Record{Topic: topic, Key: []byte("k7")}, &kgo.Record{Topic: topic}, &kgo.Record{Topic: topic, Key: []byte("k-00000001")})
}

// TestReadSeesTransactionsAsReadersDo: what was aborted, or is still open, is not there.
func TestReadSeesTransactionsAsReadersDo(t *testing.T) {
	b, ctx := brokertest.Start(t), within(t)
	createTopics(t, b.Addr(), topic)
	c := newClient(t, b.Addr(), kgo.TransactionalID("w"))
	produce := func(n int64) {
		t.Helper()
		if err := c.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := c.ProduceSync(ctx, good(n)).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	end := func(commit kgo.TransactionEndTry) {
		t.Helper()
		if err := c.EndTransaction(ctx, commit); err != nil {
			t.Fatal(err)
		}
	}
	for n := range int64(10) {
		produce(n)
		end(kgo.TryAbort)
		produce(n)
		end(kgo.TryCommit)
	}
	produce(9) // stays open
	got, err := Read(ctx, []string{b.Addr()}, topic, 10)
	if err != nil || !got.OK() || got.Records != 10 {
		t.Errorf("found %+v, %v", got, err)
	}
}

// TestOpenAndBehindAreNamed: a transaction that stays open and a group that is not at the end are no success.
func TestOpenAndBehindAreNamed(t *testing.T) {
	b, ctx := brokertest.Start(t), within(t)
	d := &drill{name: "d", admin: kadm.NewClient(newClient(t, b.Addr())), ends: []int64{2, 0, 1}, Config: Config{Partitions: 3}}
	createTopics(t, b.Addr(), d.source(), d.output())
	ask := func(what string, f func(context.Context) (string, error), want ...string) {
		t.Helper()
		got, err := f(ctx)
		if err != nil || (got == "") != (len(want) == 0) {
			t.Errorf("%s: %q, %v, want %q", what, got, err, want)
		}
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: %q, want %q in it", what, got, w)
			}
		}
	}
	ask("nothing open", d.openPartitions)
	c := newClient(t, b.Addr(), kgo.TransactionalID("w"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := c.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := c.ProduceSync(ctx, &kgo.Record{Topic: d.output(), Partition: 1}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	ask("one open", d.openPartitions, "d-out/1 has LSO 0 and high watermark 1")
	if err := c.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	ask("none open any more", d.openPartitions)

	commit := func(p int32, at int64) {
		t.Helper()
		offsets := kadm.Offsets{}
		offsets.AddOffset(d.source(), p, at, -1)
		if err := d.admin.CommitAllOffsets(ctx, d.name, offsets); err != nil {
			t.Fatal(err)
		}
	}
	commit(0, 1)
	ask("behind", d.behind, "partition 0 is at 1, its end is 2", "partition 2 ")
	commit(0, 2)
	commit(2, 1)
	ask("at the end", d.behind)
	commit(2, 2)
	ask("beyond the end", d.behind, "partition 2 is at 2, its end is 1")
}

// TestWhatIsGoneAfterAKillIsNamed: records and commits that were acknowledged before a kill must be there after it.
func TestWhatIsGoneAfterAKillIsNamed(t *testing.T) {
	b, ctx := brokertest.Start(t), within(t)
	d := &drill{
		name: "d", admin: kadm.NewClient(newClient(t, b.Addr())), ends: []int64{2, 0, 1}, kills: []kill{{}}, Config: Config{Partitions: 3},
	}
	createTopics(t, b.Addr(), d.source())
	judge := func(what string, committed []int64, want string) {
		t.Helper()
		got := d.goneSince(ctx, committed)
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	judge("nothing there", []int64{1, 0, 0}, "d-in/0 ends at 0, it was 2 (and 2 more such)")
	c := newClient(t, b.Addr(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for _, p := range []int32{0, 0, 2} {
		if err := c.ProduceSync(ctx, &kgo.Record{Topic: d.source(), Partition: p}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	judge("records there", []int64{0, 0, 0}, "")
	judge("the group is not", []int64{1, 0, 0}, "partition 0, it had committed 1")
	offsets := kadm.Offsets{}
	offsets.AddOffset(d.source(), 0, 1, -1)
	if err := d.admin.CommitAllOffsets(ctx, d.name, offsets); err != nil {
		t.Fatal(err)
	}
	judge("all there", []int64{1, 0, 0}, "")
	judge("the group went back", []int64{2, 0, 0}, "the group is at 1 in partition 0, it had committed 2")

	if err := d.checkKills().failed(); err != nil {
		t.Errorf("nothing is gone: %v", err)
	}
	d.gone = []string{"kill 1: a", "kill 2: b", "kill 3: c", "kill 4: d"}
	if err := d.checkKills().failed(); err == nil || !strings.Contains(err.Error(), "kill 3: c; and after 1 more kills") {
		t.Errorf("%v", err)
	}
}
