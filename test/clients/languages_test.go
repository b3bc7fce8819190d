//go:build peers

package clients

import (
	"testing"

	"github.com/strandline-io/strandline/test/peers"
)

const (
	kafkaPythonVersion    = "3.0.12"
	confluentKafkaVersion = "2.16.1" // with the librdkafka of the same number
	kafkajsVersion        = "2.2.4"

	allCodecs = "none gzip snappy lz4 zstd"
)

func python(t *testing.T, script string, packages ...string) *program {
	t.Helper()
	return &program{command: []string{"python3", script},
		env: []string{"PYTHONPATH=" + peers.PythonPackages(t, packages...)}, b: broker(t)}
}

// common are the trials of every client that has transactions and leaves out what was aborted.
func (p *program) common(t *testing.T, r *row) {
	t.Helper()
	r.try(t, produce, allCodecs, p.ok("produce"))
	r.try(t, idempotence, "yes", p.ok("idempotence"))
	r.try(t, transactions, "yes", p.ok("transactions"))
	r.try(t, committed, "yes", p.committed())
	r.try(t, groups, "commit, resume", p.ok("groups"))
}

// TestKafkaPython does what a user does with kafka-python.
func TestKafkaPython(t *testing.T) {
	r := client(t, "kafka-python", "kafka-python")
	r.version = kafkaPythonVersion
	p := python(t, "kafkapython/main.py", "kafka-python=="+kafkaPythonVersion, "python-snappy==0.7.3", "lz4==4.4.5",
		"zstandard==0.25.0")
	p.common(t, r)
	r.try(t, admin, "topics, offsets, groups, records, transactions", p.ok("admin"))
	r.try(t, kills, "produce, transactions", p.killed("kills"))
}

// TestLibrdkafka does what a user does with librdkafka, through confluent-kafka for Python.
func TestLibrdkafka(t *testing.T) {
	r := client(t, "librdkafka (Python)", "librdkafka")
	r.version = confluentKafkaVersion
	p := python(t, "librdkafka/main.py", "confluent-kafka=="+confluentKafkaVersion)
	p.common(t, r)
	r.try(t, consumer, "commit, resume", p.ok("consumers"))
	r.try(t, admin, "topics, offsets, groups, records, configs", p.ok("admin"))
	r.try(t, kills, "produce, transactions", p.killed("kills"))
}

// TestKafkajs does what a user does with kafkajs on Node.
func TestKafkajs(t *testing.T) {
	r := client(t, "kafkajs", "kafkajs")
	r.version = kafkajsVersion
	p := &program{command: []string{"node", "kafkajs/main.js"}, env: []string{"NODE_PATH=" + peers.NodePackages(t,
		"kafkajs@"+kafkajsVersion, "kafkajs-snappy@1.1.0", "lz4js@0.2.0", "@mongodb-js/zstd@1.2.2")}, b: broker(t)}
	p.common(t, r)
	r.try(t, admin, "topics, offsets, groups, records, configs", p.ok("admin"))
	r.try(t, kills, "produce, transactions", p.killed("kills"))
}

// TestSarama does what a user does with sarama.
func TestSarama(t *testing.T) {
	r := client(t, "sarama", "sarama")
	var p *program
	p, r.version = goProgram(t, "./sarama", "github.com/IBM/sarama")
	p.common(t, r)
	r.try(t, admin, "topics, offsets, groups, records, configs", p.ok("admin"))
	r.try(t, kills, "produce, transactions", p.killed("kills"))
}

// TestSegmentio does what a user does with segmentio/kafka-go, which has no idempotent producer and shows aborted records.
func TestSegmentio(t *testing.T) {
	r := client(t, "segmentio/kafka-go", "segmentio")
	var p *program
	p, r.version = goProgram(t, "./segmentio", "github.com/segmentio/kafka-go")
	r.try(t, produce, allCodecs, p.ok("produce"))
	r.try(t, transactions, "offsets", p.ok("transactions"))
	r.try(t, groups, "commit, resume", p.ok("groups"))
	r.try(t, admin, "topics, groups, configs", p.ok("admin"))
	r.try(t, kills, "produce, at least once", p.killed("kills"))
}

// goPeers is the module of the programs in Go.
const goPeers = "test/clients/gopeers"

// goProgram is a program of the module of clients in Go, and the version of the client that the module names.
func goProgram(t *testing.T, pkg, client string) (p *program, version string) {
	t.Helper()
	binary, version := peers.GoProgram(t, goPeers, pkg, client)
	return &program{command: []string{binary}, b: broker(t)}, version
}
