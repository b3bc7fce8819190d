//go:build peers

package power

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline-io/strandline/test/peers"
)

// patience bounds every wait of these tests; the machine may be loaded.
const patience = 60 * time.Second

// binaries is the folder of the programs under test.
var binaries string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "strandline-power-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binaries = dir
	build := exec.Command("go", "build", "-o", dir, "./test/broker/tight", "./test/power/volatile")
	build.Dir = filepath.Join("..", "..")
	if _, err := peers.TryRun(build); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// plant is a broker whose power can be cut. Everything but the log is gone with it that its disk does not keep.
type plant struct {
	*peers.Process
	t       testing.TB
	addr    string
	log     string // its standard error, of all lives
	command func() []string
	// disk, when not nil, loses what is not synced: before is called when the broker is still alive, after when it is
	// dead.
	before, after func()
	cuts          int
}

// open starts a plant for the first time.
func (p *plant) open() {
	p.t.Helper()
	p.log = filepath.Join(p.t.TempDir(), "stderr")
	p.t.Cleanup(func() {
		text := p.stderr()
		for _, alarm := range []string{"BUG:", "panic:", "fatal error:", "DATA RACE"} {
			if strings.Contains(text, alarm) {
				p.t.Errorf("the broker's log holds %q", alarm)
			}
		}
		if p.t.Failed() {
			const shown = 16 << 10
			p.t.Logf("standard error of the broker:\n%s", text[max(0, len(text)-shown):])
		}
	})
	p.start()
}

// launch starts the process and does not wait.
func (p *plant) launch() {
	p.t.Helper()
	args := append([]string{"-c", `log="$1"; shift; exec "$@" 2>>"$log"`, "sh", p.log}, p.command()...)
	p.Process = peers.Start(p.t, "broker", exec.Command("sh", args...))
}

func (p *plant) start() {
	p.t.Helper()
	p.launch()
	p.WaitLine(p.t, "listening on "+p.addr)
}

// cut cuts the power.
func (p *plant) cut() {
	p.t.Helper()
	if p.before != nil {
		p.before()
	}
	p.Kill()
	if p.after != nil {
		p.after()
	}
	p.cuts++
}

func (p *plant) stderr() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// freeAddress returns a free address whose port is below those that the kernel gives to outgoing connections: a client
// that dials a broker which is down could otherwise be given the broker's port, and then keep it.
func freeAddress(t testing.TB) string {
	t.Helper()
	for range 1000 {
		addr := "127.0.0.1:" + strconv.Itoa(15_000+rand.IntN(17_000))
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr
		}
	}
	t.Fatal("no free port")
	return ""
}

// seed returns the source of a test's random choices, from STRANDLINE_SEED or new. It is logged.
func seed(t testing.TB) *rand.Rand {
	t.Helper()
	n := rand.Uint64()
	if s := os.Getenv("STRANDLINE_SEED"); s != "" {
		var err error
		if n, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("STRANDLINE_SEED=%d", n)
	return rand.New(rand.NewPCG(n, 0))
}

// pause lets a random time pass; it is what is tested, nothing waits for it.
func pause(ms int) { <-time.After(time.Duration(ms) * time.Millisecond) }

// eventually asks until f says yes.
func eventually(t testing.TB, ctx context.Context, what string, f func() (bool, error)) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := f()
		if ok {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%s did not happen: %v", what, err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done(): // a last look
		}
	}
}

// client is one that outlives the broker again and again.
func client(addr string, more ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(addr), kgo.DialTimeout(2 * time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.AlwaysRetryEOF(), kgo.RequestRetries(2000), kgo.RetryTimeout(patience),
		kgo.MetadataMinAge(20 * time.Millisecond), kgo.MetadataMaxAge(10 * time.Second),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
	}, more...)...)
}

// position is an offset of a partition.
type position struct {
	topic     string
	partition int32
	offset    int64
}

func at(r *kgo.Record) position { return position{r.Topic, r.Partition, r.Offset} }

// readAll reads topics up to what is their end at this isolation level, and demands that no offset below is missing
// but those of control records, and, read committed, of aborted ones.
func readAll(t testing.TB, ctx context.Context, addr string, isolation kgo.IsolationLevel, topics ...string) map[position]string {
	t.Helper()
	c, err := client(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	list := kadm.NewClient(c).ListEndOffsets
	if isolation == kgo.ReadCommitted() {
		list = kadm.NewClient(c).ListCommittedOffsets
	}
	ends, err := list(ctx, topics...)
	if err = errors.Join(err, ends.Error()); err != nil {
		t.Fatal(err)
	}
	from, left := map[string]map[int32]kgo.Offset{}, map[position]int64{}
	ends.Each(func(end kadm.ListedOffset) {
		if end.Offset > 0 {
			if from[end.Topic] == nil {
				from[end.Topic] = map[int32]kgo.Offset{}
			}
			from[end.Topic][end.Partition] = kgo.NewOffset().At(0)
			left[position{topic: end.Topic, partition: end.Partition}] = end.Offset
		}
	})
	reader, err := client(addr, kgo.ConsumePartitions(from), kgo.FetchIsolationLevel(isolation), kgo.KeepControlRecords(),
		kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	found, next := map[position]string{}, map[position]int64{}
	for len(left) > 0 {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("reading %v, %d partitions left: %v", topics, len(left), err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			part := position{topic: r.Topic, partition: r.Partition}
			if want := next[part]; r.Offset < want || isolation != kgo.ReadCommitted() && r.Offset != want {
				t.Errorf("%s/%d: read offset %d, want %d", r.Topic, r.Partition, r.Offset, want)
			}
			next[part] = r.Offset + 1
			if !r.Attrs.IsControl() {
				found[at(r)] = string(r.Value)
			}
			if end, ok := left[part]; ok && r.Offset+1 >= end {
				delete(left, part)
			}
		})
	}
	return found
}
