//go:build peers

package clients

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline-io/strandline/test/peers"
)

// TestKafkaStreams counts words with Kafka Streams and exactly_once_v2 while broker and program are killed. The output must
// hold each word's counts from one on, none missing, none twice.
func TestKafkaStreams(t *testing.T) {
	r := client(t, "Kafka Streams", "kafka-streams")
	r.version = peers.KafkaVersion
	r.try(t, kills, "exactly_once_v2: broker, program, both", wordCount)
	r.cells[transactions], r.cells[committed], r.cells[groups] = "exactly_once_v2", "yes", "Streams' own assignor"
}

const (
	wordsOfLine  = 5
	linesOfRound = 1000
	vocabulary   = 300
)

func wordCount(t *testing.T) {
	b := broker(t, "--partitions", "2")
	java := peers.CompileJava(t, "java")
	random := peers.Seed(t)
	feed, err := kgo.NewClient(kgo.SeedBrokers(b.Addr), kgo.AllowAutoTopicCreation(), kgo.DefaultProduceTopic("lines"))
	if err != nil {
		t.Fatal(err)
	}
	defer feed.Close()
	counts, err := kgo.NewClient(kgo.SeedBrokers(b.Addr), kgo.AllowAutoTopicCreation(), kgo.ConsumeTopics("counts"),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		t.Fatal(err)
	}
	defer counts.Close()

	state := t.TempDir()
	start := func() *peers.Process {
		return peers.Start(t, "WordCount", java.Command(t, "WordCount", b.Addr, "word-count", state, "lines", "counts"))
	}
	want := map[string]int{}
	var written, seen int
	until := func(n int) {
		for seen < n {
			f := counts.PollFetches(t.Context())
			if err := f.Err0(); err != nil {
				t.Fatal(err)
			}
			seen += f.NumRecords()
		}
	}
	say(t, feed, random, want)
	streams := start()
	streams.WaitLine(t, "state RUNNING")
	for _, victim := range []string{"broker", "program", "broker", "both"} {
		written += linesOfRound * wordsOfLine
		// Some of the round is committed, most is under way.
		until(written - linesOfRound*wordsOfLine + 1 + random.IntN(linesOfRound*wordsOfLine/2))
		if victim != "program" {
			b.Kill()
		}
		if victim != "broker" {
			streams.Kill()
			streams = start()
		}
		if victim != "program" {
			b.Again()
		}
		say(t, feed, random, want)
	}
	written += linesOfRound * wordsOfLine
	until(written)
	if err := streams.Terminate(); err != nil && !strings.Contains(err.Error(), "143") { // what it has not committed is lost
		t.Fatalf("WordCount ended with %v", err)
	}
	next := map[string]int{}
	out := run(t, "", "kcat", "-b", b.Addr, "-C", "-t", "counts", "-e", "-q", "-f", `%k %s\n`, "-X", "isolation.level=read_committed")
	for line := range strings.Lines(out) {
		word, count, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		next[word]++
		if n, err := strconv.Atoi(count); err != nil || n != next[word] {
			t.Fatalf("count %d of %q is %q", next[word], word, count)
		}
	}
	for word, n := range want {
		if next[word] != n {
			t.Errorf("%q was counted up to %d, want %d", word, next[word], n)
		}
	}
}

// say writes a round of lines and adds their words to what is wanted.
func say(t *testing.T, feed *kgo.Client, random *rand.Rand, want map[string]int) {
	t.Helper()
	var lines []*kgo.Record
	for range linesOfRound {
		words := make([]string, wordsOfLine)
		for i := range words {
			words[i] = fmt.Sprintf("word-%d", random.IntN(vocabulary))
			want[words[i]]++
		}
		lines = append(lines, kgo.StringRecord(strings.Join(words, " ")))
	}
	if err := feed.ProduceSync(t.Context(), lines...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}
