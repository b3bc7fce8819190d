//go:build peers

package clients

import (
	"testing"

	"github.com/strandline-io/strandline/test/peers"
)

const (
	kafkaPythonVersion    = "3.0.12"
	confluentKafkaVersion = "2.16.1" // with the librdkafka of the same number
)

func python(t *testing.T, script string, packages ...string) *program {
	t.Helper()
	return &program{command: []string{"python3", script},
		env: []string{"PYTHONPATH=" + peers.PythonPackages(t, packages...)}, b: broker(t)}
}

// TestKafkaPython does what a user does with kafka-python.
func TestKafkaPython(t *testing.T) {
	r := client(t, "kafka-python", "kafka-python")
	r.version = kafkaPythonVersion
	p := python(t, "kafkapython/main.py", "kafka-python=="+kafkaPythonVersion, "python-snappy==0.7.3", "lz4==4.4.5",
		"zstandard==0.25.0")
	r.try(t, produce, "none gzip snappy lz4 zstd", p.ok("produce"))
	r.try(t, idempotence, "yes", p.ok("idempotence"))
	r.try(t, transactions, "yes", p.ok("transactions"))
	r.try(t, committed, "yes", p.committed())
	r.try(t, groups, "commit, resume", p.ok("groups"))
	r.try(t, admin, "topics, offsets, groups, records, transactions", p.ok("admin"))
	r.try(t, kills, "produce, transactions", p.killed("kills"))
}

// TestLibrdkafka does what a user does with librdkafka, through confluent-kafka for Python.
func TestLibrdkafka(t *testing.T) {
	r := client(t, "librdkafka (Python)", "librdkafka")
	r.version = confluentKafkaVersion
	p := python(t, "librdkafka/main.py", "confluent-kafka=="+confluentKafkaVersion)
	p.env = append(p.env, "PYTHONUNBUFFERED=1")
	r.try(t, produce, "none gzip snappy lz4 zstd", p.ok("produce"))
	r.try(t, idempotence, "yes", p.ok("idempotence"))
	r.try(t, transactions, "yes", p.ok("transactions"))
	r.try(t, committed, "yes", p.committed())
	r.try(t, groups, "commit, resume", p.ok("groups"))
	r.try(t, consumer, "commit, resume", p.ok("consumers"))
	r.try(t, admin, "topics, offsets, groups, records, configs", p.ok("admin"))
	r.try(t, kills, "produce, transactions", p.killed("kills"))
}
