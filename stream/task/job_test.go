package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster starts a broker inside the test.
func cluster(t *testing.T) (*kfake.Cluster, kafka.Config) {
	t.Helper()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	return fake, kafka.Config{Brokers: fake.ListenAddrs()}
}

// event is one line of the test's input.
type event struct {
	Key   string `json:"key"`
	TimeS int64  `json:"time"`
	N     int64  `json:"n"`
}

// input makes lines ordered by time, and the result that a job over them must give.
func input(lines int) ([]byte, map[string]int64) {
	var b strings.Builder
	want := make(map[string]int64)
	for i := range lines {
		e := event{Key: fmt.Sprintf("key-%d", i*7%23), TimeS: int64(i / 3), N: int64(i)}
		line, _ := json.Marshal(e)
		b.Write(line)
		b.WriteByte('\n')
		want[fmt.Sprintf("%s@%d", e.Key, e.TimeS/60*60)] += e.N
	}
	return []byte(b.String()), want
}

// sums is a job of three stages: it loads a file into a topic, reads that to its end, and sums per key and minute.
func sums(t testing.TB, name string, file []byte, sinks ...stream.Sink) *stream.Plan {
	t.Helper()
	j := stream.NewJob(name)
	lines := stream.FromFile(j, "load", stream.FileSource{FS: fstest.MapFS{"events.ndjson": {Data: file}}, Names: []string{"events.ndjson"}})
	byKey := stream.Map(lines, func(r stream.Record[stream.None, []byte]) (stream.Record[string, []byte], error) {
		var e event
		err := json.Unmarshal(r.Value, &e)
		return stream.With(r, e.Key[len(e.Key)-1:], r.Value), err
	})
	stream.ToTopic(byKey, "loaded", stream.TopicSink[string, []byte]{
		Topic: name + "-events", Partitions: 3, Codecs: stream.Codecs[string, []byte]{Key: stream.String, Value: stream.Bytes},
	})
	events := stream.FromTopic(j, "read", stream.TopicSource[string, event]{
		Topic: name + "-events", Bounded: true, Codecs: stream.Codecs[string, event]{Key: stream.String, Value: stream.JSON[event]()},
		EventTime: func(r stream.Record[string, event]) (int64, error) { return r.Value.TimeS * 1000, nil },
	})
	keyed := stream.KeyBy(events, "by-key", 4, func(r stream.Record[string, event]) (string, error) { return r.Value.Key, nil },
		stream.Codecs[string, event]{Key: stream.String, Value: stream.JSON[event]()})
	sum := stream.Aggregate(stream.Window(keyed, "minutes", stream.Tumbling(time.Minute)),
		func() int64 { return 0 },
		func(sum int64, r stream.Record[string, event]) (int64, error) { return sum + r.Value.N, nil },
		stream.Codecs[string, int64]{Key: stream.String, Value: stream.Int64})
	rows := stream.Map(sum, func(r stream.Record[string, stream.Pane[int64]]) (stream.Record[string, string], error) {
		return stream.With(r, r.Key, fmt.Sprintf("%s@%d=%d", r.Key, r.Value.StartMs/1000, r.Value.Value)), nil
	})
	stream.ToTopic(rows, "sums", stream.TopicSink[string, string]{
		Topic: name + "-sums", Partitions: 2, Codecs: stream.Codecs[string, string]{Key: stream.String, Value: stream.String},
	})
	for _, s := range sinks {
		stream.ToSink(rows, stream.String, s)
	}
	p, err := j.Build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// rows reads the committed output of a job.
func rows(t *testing.T, cfg kafka.Config, topic string) map[string]int64 {
	t.Helper()
	c, err := kafka.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got := make(map[string]int64)
	for p := range int32(2) {
		_, err := c.ReadAll(t.Context(), kafka.TopicPartition{Topic: topic, Partition: p}, kafka.Uncommitted, func(r kafka.Record) error {
			var sum int64
			key, value, _ := strings.Cut(string(r.Value), "=")
			if _, err := fmt.Sscan(value, &sum); err != nil {
				return err
			}
			if _, twice := got[key]; twice {
				t.Errorf("row %s came twice", key)
			}
			got[key] = sum
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return got
}

func same(t *testing.T, got, want map[string]int64) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("got %d rows, want %d", len(got), len(want))
		for _, k := range slices.Sorted(maps.Keys(want)) {
			if got[k] != want[k] {
				t.Errorf("first difference: %s is %d, want %d", k, got[k], want[k])
				break
			}
		}
	}
}

// logger shows what happens when a test is run by hand with TASK_LOG set.
func logger() *slog.Logger {
	if os.Getenv("TASK_LOG") == "" {
		return nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func run(t *testing.T, ctx context.Context, plan *stream.Plan, cfg Config) error {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(ctx, 60*time.Second, errors.New("the job hangs"))
	defer cancel()
	if cfg.Logger == nil {
		cfg.Logger = logger()
	}
	if os.Getenv("TASK_LOG") == "2" {
		cfg.Kafka.Logger = cfg.Logger
	}
	err := Run(ctx, plan, cfg)
	if err == nil && errors.Is(context.Cause(ctx), context.Cause(ctx)) && ctx.Err() == context.DeadlineExceeded {
		t.Fatal("the job hangs")
	}
	return err
}

func TestJobEndsByItself(t *testing.T) {
	t.Parallel()
	_, cfg := cluster(t)
	file, want := input(3000)
	var last Progress
	err := run(t, t.Context(), sums(t, "j", file), Config{Kafka: cfg, Progress: func(p Progress) { last = p }})
	if err != nil {
		t.Fatal(err)
	}
	same(t, rows(t, cfg, "j-sums"), want)
	if !last.Finished || last.Stage("load").Counters.Records != 3000 || last.Stage("by-key").Counters.Emitted != int64(len(want)) {
		t.Errorf("progress %+v", last)
	}
}

func TestIntermediateStreamsAreTrimmed(t *testing.T) {
	t.Parallel()
	_, cfg := cluster(t)
	file, want := input(3000)
	err := run(t, t.Context(), sums(t, "j", file), Config{Kafka: cfg, CommitInterval: 2 * time.Millisecond, TrimInterval: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	same(t, rows(t, cfg, "j-sums"), want)
	c, err := kafka.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var tps []kafka.TopicPartition
	for p := range int32(4) {
		tps = append(tps, kafka.TopicPartition{Topic: "j-by-key", Partition: p})
	}
	starts, err := c.StartOffsets(t.Context(), tps)
	if err != nil {
		t.Fatal(err)
	}
	moved := int64(0)
	for _, s := range starts {
		moved += s
	}
	if moved == 0 {
		t.Error("nothing was deleted")
	}
	if err := run(t, t.Context(), sums(t, "j", file), Config{Kafka: cfg}); err != nil {
		t.Fatal(err)
	}
}

// logged collects the lines of a log.
type logged struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func TestBrokerWithoutDeleteRecords(t *testing.T) {
	t.Parallel()
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(int16(kmsg.DeleteRecords), -1)
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.MaxVersions(versions))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	cfg := kafka.Config{Brokers: fake.ListenAddrs()}
	file, want := input(3000)
	var log logged
	err = run(t, t.Context(), sums(t, "j", file), Config{
		Kafka: cfg, Workers: 2, CommitInterval: 2 * time.Millisecond, TrimInterval: time.Millisecond, Logger: log.logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	same(t, rows(t, cfg, "j-sums"), want)
	if n := log.count("this broker does not serve DeleteRecords"); n != 1 || log.count("could not delete") > 0 {
		t.Errorf("%d lines say that records are not deleted:\n%s", n, log.b.String())
	}
}
