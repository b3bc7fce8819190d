//go:build peers

package power

import (
	"context"
	"errors"
	"os"
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

func TestMain(m *testing.M) {
	os.Exit(peers.BuildMain(m, []string{"./test/broker/tight"}, func(dir string) { binaries = dir }))
}

// plant is a broker whose power can be cut. Everything but the log is gone with it that its disk does not keep.
type plant struct {
	peers.Program
	// lose, when not nil, makes the disk lose what is not synced. The broker is dead then.
	lose func()
	cuts int
}

// cut cuts the power.
func (p *plant) cut() {
	p.T.Helper()
	p.Kill()
	if p.lose != nil {
		p.lose()
	}
	p.cuts++
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
