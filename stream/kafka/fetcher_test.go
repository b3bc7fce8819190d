package kafka

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// await takes batches until f says that it has seen enough.
func await(t *testing.T, f *Fetcher, enough func(Batch) bool) {
	t.Helper()
	timeout := time.After(10 * time.Second)
	for {
		for b, ok := f.Take(); ok; b, ok = f.Take() {
			f.Release(b)
			if enough(b) {
				return
			}
		}
		select {
		case <-f.Ready():
		case <-timeout:
			t.Fatal("nothing more comes")
		}
	}
}

func fetcher(t *testing.T, c *Client, cfg FetchConfig) *Fetcher {
	t.Helper()
	if cfg.MaxWait == 0 {
		cfg.MaxWait = 20 * time.Millisecond
	}
	f, err := c.NewFetcher(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

func TestFetcherPassesWhatItDoesNotShow(t *testing.T) {
	_, c := cluster(t, 2)
	create(t, c, TopicSpec{Name: "t", Partitions: 1})
	p := open(t, c, "id")
	begin(t, p)
	produce(t, p, "t", "never", "never")
	if _, err := p.Abort(t.Context()); err != nil {
		t.Fatal(err)
	}
	begin(t, p)
	produce(t, p, "t", "a", "b")
	commit(t, p)
	begin(t, p)
	produce(t, p, "t", "open")

	f := fetcher(t, c, FetchConfig{})
	f.Add(TopicPartition{"t", 0}, 0, 1)
	var got []string
	await(t, f, func(b Batch) bool {
		for _, r := range b.Records {
			got = append(got, fmt.Sprintf("%d:%s", r.Offset, r.Value))
		}
		if b.NextOffset == 6 && b.LastStableOffset == 6 && b.HighWatermark == 7 {
			if b.CaughtUp() {
				t.Error("caught up although a transaction is open")
			}
			return true
		}
		return false
	})
	if s := strings.Join(got, " "); s != "3:a 4:b" {
		t.Errorf("got %q", s)
	}
	commit(t, p)
	await(t, f, func(b Batch) bool { return b.CaughtUp() && b.NextOffset == 8 })
}

func TestFetcherSetAnew(t *testing.T) {
	_, c := cluster(t, 2)
	create(t, c, TopicSpec{Name: "t", Partitions: 1})
	p := open(t, c, "id")
	begin(t, p)
	produce(t, p, "t", "a", "b", "c")
	commit(t, p)
	f := fetcher(t, c, FetchConfig{})
	tp := TopicPartition{"t", 0}
	for token := uint64(1); token <= 20; token++ {
		from := int64(token % 3)
		f.Add(tp, from, token)
		await(t, f, func(b Batch) bool {
			if b.Token != token {
				t.Errorf("a batch of token %d after %d was set", b.Token, token)
			}
			if len(b.Records) > 0 && b.Records[0].Offset != from {
				t.Errorf("began at %d, want %d", b.Records[0].Offset, from)
			}
			return len(b.Records) > 0
		})
	}
	f.Remove(tp)
	if b, ok := f.Take(); ok {
		t.Errorf("a batch after Remove: %+v", b)
	}
}

func TestFetcherHoldsBackForASlowOwner(t *testing.T) {
	_, c := cluster(t, 2)
	create(t, c, TopicSpec{Name: "t", Partitions: 1})
	p := open(t, c, "id")
	begin(t, p)
	for range 10 {
		produce(t, p, "t", strings.Repeat("x", 1000))
	}
	commit(t, p)
	f := fetcher(t, c, FetchConfig{MaxPartitionBytes: 100})
	f.Add(TopicPartition{"t", 0}, 0, 1)
	var taken []Batch
	for len(taken) < maxUnreleased {
		<-f.Ready()
		for b, ok := f.Take(); ok; b, ok = f.Take() {
			taken = append(taken, b)
		}
	}
	select {
	case <-f.Ready():
		if _, ok := f.Take(); ok {
			t.Error("more than two batches without a release")
		}
	case <-time.After(100 * time.Millisecond):
	}
	f.Release(taken[0])
	f.Release(taken[1])
	await(t, f, func(b Batch) bool { return b.NextOffset == 11 })
}

func TestFetcherReportsWhatEndsAPartition(t *testing.T) {
	_, c := cluster(t, 2)
	topics := create(t, c, TopicSpec{Name: "t", Partitions: 1}, TopicSpec{Name: "u", Partitions: 1})
	f := fetcher(t, c, FetchConfig{MissingAfter: 10 * time.Millisecond, TopicIDs: map[string]string{"u": topics["t"].ID}})
	f.Add(TopicPartition{"t", 0}, 99, 1)
	await(t, f, func(b Batch) bool {
		var out *OffsetRangeError
		return errors.As(b.Err, &out) && out.Position == 99
	})
	f.Remove(TopicPartition{"t", 0})
	f.Add(TopicPartition{"nowhere", 0}, 0, 2)
	await(t, f, func(b Batch) bool {
		var missing *MissingTopicError
		return errors.As(b.Err, &missing) && missing.Topic == "nowhere"
	})
	f.Remove(TopicPartition{"nowhere", 0})
	f.Add(TopicPartition{"u", 0}, 0, 3)
	await(t, f, func(b Batch) bool {
		var again *RecreatedTopicError
		return errors.As(b.Err, &again) && again.WantID == topics["t"].ID
	})
}

func TestFetcherReportsAnOutage(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Close()
	c, err := Open(t.Context(), Config{Brokers: fake.ListenAddrs()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	create(t, c, TopicSpec{Name: "t", Partitions: 1})
	f := fetcher(t, c, FetchConfig{})
	f.Add(TopicPartition{"t", 0}, 0, 1)
	await(t, f, func(b Batch) bool { return b.CaughtUp() })
	fake.Close()
	await(t, f, func(b Batch) bool { return b.Unreachable != nil })
}
