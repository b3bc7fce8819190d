package task

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/kafka"
)

// wire is a network that can be cut: then nothing answers any more, as for a process that was killed.
type wire struct {
	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

func (n *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut {
		return nil, errors.New("the wire is cut")
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	if err == nil {
		n.conns = append(n.conns, c)
	}
	return c, err
}

func (n *wire) setCut(cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
	if cut {
		for _, c := range n.conns {
			c.Close()
		}
		n.conns = nil
	}
}

// crash runs a job until its progress says so, then takes its network away for ever.
func crash(t *testing.T, plan *stream.Plan, cfg Config, now func(Progress) bool) {
	t.Helper()
	var n wire
	cfg.Kafka.Dial = n.dial
	cfg.StopDeadline = 20 * time.Millisecond
	cfg.ProgressInterval = time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cfg.Progress = func(p Progress) {
		if now(p) {
			n.setCut(true)
			cancel()
		}
	}
	_ = run(t, ctx, plan, cfg)
	n.setCut(true)
}

func TestRerunChangesNothing(t *testing.T) {
	_, cfg := cluster(t)
	file, want := input(500)
	for range 2 {
		if err := run(t, t.Context(), sums(t, "j", file), Config{Kafka: cfg}); err != nil {
			t.Fatal(err)
		}
		same(t, rows(t, cfg, "j-sums"), want)
	}
}

func TestOtherInputIsRefused(t *testing.T) {
	_, cfg := cluster(t)
	file, want := input(200)
	if err := run(t, t.Context(), sums(t, "j", file), Config{Kafka: cfg}); err != nil {
		t.Fatal(err)
	}
	other, _ := input(201)
	err := run(t, t.Context(), sums(t, "j", other), Config{Kafka: cfg})
	var different *DifferentInputError
	if !errors.As(err, &different) || !strings.Contains(err.Error(), "another name") {
		t.Errorf("got %v", err)
	}
	same(t, rows(t, cfg, "j-sums"), want)
}

func TestCrashAtEveryCommit(t *testing.T) {
	_, cfg := cluster(t)
	file, want := input(600)
	for commits := int64(1); commits <= 12; commits += 3 {
		name := fmt.Sprintf("j%d", commits)
		c := Config{Kafka: cfg, CommitInterval: 5 * time.Millisecond}
		crash(t, sums(t, name, file), c, func(p Progress) bool { return p.Commits >= commits })
		if err := run(t, t.Context(), sums(t, name, file), c); err != nil {
			t.Fatal(err)
		}
		same(t, rows(t, cfg, name+"-sums"), want)
	}
}

func TestStopAndGoOn(t *testing.T) {
	_, cfg := cluster(t)
	file, want := input(2000)
	for commits := int64(2); ; commits += 4 {
		ctx, cancel := context.WithCancel(t.Context())
		finished := false
		err := run(t, ctx, sums(t, "j", file), Config{
			Kafka: cfg, CommitInterval: 2 * time.Millisecond, ProgressInterval: time.Millisecond,
			Progress: func(p Progress) {
				if finished = p.Finished; p.Commits >= commits {
					cancel()
				}
			},
		})
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if finished {
			break
		}
	}
	same(t, rows(t, cfg, "j-sums"), want)
}

func TestWorkersShareAJob(t *testing.T) {
	_, cfg := cluster(t)
	file, want := input(3000)
	var group sync.WaitGroup
	for replica := range 2 {
		group.Add(1)
		go func() {
			defer group.Done()
			if err := run(t, t.Context(), sums(t, "j", file), Config{Kafka: cfg, Replica: replica, Workers: 2}); err != nil {
				t.Errorf("replica %d: %v", replica, err)
			}
		}()
	}
	group.Wait()
	same(t, rows(t, cfg, "j-sums"), want)
}

func TestReplicasComeAndGo(t *testing.T) {
	_, cfg := cluster(t)
	file, want := input(20_000)
	rng := rand.New(rand.NewPCG(3, 4))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
	defer cancel()
	var group sync.WaitGroup
	for replica := 1; replica <= 2; replica++ {
		commits := int64(3 + rng.IntN(5))
		group.Add(1)
		go func() {
			defer group.Done()
			for life := int64(1); ctx.Err() == nil && life <= 4; life++ {
				once, stop := context.WithCancel(ctx)
				var from int64 = -1
				err := run(t, once, sums(t, "j", file), Config{
					Kafka: cfg, Replica: replica, CommitInterval: 2 * time.Millisecond, ProgressInterval: time.Millisecond,
					Progress: func(p Progress) {
						if from < 0 {
							from = p.Commits
						}
						if p.Commits-from > commits*life {
							stop()
						}
					},
				})
				stop()
				if err != nil {
					t.Errorf("replica %d: %v", replica, err)
				}
			}
		}()
	}
	err := run(t, ctx, sums(t, "j", file), Config{Kafka: cfg, CommitInterval: 2 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	group.Wait()
	same(t, rows(t, cfg, "j-sums"), want)
}

func TestSecondProcessOfAReplicaFencesTheFirst(t *testing.T) {
	_, cfg := cluster(t)
	file, want := input(20_000)
	began := make(chan struct{})
	first := make(chan error, 1)
	var once sync.Once
	go func() {
		first <- run(t, t.Context(), sums(t, "j", file), Config{
			Kafka: cfg, CommitInterval: 2 * time.Millisecond, ProgressInterval: time.Millisecond,
			Progress: func(Progress) { once.Do(func() { close(began) }) },
		})
	}()
	<-began
	if err := run(t, t.Context(), sums(t, "j", file), Config{Kafka: cfg}); err != nil {
		t.Fatal(err)
	}
	if err := <-first; err != nil && !errors.Is(err, ErrFenced) {
		t.Errorf("the first process: %v", err)
	}
	same(t, rows(t, cfg, "j-sums"), want)
}

func TestMissingSourceTopic(t *testing.T) {
	_, cfg := cluster(t)
	j := stream.NewJob("j")
	s := stream.FromTopic(j, "in", stream.TopicSource[string, []byte]{
		Topic: "nowhere", Partitions: 1, Codecs: stream.Codecs[string, []byte]{Key: stream.String, Value: stream.Bytes},
	})
	stream.ToTopic(s, "out", stream.TopicSink[string, []byte]{
		Topic: "out", Partitions: 1, Codecs: stream.Codecs[string, []byte]{Key: stream.String, Value: stream.Bytes},
	})
	plan, err := j.Build()
	if err != nil {
		t.Fatal(err)
	}
	var missing *MissingTopicError
	if err := run(t, t.Context(), plan, Config{Kafka: cfg}); !errors.As(err, &missing) || missing.Began || missing.Topic != "nowhere" {
		t.Errorf("got %v", err)
	}
}

func TestConfigSaysAllThatIsWrong(t *testing.T) {
	file, _ := input(1)
	err := Run(t.Context(), sums(t, "j", file), Config{
		Workers: -1, Replica: -1, TransactionTimeout: time.Second, RevokeDeadline: time.Minute, RebalanceTimeout: time.Second,
	})
	for _, what := range []string{"broker", "Workers", "Replica", "TransactionTimeout", "RevokeDeadline"} {
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("nothing about %s in %v", what, err)
		}
	}
	_ = kafka.DefaultTransactionTimeout
}
