package peers

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// KafkaVersion must be the one that pom.xml names.
const KafkaVersion = "4.3.1"

// ApacheKafka is one broker of the real thing, acting as its own controller.
type ApacheKafka struct {
	*Process
	Addr string
	dir  string
}

// kafkaJars returns the class path of Apache Kafka, fetching it with Maven the first time that the pom says what it says.
func kafkaJars(t testing.TB) string {
	t.Helper()
	pom := filepath.Join(here(), "pom.xml")
	text, err := os.ReadFile(pom)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(CacheDir(t), fmt.Sprintf("kafka-%s-%x", KafkaVersion, sha256.Sum256(text))[:len("kafka--")+len(KafkaVersion)+8])
	once(t, filepath.Join(dir, ".complete"), func() error {
		_, err := TryRun(exec.Command("mvn", "-q", "-B", "-f", pom,
			"dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory="+dir))
		return err
	})
	return filepath.Join(dir, "*")
}

// java is a command for a class.
func java(t testing.TB, heap, classPath, class string, args ...string) *exec.Cmd {
	t.Helper()
	all := []string{"-Xmx" + heap, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true",
		"-Dlog4j2.configurationFile=" + filepath.Join(here(), "log4j2.xml"), "-cp", classPath, class}
	return exec.Command("java", append(all, args...)...)
}

// toolClasses maps the names of the kafka-*.sh scripts to what they run.
var toolClasses = map[string]string{
	"kafka-topics":               "org.apache.kafka.tools.TopicCommand",
	"kafka-configs":              "kafka.admin.ConfigCommand",
	"kafka-consumer-groups":      "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
	"kafka-groups":               "org.apache.kafka.tools.GroupsCommand",
	"kafka-transactions":         "org.apache.kafka.tools.TransactionsCommand",
	"kafka-features":             "org.apache.kafka.tools.FeatureCommand",
	"kafka-console-producer":     "org.apache.kafka.tools.ConsoleProducer",
	"kafka-console-consumer":     "org.apache.kafka.tools.consumer.ConsoleConsumer",
	"kafka-producer-perf-test":   "org.apache.kafka.tools.ProducerPerformance",
	"kafka-consumer-perf-test":   "org.apache.kafka.tools.ConsumerPerformance",
	"kafka-dump-log":             "org.apache.kafka.tools.DumpLogSegments",
	"kafka-get-offsets":          "org.apache.kafka.tools.GetOffsetShell",
	"kafka-delete-records":       "org.apache.kafka.tools.DeleteRecordsCommand",
	"kafka-leader-election":      "org.apache.kafka.tools.LeaderElectionCommand",
	"kafka-reassign-partitions":  "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
	"kafka-log-dirs":             "org.apache.kafka.tools.LogDirsCommand",
	"kafka-metadata-quorum":      "org.apache.kafka.tools.MetadataQuorumCommand",
	"kafka-broker-api-versions":  "org.apache.kafka.tools.BrokerApiVersionsCommand",
	"kafka-cluster":              "org.apache.kafka.tools.ClusterTool",
	"kafka-acls":                 "org.apache.kafka.tools.AclCommand",
	"kafka-client-metrics":       "org.apache.kafka.tools.ClientMetricsCommand",
	"TransactionalMessageCopier": "org.apache.kafka.tools.TransactionalMessageCopier",
	"VerifiableProducer":         "org.apache.kafka.tools.VerifiableProducer",
}

// KafkaTool is a command for one of Apache Kafka's tools, named as its script without ".sh".
func KafkaTool(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	return java(t, "256m", kafkaJars(t), ToolClass(t, name), args...)
}

// StartApacheKafka formats and starts one broker. Settings are extra lines of its properties file.
func StartApacheKafka(t testing.TB, settings ...string) *ApacheKafka {
	t.Helper()
	k := &ApacheKafka{dir: t.TempDir()}
	port, controller := FreePort(t), FreePort(t)
	k.Addr = "127.0.0.1:" + strconv.Itoa(port)
	lines := append([]string{
		"process.roles=broker,controller",
		"node.id=1",
		"listeners=PLAINTEXT://" + k.Addr + fmt.Sprintf(",CONTROLLER://127.0.0.1:%d", controller),
		"advertised.listeners=PLAINTEXT://" + k.Addr,
		"controller.listener.names=CONTROLLER",
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		fmt.Sprintf("controller.quorum.voters=1@127.0.0.1:%d", controller),
		"log.dirs=" + filepath.Join(k.dir, "data"),
		"offsets.topic.replication.factor=1",
		"transaction.state.log.replication.factor=1",
		"transaction.state.log.min.isr=1",
		"share.coordinator.state.topic.replication.factor=1",
		"share.coordinator.state.topic.min.isr=1",
		"group.initial.rebalance.delay.ms=0",
	}, settings...)
	if err := os.WriteFile(k.properties(), []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	Run(t, java(t, "256m", kafkaJars(t), "kafka.tools.StorageTool", "format", "-t", "c3RyYW5kbGluZS10ZXN0Lg", "-c", k.properties()))
	k.Again(t)
	return k
}

func (k *ApacheKafka) properties() string { return filepath.Join(k.dir, "server.properties") }

// Again starts the broker once more over the data that it left. After a kill it takes about twelve seconds to
// answer: its earlier registration must expire first.
func (k *ApacheKafka) Again(t testing.TB) {
	t.Helper()
	cmd := exec.Command("java", "-Xms256m", "-Xmx768m", "-server", "-XX:+UseG1GC", "-Djava.awt.headless=true",
		"-Dlog4j2.configurationFile="+filepath.Join(here(), "log4j2.xml"), "-Dstrandline.peers.level=info",
		"-cp", kafkaJars(t), "kafka.Kafka", k.properties())
	k.Process = Start(t, "Apache Kafka", cmd)
	k.WaitLine(t, "Kafka Server started")
	k.WaitPort(t, k.Addr)
}
