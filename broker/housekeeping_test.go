package broker_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker"
	"github.com/strandline-io/strandline/broker/brokertest"
	"github.com/strandline-io/strandline/internal/vfs"
)

// smallJournal is a journal that is at its bound after a few batches.
const smallJournal = 128 << 10

func withSmallJournal(fs vfs.FS) brokertest.Option {
	return brokertest.Configure(func(c *broker.Config) {
		c.DataDir, c.FS = "small", fs
		c.JournalSegmentBytes, c.JournalMaxBytes = smallJournal/4, smallJournal
	})
}

// fill writes bytes in batches of about batchBytes and returns how many batches that were. Each must be answered.
func fill(t *testing.T, c *rawClient, bytes, batchBytes int) int {
	t.Helper()
	n := 0
	for value := strings.Repeat("x", batchBytes); bytes > 0; bytes -= batchBytes {
		produce(c, "t", 0, batchOf(1, value))
		n++
	}
	return n
}

// expectRecords reads the topic to its end.
func expectRecords(t *testing.T, c *rawClient, want int) {
	t.Helper()
	got := 0
	for got < want {
		values := valuesOf(t, fetched(ask[*kmsg.FetchResponse](c, fetchRequest("t", 0, int64(got)))).RecordBatches)
		if got += len(values); len(values) == 0 {
			t.Fatalf("%d records, want %d", got, want)
		}
	}
}

// TestProduceGoesOnAtTheJournalsBound: whatever is in the journal, the bound slows produce and never stops it.
func TestProduceGoesOnAtTheJournalsBound(t *testing.T) {
	journals := 20
	if testing.Short() {
		journals = 6
	}
	f := func(name string, batchBytes int, prepare func(*rawClient)) {
		t.Run(name, func(t *testing.T) {
			b := brokertest.Start(t, withSmallJournal(vfs.NewMem()))
			c := dial(t, b)
			createTopic(c, "t", 1)
			prepare(c)
			expectRecords(t, c, fill(t, c, journals*smallJournal, batchBytes))
		})
	}
	nothing := func(*rawClient) {}
	f("small batches", 1000, nothing)
	f("batches of a segment", smallJournal/4, nothing)
	f("batches over the bound", 3*smallJournal, nothing)
	f("a state larger than the journal", 1000, func(c *rawClient) {
		createTopic(c, "wide", 100)
		for from := int32(0); from < 100; from += 10 {
			commitOffsets(c, "wide", from, from+10, strings.Repeat("m", 4000))
		}
	})
}

// commitOffsets commits offset 0 for partitions from to below to, from outside any group.
func commitOffsets(c *rawClient, topic string, from, to int32, metadata string) {
	c.t.Helper()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.Generation = 8, "g", -1
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = topic
	for ; from < to; from++ {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Metadata = from, &metadata
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	for _, p := range ask[*kmsg.OffsetCommitResponse](c, req).Topics[0].Partitions {
		if p.ErrorCode != 0 {
			c.t.Fatalf("committing %s/%d: code %d", topic, p.Partition, p.ErrorCode)
		}
	}
}

// unlucky fails a number of times to make a partition's file.
type unlucky struct {
	vfs.FS
	failures atomic.Int32
	failed   atomic.Int32
}

func (u *unlucky) Create(name string) (vfs.File, error) {
	if strings.HasPrefix(name, "partitions/") && u.failures.Add(-1) >= 0 {
		u.failed.Add(1)
		return nil, fmt.Errorf("create %s: %w", name, errors.New("bad luck"))
	}
	return u.FS.Create(name)
}

// TestProduceGoesOnAfterTroubleWithFiles: what could not be moved is tried again, also while nobody can write.
func TestProduceGoesOnAfterTroubleWithFiles(t *testing.T) {
	fs := &unlucky{FS: vfs.NewMem()}
	fs.failures.Store(2)
	b := brokertest.Start(t, withSmallJournal(fs))
	c := dial(t, b)
	createTopic(c, "t", 1)
	expectRecords(t, c, fill(t, c, 4*smallJournal, 1000))
	if fs.failed.Load() != 2 {
		t.Errorf("%d failures were met, want 2", fs.failed.Load())
	}
}

// TestStopsAtTheJournalsBound: a broker whose files cannot be written lets Produce wait, and still stops when told to.
func TestStopsAtTheJournalsBound(t *testing.T) {
	fs := &unlucky{FS: vfs.NewMem()}
	fs.failures.Store(math.MaxInt32)
	b := brokertest.Start(t, withSmallJournal(fs))
	c := dial(t, b)
	createTopic(c, "t", 1)
	held := false
	for range 1000 {
		c.send(produceRequest("t", 0, batchOf(1, strings.Repeat("x", smallJournal/8))))
		c.conn.SetReadDeadline(time.Now().Add(time.Second))
		var size [4]byte
		if _, err := io.ReadFull(c.conn, size[:]); errors.Is(err, os.ErrDeadlineExceeded) {
			held = true
			break
		} else if err != nil {
			t.Fatal(err)
		}
		c.conn.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.CopyN(io.Discard, c.conn, int64(binary.BigEndian.Uint32(size[:]))); err != nil {
			t.Fatal(err)
		}
	}
	if !held {
		t.Fatal("the bound never holds anything back")
	}
	stopped := make(chan error, 1)
	go func() { stopped <- b.Stop() }()
	select {
	case err := <-stopped:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("it does not stop")
	}
}
