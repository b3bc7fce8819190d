package broker_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker"
	"github.com/strandline-io/strandline/broker/brokertest"
)

// TestSettings: each is within its own range, changes exactly itself, and refuses what lies outside.
func TestSettings(t *testing.T) {
	var names []string
	for _, s := range broker.Settings() {
		names = append(names, s.Name)
		if s.Doc == "" || s.Low > s.Default || s.Default > s.High {
			t.Errorf("%s: %q, %d to %d, default %d", s.Name, s.Doc, s.Low, s.High, s.Default)
		}
		var c broker.Config
		if got := s.Get(&c); got != s.Default {
			t.Errorf("%s is %d when nothing is set, want %d", s.Name, got, s.Default)
		}
		for _, v := range []int64{s.Low, s.High} {
			if again, err := s.Parse(s.Format(v)); err != nil || again != v {
				t.Errorf("%s: %d is written %s, which is read as %d: %v", s.Name, v, s.Format(v), again, err)
			}
			if err := s.Set(&c, v); err != nil || s.Get(&c) != v {
				t.Errorf("%s is %d after %d was set: %v", s.Name, s.Get(&c), v, err)
			}
		}
		for _, other := range broker.Settings() {
			if other != s && other.Get(&c) != other.Default {
				t.Errorf("setting %s has changed %s", s.Name, other.Name)
			}
		}
		for _, v := range []int64{s.Low - 1, s.High + 1} {
			err := s.Set(&c, v)
			want := fmt.Sprintf("%s is %d, want %d to %d", s.Name, v, s.Low, s.High)
			if s.Words != nil {
				want = fmt.Sprintf("%s is %d, want %s", s.Name, v, strings.Join(s.Words, ", "))
			}
			if err == nil || err.Error() != want {
				t.Errorf("%s: %v, want %s", s.Name, err, want)
			}
		}
	}
	if !slices.IsSorted(names) || len(slices.Compact(names)) != len(broker.Settings()) {
		t.Errorf("%q are not in order", names)
	}
}

// TestSettingsAreWrittenDown: docs/compat.md lists each with its default.
func TestSettingsAreWrittenDown(t *testing.T) {
	page, err := os.ReadFile("../docs/compat.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range broker.Settings() {
		standard := s.Format(s.Default)
		for at := len(standard) - 3; s.Words == nil && at > 0; at -= 3 {
			standard = standard[:at] + "," + standard[at:]
		}
		if row := fmt.Sprintf("| `%s` | %s", s.Name, standard); !strings.Contains(string(page), row) {
			t.Errorf("docs/compat.md has no row %s", row)
		}
	}
}

func TestWrongSettingsAreRefused(t *testing.T) {
	err := broker.Config{
		TransactionMaxTimeoutMs: -1, MaxProducerIDs: 10_000_001, GroupMinSessionTimeoutMs: 20, GroupMaxSessionTimeoutMs: 10,
		GroupInitialRebalanceDelayMs: 600_001, GroupConsumerHeartbeatIntervalMs: 45_000, GroupConsumerMaxHeartbeatIntervalMs: 45_000,
		GroupConsumerMinSessionTimeoutMs: 46_000, GroupConsumerMigrationPolicy: 4,
	}.Validate()
	for _, want := range []string{
		"transaction.max.timeout.ms is -1, want 1 to 2147483647",
		"max.producer.ids is 10000001, want 1 to 10000000",
		"group.min.session.timeout.ms is 20, above group.max.session.timeout.ms, 10",
		"group.initial.rebalance.delay.ms is 600001, want 0 to 600000",
		"group.consumer.migration.policy is 4, want bidirectional, upgrade, downgrade, disabled",
		"group.consumer.session.timeout.ms is 45000, want 46000 to 60000",
		"group.consumer.heartbeat.interval.ms is 45000, want less than group.consumer.session.timeout.ms, 45000",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
}

// TestBrokerDescribesItself: DescribeConfigs shows every setting with its value, where that comes from, its type and what it
// is, in the order of names.
func TestBrokerDescribesItself(t *testing.T) {
	b := brokertest.Start(t, brokertest.Configure(func(c *broker.Config) {
		c.ProducerIDExpirationMs, c.NoAutoCreateTopics, c.MessageMaxBytes = 5000, true, 2000
	}))
	c := dial(t, b)
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Version, req.IncludeSynonyms, req.IncludeDocumentation = 4, true, true
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeBroker, "1"
	req.Resources = append(req.Resources, r)
	all := ask[*kmsg.DescribeConfigsResponse](c, req).Resources[0].Configs
	got := map[string]string{}
	var names []string
	for _, e := range all {
		names = append(names, e.Name)
		got[e.Name] = fmt.Sprintf("%s %v %v, %d synonyms", *e.Value, e.ConfigType, e.Source, len(e.ConfigSynonyms))
		if e.Documentation == nil || !e.ReadOnly || e.IsSensitive {
			t.Errorf("%s is %+v", e.Name, e)
		}
	}
	if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("%q are not in order", names)
	}
	for _, s := range broker.Settings() {
		if got[s.Name] == "" {
			t.Errorf("%s is not described", s.Name)
		}
	}
	want := map[string]string{
		"auto.create.topics.enable":        "false BOOLEAN STATIC_BROKER_CONFIG, 2 synonyms",
		"producer.id.expiration.ms":        "5000 INT STATIC_BROKER_CONFIG, 2 synonyms",
		"transaction.max.timeout.ms":       "900000 INT DEFAULT_CONFIG, 1 synonyms",
		"group.initial.rebalance.delay.ms": "0 INT STATIC_BROKER_CONFIG, 2 synonyms",
		"node.id":                          "1 INT STATIC_BROKER_CONFIG, 1 synonyms",
		"log.dirs":                         "memory STRING STATIC_BROKER_CONFIG, 1 synonyms",
		"group.consumer.assignors":         "uniform,range LIST DEFAULT_CONFIG, 1 synonyms",
	}
	for name, w := range want {
		if got[name] != w {
			t.Errorf("%s: got %s, want %s", name, got[name], w)
		}
	}
}

// TestAssignmentIntervalOfTheBroker: it holds in groups that have none of their own, which can have what the bounds allow.
func TestAssignmentIntervalOfTheBroker(t *testing.T) {
	const name = "consumer.assignment.interval.ms"
	f := func(interval, low, high int32, shown string, allowed, refused string) {
		t.Helper()
		b := brokertest.Start(t, brokertest.Configure(func(c *broker.Config) {
			c.GroupConsumerAssignmentIntervalMs, c.GroupConsumerMinAssignmentIntervalMs, c.GroupConsumerMaxAssignmentIntervalMs = interval, low, high
		}))
		c := dial(t, b)
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.Version = 4
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeGroupConfig, "g", []string{name}
		req.Resources = append(req.Resources, r)
		e := ask[*kmsg.DescribeConfigsResponse](c, req).Resources[0].Configs[0]
		if got := fmt.Sprint(*e.Value, " ", e.Source); got != shown {
			t.Errorf("%s is %s, want %s", name, got, shown)
		}
		for value, want := range map[string]int16{allowed: 0, refused: 40} {
			alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
			alter.Version = 1
			a := kmsg.NewIncrementalAlterConfigsRequestResource()
			a.ResourceType, a.ResourceName = kmsg.ConfigResourceTypeGroupConfig, "g"
			change := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			change.Name, change.Value = name, &value
			a.Configs = append(a.Configs, change)
			alter.Resources = append(alter.Resources, a)
			if code := ask[*kmsg.IncrementalAlterConfigsResponse](c, alter).Resources[0].ErrorCode; code != want {
				t.Errorf("%s of %s is answered with %d, want %d", name, value, code, want)
			}
		}
	}
	f(0, 0, 0, "1000 DEFAULT_CONFIG", "15000", "15001")
	f(7000, 2000, 8000, "7000 STATIC_BROKER_CONFIG", "8000", "1999")
	f(-1, 0, -1, "0 STATIC_BROKER_CONFIG", "0", "1")
	err := broker.Config{GroupConsumerAssignmentIntervalMs: 20_000}.Validate()
	if want := "group.consumer.assignment.interval.ms is 20000, want 0 to 15000"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v does not say %s", err, want)
	}
}

// TestMessageMaxBytes: the broker's bound holds in topics that have none of their own, also after another start.
func TestMessageMaxBytes(t *testing.T) {
	dir := t.TempDir()
	start := func(maxBytes int32) (*brokertest.Broker, *rawClient) {
		b := brokertest.Start(t, brokertest.Dir(dir), brokertest.Configure(func(c *broker.Config) { c.MessageMaxBytes = maxBytes }))
		return b, dial(t, b)
	}
	codes := func(c *rawClient) (codes []int16) {
		for _, topic := range []string{"free", "own"} {
			codes = append(codes, produced(ask[*kmsg.ProduceResponse](c, produceRequest(topic, 0, batchOf(1, strings.Repeat("x", 1000))))).ErrorCode)
		}
		return codes
	}
	b, c := start(500)
	createTopic(c, "free", 1)
	createTopic(c, "own", 1, "max.message.bytes", "5000")
	if diff := cmp.Diff([]int16{10, 0}, codes(c)); diff != "" {
		t.Errorf("a bound of 500 (-want +got):\n%s", diff)
	}
	c.conn.Close()
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	_, c = start(2000)
	if diff := cmp.Diff([]int16{0, 0}, codes(c)); diff != "" {
		t.Errorf("a bound of 2000 (-want +got):\n%s", diff)
	}
}
