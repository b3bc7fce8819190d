package task

import (
	"context"
	"encoding/binary"
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
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// wire is a network that can be cut: then nothing answers any more, as for a process that was killed. after, if set, is
// called with the API key of each request that has just been sent.
type wire struct {
	after func(n *wire, key int16)

	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

type wireConn struct {
	net.Conn
	n *wire
}

func (c wireConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if c.n.after != nil && err == nil && len(p) > 6 {
		c.n.after(c.n, int16(binary.BigEndian.Uint16(p[4:])))
	}
	return n, err
}

func (n *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut {
		return nil, errors.New("the wire is cut")
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	n.conns = append(n.conns, c)
	return wireConn{c, n}, nil
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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

// short is a configuration whose transactions time out soon.
func short(cfg kafka.Config, n *wire) Config {
	cfg.Dial = n.dial
	return Config{Kafka: cfg, CommitInterval: 5 * time.Millisecond, PrepareDeadline: 100 * time.Millisecond, TransactionTimeout: 400 * time.Millisecond}
}

// TestUnknownOutcome loses the answers to requests that end transactions, for longer than a commit may take: the worker
// can neither assume that the transaction was committed nor that it was not.
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	_, cfg := cluster(t)
	file, want := input(600)
	for nth := 2; nth <= 6; nth += 2 {
		name := fmt.Sprintf("j%d", nth)
		ends := 0
		n := &wire{}
		n.after = func(n *wire, key int16) {
			const endTxn = 26
			if key != endTxn {
				return
			}
			if ends++; ends == nth {
				n.setCut(true)
				time.AfterFunc(700*time.Millisecond, func() { n.setCut(false) })
			}
		}
		if err := run(t, t.Context(), sums(t, name, file), short(cfg, n)); err != nil {
			t.Fatal(err)
		}
		if ends <= nth {
			t.Errorf("only %d transactions ended", ends)
		}
		same(t, rows(t, cfg, name+"-sums"), want)
	}
}

// TestConnectionsBreakAllTheTime closes all connections after every so many requests.
func TestConnectionsBreakAllTheTime(t *testing.T) {
	t.Parallel()
	_, cfg := cluster(t)
	file, want := input(1500)
	rng := rand.New(rand.NewPCG(5, 6))
	var mu sync.Mutex
	left := 30
	n := &wire{}
	n.after = func(n *wire, _ int16) {
		mu.Lock()
		defer mu.Unlock()
		if left--; left == 0 {
			left = 20 + rng.IntN(80)
			n.setCut(true)
			n.setCut(false)
		}
	}
	if err := run(t, t.Context(), sums(t, "j", file), short(cfg, n)); err != nil {
		t.Fatal(err)
	}
	same(t, rows(t, cfg, "j-sums"), want)
}

// TestGroupForgetsTheWorker lets the group refuse offsets as for a worker that has lost its tasks.
func TestGroupForgetsTheWorker(t *testing.T) {
	t.Parallel()
	fake, cfg := cluster(t)
	file, want := input(1500)
	refuse := map[int]int16{2: kerr.IllegalGeneration.Code, 4: kerr.UnknownMemberID.Code, 5: kerr.RebalanceInProgress.Code}
	commits := 0
	fake.ControlKey(int16(kmsg.TxnOffsetCommit), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		commits++
		code, ok := refuse[commits]
		if !ok {
			return nil, nil, false
		}
		req := kreq.(*kmsg.TxnOffsetCommitRequest)
		resp := req.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
		for _, rt := range req.Topics {
			st := kmsg.NewTxnOffsetCommitResponseTopic()
			st.Topic = rt.Topic
			for _, rp := range rt.Partitions {
				sp := kmsg.NewTxnOffsetCommitResponseTopicPartition()
				sp.Partition, sp.ErrorCode = rp.Partition, code
				st.Partitions = append(st.Partitions, sp)
			}
			resp.Topics = append(resp.Topics, st)
		}
		return resp, nil, true
	})
	if err := run(t, t.Context(), sums(t, "j", file), Config{Kafka: cfg, CommitInterval: 5 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	if commits < 6 {
		t.Errorf("only %d commits", commits)
	}
	same(t, rows(t, cfg, "j-sums"), want)
}

// TestJoinIsTriedAgain: a broker that dies while a worker waits for its first tasks is asked again when it is back, not
// after the deadline of a revoke, which here is longer than the test may take.
func TestJoinIsTriedAgain(t *testing.T) {
	t.Parallel()
	c, cfg := cluster(t)
	lost := 0
	c.ControlKey(int16(kmsg.JoinGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		lost++
		return nil, errors.New("the connection breaks"), true
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	file, want := input(200)
	err := run(t, ctx, sums(t, "j", file), Config{Kafka: cfg, RebalanceTimeout: 15 * time.Minute, RevokeDeadline: 10 * time.Minute})
	if err != nil || ctx.Err() != nil || lost != 1 {
		t.Fatalf("ended with %v, %v; %d joins were lost", err, ctx.Err(), lost)
	}
	same(t, rows(t, cfg, "j-sums"), want)
}

func TestStopAndGoOn(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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

func TestSecondProcessOfAReplicaFencesTheFirst(t *testing.T) {
	t.Parallel()
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
	if err := <-first; err != nil && (!errors.Is(err, ErrFenced) || !strings.Contains(err.Error(), "task.Config.Replica")) {
		t.Errorf("the first process: %v", err)
	}
	same(t, rows(t, cfg, "j-sums"), want)
}

func TestMissingSourceTopic(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
