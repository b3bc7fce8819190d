//go:build peers

package broker

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/record"
)

// What has gone wrong for users of brokers with transactions, and the tests that it cannot here. Where no folder is named they
// are in this one; test/differential compares with Apache Kafka what the same random requests give.
//
//	B1   the end of one transaction is held up in the network and arrives in the next one:
//	     TestDelayedEnd (a client, both versions), TestLateEndTxn; TestLateEndTxnOfVersion1 in broker, late_test.go in broker/machine
//	B2   a new instance takes over while the old one has a transaction open:
//	     TestReplacedProducer; rows "InitProducerId, fencing" of TestKilledAtEveryPoint
//	B3   a transaction outlives its timeout, and its client comes with more of it, also when the broker was killed or down meanwhile:
//	     TestTimeout; B.10 in broker/machine/kip98_ends_test.go
//	B4   records are written, seen by read_uncommitted, and aborted, over and over, with read_committed readers at their heels:
//	     TestAbortLoop
//	B5   what read_uncommitted, ends and committed offsets show after an abort: TestOffsetsAfterAbort; test/differential
//	B7   the broker is killed when it has decided to commit and not told all partitions: TestKillWhileEnding, rows "EndTxn" of
//	     TestKilledAtEveryPoint; TestAtomicOverPartitionsAndOffsets in broker/machine, TestH1ManyPartitions in broker/brokertest
//	B9   compaction, several times and over segments, among aborted and committed transactions: there is no compaction yet
//	     (docs/compat.md)
//	B10  a hundred thousand producers that live for a moment: TestManyShortLivedProducers; TestProducerBound in broker/machine,
//	     TestBoundOfEntries in broker/machine/producer, bounds.txt in broker/machine/txn
//	B11  old and new clients negotiate: test/clients; TestGoldenFrames in broker, versions_test.go and compat_test.go in broker/wire
//	B12  DeleteRecords over an open transaction, and then its end: TestDeleteRecordsUnderATransaction; delete_records.txt in broker/machine

// holder is an address that passes connections on to a broker, request by request, and can keep an EndTxn, with everything that
// follows it on its connection, for as long as it is asked to.
type holder struct {
	net.Listener
	t    testing.TB
	to   string
	mu   sync.Mutex
	hold bool
	kept chan []byte // the request
	late chan error  // what became of it: nil is an answer
	free chan struct{}
}

func newHolder(t testing.TB, to string) *holder {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &holder{Listener: l, t: t, to: to}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			down, err := l.Accept()
			if err != nil {
				return
			}
			go h.pass(down)
		}
	}()
	return h
}

// keepNext keeps the next EndTxn.
func (h *holder) keepNext() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hold, h.kept, h.late, h.free = true, make(chan []byte, 1), make(chan error, 1), make(chan struct{})
}

func (h *holder) pass(down net.Conn) {
	defer down.Close()
	up, err := net.Dial("tcp", h.to)
	if err != nil {
		return
	}
	defer up.Close()
	answers := make(chan struct{})
	go func() {
		defer close(answers)
		_, _ = io.Copy(down, up)
		down.Close()
	}()
	for {
		var size [4]byte
		if _, err := io.ReadFull(down, size[:]); err != nil {
			return
		}
		request := append(size[:], make([]byte, binary.BigEndian.Uint32(size[:]))...)
		if _, err := io.ReadFull(down, request[4:]); err != nil {
			return
		}
		h.mu.Lock()
		keep := h.hold && binary.BigEndian.Uint16(request[4:]) == 26
		h.hold = h.hold && !keep
		h.mu.Unlock()
		if keep {
			h.kept <- request
			<-h.free
			down.Close() // by its client too, which the broker has not seen
		}
		_, err := up.Write(request)
		if keep {
			_ = up.SetDeadline(time.Now().Add(patience))
			<-answers // one that nobody takes, or the end of the connection
			h.late <- err
		}
		if err != nil {
			return
		}
	}
}

// dialerTo lets a client reach every broker at one address.
func dialerTo(addr string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, addr)
	}
}

// TestDelayedEnd (B1): the network keeps a client's EndTxn. The client loses patience, asks again by another connection, and is
// in the midst of its next transaction when the first attempt arrives. Each transaction ends as its client has asked.
func TestDelayedEnd(t *testing.T) {
	bothVersions(t, func(t *testing.T, version int) {
		s, ctx := newTopic(t)
		h := newHolder(t, s.Addr)
		opts := []kgo.Opt{
			kgo.TransactionalID("p"), kgo.ProducerLinger(0), kgo.RequestTimeoutOverhead(200 * time.Millisecond),
			kgo.Dialer(dialerTo(h.Addr().String())),
		}
		if version == 1 {
			opts = append(opts, oldTransactions())
		}
		c := client(t, s.Addr, opts...)
		var want []string
		for n, commit := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
			write := func(value string) {
				t.Helper()
				if err := c.ProduceSync(ctx, recordOf("t", 0, value)).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			first, second := fmt.Sprint("first ", n), fmt.Sprint("second ", n)
			if err := c.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			write(first)
			h.keepNext()
			if err := c.EndTransaction(ctx, commit); err != nil {
				t.Fatalf("the end whose first attempt is held up: %v", err)
			}
			<-h.kept
			if err := c.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			write(second)
			close(h.free)
			if err := <-h.late; err != nil {
				t.Fatalf("the late request did not get through: %v", err)
			}
			write(second + ", behind the late end")
			if err := c.EndTransaction(ctx, !commit); err != nil {
				t.Fatal(err)
			}
			if commit {
				want = append(want, first)
			} else {
				want = append(want, second, second+", behind the late end")
			}
		}
		expect(t, ctx, s, "in the end", kgo.ReadCommitted(), [2][]string{want, nil})
		allStable(t, ctx, s.Addr, "t")
	})
}

// deleteRecords moves the log start of a partition of t.
func deleteRecords(t *testing.T, s *server, partition int32, offset int64) (lowWatermark int64) {
	t.Helper()
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.Version = 2
	topic := kmsg.NewDeleteRecordsRequestTopic()
	topic.Topic = "t"
	topic.Partitions = []kmsg.DeleteRecordsRequestTopicPartition{{Partition: partition, Offset: offset}}
	req.Topics = append(req.Topics, topic)
	c := dial(t, s.Addr)
	defer c.conn.Close()
	p := c.ask(req).(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		t.Fatalf("DeleteRecords up to %d: %v", offset, kerr.ErrorForCode(p.ErrorCode))
	}
	return p.LowWatermark
}

// TestDeleteRecordsUnderATransaction (B12): all that a transaction has written is deleted while it is open. Its end still writes
// its markers, nothing hangs, and what comes later is read.
func TestDeleteRecordsUnderATransaction(t *testing.T) {
	bothVersions(t, func(t *testing.T, version int) {
		s, ctx := newTopic(t)
		p := newProducer(t, s, "p", version, time.Minute)
		var want []string
		end := int64(0)
		for round, commit := range []bool{true, false, true} {
			p.mustWrite("t", 0, "deleted", "deleted, too")
			p.mustWrite("t", 1, fmt.Sprint("round ", round))
			if start := deleteRecords(t, s, 0, -1); start != end+2 {
				t.Fatalf("round %d: the log start is %d, want %d", round, start, end+2)
			}
			if round > 0 {
				s.restart()
			}
			expectOffsets(t, ctx, s, "deleted and open", [2][2]int64{{end + 2, end + 2}, {int64(2 * round), int64(2*round + 1)}})
			p.mustEnd(commit)
			if round > 1 {
				s.restart()
			}
			expectOffsets(t, ctx, s, "ended", [2][2]int64{{end + 3, end + 3}, {int64(2*round + 2), int64(2*round + 2)}})
			p.mustWrite("t", 0, "kept")
			p.mustEnd(true)
			if end += 5; commit {
				want = append(want, fmt.Sprint("round ", round))
			}
			expect(t, ctx, s, "later records", kgo.ReadCommitted(), [2][]string{{"kept"}, want})
		}
	})
}

// TestManyShortLivedProducers (B10): many more producers and transactional ids come by than the broker remembers. It keeps
// to its bounds, a transaction that was open all the time commits, and the first of them all goes on when it comes back.
func TestManyShortLivedProducers(t *testing.T) {
	const (
		producers, remembered        = 100_000, 5_000
		transactional, rememberedIDs = 20_000, 1_000
	)
	s := start(t, "--durability", "write", "--max-producer-ids", fmt.Sprint(remembered), "--max-transactional-ids", fmt.Sprint(rememberedIDs))
	ctx := within(t, 4*patience)
	createTopic(t, ctx, s.Addr, "t", 2)
	open := newProducer(t, s, "open", 2, 10*time.Minute)
	open.mustWrite("t", 0, "early")
	crowd := &crowd{raw: dial(t, s.Addr)}
	_ = crowd.conn.SetDeadline(time.Now().Add(4 * patience))
	first := crowd.produce(producers)
	crowd.transactionalIDs(transactional)
	if known, ids := crowd.remembered(); known != remembered || ids != rememberedIDs {
		t.Errorf("%d producers and %d transactional ids are remembered, want %d and %d", known, ids, remembered, rememberedIDs)
	}
	// What is remembered takes some megabytes; most of this is the journal's segment and what garbage collection leaves.
	if peak := s.memory("VmHWM"); peak > 192<<20 {
		t.Errorf("the broker has needed %d MiB", peak>>20)
	}
	open.mustWrite("t", 0, "late")
	open.mustEnd(true)
	found := readAll(t, ctx, s.Addr, kgo.ReadCommitted(), []string{"t"}).values("t")
	if diff := cmp.Diff(map[string]int{"early": 1, "late": 1, "crowd": producers}, found); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// It was forgotten, so any sequence is the next one.
	if code := crowd.batch(first, 7).written(); code != 0 {
		t.Errorf("the first producer came back: %v", kerr.ErrorForCode(code))
	}
}

// crowd is one connection by which many producers speak, many requests at a time.
type crowd struct {
	*raw
	sent []kmsg.Request
	ids  int // transactional ones so far
}

const pipelined = 50 // requests; a connection may have 64 unanswered

// send queues a request; its answer comes in its turn.
func (c *crowd) send(req kmsg.Request) *crowd {
	c.t.Helper()
	if _, err := c.conn.Write(frame(req)); err != nil {
		c.t.Fatal(err)
	}
	c.sent = append(c.sent, req)
	return c
}

// receive is the answer to the oldest request.
func (c *crowd) receive() kmsg.Response {
	c.t.Helper()
	resp, err := c.raw.answer(c.sent[0])
	if err != nil {
		c.t.Fatal(err)
	}
	c.sent = c.sent[1:]
	return resp
}

func (c *crowd) init(transactionalID *string) *crowd {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version, req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = 4, transactionalID, 60_000, -1, -1
	return c.send(req)
}

// initialized is the answer to an init.
func (c *crowd) initialized() int64 {
	c.t.Helper()
	resp := c.receive().(*kmsg.InitProducerIDResponse)
	if resp.ErrorCode != 0 {
		c.t.Fatalf("InitProducerId: %v", kerr.ErrorForCode(resp.ErrorCode))
	}
	return resp.ProducerID
}

// batch is a producer's.
func (c *crowd) batch(id int64, sequence int32) *crowd {
	b := record.NewBuilder()
	b.ProducerID, b.ProducerEpoch, b.BaseSequence = id, 0, sequence
	b.Add(time.Now().UnixMilli(), nil, []byte("crowd"))
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks = 11, -1
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = "t"
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = 1, b.Append(nil)
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return c.send(req)
}

// written is the answer to a batch.
func (c *crowd) written() int16 {
	c.t.Helper()
	return c.receive().(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode
}

// produce lets n producers come, write a record and go. It returns the id of the first.
func (c *crowd) produce(n int) (first int64) {
	c.t.Helper()
	first = -1
	for ; n > 0; n -= pipelined {
		var ids [pipelined]int64
		for range ids {
			c.init(nil)
		}
		for i := range ids {
			ids[i] = c.initialized()
		}
		for _, id := range ids {
			c.batch(id, 0)
		}
		for range ids {
			if code := c.written(); code != 0 {
				c.t.Fatal(kerr.ErrorForCode(code))
			}
		}
		if first < 0 {
			first = ids[0]
		}
	}
	return first
}

// transactionalIDs lets n transactional ids come and go.
func (c *crowd) transactionalIDs(n int) {
	c.t.Helper()
	for ; n > 0; n -= pipelined {
		for range pipelined {
			c.ids++
			name := fmt.Sprint("transactional-", c.ids)
			c.init(&name)
		}
		for range pipelined {
			c.initialized()
		}
	}
}

// remembered is how many producers and transactional ids the broker still knows.
func (c *crowd) remembered() (producers, transactionalIDs int) {
	c.t.Helper()
	req := kmsg.NewPtrDescribeProducersRequest()
	topic := kmsg.NewDescribeProducersRequestTopic()
	topic.Topic, topic.Partitions = "t", []int32{0, 1}
	req.Topics = append(req.Topics, topic)
	for _, p := range c.ask(req).(*kmsg.DescribeProducersResponse).Topics[0].Partitions {
		producers += len(p.ActiveProducers)
	}
	return producers, len(c.ask(kmsg.NewPtrListTransactionsRequest()).(*kmsg.ListTransactionsResponse).TransactionStates)
}
