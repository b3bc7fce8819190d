//go:build peers

package clients

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline-io/strandline/test/peers"
)

// copier is Apache Kafka's own program of its system tests, which copies a topic with the offsets in the transactions.
type copier struct {
	command func() *exec.Cmd
	*peers.Process
}

func newCopier(t *testing.T, b *peers.Program, name string, args ...string) *copier {
	t.Helper()
	c := &copier{command: func() *exec.Cmd {
		return peers.KafkaTool(t, "TransactionalMessageCopier", append([]string{"--broker-list", b.Addr,
			"--input-topic", name + "-in", "--output-topic", name + "-out", "--consumer-group", name, "--transaction-size", "100",
			"--transaction-timeout", "5000", "--enable-random-aborts"}, args...)...)
	}}
	c.start(t)
	return c
}

func (c *copier) start(t *testing.T) {
	t.Helper()
	c.Process = peers.Start(t, "TransactionalMessageCopier", c.command())
}

// until waits until no more than so many records remain for this copier; it tells so before each poll.
func (c *copier) until(t *testing.T, remaining int) {
	t.Helper()
	for {
		var status struct{ Remaining int }
		line := c.WaitLine(t, `"remaining"`)
		if err := json.Unmarshal([]byte(line), &status); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if status.Remaining <= remaining {
			return
		}
	}
}

func (c *copier) end(t *testing.T) {
	t.Helper()
	if err := c.Wait(); err != nil {
		t.Fatalf("the copier ended with %v:\n%s", err, c.Output())
	}
	contains(t, "copier", c.Output(), "ShutdownComplete")
}

// fill writes numbered lines into each partition of a topic and makes the topic that they are copied to.
func fill(t *testing.T, b *peers.Program, name string, partitions, lines int) {
	t.Helper()
	for p := range partitions {
		var input strings.Builder
		for i := range lines {
			fmt.Fprintf(&input, "%d.%d\n", p, i)
		}
		run(t, input.String(), "kcat", "-b", b.Addr, "-P", "-t", name+"-in", "-p", fmt.Sprint(p))
	}
	run(t, "", "kcat", "-b", b.Addr, "-L", "-t", name+"-out")
}

// copied demands that the copy holds exactly the input, once and in order.
func copied(t *testing.T, b *peers.Program, name string, partitions, lines int) {
	t.Helper()
	for p := range partitions {
		got := run(t, "", "kcat", "-b", b.Addr, "-C", "-t", name+"-out", "-p", fmt.Sprint(p), "-e", "-q",
			"-X", "isolation.level=read_committed")
		n := 0
		for line := range strings.Lines(got) {
			if want := fmt.Sprintf("%d.%d\n", p, n); line != want {
				t.Fatalf("line %d of partition %d's copy is %q, want %q", n, p, line, want)
			}
			n++
		}
		if n != lines {
			t.Fatalf("partition %d's copy has %d lines, want %d", p, n, lines)
		}
	}
}

// copyUnderKills copies while the broker and the copier are killed, with random aborts.
func copyUnderKills(t *testing.T) {
	const lines = 8000
	b := broker(t)
	fill(t, b, "copier", 1, lines)
	c := newCopier(t, b, "copier", "--transactional-id", "copier", "--input-partition", "0")
	for i, victim := range []string{"broker", "copier", "both", "broker"} {
		c.until(t, lines*(8-i)/10)
		if victim != "copier" {
			b.Kill()
		}
		if victim != "broker" {
			c.Kill()
			c.start(t)
		}
		if victim != "copier" {
			b.Again()
		}
	}
	c.end(t)
	copied(t, b, "copier", 1, lines)
}

// copyAsGroup has two copiers that share two partitions as a group while the broker is killed.
func copyAsGroup(t *testing.T) {
	const lines = 4000
	// Both begin in the first rebalance: it waits for more members, and they wait for the broker.
	b := broker(t, "--partitions", "2", "--group-initial-rebalance-delay-ms", "3000")
	fill(t, b, "group", 2, lines)
	b.Kill()
	group := func(id string) *copier {
		return newCopier(t, b, "group", "--transactional-id", id, "--input-partition", "-1", "--group-mode", "--use-group-metadata")
	}
	both := []*copier{group("one"), group("other")}
	for _, c := range both {
		c.WaitLine(t, "could not be established")
	}
	b.Again()
	out, err := kgo.NewClient(kgo.SeedBrokers(b.Addr), kgo.ConsumeTopics("group-out"), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	for seen, kill := 0, 1; kill <= 2; kill++ {
		for seen < kill*2*lines/4 {
			f := out.PollFetches(t.Context())
			if err := f.Err0(); err != nil {
				t.Fatal(err)
			}
			seen += f.NumRecords()
		}
		b.Kill()
		b.Again()
	}
	for _, c := range both {
		c.end(t)
		if last := c.Output(); strings.Contains(last[strings.LastIndex(last, "{"):], `"totalProcessed":0`) {
			t.Errorf("one copier had nothing to do:\n%s", last)
		}
	}
	copied(t, b, "group", 2, lines)
}
