package broker_test

import (
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker"
	"github.com/strandline-io/strandline/broker/brokertest"
)

// deleteRecords moves the log start of a topic's first partition.
func deleteRecords(c *rawClient, topic string, offset int64) (code int16, lowWatermark int64) {
	c.t.Helper()
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.Version = 2
	rt := kmsg.NewDeleteRecordsRequestTopic()
	rt.Topic = topic
	rt.Partitions = []kmsg.DeleteRecordsRequestTopicPartition{{Offset: offset}}
	req.Topics = append(req.Topics, rt)
	p := ask[*kmsg.DeleteRecordsResponse](c, req).Topics[0].Partitions[0]
	return p.ErrorCode, p.LowWatermark
}

// Deleted records are gone for every reader, also after a restart, and their files go.
func TestDeleteRecords(t *testing.T) {
	dir := t.TempDir()
	small := func(cfg *broker.Config) { cfg.JournalSegmentBytes, cfg.JournalMaxBytes = 32<<10, 128<<10 }
	b := brokertest.Start(t, brokertest.Dir(dir), brokertest.Configure(small))
	c := dial(t, b)
	createTopic(c, "t", 1, "segment.bytes", "1048576")
	value := string(make([]byte, 4000))
	const batches = 800
	for i := range batches {
		produce(c, "t", 0, batchOf(int64(1000+i), value))
	}
	logs := func() int {
		names, err := filepath.Glob(filepath.Join(dir, "partitions", "*", "*.log"))
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	before := logs()
	if code, low := deleteRecords(c, "t", batches-1); code != 0 || low != batches-1 {
		t.Fatalf("code %d, low watermark %d", code, low)
	}
	check := func(when string) {
		t.Helper()
		f := func(timestamp, want int64) {
			t.Helper()
			if got := listOffset(c, "t", timestamp); got.Offset != want {
				t.Errorf("%s: timestamp %d is at offset %d, want %d", when, timestamp, got.Offset, want)
			}
		}
		f(-2, batches-1)
		f(0, batches-1)
		f(-3, batches-1)
		if got := fetched(ask[*kmsg.FetchResponse](c, fetchRequest("t", 0, batches-2))); got.ErrorCode != 1 || got.LogStartOffset != batches-1 {
			t.Errorf("%s: a deleted offset: code %d, log start %d", when, got.ErrorCode, got.LogStartOffset)
		}
		if got := fetched(ask[*kmsg.FetchResponse](c, fetchRequest("t", 0, batches-1))); got.ErrorCode != 0 || len(got.RecordBatches) == 0 {
			t.Errorf("%s: the last record: code %d, %d bytes", when, got.ErrorCode, len(got.RecordBatches))
		}
	}
	check("at once")
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	b = brokertest.Start(t, brokertest.Dir(dir), brokertest.Configure(small))
	c = dial(t, b)
	check("after a restart")
	if before < 3 {
		t.Errorf("%d files before, want several", before)
	}
	eventually(t, "the files of deleted records go", func() bool { return logs() <= 2 })
}
