package drill

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline-io/strandline/broker"
	"github.com/strandline-io/strandline/broker/brokertest"
)

func TestConfigIsRefusedWithReasons(t *testing.T) {
	f := func(c Config, want ...string) {
		t.Helper()
		err := c.orDefaults().validate()
		if len(want) == 0 {
			if err != nil {
				t.Errorf("%+v: %v", c, err)
			}
			return
		}
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%+v: %v, want %q", c, err, w)
			}
		}
	}
	other := []string{"127.0.0.1:9092"}
	f(Config{Kills: 5})
	f(Config{Brokers: other})
	f(Config{Brokers: other, Kills: 1, StartCmd: "start"})
	f(Config{Brokers: other, Kills: 1, KillCmd: "kill", RestartCmd: "start"})
	f(Config{Records: 95, Workers: 4, Kills: 5}, "--records 95 is too few", "at least 96")
	f(Config{Records: MaxRecords + 1}, "too many")
	f(Config{Workers: -1, Partitions: 1, Kills: -1, Every: -1}, "-1 workers", "1 partitions", "-1 kills", "-1ns")
	f(Config{KillCmd: "kill"}, "without its addresses")
	f(Config{Brokers: other, Kills: 1}, "no way to kill", "no way to start")
	f(Config{Brokers: other, Kills: 1, KillCmd: "kill"}, "no way to start")
	f(Config{Brokers: other, DataDir: "data"}, "--data-dir")
}

// TestKillsFallInsideTheWork: whatever the numbers, no kill may have to wait for more records than there are, and what
// the workers may move before it, each one transaction over its limit, leaves some.
func TestKillsFallInsideTheWork(t *testing.T) {
	for _, c := range []Config{
		{Kills: 5}, {Kills: 1, Records: 32}, {Workers: 7, Kills: 13, Records: 7 * 14 * 4}, {Workers: 256, Kills: 10_000, Records: MaxRecords},
		{Workers: 1, Kills: 3, Records: 17},
	} {
		d := &drill{Config: c.orDefaults()}
		if err := d.validate(); err != nil {
			t.Fatal(err)
		}
		perTxn := d.recordsPerTxn()
		for k := range d.Kills {
			reach := d.limitBefore(k) + int64(d.Workers*perTxn)
			if perTxn < 1 || d.share(k) > d.limitBefore(k) || reach >= d.Records {
				t.Errorf("%+v: kill %d is due at %d, limit %d, at most %d of %d moved by then, %d a transaction",
					c, k, d.share(k), d.limitBefore(k), reach, d.Records, perTxn)
			}
		}
	}
}

func TestRunOverARunningBroker(t *testing.T) {
	b, ctx := brokertest.Start(t), within(t)
	var out bytes.Buffer
	if err := Run(ctx, Config{Records: 2000, Brokers: []string{b.Addr()}, Out: &out}); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if !strings.Contains(out.String(), "2000 of 2000") {
		t.Errorf("the report does not tell what was found:\n%s", out.String())
	}
	topics, err := kadm.NewClient(newClient(t, b.Addr())).ListTopics(ctx)
	if err != nil || len(topics) != 0 {
		t.Errorf("left behind: %v, %v", topics.Names(), err)
	}
}

// TestRunFailsIfAKeyIsDoubled: somebody writes a key into the output a second time.
func TestRunFailsIfAKeyIsDoubled(t *testing.T) {
	b, ctx := brokertest.Start(t), within(t)
	c := newClient(t, b.Addr())
	sabotaged := make(chan error, 1)
	go func() { sabotaged <- sabotage(ctx, b.Addr(), kadm.NewClient(c)) }()
	var out bytes.Buffer
	err := Run(ctx, Config{Records: 2000, Brokers: []string{b.Addr()}, Out: &out})
	if err := <-sabotaged; err != nil {
		t.Fatal(err)
	}
	var failed *FailedError
	if !errors.As(err, &failed) || !strings.Contains(failed.What, "doubled: 1, such as k000000123") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if !strings.Contains(out.String(), "k000000123: drill-") {
		t.Errorf("the report does not tell where the key lies:\n%s", out.String())
	}
}

// doubled writes a key into a topic.
func doubled(ctx context.Context, addr, topic string) error {
	c, err := kgo.NewClient(clientOptions([]string{addr})...)
	if err != nil {
		return err
	}
	defer c.Close()
	key := keyOf(123)
	return c.ProduceSync(ctx, &kgo.Record{Topic: topic, Key: key, Value: valueOf(key)}).FirstErr()
}

// sabotage waits for a drill's topics and writes a key into its output.
func sabotage(ctx context.Context, addr string, admin *kadm.Client) error {
	for {
		topics, err := admin.ListTopics(ctx)
		if err != nil {
			return err
		}
		for _, name := range topics.Names() {
			if strings.HasSuffix(name, "-out") {
				return doubled(ctx, addr, name)
			}
		}
	}
}

const (
	produce   = 0
	joinGroup = 11
	endTxn    = 26

	txnOffsetCommit = 28
)

func TestInterruptedRunSaysSo(t *testing.T) {
	b, ctx := brokertest.Start(t), within(t)
	ctx, cancel := context.WithCancel(ctx)
	b.Observe(endTxn, func(*broker.Request) { cancel() })
	err := Run(ctx, Config{Records: 2000, Brokers: []string{b.Addr()}})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "of 2000 records") {
		t.Errorf("%v", err)
	}
}

// TestInterruptedWithoutAnswers: what a worker has sent and nobody answers does not hold the end up.
func TestInterruptedWithoutAnswers(t *testing.T) {
	b, ctx := brokertest.Start(t), within(t)
	ctx, interrupt := context.WithCancel(ctx)
	var working atomic.Bool
	b.Observe(joinGroup, func(*broker.Request) { working.Store(true) })
	b.Intercept(produce, func(connection context.Context, _ *broker.Request) broker.Fate {
		if working.Load() {
			interrupt()
			<-connection.Done()
		}
		return broker.Fate{}
	})
	err := Run(ctx, Config{Records: 2000, Brokers: []string{b.Addr()}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestSeedingGivesUp: a broker that acknowledges nothing does not keep the drill for ever.
func TestSeedingGivesUp(t *testing.T) {
	b := brokertest.Start(t)
	d := &drill{Config: Config{Records: 2000}, name: "d", target: &target{addrs: []string{b.Addr()}}}
	createTopics(t, b.Addr(), d.source())
	b.Intercept(produce, func(connection context.Context, _ *broker.Request) broker.Fate {
		<-connection.Done()
		return broker.Fate{}
	})
	if err := d.fill(within(t), 100*time.Millisecond); err == nil || !strings.Contains(err.Error(), "0 of 2000 records are acknowledged") {
		t.Errorf("%v", err)
	}
}

// TestAbortedTransactionsHoldOffsets: a broker that keeps the offsets of an aborted transaction must be caught.
func TestAbortedTransactionsHoldOffsets(t *testing.T) {
	b, ctx := brokertest.Start(t), within(t)
	var puts, ends atomic.Int64
	b.Observe(txnOffsetCommit, func(*broker.Request) { puts.Add(1) })
	b.Observe(endTxn, func(*broker.Request) { ends.Add(1) })
	if err := Run(ctx, Config{Records: 2000, Brokers: []string{b.Addr()}}); err != nil {
		t.Fatal(err)
	}
	// A worker whose group was rebalanced ends a transaction before it has put offsets; one in seven is aborted on purpose.
	if puts.Load()*20 < ends.Load()*19 || ends.Load() == 0 {
		t.Errorf("%d transactions ended, %d held offsets", ends.Load(), puts.Load())
	}
}
