package broker_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker"
	"github.com/strandline-io/strandline/broker/brokertest"
	"github.com/strandline-io/strandline/broker/record"
	"github.com/strandline-io/strandline/internal/compress"
)

// largeBatch has records of one MiB each, whose values begin with their number.
func largeBatch(codec int8, records int, timestampMs int64) []byte {
	b := record.NewBuilder()
	for i := range records {
		value := bytes.Repeat([]byte{byte(i)}, 1<<20)
		binary.BigEndian.PutUint32(value, uint32(i))
		b.Add(timestampMs, nil, value)
	}
	section := b.Section()
	packed, err := compress.Encode(codec, section, nil)
	if err != nil {
		panic(err)
	}
	return b.AppendCompressed(nil, codec, packed)
}

// TestLargeBatches: with the bounds raised together, a batch of 150 MB goes in and comes out, as it is, unpacked or
// packed, also after a restart.
func TestLargeBatches(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of MB")
	}
	const records = 143
	dir := t.TempDir()
	raised := brokertest.Configure(func(c *broker.Config) {
		c.MaxRequestBytes, c.DataDir, c.Verify = 210_000_000, dir, false
		c.JournalMaxBytes = 256 << 20 // so that some of it moves to files
	})
	b := brokertest.Start(t, raised)
	c := dial(t, b)
	limit := fmt.Sprint(200_000_000)
	createTopic(c, "as-sent", 1, "max.message.bytes", limit)
	createTopic(c, "unpacked", 1, "max.message.bytes", limit, "compression.type", "uncompressed")
	createTopic(c, "small", 1)
	c.conn.SetDeadline(time.Now().Add(3 * time.Minute))
	plain, packed := largeBatch(record.CodecNone, records, 1), largeBatch(record.CodecZstd, records, 2)
	if len(plain) < 149_900_000 {
		t.Fatalf("the batch has %d bytes", len(plain))
	}
	produce(c, "as-sent", 0, plain)
	produce(c, "as-sent", 0, packed)
	produce(c, "unpacked", 0, packed)
	produce(c, "as-sent", 0, plain)
	if r := produced(ask[*kmsg.ProduceResponse](c, produceRequest("small", 0, plain))); r.ErrorCode != 10 {
		t.Errorf("a topic with the usual bound: code %d", r.ErrorCode)
	}
	check := func() {
		t.Helper()
		expectLarge(t, c, "as-sent", 3, records)
		expectLarge(t, c, "unpacked", 1, records)
		if p := listOffset(c, "as-sent", 2); p.ErrorCode != 0 || p.Offset != records || p.Timestamp != 2 {
			t.Errorf("a lookup by time: %+v", p)
		}
	}
	check()
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	c = dial(t, brokertest.Start(t, raised))
	c.conn.SetDeadline(time.Now().Add(3 * time.Minute))
	check()
}

// expectLarge reads a topic of batches that are as largeBatch makes them.
func expectLarge(t *testing.T, c *rawClient, topic string, batches, records int) {
	t.Helper()
	for i := range batches {
		got := fetched(ask[*kmsg.FetchResponse](c, fetchRequest(topic, 0, int64(i*records)))).RecordBatches
		h, err := record.ParseHeader(got)
		if err != nil || h.BaseOffset != int64(i*records) || int(h.RecordCount) != records {
			t.Fatalf("%s, batch %d: %+v, %v", topic, i, h, err)
		}
		if !record.CheckCRC(got) {
			t.Fatalf("%s, batch %d: its CRC is wrong", topic, i)
		}
		section, err := compress.Decode(h.Codec(), got[record.HeaderSize:], nil, 200_000_000)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		it := record.Records(section, h.RecordCount)
		for r := (record.Record{}); it.Next(&r); n++ {
			if binary.BigEndian.Uint32(r.Value) != uint32(n) || len(r.Value) != 1<<20 {
				t.Fatalf("%s, batch %d, record %d: %d bytes", topic, i, n, len(r.Value))
			}
		}
		if n != records {
			t.Fatalf("%s, batch %d has %d records", topic, i, n)
		}
	}
}
