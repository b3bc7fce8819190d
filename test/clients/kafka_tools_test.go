//go:build peers

package clients

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline-io/strandline/test/peers"
)

// tools runs Apache Kafka's command-line tools against one broker.
type tools struct {
	broker *peers.Program
	runner *peers.Runner
}

// says runs a command line, which may contain $B for the broker's address, and demands its exit code. Its output, with all
// white space made one blank, must match each of the patterns, and none that begins with "not ".
func (k *tools) says(t *testing.T, code int, line string, patterns ...string) string {
	t.Helper()
	words := strings.Fields(line)
	name, args := words[0], words[1:]
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "$B", k.broker.Addr)
	}
	if !strings.Contains(line, "$B") {
		args = append([]string{"--bootstrap-server", k.broker.Addr}, args...)
	}
	got, out, errors := k.runner.Run(t, peers.ToolClass(t, name), args...)
	text := strings.Join(strings.Fields(out+" "+errors), " ")
	if got != code {
		t.Fatalf("%s: exit code %d, want %d:\n%s", line, got, code, text)
	}
	for _, p := range patterns {
		p, unwanted := strings.CutPrefix(p, "not ")
		if regexp.MustCompile(p).MatchString(text) == unwanted {
			t.Errorf("%s: it matches %q: %t, in:\n%s", line, p, unwanted, text)
		}
	}
	return text
}

// do is says for what must go well.
func (k *tools) do(t *testing.T, line string, patterns ...string) string {
	t.Helper()
	return k.says(t, 0, line, patterns...)
}

// TestKafkaTools runs the tools as an operator would, and looks at what they print.
func TestKafkaTools(t *testing.T) {
	r := client(t, "Apache Kafka's tools", "kafka-tools")
	r.version = peers.KafkaVersion
	k := &tools{broker: broker(t), runner: peers.CompileJava(t, "java").Runner(t)}
	r.try(t, admin, "topics", k.topics)
	r.try(t, admin, "settings", k.configs)
	r.try(t, admin, "offsets", k.offsets)
	r.try(t, produce, "console", k.console)
	r.try(t, produce, "perf-test", k.perf)
	r.try(t, admin, "groups", k.groups)
	r.try(t, transactions, "list, describe, abort, find-hanging, terminate", k.transactions)
	r.try(t, admin, "features", k.features)
	r.try(t, admin, "cluster", k.cluster)
}

func (k *tools) topics(t *testing.T) {
	k.do(t, "kafka-topics --create --topic topics --partitions 3 --config max.message.bytes=2000000", "Created topic topics")
	k.says(t, 1, "kafka-topics --create --topic topics", "topic topics exists already")
	k.do(t, "kafka-topics --create --topic topics --if-not-exists")
	k.says(t, 1, "kafka-topics --create --topic three --replication-factor 3", "InvalidReplicationFactorException")
	k.says(t, 1, "kafka-topics --create --topic a/b", "InvalidTopicException")
	k.says(t, 1, "kafka-topics --create --topic bad --config nope=1", "InvalidConfigurationException: .* topic config.* .?nope")
	k.do(t, "kafka-topics --list", "^topics$")
	k.do(t, "kafka-topics --describe --topic topics",
		"^Topic: topics TopicId: [A-Za-z0-9_-]{22} PartitionCount: 3 ReplicationFactor: 1 Configs: max.message.bytes=2000000",
		"Topic: topics Partition: 2 Leader: 1 Replicas: 1 Isr: 1")
	k.do(t, "kafka-topics --alter --topic topics --partitions 5")
	k.says(t, 1, "kafka-topics --alter --topic topics --partitions 2", "InvalidPartitionsException")
	k.do(t, "kafka-topics --describe --topic topics", "PartitionCount: 5", "Partition: 4 Leader: 1")
	k.do(t, "kafka-topics --describe --topics-with-overrides", "Topic: topics .*max.message.bytes=2000000")
	for _, flag := range []string{"--unavailable-partitions", "--under-replicated-partitions", "--under-min-isr-partitions"} {
		k.do(t, "kafka-topics --describe "+flag, "^$")
	}
	k.do(t, "kafka-topics --delete --topic topics")
	k.says(t, 1, "kafka-topics --delete --topic topics", "Topic 'topics' does not exist")
	k.do(t, "kafka-topics --list", "^$")
}

func (k *tools) configs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "added.properties")
	if err := os.WriteFile(file, []byte("segment.bytes=2000000\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	k.do(t, "kafka-topics --create --topic settings")
	k.do(t, "kafka-configs --describe --topic settings", "^Dynamic configs for topic settings are:$")
	k.do(t, "kafka-configs --describe --topic settings --all", "retention.ms=604800000 sensitive=false synonyms={DEFAULT_CONFIG:",
		"min.insync.replicas=1", "compression.type=producer")
	k.do(t, "kafka-configs --alter --topic settings --add-config retention.ms=1000,cleanup.policy=[compact,delete]",
		"Completed updating config for topic settings")
	k.do(t, "kafka-configs --describe --topic settings", "cleanup.policy=compact,delete sensitive=false",
		"retention.ms=1000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=1000, DEFAULT_CONFIG:")
	k.says(t, 1, "kafka-configs --alter --topic settings --add-config retention.ms=x", "InvalidConfigurationException")
	k.says(t, 1, "kafka-configs --alter --topic settings --add-config nope=1", "InvalidConfigurationException")
	k.do(t, "kafka-configs --alter --topic settings --delete-config retention.ms", "Completed")
	k.do(t, "kafka-configs --alter --topic settings --add-config-file "+file, "Completed")
	k.do(t, "kafka-configs --describe --entity-type topics", "segment.bytes=2000000", "cleanup.policy=compact,delete", "not retention.ms")
	k.says(t, 1, "kafka-configs --alter --topic nope --add-config retention.ms=1000", "nope")
	k.do(t, "kafka-configs --describe --entity-type brokers", "Dynamic configs for broker 1 are:")
	k.do(t, "kafka-configs --describe --broker 1 --all", " (broker|node).id=1 sensitive=false", "transaction.max.timeout.ms=900000")
	k.do(t, "kafka-configs --describe --entity-type brokers --entity-default", "Default configs for brokers in the cluster are:")
	k.says(t, 1, "kafka-configs --alter --broker 1 --add-config log.cleaner.threads=2", "InvalidConfigurationException|InvalidRequestException")
	k.do(t, "kafka-configs --describe --group nobody", "group 'nobody' doesn't exist and doesn't have dynamic config")
	k.do(t, "kafka-configs --describe --group nobody --all", "consumer.session.timeout.ms=45000 sensitive=false synonyms={DEFAULT_CONFIG:")
	k.do(t, "kafka-configs --alter --group some --add-config consumer.session.timeout.ms=50000", "Completed updating config for group some")
	k.do(t, "kafka-configs --describe --entity-type groups", "^Dynamic configs for group some are: consumer.session.timeout.ms=50000 ")
	k.says(t, 1, "kafka-configs --alter --group some --add-config consumer.session.timeout.ms=5", "InvalidConfigurationException")
	k.do(t, "kafka-configs --alter --group some --delete-config consumer.session.timeout.ms", "Completed")
	k.do(t, "kafka-configs --describe --group some", "group 'some' doesn't exist")
	k.do(t, "kafka-configs --describe --entity-type clients", "^$")
	k.do(t, "kafka-configs --describe --ip-defaults", "^$")
	k.do(t, "kafka-client-metrics --list", "^$")
	k.do(t, "kafka-topics --delete --topic settings")
}

func (k *tools) offsets(t *testing.T) {
	run(t, "a\nb\nc\n", "kcat", "-b", k.broker.Addr, "-P", "-t", "offsets", "-p", "0")
	k.do(t, "kafka-topics --alter --topic offsets --partitions 2")
	open := hold(t, k.broker.Addr, "offsets-open", "offsets", 0)
	for _, c := range []struct{ time, want string }{
		{"latest", "^offsets:0:4 offsets:1:0$"}, {"-1", "^offsets:0:4 offsets:1:0$"},
		{"earliest", "^offsets:0:0 offsets:1:0$"}, {"-2", "^offsets:0:0 offsets:1:0$"},
		{"max-timestamp", "^offsets:0:[0-3]$"}, {"-3", "^offsets:0:[0-3]$"},
		{"earliest-local", "^offsets:0:0 offsets:1:0$"}, {"-4", "^offsets:0:0 offsets:1:0$"},
		{"latest-tiered", "^$"}, {"-5", "^$"}, {"earliest-pending-upload", "^$"}, {"-6", "^$"},
		{"1", "^offsets:0:0$"}, // the first one from the year 1970 on
	} {
		k.do(t, "kafka-get-offsets --topic offsets --time "+c.time, c.want)
	}
	file := filepath.Join(t.TempDir(), "read_committed.properties")
	if err := os.WriteFile(file, []byte("isolation.level=read_committed\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	k.do(t, "kafka-get-offsets --topic-partitions offsets:0 --command-config "+file, "^offsets:0:[34]$")
	open(false)
	k.do(t, "kafka-get-offsets --topic-partitions offsets:0", "^offsets:0:5$") // the marker
	deletion := filepath.Join(t.TempDir(), "delete.json")
	for _, c := range []struct {
		offset int
		want   string
	}{{2, "partition: offsets-0 low_watermark: 2"}, {1, "partition: offsets-0 low_watermark: 2"},
		{-1, "partition: offsets-0 low_watermark: 5"}, {9, "partition: offsets-0 error: .*OffsetOutOfRangeException"}} {
		json := fmt.Sprintf(`{"partitions":[{"topic":"offsets","partition":0,"offset":%d}],"version":1}`, c.offset)
		if err := os.WriteFile(deletion, []byte(json), 0o644); err != nil {
			t.Fatal(err)
		}
		k.do(t, "kafka-delete-records --offset-json-file "+deletion, c.want)
	}
	k.do(t, "kafka-get-offsets --topic offsets --time earliest", "^offsets:0:5 offsets:1:0$")
}

// console reads its standard input, so that the producer is a process of its own.
func (k *tools) console(t *testing.T) {
	cmd := peers.KafkaTool(t, "kafka-console-producer", "--bootstrap-server", k.broker.Addr, "--topic", "console",
		"--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
	cmd.Stdin = strings.NewReader("k1:v1\nk2:v2\nk3:v3\n")
	peers.Run(t, cmd)
	k.do(t, "kafka-console-consumer --topic console --from-beginning --max-messages 3 --isolation-level read_committed"+
		" --timeout-ms 60000 --formatter-property print.key=true --formatter-property key.separator=:", "^k1:v1 k2:v2 k3:v3 .*Processed a total of 3")
	k.do(t, "kafka-console-consumer --include con.*e --from-beginning --max-messages 3 --group console --timeout-ms 60000"+
		" --command-property group.protocol=consumer", "^v1 v2 v3 Processed a total of 3")
}

// perf measures nothing: the tools must run, and count what they sent and got.
func (k *tools) perf(t *testing.T) {
	k.do(t, "kafka-topics --create --topic perf --partitions 2")
	k.do(t, "kafka-producer-perf-test --bootstrap-server $B --topic perf --num-records 20000 --record-size 100 --throughput -1",
		"20000 records sent, ")
	k.do(t, "kafka-producer-perf-test --bootstrap-server $B --topic perf --num-records 20000 --payload-monotonic --throughput -1"+
		" --transactional-id perf --transaction-duration-ms 20 --command-property compression.type=zstd", "20000 records sent, ")
	for group, protocol := range map[string]string{"perf-1": "classic", "perf-2": "consumer"} {
		k.do(t, "kafka-consumer-perf-test --topic perf --num-records 40000 --timeout 60000 --group "+group+
			" --command-property group.protocol="+protocol+" --command-property isolation.level=read_committed",
			"fetch.nMsg.sec .*, 40000, ", "not WARNING: Exiting before")
	}
}

func (k *tools) groups(t *testing.T) {
	k.do(t, "kafka-topics --create --topic grouped --partitions 2")
	run(t, "a\nb\nc\nd\n", "kcat", "-b", k.broker.Addr, "-P", "-t", "grouped", "-p", "0")
	k.do(t, "kafka-console-consumer --topic grouped --group idle --from-beginning --max-messages 4 --timeout-ms 60000", "a b c d")
	k.do(t, "kafka-consumer-groups --describe --group idle", "idle grouped 0 4 4 0 - - -", "has no active members")
	k.do(t, "kafka-consumer-groups --list", "(^| )idle( |$)")
	k.do(t, "kafka-consumer-groups --list --state Empty", "idle Empty")
	k.do(t, "kafka-consumer-groups --list --type", "idle Classic", "perf-2 Consumer")
	k.do(t, "kafka-groups --list", "idle Classic consumer", "perf-2 Consumer consumer")
	k.do(t, "kafka-groups --list --consumer", "perf-2", "idle")
	k.do(t, "kafka-consumer-groups --describe --group nobody", "GroupIdNotFoundException")
	for _, c := range []struct{ how, want string }{
		{"--to-earliest", "idle grouped 0 0"}, {"--to-latest", "idle grouped 0 4"}, {"--shift-by -1", "idle grouped 0 3"},
		{"--to-offset 2", "idle grouped 0 2"}, {"--to-datetime 2020-01-01T00:00:00.000", "idle grouped 0 0"},
		{"--by-duration PT1H", "idle grouped 0 0"}, {"--to-offset 99", "idle grouped 0 4"}, {"--to-current", "idle grouped 0 4"},
	} {
		k.do(t, "kafka-consumer-groups --reset-offsets --group idle --topic grouped:0 --execute "+c.how, c.want)
	}
	k.do(t, "kafka-consumer-groups --reset-offsets --group idle --all-topics --to-earliest --dry-run", "idle grouped 0 0")
	k.do(t, "kafka-consumer-groups --describe --group idle --offsets", "idle grouped 0 4 4 0")
	k.do(t, "kafka-consumer-groups --delete-offsets --group idle --topic grouped:1", "grouped 1 Successful")
	k.do(t, "kafka-consumer-groups --describe --group idle", "not idle grouped 1 ")

	busy, err := kgo.NewClient(kgo.SeedBrokers(k.broker.Addr), kgo.ConsumerGroup("busy"), kgo.ConsumeTopics("grouped"),
		kgo.ClientID("busy-one"), kgo.InstanceID("busy-instance"))
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	if f := busy.PollFetches(t.Context()); f.Err() != nil {
		t.Fatal(f.Err())
	}
	if err := busy.CommitUncommittedOffsets(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.do(t, "kafka-consumer-groups --describe --group busy", `busy grouped 0 4 4 0 busy-instance\S* /?127.0.0.1 busy-one`)
	k.do(t, "kafka-consumer-groups --describe --group busy --state", `busy \S+ \(1\) \S+ Stable 1`)
	k.do(t, "kafka-consumer-groups --describe --group busy --members --verbose", `busy busy-instance\S* busy-instance \S+ busy-one 2`)
	k.do(t, "kafka-consumer-groups --delete --group busy", "GroupNotEmptyException")
	k.do(t, "kafka-consumer-groups --reset-offsets --group busy --topic grouped --to-earliest --execute", "Stable")
	k.do(t, "kafka-consumer-groups --delete-offsets --group busy --topic grouped:0", "GroupSubscribedToTopicException|subscribed")
	k.do(t, "kafka-consumer-groups --delete --group idle", "Deletion of requested consumer groups \\('idle'\\) was successful")
	k.do(t, "kafka-consumer-groups --delete --group idle", "GroupIdNotFoundException")
	k.do(t, "kafka-consumer-groups --list", "not idle")
}

func (k *tools) transactions(t *testing.T) {
	k.do(t, "kafka-topics --create --topic held")
	end := hold(t, k.broker.Addr, "holder", "held", 0)
	k.do(t, "kafka-transactions list", "holder 1 [0-9]+ Ongoing", "perf 1 [0-9]+ CompleteCommit")
	k.do(t, "kafka-transactions list --duration-filter 3600000", "not holder")
	k.do(t, "kafka-transactions list --transactional-id-pattern hol.*", "holder", "not perf")
	k.do(t, "kafka-transactions describe --transactional-id holder", "1 holder [0-9]+ [0-9]+ Ongoing 40000 [0-9]+ [0-9]+ held-0")
	k.says(t, 1, "kafka-transactions describe --transactional-id nobody", "could not be found")
	k.do(t, "kafka-transactions describe-producers --topic held --partition 0", "[0-9]+ [0-9]+ -?[0-9]+ 0 [0-9]{13} 0 ?$")
	// Open, but known to the coordinator: it does not hang.
	k.do(t, "kafka-transactions find-hanging --topic held --max-transaction-timeout 0", "Duration\\(min\\)$")
	k.do(t, "kafka-transactions find-hanging --broker-id 1 --max-transaction-timeout 0", "Duration\\(min\\)$")
	end(true)
	k.do(t, "kafka-transactions describe --transactional-id holder", "CompleteCommit 40000 None None")
	k.do(t, "kafka-transactions describe-producers --topic held --partition 0", "None ?$")

	end = hold(t, k.broker.Addr, "aborted", "held", 2)
	k.says(t, 1, "kafka-transactions abort --topic held --partition 0 --start-offset 0", "Could not find any open transactions")
	k.do(t, "kafka-transactions abort --topic held --partition 0 --start-offset 2")
	k.do(t, "kafka-transactions describe-producers --topic held --partition 0", "not [0-9]{13} 2 ")
	k.do(t, "kafka-get-offsets --topic held", "^held:0:4$") // the record and its marker
	end(false)

	end = hold(t, k.broker.Addr, "terminated", "held", -1)
	k.do(t, "kafka-transactions forceTerminateTransaction --transactionalId terminated")
	k.do(t, "kafka-transactions describe --transactional-id terminated", "Empty|CompleteAbort")
	end(false)
	got := run(t, "", "kcat", "-b", k.broker.Addr, "-C", "-t", "held", "-e", "-q", "-X", "isolation.level=read_committed")
	if got != "of holder\n" {
		t.Errorf("a read_committed reader got %q", got)
	}
}

// hold begins a transaction and writes one record, which must get an offset unless that is negative. The returned function
// commits or aborts it; an abort may find that somebody else did.
func hold(t *testing.T, addr, id, topic string, offset int64) func(commit bool) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.TransactionalID(id), kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if err := c.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	r, err := c.ProduceSync(t.Context(), kgo.StringRecord("of "+id)).First()
	if err != nil || offset > 0 && r.Offset != offset {
		t.Fatalf("a record of %s: offset %d, want %d (%v)", id, r.Offset, offset, err)
	}
	return func(commit bool) {
		t.Helper()
		if err := c.EndTransaction(t.Context(), kgo.TransactionEndTry(commit)); err != nil && commit {
			t.Fatal(err)
		}
	}
}

func (k *tools) features(t *testing.T) {
	k.do(t, "kafka-features describe", "group.version SupportedMinVersion: 0 SupportedMaxVersion: 1 FinalizedVersionLevel: 1",
		"metadata.version SupportedMinVersion: 3.3-IV3 SupportedMaxVersion: 4.3-IV0 FinalizedVersionLevel: 4.3-IV0",
		"transaction.version SupportedMinVersion: 0 SupportedMaxVersion: 2 FinalizedVersionLevel: 2")
	k.do(t, "kafka-features downgrade --feature transaction.version=1", "transaction.version was downgraded to 1")
	k.do(t, "kafka-features describe", "transaction.version SupportedMinVersion: 0 SupportedMaxVersion: 2 FinalizedVersionLevel: 1")
	k.do(t, "kafka-features upgrade --feature transaction.version=2 --dry-run", "can be upgraded to 2")
	k.do(t, "kafka-features upgrade --feature transaction.version=2", "transaction.version was upgraded to 2")
	k.do(t, "kafka-features disable --feature group.version", "group.version was disabled")
	k.do(t, "kafka-features upgrade --feature group.version=1", "group.version was upgraded to 1")
	k.says(t, 1, "kafka-features upgrade --feature kraft.version=1", `there is no feature "kraft.version"`)
	k.says(t, 1, "kafka-features upgrade --feature transaction.version=3", "Could not upgrade transaction.version to 3")
	k.says(t, 1, "kafka-features downgrade --metadata 3.3", "Could not downgrade metadata.version to 7")
	k.do(t, "kafka-features describe", "FinalizedVersionLevel: 2 Epoch: [0-9]+$")
}

func (k *tools) cluster(t *testing.T) {
	k.do(t, "kafka-cluster cluster-id --bootstrap-server $B", "^Cluster ID: [A-Za-z0-9_-]{22}$")
	k.do(t, "kafka-cluster list-endpoints --bootstrap-server $B", "1 127.0.0.1 [0-9]+ null unfenced broker")
	k.do(t, "kafka-cluster unregister --id 1 --bootstrap-server $B", "does not support the broker unregistration API")
	k.do(t, "kafka-leader-election --election-type preferred --all-topic-partitions", "^$")
	k.do(t, "kafka-leader-election --election-type unclean --topic held --partition 0", "Valid replica already elected for partitions held-0")
	k.says(t, 1, "kafka-leader-election --election-type preferred --topic nope --partition 0", "UnknownTopicOrPartitionException")
	k.do(t, "kafka-reassign-partitions --list", "No partition reassignments found")
	k.do(t, "kafka-log-dirs --describe --topic-list held", `"broker":1`, `"partition":"held-0","size":[1-9][0-9]*,"offsetLag":0,"isFuture":false`,
		`"error":null,"logDir":"/`)
	// There is no quorum of controllers to be described.
	for _, flag := range []string{"--status", "--replication"} {
		k.says(t, 1, "kafka-metadata-quorum describe "+flag, "UnsupportedVersionException: The node does not support DESCRIBE_QUORUM")
	}
	text := k.do(t, "kafka-broker-api-versions", `Produce\(0\): 0 to 13 \[usable: 13\]`, `Fetch\(1\): 4 to 18 \[usable: 18\]`,
		`EndTxn\(26\): 0 to 5 \[usable: 5\]`, `ConsumerGroupHeartbeat\(68\): 0 to 1 \[usable: 1\]`, "not NONE", "not UNKNOWN")
	var unsupported []string
	for _, m := range regexp.MustCompile(`(\w+)\([0-9]+\): UNSUPPORTED`).FindAllStringSubmatch(text, -1) {
		unsupported = append(unsupported, m[1])
	}
	want := []string{"SaslHandshake", "DescribeAcls", "CreateAcls", "DeleteAcls", "AlterReplicaLogDirs", "SaslAuthenticate",
		"CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken", "AlterClientQuotas",
		"DescribeUserScramCredentials", "AlterUserScramCredentials", "DescribeQuorum", "UnregisterBroker",
		"GetTelemetrySubscriptions", "PushTelemetry", "ShareGroupHeartbeat", "ShareGroupDescribe", "ShareFetch", "ShareAcknowledge",
		"AddRaftVoter", "RemoveRaftVoter", "InitializeShareGroupState", "ReadShareGroupState", "WriteShareGroupState",
		"DeleteShareGroupState", "ReadShareGroupStateSummary", "StreamsGroupHeartbeat", "StreamsGroupDescribe",
		"DescribeShareGroupOffsets", "AlterShareGroupOffsets", "DeleteShareGroupOffsets"}
	if !slices.Equal(unsupported, want) {
		t.Errorf("kafka-broker-api-versions names as unsupported %q, want %q", unsupported, want)
	}
}
