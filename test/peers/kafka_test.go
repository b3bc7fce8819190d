//go:build peers

package peers

import (
	"os/exec"
	"strings"
	"testing"
)

func TestApacheKafkaAnswersAndStops(t *testing.T) {
	k := StartApacheKafka(t)
	create := KafkaTool(t, "kafka-topics", "--bootstrap-server", k.Addr, "--create", "--topic", "hello", "--partitions", "2")
	Run(t, create)
	list := Run(t, exec.Command("kcat", "-b", k.Addr, "-L", "-t", "hello"))
	if !strings.Contains(list, `topic "hello" with 2 partitions`) {
		t.Fatalf("kcat -L says:\n%s", list)
	}
	if err := k.Terminate(); err != nil && !strings.Contains(err.Error(), "143") {
		t.Fatalf("Apache Kafka ended with %v", err)
	}
}
