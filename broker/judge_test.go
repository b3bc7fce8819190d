package broker_test

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker"
	"github.com/strandline-io/strandline/broker/brokertest"
	"github.com/strandline-io/strandline/broker/record"
	"github.com/strandline-io/strandline/internal/compress"
	"github.com/strandline-io/strandline/internal/vfs"
)

const nowMs = 1_700_000_000_000

// atNow stops the broker's wall clock.
func atNow() brokertest.Option {
	start := time.UnixMilli(nowMs)
	return brokertest.Configure(func(c *broker.Config) { c.Now = func() time.Time { return start } })
}

// compressed builds a batch like batchOf with a codec.
func compressed(t testing.TB, codec int8, values ...string) []byte {
	t.Helper()
	b := record.NewBuilder()
	for _, v := range values {
		b.Add(nowMs, nil, []byte(v))
	}
	payload, err := compress.Encode(codec, b.Section(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return b.AppendCompressed(nil, codec, payload)
}

// keyed has three records, of which only the second has a key, and the time atMs.
func keyed(atMs int64) []byte {
	b := record.NewBuilder()
	b.Add(nowMs, nil, []byte("a"))
	b.Add(atMs, []byte("k"), []byte("b"))
	b.Add(nowMs, nil, []byte("c"))
	return b.Append(nil)
}

// TestAcksComeBehindTheContainer: what is no batch is told before wrong acks, what is a bad batch behind them.
func TestAcksComeBehindTheContainer(t *testing.T) {
	c := dial(t, brokertest.Start(t, atNow()))
	createTopic(c, "t", 1)
	f := func(name string, version int16, batch []byte, want int16) {
		t.Helper()
		req := produceRequest("t", 0, batch)
		req.Version, req.Acks = version, 2
		if p := produced(ask[*kmsg.ProduceResponse](c, req)); p.ErrorCode != want {
			t.Errorf("%s: code %d, want %d", name, p.ErrorCode, want)
		}
	}
	good := batchOf(nowMs, "a")
	broken := bytes.Clone(good)
	broken[len(broken)-1] ^= 1
	f("good", 9, good, 21)
	f("wrong CRC", 9, broken, 21)
	f("no batch", 9, nil, 87)
	f("two batches", 9, append(bytes.Clone(good), good...), 87)
	f("zstd too early", 6, compressed(t, record.CodecZstd, "a"), 76)
}

func TestRefusedBatches(t *testing.T) {
	c := dial(t, brokertest.Start(t, atNow()))
	createTopic(c, "t", 1)
	createTopic(c, "small", 1, "max.message.bytes", "200")
	createTopic(c, "compact", 1, "cleanup.policy", "compact")
	createTopic(c, "unpacked", 1, "max.message.bytes", "500", "compression.type", "uncompressed")
	createTopic(c, "short-files", 1, "max.message.bytes", "4000000", "segment.bytes", "1048576")
	createTopic(c, "append-time", 1, "message.timestamp.type", "LogAppendTime")
	f := func(name, topic string, version int16, batch []byte, code int16, records ...int32) {
		t.Helper()
		req := produceRequest(topic, 0, batch)
		req.Version = version
		p := produced(ask[*kmsg.ProduceResponse](c, req))
		if p.ErrorCode != code || p.BaseOffset != -1 {
			t.Errorf("%s: code %d, offset %d, want code %d", name, p.ErrorCode, p.BaseOffset, code)
		}
		if version >= 8 && p.ErrorMessage == nil {
			t.Errorf("%s: no message", name)
		}
		var got []int32
		for _, r := range p.ErrorRecords {
			got = append(got, r.RelativeOffset)
		}
		if diff := cmp.Diff(records, got); diff != "" {
			t.Errorf("%s: records (-want +got):\n%s", name, diff)
		}
	}
	good := batchOf(nowMs, "value")
	changed := func(at int, to byte) []byte {
		b := bytes.Clone(good)
		b[at] = to
		return b
	}
	f("no batch", "t", 9, nil, 87)
	f("two batches", "t", 9, append(bytes.Clone(good), good...), 87)
	f("cut short", "t", 9, good[:len(good)-1], 87)
	f("shorter than a header", "t", 9, good[:30], 2)
	f("old magic", "t", 9, changed(16, 1), 87)
	f("wrong CRC", "t", 9, changed(len(good)-1, 0xee), 2)
	f("base offset", "t", 9, changed(7, 1), 87)
	f("too large", "small", 9, batchOf(nowMs, string(make([]byte, 200))), 10)
	f("no key", "compact", 9, compressed(t, record.CodecGzip, "a", "b"), 87, 0, 1)
	f("from the future", "t", 9, batchOf(nowMs+3_600_001, "a"), 32, 0)
	f("timestamp type", "append-time", 9, func() []byte {
		b := bytes.Clone(good)
		record.PatchAppendTime(b, nowMs)
		return b
	}(), 32, 0)
	f("zstd too early", "t", 6, compressed(t, record.CodecZstd, "a"), 76)
	f("not what the codec makes", "t", 9, func() []byte {
		h, _ := record.ParseHeader(good)
		return record.AppendRebuilt(nil, h, record.CodecZstd, []byte("no zstd frame"))
	}(), 2)
	f("unknown topic", "u", 9, good, 3)
	f("too large when unpacked", "unpacked", 9, compressed(t, record.CodecGzip, string(make([]byte, 600))), 10)
	f("larger than a file", "short-files", 9, batchOf(nowMs, string(make([]byte, 1_500_000))), 18)
	for version := int16(3); version <= 12; version++ {
		noKey, badTime := []int32{0, 2}, []int32{0, 1, 2}
		if version < 8 {
			noKey, badTime = nil, nil
		}
		f("some have no key", "compact", version, keyed(nowMs), 87, noKey...)
		f("and one comes from the future", "compact", version, keyed(nowMs+3_600_001), 32, badTime...)
	}
	f("old client hears only the code", "small", 5, batchOf(nowMs, string(make([]byte, 200))), 10)

	if got := produce(c, "t", 0, bytes.Clone(good)); got != 0 {
		t.Errorf("the first accepted batch has offset %d", got)
	}
}

// TestCompressionOfTopics produces every codec to topics of every compression.type and reads back.
func TestCompressionOfTopics(t *testing.T) {
	c := dial(t, brokertest.Start(t, atNow()))
	codecs := map[string]int8{
		"uncompressed": record.CodecNone, "gzip": record.CodecGzip, "snappy": record.CodecSnappy,
		"lz4": record.CodecLZ4, "zstd": record.CodecZstd, "producer": -1,
	}
	for name, want := range codecs {
		createTopic(c, name, 1, "compression.type", name)
		for sent := record.CodecNone; sent <= record.CodecZstd; sent++ {
			batch := compressed(t, sent, "one", "two", "three")
			offset := produce(c, name, 0, bytes.Clone(batch))
			p := fetched(ask[*kmsg.FetchResponse](c, fetchRequest(name, 0, offset)))
			h, err := record.ParseHeader(p.RecordBatches)
			if err != nil || !record.CheckCRC(p.RecordBatches[:h.SizeBytes]) {
				t.Fatalf("%s, sent %d: stored batch: %v", name, sent, err)
			}
			if wantCodec := want; wantCodec == -1 && h.Codec() != sent || wantCodec != -1 && h.Codec() != want {
				t.Errorf("%s: sent with codec %d, stored with %d", name, sent, h.Codec())
			}
			section, err := compress.Decode(h.Codec(), p.RecordBatches[record.HeaderSize:h.SizeBytes], nil, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			var values []string
			it := record.Records(section, h.RecordCount)
			for r := (record.Record{}); it.Next(&r); {
				values = append(values, string(r.Value))
			}
			if diff := cmp.Diff([]string{"one", "two", "three"}, values); diff != "" || it.Err() != nil {
				t.Errorf("%s, sent %d: %v (-want +got):\n%s", name, sent, it.Err(), diff)
			}
		}
	}
}

// TestHeadersAreSettled: max timestamp and timestamp type are the broker's word, not the client's.
func TestHeadersAreSettled(t *testing.T) {
	c := dial(t, brokertest.Start(t, atNow()))
	createTopic(c, "create-time", 1)
	createTopic(c, "append-time", 1, "message.timestamp.type", "LogAppendTime")
	batch := batchOf(nowMs-5, "a")
	record.PatchAppendTime(batch, nowMs+77)
	f := func(topic string, batch []byte, wantMs int64, appendTime bool) {
		t.Helper()
		r := produced(ask[*kmsg.ProduceResponse](c, produceRequest(topic, 0, batch)))
		if r.ErrorCode != 0 {
			t.Fatalf("%s: code %d, %v", topic, r.ErrorCode, r.ErrorMessage)
		}
		stored := fetched(ask[*kmsg.FetchResponse](c, fetchRequest(topic, 0, r.BaseOffset))).RecordBatches
		h, err := record.ParseHeader(stored)
		if err != nil || !record.CheckCRC(stored) {
			t.Fatalf("%s: %v", topic, err)
		}
		if h.MaxTimestamp != wantMs || h.LogAppendTime() != appendTime || appendTime != (r.LogAppendTime == wantMs) {
			t.Errorf("%s: max timestamp %d, append time %t, answered %d", topic, h.MaxTimestamp, h.LogAppendTime(), r.LogAppendTime)
		}
	}
	f("create-time", batch, nowMs-5, false)
	f("append-time", batchOf(nowMs-5, "a"), nowMs, true)
}

// TestInnerOffsetsAreRebuilt: a compressed batch with other offsets than 0 to n-1 is stored as if it had these.
func TestInnerOffsetsAreRebuilt(t *testing.T) {
	c := dial(t, brokertest.Start(t, atNow()))
	createTopic(c, "t", 1)
	b := record.NewBuilder()
	b.AddAt(5, nowMs, nil, []byte("a"))
	b.AddAt(9, nowMs, nil, []byte("b"))
	payload, err := compress.Encode(record.CodecLZ4, b.Section(), nil)
	if err != nil {
		t.Fatal(err)
	}
	h, err := record.ParseHeader(b.AppendCompressed(nil, record.CodecLZ4, payload))
	if err != nil {
		t.Fatal(err)
	}
	h.LastOffsetDelta = 1
	produce(c, "t", 0, record.AppendRebuilt(nil, h, record.CodecLZ4, payload))
	stored := fetched(ask[*kmsg.FetchResponse](c, fetchRequest("t", 0, 0))).RecordBatches
	section, err := compress.Decode(record.CodecLZ4, stored[record.HeaderSize:], nil, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var deltas []int32
	it := record.Records(section, 2)
	for r := (record.Record{}); it.Next(&r); {
		deltas = append(deltas, r.OffsetDelta)
	}
	if diff := cmp.Diff([]int32{0, 1}, deltas); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestLogAppendTime: on such a topic the time of a record is the broker's in all that readers get, whatever the producer
// said, in memory and in files; what was stored under another setting keeps its time.
func TestLogAppendTime(t *testing.T) {
	for name, option := range map[string]brokertest.Option{"memory": brokertest.Dir(""), "files": withSmallJournal(vfs.NewMem())} {
		var passed atomic.Int64
		start := time.UnixMilli(nowMs)
		b := brokertest.Start(t, option, brokertest.Configure(func(c *broker.Config) {
			c.Now = func() time.Time { return start.Add(time.Duration(passed.Load()) * time.Millisecond) }
		}))
		c := dial(t, b)
		createTopic(c, "t", 1, "message.timestamp.type", "LogAppendTime")
		createTopic(c, "filler", 1)
		produce(c, "t", 0, batchOf(nowMs+50, "a", "b")) // the producer's clock is ahead
		passed.Store(100)
		produce(c, "t", 0, compressed(t, record.CodecGzip, "c", "d")) // at nowMs, by the producer
		alterTopic(c, "t", "message.timestamp.type", "CreateTime")
		passed.Store(200)
		produce(c, "t", 0, batchOf(nowMs+30, "e"))
		if name == "files" {
			for range 40 {
				produce(c, "filler", 0, batchOf(1, string(make([]byte, 10_000))))
			}
		}
		at := func(timestamp, wantOffset, wantMs int64) {
			t.Helper()
			if p := listOffset(c, "t", timestamp); p.ErrorCode != 0 || p.Offset != wantOffset || p.Timestamp != wantMs {
				t.Errorf("%s: at %d: %+v, want offset %d at %d", name, timestamp-nowMs, p, wantOffset, wantMs-nowMs)
			}
		}
		at(0, 0, nowMs)
		at(nowMs, 0, nowMs)
		at(nowMs+1, 2, nowMs+100)
		at(nowMs+100, 2, nowMs+100)
		at(nowMs+101, -1, -1)
		at(-3, 2, nowMs+100)
		var got []string
		for rest := fetched(ask[*kmsg.FetchResponse](c, fetchRequest("t", 0, 0))).RecordBatches; len(rest) > 0; {
			h, err := record.ParseHeader(rest)
			if err != nil || !record.CheckCRC(rest[:h.SizeBytes]) {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%d-%d %d %t", h.BaseOffset, h.LastOffset(), h.MaxTimestamp-nowMs, h.LogAppendTime()))
			rest = rest[h.SizeBytes:]
		}
		if diff := cmp.Diff([]string{"0-1 0 true", "2-3 100 true", "4-4 30 false"}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		client, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		var times []int64
		for len(times) < 5 {
			client.PollFetches(t.Context()).EachRecord(func(r *kgo.Record) { times = append(times, r.Timestamp.UnixMilli()-nowMs) })
		}
		if diff := cmp.Diff([]int64{0, 0, 100, 100, 30}, times); diff != "" {
			t.Errorf("%s, a client (-want +got):\n%s", name, diff)
		}
	}
}

// alterTopic sets one setting of a topic.
func alterTopic(c *rawClient, topic, name, value string) {
	c.t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	config.Name, config.Value = name, &value
	r.Configs = append(r.Configs, config)
	req.Resources = append(req.Resources, r)
	if resp := ask[*kmsg.IncrementalAlterConfigsResponse](c, req); resp.Resources[0].ErrorCode != 0 {
		c.t.Fatalf("altering %s: code %d", topic, resp.Resources[0].ErrorCode)
	}
}
