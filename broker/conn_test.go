package broker_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/strandline-io/strandline/broker"
	"github.com/strandline-io/strandline/broker/brokertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// syncBuffer collects a log.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Clone(b.buf.Bytes())
}

func (b *syncBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

// TestRepliesKeepTheirOrder sends many different requests without waiting; each answer must belong to its request,
// and what reads must see everything that was sent before it.
func TestRepliesKeepTheirOrder(t *testing.T) {
	b := brokertest.Start(t, brokertest.Configure(func(c *broker.Config) { c.MaxInFlight = 8 }))
	c := dial(t, b)
	createTopic(c, "t", 1)
	var ids []int32
	var reqs []kmsg.Request
	send := func(req kmsg.Request) {
		ids = append(ids, c.send(req))
		reqs = append(reqs, req)
	}
	const rounds = 50
	for range rounds {
		send(produceRequest("t", 0, batchOf(1, "a")))
		send(kmsg.NewPtrApiVersionsRequest())
		send(produceRequest("t", 0, batchOf(1, "b")))
		list := kmsg.NewPtrListOffsetsRequest()
		list.Version = 4
		topic := kmsg.NewListOffsetsRequestTopic()
		topic.Topic = "t"
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Timestamp = -1
		topic.Partitions = append(topic.Partitions, p)
		list.Topics = append(list.Topics, topic)
		send(list)
		send(fetchRequest("t", 0, 0))
	}
	written := int64(0)
	for i, req := range reqs {
		resp := req.ResponseKind()
		c.receive(ids[i], resp)
		switch resp := resp.(type) {
		case *kmsg.ProduceResponse:
			if got := produced(resp).BaseOffset; got != written {
				t.Fatalf("offset %d, want %d", got, written)
			}
			written++
		case *kmsg.ListOffsetsResponse:
			if got := resp.Topics[0].Partitions[0].Offset; got != written {
				t.Fatalf("ListOffsets says %d after %d records", got, written)
			}
		case *kmsg.FetchResponse:
			if got := fetched(resp).HighWatermark; got != written {
				t.Fatalf("Fetch says %d after %d records", got, written)
			}
		}
	}
}

// TestClosedSideStillGetsItsAnswers: a client may close its sending side and read on.
func TestClosedSideStillGetsItsAnswers(t *testing.T) {
	c := dial(t, brokertest.Start(t))
	createTopic(c, "t", 1)
	var ids []int32
	for range 20 {
		ids = append(ids, c.send(produceRequest("t", 0, batchOf(1, "a"))))
	}
	c.conn.(*net.TCPConn).CloseWrite()
	for i, id := range ids {
		resp := &kmsg.ProduceResponse{Version: 9}
		c.receive(id, resp)
		if got := produced(resp).BaseOffset; got != int64(i) {
			t.Errorf("offset %d, want %d", got, i)
		}
	}
	c.expectClosed()
}

// TestParkedRequestsDoNotOutliveTheirConnection: a wait ends when its client has gone.
func TestParkedRequestsDoNotOutliveTheirConnection(t *testing.T) {
	b := brokertest.Start(t)
	c := dial(t, b)
	createTopic(c, "t", 1)
	before := runtime.NumGoroutine()
	arrived := make(chan struct{}, 10)
	b.Observe(1, func(*broker.Request) { arrived <- struct{}{} })
	for range cap(arrived) {
		req := fetchRequest("t", 0, 0)
		req.MaxWaitMillis = 1 << 30
		parked := dial(t, b)
		parked.send(req)
		<-arrived
		parked.conn.Close()
	}
	eventually(t, "the connections' goroutines end", func() bool { return runtime.NumGoroutine() <= before })
}

// TestAcksZero: no answer if it worked, a closed connection if it did not.
func TestAcksZero(t *testing.T) {
	b := brokertest.Start(t)
	c := dial(t, b)
	createTopic(c, "t", 1)
	req := produceRequest("t", 0, batchOf(1, "a"))
	req.Acks = 0
	c.send(req)
	p := fetched(ask[*kmsg.FetchResponse](c, fetchRequest("t", 0, 0)))
	if p.HighWatermark != 1 {
		t.Errorf("high watermark %d", p.HighWatermark)
	}
	bad := produceRequest("nowhere", 0, batchOf(1, "a"))
	bad.Acks = 0
	c.send(bad)
	if rest := c.expectClosed(); len(rest) > 0 {
		t.Errorf("acks=0 was answered with % x", rest)
	}
}

// TestSlowReadersAreDropped: a client that asks and never reads does not hold its connection, or memory, for ever.
func TestSlowReadersAreDropped(t *testing.T) {
	var log syncBuffer
	b := brokertest.Start(t, brokertest.Configure(func(c *broker.Config) {
		c.StallTimeout = 100 * time.Millisecond
		c.FetchMemoryBytes, c.FetchMaxBytes = 4<<20, 4<<20
		c.Logger = log.logger()
	}))
	c := dial(t, b)
	createTopic(c, "t", 1)
	for range 8 {
		produce(c, "t", 0, batchOf(1, strings.Repeat("x", 900_000)))
	}
	slow := dial(t, b)
	slow.conn.(*net.TCPConn).SetReadBuffer(4096)
	for range 20 {
		req := fetchRequest("t", 0, 0)
		req.MaxBytes, req.Topics[0].Partitions[0].PartitionMaxBytes = 8<<20, 8<<20
		frame := kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)
		if _, err := slow.conn.Write(frame); err != nil {
			break
		}
	}
	eventually(t, "the slow reader is dropped", func() bool {
		return bytes.Contains(log.bytes(), []byte("writing a response"))
	})
	// Its share of the memory is free again: this needs all of it.
	req := fetchRequest("t", 0, 0)
	req.MaxBytes, req.Topics[0].Partitions[0].PartitionMaxBytes = 8<<20, 8<<20
	if got := len(fetched(ask[*kmsg.FetchResponse](c, req)).RecordBatches); got < 3_500_000 {
		t.Errorf("%d bytes", got)
	}
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	b := brokertest.Start(t, brokertest.Configure(func(c *broker.Config) { c.IdleTimeout = 50 * time.Millisecond }))
	c := dial(t, b)
	createTopic(c, "t", 1)
	// A connection that waits for an answer is not idle.
	req := fetchRequest("t", 0, 0)
	req.MaxWaitMillis = 200
	start := time.Now()
	ask[*kmsg.FetchResponse](c, req)
	if waited := time.Since(start); waited < 200*time.Millisecond {
		t.Errorf("the wait of 200 ms ended after %v", waited)
	}
	c.expectClosed()
}

func TestCloseAnswersWhatWasRead(t *testing.T) {
	arrived := make(chan struct{}, 2)
	b, err := broker.New(broker.Config{
		Listen: "127.0.0.1:0",
		Intercept: func(_ context.Context, r *broker.Request) broker.Fate {
			if r.Key == 1 {
				arrived <- struct{}{}
			}
			return broker.Fate{}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { served <- b.Serve(ctx) }()
	conn, err := net.Dial("tcp", b.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	c := &rawClient{t: t, conn: conn}
	createTopic(c, "t", 1)
	// A fetch that waits is answered when the broker stops.
	req := fetchRequest("t", 0, 0)
	req.MaxWaitMillis = 1 << 30
	id := c.send(req)
	// So is one behind which the next request has begun to arrive.
	other, err := net.Dial("tcp", b.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	other.SetDeadline(time.Now().Add(patience))
	c2 := &rawClient{t: t, conn: other}
	id2 := c2.send(req)
	other.Write([]byte{0, 0, 1, 0, 0, 0, 0, 9, 0, 0})
	<-arrived
	<-arrived
	start := time.Now()
	cancel()
	c.receive(id, req.ResponseKind())
	c.expectClosed()
	c2.receive(id2, req.ResponseKind())
	c2.expectClosed()
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("it took %v to stop", took)
	}
	if err := <-served; err != nil {
		t.Errorf("Serve returned %v", err)
	}
	if err := b.Close(); err != nil {
		t.Errorf("Close after Serve: %v", err)
	}
	if err := b.Serve(context.Background()); err == nil {
		t.Error("a closed broker serves")
	}
	if _, err := net.Dial("tcp", b.Addr().String()); err == nil {
		t.Error("the port is still open")
	}
}

func TestCloseWithoutServe(t *testing.T) {
	b, err := broker.New(broker.Config{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.Close(), b.Close()); err != nil {
		t.Error(err)
	}
}

func TestConfigReportsAllProblemsAtOnce(t *testing.T) {
	err := broker.Config{
		Listen: "nowhere", Advertise: ":0", NodeID: -1, DefaultPartitions: 20_000, Durability: 9,
		MaxRequestBytes: 1, JournalSegmentBytes: 1, MaxInFlight: -1,
	}.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, name := range []string{"Listen", "Advertise", "NodeID", "DefaultPartitions", "Durability", "MaxRequestBytes", "JournalSegmentBytes", "MaxInFlight"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("nothing about %s in:\n%v", name, err)
		}
	}
	err = broker.Config{Advertise: "a:1", Listeners: []broker.Listener{{Listen: ":0"}, {Listen: "nowhere"}, {Listen: ":0", Advertise: "a"}}}.Validate()
	for _, want := range []string{"beside", "nowhere", `Advertise: "a"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("nothing about %s in:\n%v", want, err)
		}
	}
	if err := (broker.Config{}).Validate(); err != nil {
		t.Errorf("the zero value: %v", err)
	}
}

// TestMemoryIsGivenBack sends many times what the broker may hold, on connections that end in every way.
func TestMemoryIsGivenBack(t *testing.T) {
	b := brokertest.Start(t, brokertest.Configure(func(c *broker.Config) {
		c.MaxRequestBytes, c.RequestMemoryBytes = 64<<10, 1<<20
		c.FetchMaxBytes, c.FetchMemoryBytes = 64<<10, 64<<10
	}))
	c := dial(t, b)
	createTopic(c, "t", 1)
	value := strings.Repeat("x", 20_000)
	b.Intercept(0, func(_ context.Context, r *broker.Request) broker.Fate {
		return broker.Fate{LoseReply: r.ClientID == "queued"}
	})
	for range 50 {
		answered, hasty := dial(t, b), dial(t, b)
		for range 3 {
			hasty.send(produceRequest("t", 0, batchOf(1, value)))
			hasty.send(fetchRequest("t", 0, 0))
		}
		hasty.conn.Close()
		produce(answered, "t", 0, batchOf(1, value))
		refused := produceRequest("u", 0, batchOf(1, value))
		if code := produced(ask[*kmsg.ProduceResponse](answered, refused)).ErrorCode; code != 3 {
			t.Errorf("code %d", code)
		}
		if got := fetched(ask[*kmsg.FetchResponse](answered, fetchRequest("t", 0, 0))); len(got.RecordBatches) < len(value) {
			t.Errorf("fetched %d bytes", len(got.RecordBatches))
		}
		// The queue behind a connection that ends is given back too.
		queued := dial(t, b)
		format := kmsg.NewRequestFormatter(kmsg.FormatterClientID("queued"))
		for range 10 {
			queued.conn.Write(format.AppendRequest(nil, produceRequest("t", 0, batchOf(1, value)), 1))
		}
		queued.expectClosed()
		broken := dial(t, b)
		broken.conn.Write([]byte{0, 0, 0xc0, 0, 0, 0, 0, 9, 0, 0, 0, 1})
		broken.conn.Close()
		ask[*kmsg.ListGroupsResponse](answered, kmsg.NewPtrListGroupsRequest())
		answered.conn.Close()
	}
}

// TestAnswersDoNotWaitForLaterOnes: what is answered goes out although the next request is parked.
func TestAnswersDoNotWaitForLaterOnes(t *testing.T) {
	b := brokertest.Start(t, brokertest.Configure(func(c *broker.Config) { c.GroupInitialRebalanceDelayMs = 600_000 }))
	c := dial(t, b)
	join := kmsg.NewPtrJoinGroupRequest()
	join.Version, join.Group, join.ProtocolType = 3, "g", "consumer"
	join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = 10_000, 600_000
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name = "range"
	join.Protocols = append(join.Protocols, p)
	// While the first ones await the journal, the others queue up behind them.
	createTopic(c, "t", 1)
	const before = 10
	var frames []byte
	format := kmsg.NewRequestFormatter()
	for id := range int32(before) {
		frames = append(frames, format.AppendRequest(nil, produceRequest("t", 0, batchOf(1, "a")), id)...)
	}
	c.conn.Write(append(frames, format.AppendRequest(nil, join, before)...))
	for id := range int32(before) {
		c.receive(id, &kmsg.ProduceResponse{Version: 9})
	}
}
