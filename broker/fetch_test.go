package broker_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker"
	"github.com/strandline-io/strandline/broker/brokertest"
	"github.com/strandline-io/strandline/broker/record"
)

func TestFetchEveryVersion(t *testing.T) {
	c := dial(t, brokertest.Start(t))
	id := createTopic(c, "t", 2)
	produce(c, "t", 1, batchOf(1000, "a", "b"))
	produce(c, "t", 1, batchOf(2000, "c"))
	for version := int16(4); version <= 18; version++ {
		req := fetchRequest("t", 1, 1)
		req.Version = version
		req.Topics[0].TopicID = id
		p := fetched(ask[*kmsg.FetchResponse](c, req))
		if p.ErrorCode != 0 || p.HighWatermark != 3 || p.LastStableOffset != 3 {
			t.Errorf("version %d: %+v", version, p)
		}
		if version >= 5 && p.LogStartOffset != 0 {
			t.Errorf("version %d: log start %d", version, p.LogStartOffset)
		}
		// The batch that holds offset 1 comes whole.
		if diff := cmp.Diff([]string{"a", "b", "c"}, valuesOf(t, p.RecordBatches)); diff != "" {
			t.Errorf("version %d (-want +got):\n%s", version, diff)
		}
	}
}

func TestFetchErrors(t *testing.T) {
	c := dial(t, brokertest.Start(t))
	id := createTopic(c, "t", 1)
	produce(c, "t", 0, batchOf(1000, "a", "b"))
	f := func(name string, want int16, change func(*kmsg.FetchRequest, *kmsg.FetchRequestTopicPartition)) *kmsg.FetchResponseTopicPartition {
		t.Helper()
		req := fetchRequest("t", 0, 0)
		// The wait must not be spent: errors are told at once.
		req.MaxWaitMillis = int32(2 * patience.Milliseconds())
		change(req, &req.Topics[0].Partitions[0])
		p := fetched(ask[*kmsg.FetchResponse](c, req))
		if p.ErrorCode != want || want != 0 && len(p.RecordBatches) > 0 {
			t.Errorf("%s: code %d with %d bytes, want %d", name, p.ErrorCode, len(p.RecordBatches), want)
		}
		return p
	}
	f("behind the end", 1, func(_ *kmsg.FetchRequest, p *kmsg.FetchRequestTopicPartition) { p.FetchOffset = 3 })
	f("before the start", 1, func(_ *kmsg.FetchRequest, p *kmsg.FetchRequestTopicPartition) { p.FetchOffset = -1 })
	f("unknown partition", 3, func(_ *kmsg.FetchRequest, p *kmsg.FetchRequestTopicPartition) { p.Partition = 1 })
	f("negative partition", 3, func(_ *kmsg.FetchRequest, p *kmsg.FetchRequestTopicPartition) { p.Partition = -1 })
	f("unknown topic", 3, func(r *kmsg.FetchRequest, _ *kmsg.FetchRequestTopicPartition) { r.Topics[0].Topic = "u" })
	f("unknown id", 100, func(r *kmsg.FetchRequest, _ *kmsg.FetchRequestTopicPartition) {
		r.Version, r.Topics[0].TopicID = 13, [16]byte{1}
	})
	f("known id", 0, func(r *kmsg.FetchRequest, _ *kmsg.FetchRequestTopicPartition) {
		r.Version, r.Topics[0].TopicID = 13, id
	})
	f("older epoch", 74, func(_ *kmsg.FetchRequest, p *kmsg.FetchRequestTopicPartition) { p.CurrentLeaderEpoch = 0 })
	f("newer epoch", 75, func(_ *kmsg.FetchRequest, p *kmsg.FetchRequestTopicPartition) { p.CurrentLeaderEpoch = 99 })
	f("current epoch", 0, func(_ *kmsg.FetchRequest, p *kmsg.FetchRequestTopicPartition) { p.CurrentLeaderEpoch = 1 })
	p := f("unknown last epoch", 0, func(_ *kmsg.FetchRequest, p *kmsg.FetchRequestTopicPartition) { p.LastFetchedEpoch = 7 })
	if p.DivergingEpoch.Epoch != -1 || p.DivergingEpoch.EndOffset != -1 {
		t.Errorf("diverging: %+v", p.DivergingEpoch)
	}
	req := fetchRequest("t", 0, 0)
	req.SessionID, req.SessionEpoch = 5, 3
	if resp := ask[*kmsg.FetchResponse](c, req); resp.ErrorCode != 70 || resp.SessionID != 0 {
		t.Errorf("a session that nobody opened: %+v", resp)
	}
}

func TestFetchSizes(t *testing.T) {
	b := brokertest.Start(t, brokertest.Configure(func(c *broker.Config) { c.FetchMaxBytes = 10_000 }))
	c := dial(t, b)
	createTopic(c, "t", 3)
	value := string(make([]byte, 900))
	size := len(batchOf(0, value))
	for range 20 {
		produce(c, "t", 0, batchOf(0, value))
		produce(c, "t", 1, batchOf(0, value))
	}
	f := func(name string, maxBytes, partitionBytes int32, want ...int) {
		t.Helper()
		req := fetchRequest("t", 0, 0)
		req.MaxBytes = maxBytes
		req.Topics[0].Partitions[0].PartitionMaxBytes = partitionBytes
		second := req.Topics[0].Partitions[0]
		second.Partition = 1
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, second)
		resp := ask[*kmsg.FetchResponse](c, req)
		for i, batches := range want {
			if got := len(resp.Topics[0].Partitions[i].RecordBatches); got != batches*size {
				t.Errorf("%s: partition %d has %d bytes, want %d", name, i, got, batches*size)
			}
		}
	}
	n := int32(size)
	f("by partition", 1<<20, 3*n, 3, 3)
	f("whole batches only", 1<<20, 3*n-1, 2, 2)
	f("by request", 4*n, 3*n, 3, 1)
	f("the first batch is whole", 1, 1, 1, 0)
	f("nothing is nothing", 0, 0, 1, 0)
	f("by broker", 1<<20, 1<<20, 10_000/size, 0)
}

// TestLongPollWakes: a fetch at the end waits, and gets what comes as soon as it comes.
func TestLongPollWakes(t *testing.T) {
	b := brokertest.Start(t)
	c, other := dial(t, b), dial(t, b)
	createTopic(other, "t", 2)
	req := fetchRequest("t", 0, 0)
	req.MaxWaitMillis = int32(2 * patience.Milliseconds())
	id := c.send(req)
	// What comes for another partition does not wake it with nothing.
	produce(other, "t", 1, batchOf(1, "elsewhere"))
	produce(other, "t", 0, batchOf(1, "here"))
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	c.receive(id, resp)
	if diff := cmp.Diff([]string{"here"}, valuesOf(t, fetched(resp).RecordBatches)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLongPollCountsMinBytes(t *testing.T) {
	b := brokertest.Start(t)
	c, other := dial(t, b), dial(t, b)
	createTopic(other, "t", 1)
	size := len(batchOf(1, "a"))
	req := fetchRequest("t", 0, 0)
	req.MaxWaitMillis = int32(2 * patience.Milliseconds())
	req.MinBytes = int32(3 * size)
	id := c.send(req)
	for range 3 {
		produce(other, "t", 0, batchOf(1, "a"))
	}
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	c.receive(id, resp)
	if got := len(fetched(resp).RecordBatches); got != 3*size {
		t.Errorf("woke with %d bytes, want %d", got, 3*size)
	}
	// And when the wait is over it takes what there is.
	req.MaxWaitMillis, req.MinBytes = 30, 1<<20
	start := time.Now()
	resp = ask[*kmsg.FetchResponse](c, req)
	if got := len(fetched(resp).RecordBatches); got != 3*size || time.Since(start) < 30*time.Millisecond {
		t.Errorf("%d bytes after %v", got, time.Since(start))
	}
}

func TestLongPollEndsWithItsTopic(t *testing.T) {
	f := func(version int16) {
		t.Helper()
		b := brokertest.Start(t)
		c, other := dial(t, b), dial(t, b)
		topicID := createTopic(other, "t", 1)
		gate := b.Hold(20) // DeleteTopics
		req := fetchRequest("t", 0, 0)
		req.Version, req.Topics[0].TopicID = version, topicID
		req.MaxWaitMillis = int32(2 * patience.Milliseconds())
		id := c.send(req)
		del := kmsg.NewPtrDeleteTopicsRequest()
		del.Version, del.TopicNames = 5, []string{"t"}
		delID := other.send(del)
		<-gate.Arrived()
		gate.Open()
		other.receive(delID, del.ResponseKind())
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		c.receive(id, resp)
		if code := fetched(resp).ErrorCode; code != kerr.UnknownTopicOrPartition.Code {
			t.Errorf("version %d: code %d", version, code)
		}
	}
	f(12)
	f(13) // its id was known when the request came, so the name is what nothing has
}

// txnProducer drives one transactional producer by raw requests (transaction version 2).
type txnProducer struct {
	c     *rawClient
	name  string
	id    int64
	epoch int16
	next  map[int32]int32 // next sequence by partition
}

func initProducer(c *rawClient, name string) *txnProducer {
	c.t.Helper()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version, req.TransactionalID, req.TransactionTimeoutMillis = 4, &name, 60_000
	resp := ask[*kmsg.InitProducerIDResponse](c, req)
	if resp.ErrorCode != 0 {
		c.t.Fatalf("InitProducerId: code %d", resp.ErrorCode)
	}
	return &txnProducer{c: c, name: name, id: resp.ProducerID, epoch: resp.ProducerEpoch, next: map[int32]int32{}}
}

func (p *txnProducer) write(topic string, topicID [16]byte, partition int32, values ...string) int64 {
	p.c.t.Helper()
	b := record.NewBuilder()
	b.ProducerID, b.ProducerEpoch, b.BaseSequence, b.Transactional = p.id, p.epoch, p.next[partition], true
	for _, v := range values {
		b.Add(1, nil, []byte(v))
	}
	p.next[partition] += int32(len(values))
	req := produceRequest(topic, partition, b.Append(nil))
	req.Version, req.TransactionID, req.Topics[0].TopicID = 13, &p.name, topicID
	r := produced(ask[*kmsg.ProduceResponse](p.c, req))
	if r.ErrorCode != 0 {
		p.c.t.Fatalf("producing in a transaction: code %d, %v", r.ErrorCode, r.ErrorMessage)
	}
	return r.BaseOffset
}

func (p *txnProducer) end(commit bool) {
	p.c.t.Helper()
	req := kmsg.NewPtrEndTxnRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = 5, p.name, p.id, p.epoch, commit
	resp := ask[*kmsg.EndTxnResponse](p.c, req)
	if resp.ErrorCode != 0 {
		p.c.t.Fatalf("EndTxn: code %d", resp.ErrorCode)
	}
	p.id, p.epoch, p.next = resp.ProducerID, resp.ProducerEpoch, map[int32]int32{}
}

// TestReadCommittedWaitsForTheCommit: data of an open transaction does not end the wait, its commit does.
func TestReadCommittedWaitsForTheCommit(t *testing.T) {
	b := brokertest.Start(t)
	c, other := dial(t, b), dial(t, b)
	topic := createTopic(other, "t", 1)
	req := fetchRequest("t", 0, 0)
	req.IsolationLevel = 1
	req.MaxWaitMillis = int32(2 * patience.Milliseconds())
	id := c.send(req)
	p := initProducer(other, "p")
	p.write("t", topic, 0, "a", "b")
	// read_uncommitted sees it already.
	if got := valuesOf(t, fetched(ask[*kmsg.FetchResponse](other, fetchRequest("t", 0, 0))).RecordBatches); len(got) != 2 {
		t.Errorf("read_uncommitted sees %q", got)
	}
	p.end(true)
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	c.receive(id, resp)
	f := fetched(resp)
	if diff := cmp.Diff([]string{"a", "b"}, valuesOf(t, f.RecordBatches)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if f.AbortedTransactions == nil || len(f.AbortedTransactions) != 0 || f.LastStableOffset != 3 {
		t.Errorf("aborted %v, last stable offset %d", f.AbortedTransactions, f.LastStableOffset)
	}
}

// TestAbortedListIsSortedAndBounded checks the list against what overlaps the returned records.
func TestAbortedListIsSortedAndBounded(t *testing.T) {
	b := brokertest.Start(t)
	c := dial(t, b)
	topic := createTopic(c, "t", 1)
	var producers []*txnProducer
	for i := range 3 {
		producers = append(producers, initProducer(c, fmt.Sprint("p", i)))
	}
	type span struct{ id, first int64 }
	var want []span
	// Transactions that overlap and end in the opposite order of their begin.
	for _, p := range producers {
		id := p.id
		want = append(want, span{id, p.write("t", topic, 0, "x")})
	}
	for i := len(producers) - 1; i >= 0; i-- {
		producers[i].end(false)
	}
	end := producers[0].write("t", topic, 0, "committed")
	producers[0].end(true)
	later := producers[1].write("t", topic, 0, "aborted later")
	producers[1].end(false)

	f := func(name string, isolation int8, offset int64, maxBytes int32, want ...span) {
		t.Helper()
		req := fetchRequest("t", 0, offset)
		req.IsolationLevel = isolation
		req.Topics[0].Partitions[0].PartitionMaxBytes = maxBytes
		var got []span
		list := fetched(ask[*kmsg.FetchResponse](c, req)).AbortedTransactions
		for _, a := range list {
			got = append(got, span{a.ProducerID, a.FirstOffset})
		}
		if (list == nil) != (isolation == 0) {
			t.Errorf("%s: the list is %v", name, list)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(span{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	f("read_uncommitted", 0, 0, 1<<20)
	f("all", 1, 0, 1<<20, append(want, span{want[1].id, later})...)
	f("the first batch alone", 1, 0, 1, want[0])
	f("from the middle", 1, 1, 1, want[0], want[1])
	f("behind the markers", 1, end, 1)
}

// TestFetchOfMuch reads a partition that holds more than one response gives, by a client that demands more than that
// at once.
func TestFetchOfMuch(t *testing.T) {
	c := dial(t, brokertest.Start(t))
	createTopic(c, "t", 1)
	const batches, size = 24, 500_000
	for i := range batches {
		produce(c, "t", 0, batchOf(1, fmt.Sprint(i)+strings.Repeat("x", size)))
	}
	var got []string
	for offset := int64(0); offset < batches; offset = int64(len(got)) {
		req := fetchRequest("t", 0, offset)
		req.MaxBytes, req.Topics[0].Partitions[0].PartitionMaxBytes = 50<<20, 50<<20
		if offset+8 < batches {
			req.MinBytes, req.MaxWaitMillis = 50<<20, int32(2*patience.Milliseconds())
		}
		values := valuesOf(t, fetched(ask[*kmsg.FetchResponse](c, req)).RecordBatches)
		if len(values) == 0 {
			t.Fatalf("nothing at offset %d", offset)
		}
		got = append(got, values...)
	}
	for i, v := range got {
		if v != fmt.Sprint(i)+strings.Repeat("x", size) {
			t.Fatalf("value %d is not what was written", i)
		}
	}
}

// TestFetchBetweenStableAndEnd: a position beyond the last stable offset is no error, there is nothing to read yet.
func TestFetchBetweenStableAndEnd(t *testing.T) {
	c := dial(t, brokertest.Start(t))
	topic := createTopic(c, "t", 1)
	produce(c, "t", 0, batchOf(1, "a"))
	initProducer(c, "open").write("t", topic, 0, "b", "c")
	for offset := int64(1); offset <= 3; offset++ {
		req := fetchRequest("t", 0, offset)
		req.IsolationLevel, req.MinBytes = 1, 0
		if p := fetched(ask[*kmsg.FetchResponse](c, req)); p.ErrorCode != 0 || len(p.RecordBatches) > 0 || p.LastStableOffset != 1 || p.HighWatermark != 3 {
			t.Errorf("offset %d: %+v", offset, p)
		}
	}
}

// TestFetchTellsOfDivergence: a fetcher that has read what this log does not hold under that epoch is told where the
// epoch ends, also by a session.
func TestFetchTellsOfDivergence(t *testing.T) {
	dir := t.TempDir()
	b := brokertest.Start(t, brokertest.Dir(dir))
	c := dial(t, b)
	createTopic(c, "t", 1)
	produce(c, "t", 0, batchOf(1, "a", "b"))
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	c = dial(t, brokertest.Start(t, brokertest.Dir(dir)))
	produce(c, "t", 0, batchOf(1, "c", "d"))
	f := func(epoch int32, offset int64, wantEpoch int32, wantEnd int64) {
		t.Helper()
		s := sessionClient{c: c, version: 12}
		for range 2 {
			req := s.request(nil)
			if s.epoch == 0 {
				req = s.request([]position{{"t", 0, offset}})
				req.Topics[0].Partitions[0].LastFetchedEpoch = epoch
			}
			resp := ask[*kmsg.FetchResponse](c, req)
			p := fetched(resp)
			diverges := wantEnd >= 0
			if p.ErrorCode != 0 || p.DivergingEpoch.Epoch != wantEpoch || p.DivergingEpoch.EndOffset != wantEnd || diverges != (len(p.RecordBatches) == 0) {
				t.Errorf("epoch %d at %d: %+v", epoch, offset, p)
			}
			s.id, s.epoch = resp.SessionID, s.epoch+1
		}
	}
	f(1, 2, -1, -1) // as it is here
	f(1, 3, 1, 2)   // the first epoch has ended at 2
	f(2, 3, -1, -1)
}
