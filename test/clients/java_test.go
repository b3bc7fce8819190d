//go:build peers

package clients

import (
	"testing"

	"github.com/strandline-io/strandline/test/peers"
)

// TestJavaClients runs Apache Kafka's own producer, consumer and Admin. What is checked is in java/Transactions.java and
// java/Groups.java, and the copies of its TransactionalMessageCopier.
func TestJavaClients(t *testing.T) {
	r := client(t, "Apache Kafka's Java clients", "java-clients")
	r.version = peers.KafkaVersion
	b := broker(t)
	java := peers.CompileJava(t, "java")
	runner := java.Runner(t)
	ok := func(t *testing.T, class string, args ...string) {
		t.Helper()
		code, out, errors := runner.Run(t, class, append([]string{b.Addr}, args...)...)
		if code != 0 || out != "ok\n" {
			t.Fatalf("%s %q: exit code %d\n%s%s", class, args, code, out, errors)
		}
	}
	r.try(t, transactions, "yes", func(t *testing.T) { ok(t, "Transactions", "txn") })
	// What that program does shows these too.
	r.cells[produce], r.cells[idempotence], r.cells[committed] = "none gzip snappy lz4 zstd", "yes", "yes"
	r.cells[admin] = "Admin: topics, groups, transactions"
	r.try(t, groups, "range", func(t *testing.T) { ok(t, "Groups", "range", "classic") })
	r.try(t, groups, "cooperative, static, patterns", func(t *testing.T) { ok(t, "Groups", "cooperative", "cooperative") })
	r.try(t, consumer, "uniform, static, patterns", func(t *testing.T) { ok(t, "Groups", "uniform", "consumer") })
	r.try(t, kills, "TransactionalMessageCopier: broker, client", copyUnderKills)
	r.try(t, kills, "two as a group", copyAsGroup)
}
