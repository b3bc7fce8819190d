//go:build peers

package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/strandline-io/strandline/test/peers"
)

const (
	rounds         = 3
	clockTicksPerS = 100 // USER_HZ, fixed on Linux for what /proc shows
)

// peer is one broker of the comparison.
type peer struct {
	name string
	addr string
	pid  int
}

// result is what `strandline bench --json` prints, as far as it is compared.
type result struct {
	MBPerS  float64 `json:"mb_per_second"`
	Bytes   float64 `json:"bytes"`
	TxnPerS float64 `json:"transactions_per_second"`
	Txns    float64 `json:"transactions"`
	Seconds float64 `json:"seconds"`
	P50Ms   float64 `json:"p50_ms"`
	P99Ms   float64 `json:"p99_ms"`
	P999Ms  float64 `json:"p999_ms"`
	CPU     float64 `json:"-"` // seconds of the broker's process
}

func startPeers(b *testing.B) []peer {
	ours := peers.StartBroker(b, b.TempDir(), "--partitions", "4")
	all := []peer{{"strandline", ours.Addr, ours.Pid()}}
	bin := peers.Binary(b, "./test/bench/kfake")
	fake := peers.Start(b, "kfake", exec.Command(bin, "-sync", "-data-dir", b.TempDir()))
	_, addr, _ := strings.Cut(fake.WaitLine(b, "listening on"), "listening on ")
	all = append(all, peer{"kfake -sync", addr, fake.Pid()})
	kafka := peers.StartApacheKafka(b)
	return append(all, peer{"Apache Kafka", kafka.Addr, kafka.Pid()})
}

// cpuSeconds is the processor time of a process so far.
func cpuSeconds(b *testing.B, pid int) float64 {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	// The second field, the name, may hold anything; what follows its closing bracket does not.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+2:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return float64(user+system) / clockTicksPerS
}

func measure(b *testing.B, bin string, p peer, args []string) result {
	before := cpuSeconds(b, p.pid)
	out := peers.Run(b, exec.Command(bin, append(append([]string{"bench"}, args...), "--json", "--brokers", p.addr)...))
	var r result
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		b.Fatalf("%v in %q", err, out)
	}
	r.CPU = cpuSeconds(b, p.pid) - before
	return r
}

// compare runs one measurement on all peers in turn and prints the medians with their spread.
func compare(b *testing.B, all []peer, args string, columns []column) {
	bin := peers.Binary(b, "./cmd/strandline")
	b.ResetTimer()
	got := make([][]result, len(all))
	for range rounds {
		for i, p := range all {
			got[i] = append(got[i], measure(b, bin, p, strings.Fields(args)))
		}
	}
	var table strings.Builder
	fmt.Fprintf(&table, "bench %s, medians of %d (lowest–highest)\n", args, rounds)
	for i, p := range all {
		fmt.Fprintf(&table, "%-14s", p.name)
		for _, c := range columns {
			var values []float64
			for _, r := range got[i] {
				values = append(values, c.of(r))
			}
			slices.Sort(values)
			median := values[len(values)/2]
			fmt.Fprintf(&table, "  %s %.2f (%.2f–%.2f)", c.name, median, values[0], values[len(values)-1])
			b.ReportMetric(median, strings.ReplaceAll(p.name, " ", "")+"-"+strings.ReplaceAll(c.name, " ", "-"))
		}
		table.WriteByte('\n')
	}
	fmt.Fprintln(os.Stderr, table.String())
}

type column struct {
	name string
	of   func(result) float64
}

var (
	mbPerS     = column{"MB/s", func(r result) float64 { return r.MBPerS }}
	cpuPerGiB  = column{"CPU-s/GiB", func(r result) float64 { return r.CPU / (r.Bytes / (1 << 30)) }}
	cores      = column{"cores", func(r result) float64 { return r.CPU / r.Seconds }}
	txnPerS    = column{"txn/s", func(r result) float64 { return r.TxnPerS }}
	txnPerCPUS = column{"txn/CPU-s", func(r result) float64 { return r.Txns / r.CPU }}
	p50        = column{"p50 ms", func(r result) float64 { return r.P50Ms }}
	p99        = column{"p99 ms", func(r result) float64 { return r.P99Ms }}
	p999       = column{"p99.9 ms", func(r result) float64 { return r.P999Ms }}
)

func BenchmarkPeers(b *testing.B) {
	all := startPeers(b)
	run := func(name, args string, columns ...column) {
		b.Run(name, func(b *testing.B) { compare(b, all, args, columns) })
	}
	run("produce-1KiB", "produce --records 1000000", mbPerS, cpuPerGiB)
	run("produce-100B", "produce --records 3000000 --size 100", mbPerS, cpuPerGiB)
	run("consume-1KiB", "consume --records 1000000", mbPerS)
	run("consume-committed", "consume --records 200000 --read-committed --producers 1", mbPerS)
	run("10000-per-second", "produce --records 100000 --rate 10000", p50, p99, p999, cores)
	run("one-in-flight", "produce --records 5000 --in-flight 1 --partitions 1", p50, p99)
	run("txn-8x10", "txn --records 80000 --producers 8", txnPerS, txnPerCPUS, p50, p99)
	run("txn-1x1", "txn --records 2000 --producers 1 --records-per-txn 1", p50, p99)
}
