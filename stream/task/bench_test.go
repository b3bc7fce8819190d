package task

import (
	"fmt"
	"testing"

	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/twmb/franz-go/pkg/kfake"
)

// BenchmarkJob measures records through all three stages of the test job: a file, a topic and an intermediate stream,
// JSON decoded twice, windows, two outputs in transactions every 100 ms. The broker runs in the same process.
func BenchmarkJob(b *testing.B) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		b.Fatal(err)
	}
	defer fake.Close()
	const lines = 200_000
	file, _ := input(lines)
	n := 0
	for b.Loop() {
		n++
		if err := Run(b.Context(), sums(b, fmt.Sprintf("j%d", n), file), Config{Kafka: kafka.Config{Brokers: fake.ListenAddrs()}}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n*lines)/b.Elapsed().Seconds(), "records/s")
}
