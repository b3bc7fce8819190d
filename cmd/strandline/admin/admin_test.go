package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline-io/strandline/broker"
	"github.com/strandline-io/strandline/broker/brokertest"
)

// shell runs commands against one broker.
type shell struct {
	t    *testing.T
	addr string
}

func (s shell) run(line string) (string, error) {
	s.t.Helper()
	out, _, err := s.both(line)
	return out, err
}

// both returns standard output and standard error.
func (s shell) both(line string) (string, string, error) {
	s.t.Helper()
	root := &cobra.Command{Use: "strandline", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(Commands()...)
	var out, errOut bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&errOut)
	root.SetArgs(append(strings.Fields(line), "--brokers", s.addr))
	err := root.ExecuteContext(s.t.Context())
	return out.String(), errOut.String(), err
}

// want runs a command that must succeed and print every one of parts.
func (s shell) want(line string, parts ...string) string {
	s.t.Helper()
	out, err := s.run(line)
	if err != nil {
		s.t.Errorf("%s: %v", line, err)
	}
	for _, p := range parts {
		if !strings.Contains(out, p) {
			s.t.Errorf("%s prints no %q:\n%s", line, p, out)
		}
	}
	return out
}

// refused runs a command that must fail and say each of parts.
func (s shell) refused(line string, parts ...string) {
	s.t.Helper()
	_, err := s.run(line)
	if err == nil {
		s.t.Errorf("%s succeeds", line)
		return
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			s.t.Errorf("%s: %v, want %q in it", line, err, p)
		}
	}
}

// object runs a command with --json and reads the answer into v.
func (s shell) object(line string, v any) {
	s.t.Helper()
	out := s.want(line + " --json")
	if err := json.Unmarshal([]byte(out), v); err != nil {
		s.t.Fatalf("%s: %v in %s", line, err, out)
	}
}

func client(t *testing.T, addr string, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseAllowingRebalance)
	return c
}

func produce(t *testing.T, c *kgo.Client, topic string, n int) {
	t.Helper()
	for i := range n {
		if err := c.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: fmt.Append(nil, i)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTopics(t *testing.T) {
	sh := shell{t, brokertest.Start(t).Addr()}
	sh.want("topic create t --partitions 2 --config retention.ms=5", "created t")
	sh.refused("topic create t", "topic t", "TOPIC_ALREADY_EXISTS")
	sh.want("topic list", "TOPIC", "t")
	sh.want("topic alter t --config segment.ms=7 --unset retention.ms --partitions 3", "changed t")
	sh.want("topic describe t", "segment.ms=7", "HIGH WATERMARK")
	var all []describedTopic
	sh.object("topic describe t", &all)
	if len(all) != 1 || len(all[0].Partitions) != 3 || len(all[0].Settings) != 1 || all[0].Settings["segment.ms"] != "7" {
		t.Errorf("described as %+v", all)
	}
	sh.refused("topic alter t", "nothing to change")
	sh.refused("topic alter t --config nonsense=1", "topic t", "INVALID_CONFIG", `"nonsense"`)
	sh.refused("topic alter t --config nonsense", "key=value")
	sh.refused("topic alter none --partitions 9", "topic none", "UNKNOWN_TOPIC_OR_PARTITION")
	sh.refused("topic describe none", "topic none")
	sh.want("topic delete t", "deleted t")
	if out := sh.want("topic list --json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("no topics are %q", out)
	}
}

// TestTopicIDs: an id is shown as Apache Kafka's tools write it, so that what both print can be compared.
func TestTopicIDs(t *testing.T) {
	sh := shell{t, brokertest.Start(t).Addr()}
	id := kadm.TopicID{0xfb, 0xef, 0xff, 15: 1}
	if got := topicID(id); got != "--__AAAAAAAAAAAAAAAAAQ" {
		t.Errorf("%v is shown as %s", id, got)
	}
	sh.want("topic create t")
	var list []listedTopic
	sh.object("topic list", &list)
	sh.want("topic describe t", "id "+list[0].ID+",")
	if len(list[0].ID) != 22 {
		t.Errorf("the id is shown as %s", list[0].ID)
	}
}

func TestGroups(t *testing.T) {
	b := brokertest.Start(t)
	sh := shell{t, b.Addr()}
	sh.want("topic create t")
	produce(t, client(t, b.Addr()), "t", 10)
	member := client(t, b.Addr(), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.DisableAutoCommit())
	fetches := member.PollRecords(t.Context(), 4)
	if err := member.CommitRecords(t.Context(), fetches.Records()...); err != nil {
		t.Fatal(err)
	}
	n := int64(len(fetches.Records()))
	sh.want("group list --state stable", "g", "consumer")
	sh.refused("group list --state Stabel", `"Stabel"`, "Stable")
	var all []describedGroup
	sh.object("group describe g", &all)
	if len(all) != 1 || all[0].State != "Stable" || len(all[0].Offsets) != 1 || all[0].Offsets[0].Committed != n || all[0].Offsets[0].Lag != 10-n {
		t.Errorf("described as %+v, %d are committed", all, n)
	}
	sh.refused("group describe none", "group none", "GROUP_ID_NOT_FOUND")
	sh.refused("group reset-offsets g --to-earliest --execute", "1 member:")
	sh.says("group delete g", "group g: NON_EMPTY_GROUP: The group is not empty.")
	member.CloseAllowingRebalance()

	sh.want("group reset-offsets g --to-latest", "nothing was changed")
	f := func(flags string, want int64) {
		t.Helper()
		var moved []movedOffset
		sh.object("group reset-offsets g --execute "+flags, &moved)
		sh.object("group describe g", &all)
		if len(moved) != 1 || moved[0].After != want || all[0].Offsets[0].Committed != want {
			t.Errorf("%s moves %+v, committed is %d, want %d", flags, moved, all[0].Offsets[0].Committed, want)
		}
	}
	f("--to-latest", 10)
	f("--to-offset 3", 3)
	f("--shift-by 2", 5)
	f("--shift-by -99", 0)
	f("--to-offset 99", 10)
	f("--to-earliest --topic t", 0)
	f("--to-time 2100-01-01T00:00:00Z", 10)
	f("--to-time 1990-01-01T00:00:00Z", 0)
	sh.refused("group reset-offsets g", "say where to: one of --to-earliest")
	sh.refused("group reset-offsets g --to-latest --to-offset 1", "2 destinations")
	sh.refused("group reset-offsets g --to-time noon", `"noon"`)
	sh.refused("group reset-offsets none --to-latest", "group none does not exist", "--topic")
	sh.refused("group reset-offsets g --to-latest --topic none", "topic none: UNKNOWN_TOPIC_OR_PARTITION")
	sh.want("group delete g", "deleted g")
	sh.refused("group delete g", "GROUP_ID_NOT_FOUND")
}

// TestConsumerGroups: groups of KIP-848 look as the others do.
func TestConsumerGroups(t *testing.T) {
	b := brokertest.Start(t)
	sh := shell{t, b.Addr()}
	sh.want("topic create t")
	produce(t, client(t, b.Addr()), "t", 10)
	member := client(t, b.Addr(), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.DisableAutoCommit(),
		kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	fetches := member.PollRecords(t.Context(), 4)
	if err := member.CommitRecords(t.Context(), fetches.Records()...); err != nil {
		t.Fatal(err)
	}
	n := int64(len(fetches.Records()))
	sh.want("group list --state stable", "g", "consumer")
	sh.refused("group list --state Stabel", `"Stabel"`, "Stable")
	var all []describedGroup
	sh.object("group describe g", &all)
	if len(all) != 1 || all[0].State != "Stable" || all[0].Members != 1 || len(all[0].Offsets) != 1 ||
		all[0].Offsets[0].Committed != n || all[0].Offsets[0].Lag != 10-n || all[0].Offsets[0].Member == "" {
		t.Errorf("described as %+v, %d are committed", all, n)
	}
	sh.refused("group reset-offsets g --to-earliest --execute", "1 member:")
	sh.says("group delete g", "group g: NON_EMPTY_GROUP: The group is not empty.")
	member.CloseAllowingRebalance()
	sh.want("group reset-offsets g --to-earliest --execute")
	sh.want("group delete g", "deleted g")
}

func TestTransactions(t *testing.T) {
	b := brokertest.Start(t)
	sh := shell{t, b.Addr()}
	sh.want("topic create t")
	pay := client(t, b.Addr(), kgo.TransactionalID("pay"))
	if err := pay.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	produce(t, pay, "t", 2)

	var listed []listedTxn
	for len(listed) == 0 && !t.Failed() { // until it has been open for longer than that
		sh.object("txn list --state Ongoing --pattern p.y --longer-than 1ms", &listed)
	}
	sh.want("txn list", "pay", "Ongoing")
	if len(listed) != 1 || listed[0].ID != "pay" {
		t.Errorf("listed %+v", listed)
	}
	sh.want("txn list --state ongoing", "pay")
	sh.refused("txn list --state Nonsense", `"Nonsense"`, "Empty, Ongoing, PrepareCommit")
	sh.refused("txn list --pattern p(", "INVALID_REGULAR_EXPRESSION")
	var described []describedTxn
	sh.object("txn describe pay", &described)
	if len(described) != 1 || described[0].OpenSince == nil || !slices.Equal(described[0].Partitions, []topicPartition{{"t", 0}}) {
		t.Errorf("described as %+v", described)
	}
	sh.refused("txn describe none", "transactional id none", "TRANSACTIONAL_ID_NOT_FOUND")
	var producers []describedProducer
	sh.object("txn producers t", &producers)
	if len(producers) != 1 || producers[0].OpenFrom != 0 || producers[0].LastSequence != 1 {
		t.Errorf("producers %+v", producers)
	}

	// Its coordinator knows it and will end it: it does not hang.
	if out := sh.want("txn find-hanging --longer-than -1h --json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("hanging: %s", out)
	}
	sh.refused("txn abort", "nothing to abort")
	sh.refused("txn abort pay --topic t", "go together")
	sh.refused("txn abort --topic t --partition 0 --start-offset 1", "no transaction is open from offset 1", "; strandline txn producers t")
	var marked []outcome
	sh.object("txn abort --topic t --partition 0 --start-offset 0", &marked)
	if len(marked) != 1 || !marked[0].Done || *marked[0].OpenTransaction != (OpenTransaction{"t", 0, listed[0].ProducerID}) {
		t.Errorf("marked %+v", marked)
	}
	sh.object("txn producers t", &producers)
	if producers[0].OpenFrom != -1 {
		t.Errorf("after the marker: %+v", producers)
	}
	sh.refused("txn abort none", "transactional id none")
	sh.want("txn abort pay", "aborted pay")
	sh.object("txn describe pay", &described)
	if described[0].State == "Ongoing" {
		t.Errorf("after the abort: %+v", described)
	}
}

// find-hanging ends with an error of its own if something hangs.
func TestHangingIsFound(t *testing.T) {
	b := brokertest.Start(t)
	sh := shell{t, b.Addr()}
	sh.want("topic create t")
	pay := client(t, b.Addr(), kgo.TransactionalID("pay"))
	if err := pay.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	produce(t, pay, "t", 1)
	// A coordinator that has forgotten everything.
	b.Faults.Intercept(66, func(_ context.Context, r *broker.Request) broker.Fate {
		return broker.Fate{Reply: r.Body.ResponseKind()}
	})
	out, err := sh.run("txn find-hanging --longer-than -1h")
	if !errors.Is(err, ErrFound) || !strings.Contains(err.Error(), "found 1 hanging transaction; ") ||
		!strings.Contains(err.Error(), "--topic t --partition 0 --start-offset 0") || !strings.Contains(out, "t") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestNobodyThere(t *testing.T) {
	sh := shell{t, "127.0.0.1:1"}
	sh.refused("topic list --timeout 1s", "no broker answers at 127.0.0.1:1", "--brokers")
}
