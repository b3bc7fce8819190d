package broker_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/brokertest"
	"github.com/strandline-io/strandline/broker/record"
	"github.com/strandline-io/strandline/internal/compress"
)

// The rules of kafka-eos.md A.3 and C.10, what a Produce is refused for and in which order, with the bytes that clients send;
// and with them H.4, what Apache Kafka's own tests assert of its validator. What else tests them:
//
//	A.3   steps 1, 2, 4, 5: TestProduceOrder in machine; step 6: TestAcksComeBehindTheContainer, TestAcksZero; step 7: docs/compat.md
//	C.1   TestGoldenBatch, TestForeignBatch in record        C.2  TestCheckBatch there
//	C.3   TestMarker there, TestC3MarkerInTheLog in machine
//	C.10  TestCheckBatch, TestCheckRecords, TestRenumber, TestSettle in record; TestRefusedBatches; all codecs into all kinds of
//	      topics: TestCompressionOfTopics; each time that a reader gets: TestLogAppendTime; sizes: TestLargeBatches

var codecNames = []string{"none", "gzip", "snappy", "lz4", "zstd"}

// resealed repairs the CRC of a batch that was changed.
func resealed(raw []byte) []byte {
	binary.BigEndian.PutUint32(raw[17:], record.ComputeCRC(raw))
	return raw
}

// TestA3Order spoils more and more of one request: the error is that of the earliest step.
func TestA3Order(t *testing.T) {
	c := dial(t, brokertest.Start(t, atNow()))
	createTopic(c, "t", 1, "cleanup.policy", "compact,delete", "max.message.bytes", "2000000", "segment.bytes", "1048576")
	id := ask[*kmsg.InitProducerIDResponse](c, kmsg.NewPtrInitProducerIDRequest()).ProducerID
	value, key, atMs := 10, []byte("k"), int64(nowMs)
	var spoiled []func(raw []byte, req *kmsg.ProduceRequest)
	f := func(step string, want int16, spoil func(raw []byte, req *kmsg.ProduceRequest)) {
		t.Helper()
		if spoil != nil {
			spoiled = append(spoiled, spoil)
		}
		b := record.NewBuilder()
		b.ProducerID, b.ProducerEpoch, b.BaseSequence = id, 0, 7
		b.Add(atMs, key, make([]byte, value))
		raw := b.Append(nil)
		req := produceRequest("t", 0, raw)
		for _, s := range spoiled {
			s(raw, req)
		}
		if p := produced(ask[*kmsg.ProduceResponse](c, req)); p.ErrorCode != want || p.BaseOffset != -1 {
			t.Errorf("%s: code %d at offset %d, want %d", step, p.ErrorCode, p.BaseOffset, want)
		}
	}
	first := record.NewBuilder()
	first.ProducerID, first.ProducerEpoch, first.BaseSequence = id, 0, 0
	first.Add(nowMs, key, nil)
	produce(c, "t", 0, first.Append(nil))
	// From the last check to the first.
	f("12 sequence", 45, nil)
	value = 1_200_000
	f("11 segment.bytes", 18, nil)
	atMs += 3_600_001
	f("10 timestamp", 32, nil)
	key = nil
	f("10 no key, told alone of its record", 87, nil)
	key = []byte("k")
	f("10 count", 87, func(raw []byte, _ *kmsg.ProduceRequest) { raw[60]++; resealed(raw) })
	f("9 CRC", 2, func(raw []byte, _ *kmsg.ProduceRequest) { raw[20] ^= 1 })
	value = 2_500_000
	f("9 size", 10, nil)
	f("9 base offset", 87, func(raw []byte, _ *kmsg.ProduceRequest) { raw[7] = 1 })
	f("6 acks", 21, func(_ []byte, req *kmsg.ProduceRequest) { req.Acks = 2 })
	f("3 zstd before version 7", 76, func(raw []byte, req *kmsg.ProduceRequest) { raw[22], req.Version = 4, 6 })
	f("3 magic", 87, func(raw []byte, _ *kmsg.ProduceRequest) { raw[16] = 1 })
	f("2 partition", 3, func(_ []byte, req *kmsg.ProduceRequest) { req.Topics[0].Partitions[0].Partition = 1 })
}

// A.3 step 1 comes before step 3: that a transactional batch has no transactional id is said first, whatever follows it.
func TestA3TransactionalBeforeContainer(t *testing.T) {
	c := dial(t, brokertest.Start(t))
	createTopic(c, "t", 1)
	b := record.NewBuilder()
	b.ProducerID, b.ProducerEpoch, b.BaseSequence, b.Transactional = 1, 0, 0, true
	b.Add(1, nil, []byte("a"))
	raw := b.Append(nil)
	for name, set := range map[string][]byte{"alone": raw, "and another": append(bytes.Clone(raw), raw...), "and a part": append(bytes.Clone(raw), raw[:70]...)} {
		if p := produced(ask[*kmsg.ProduceResponse](c, produceRequest("t", 0, set))); p.ErrorCode != 53 {
			t.Errorf("%s: code %d, want 53", name, p.ErrorCode)
		}
	}
}

// A.3 step 3: message formats 0 and 1, as clients of before 0.11 send them, also compressed.
func TestA3OldFormats(t *testing.T) {
	c := dial(t, brokertest.Start(t))
	id := createTopic(c, "t", 1)
	for magic := range byte(2) {
		for name, set := range map[string][]byte{
			"one message":    oldMessage(magic, 0, "a"),
			"two messages":   append(oldMessage(magic, 0, "a"), oldMessage(magic, 0, "b")...),
			"a gzip wrapper": oldMessage(magic, 1, strings.Repeat("x", 100)),
			"behind a batch": append(batchOf(1, "a"), oldMessage(magic, 0, "a")...),
		} {
			for version := int16(3); version <= 13; version++ {
				req := produceRequest("t", 0, set)
				req.Version, req.Topics[0].TopicID = version, id
				if p := produced(ask[*kmsg.ProduceResponse](c, req)); p.ErrorCode != 87 || p.BaseOffset != -1 {
					t.Errorf("%s of format %d, version %d: code %d", name, magic, version, p.ErrorCode)
				}
			}
		}
	}
	if got := listOffset(c, "t", -1).Offset; got != 0 {
		t.Errorf("the partition ends at %d", got)
	}
}

// oldMessage is a message set of one message in format 0 or 1.
func oldMessage(magic, attributes byte, value string) []byte {
	body := []byte{magic, attributes}
	if magic == 1 {
		body = binary.BigEndian.AppendUint64(body, nowMs)
	}
	body = binary.BigEndian.AppendUint32(body, 0xffffffff) // no key
	body = binary.BigEndian.AppendUint32(body, uint32(len(value)))
	body = append(body, value...)
	set := binary.BigEndian.AppendUint64(nil, 0)
	set = binary.BigEndian.AppendUint32(set, uint32(len(body)+4))
	set = binary.BigEndian.AppendUint32(set, crc32.ChecksumIEEE(body))
	return append(set, body...)
}

// A.3 step 8: of one replica at most one can be demanded, whatever min.insync.replicas says.
func TestA3MinInSyncReplicas(t *testing.T) {
	c := dial(t, brokertest.Start(t))
	createTopic(c, "t", 1, "min.insync.replicas", "2")
	for _, acks := range []int16{-1, 1} {
		req := produceRequest("t", 0, batchOf(1, "a"))
		req.Acks = acks
		if p := produced(ask[*kmsg.ProduceResponse](c, req)); p.ErrorCode != 0 {
			t.Errorf("acks %d: code %d", acks, p.ErrorCode)
		}
	}
}

// draft is a batch that a test writes and spoils: first its records, then their bytes, then the header.
type draft struct {
	*record.Builder
	section func([]byte) []byte
	header  func([]byte)
}

// write compresses and seals it.
func (d *draft) write(t *testing.T, codec int8) []byte {
	t.Helper()
	section := bytes.Clone(d.Section())
	if d.section != nil {
		section = d.section(section)
	}
	if codec != record.CodecNone {
		packed, err := compress.Encode(codec, section, nil)
		if err != nil {
			t.Fatal(err)
		}
		section = packed
	}
	raw := d.AppendCompressed(nil, codec, section)
	if d.header != nil {
		d.header(raw)
	}
	return resealed(raw)
}

// three fills a draft with records of the given distances from now.
func (d *draft) three(a, b, c int64) {
	for i, ms := range []int64{a, b, c} {
		d.Add(nowMs+ms, []byte{byte(i)}, []byte("value"))
	}
}

// verdicts are C.10's rows: what is sent, and what a topic with CreateTime and one with LogAppendTime say to it. Bad records are
// named by their index.
var verdicts = []struct {
	name           string
	spoil          func(*draft)
	create, append string
}{
	{"nothing wrong", func(d *draft) { d.three(0, 5, -5) }, "0 []", "0 []"},
	{"control batch", func(d *draft) { d.three(0, 0, 0); d.header = func(b []byte) { b[22] |= 0x20 } }, "87 []", "87 []"},
	{"no records", func(*draft) {}, "87 []", "87 []"},
	{"count below 0", func(d *draft) { d.three(0, 0, 0); d.header = func(b []byte) { copy(b[57:], "\xff\xff\xff\xff") } }, "87 []", "87 []"},
	{"last offset delta and count differ", func(d *draft) { d.three(0, 0, 0); d.header = func(b []byte) { b[26] = 5 } }, "87 []", "87 []"},
	{"one record less than said", func(d *draft) { d.three(0, 0, 0); d.header = func(b []byte) { b[26], b[60] = 3, 4 } }, "87 []", "87 []"},
	{"one record more than said", func(d *draft) { d.three(0, 0, 0); d.header = func(b []byte) { b[26], b[60] = 1, 2 } }, "87 []", "87 []"},
	{"producer id without a sequence", func(d *draft) { d.three(0, 0, 0); d.ProducerID, d.ProducerEpoch, d.BaseSequence = 5, 0, -1 }, "87 []", "87 []"},
	{"no key", func(d *draft) { d.three(0, 0, 0); d.Add(nowMs, nil, []byte("v")) }, "87 [3]", "87 [3]"},
	{"at the bounds of time", func(d *draft) { d.three(-1000, 0, 2000) }, "0 []", "0 []"},
	{"too old", func(d *draft) { d.three(0, -1001, 0) }, "32 [1]", "0 []"},
	{"too new", func(d *draft) { d.three(0, 0, 2001) }, "32 [2]", "0 []"},
	{"too old, and no key", func(d *draft) { d.three(-2000, 0, 0); d.Add(nowMs, nil, nil) }, "32 [0 3]", "87 [3]"},
	{"no key, and too new", func(d *draft) { d.Add(nowMs, nil, nil); d.Add(nowMs+5000, []byte("k"), nil) }, "32 [0 1]", "87 [0]"},
	{"no time", func(d *draft) { d.three(-1-nowMs, -1-nowMs, -1-nowMs) }, "0 []", "0 []"},
	{"too old without a key, which is told alone", func(d *draft) { d.Add(nowMs-2000, nil, nil) }, "87 [0]", "87 [0]"},
	{"timestamp type LogAppendTime", func(d *draft) { d.three(0, 0, 0); d.header = func(b []byte) { b[22] |= 8 } }, "0 []", "32 [0 1 2]"},
	{"cut within a record", func(d *draft) { d.three(0, 0, 0); d.section = func(s []byte) []byte { return s[:len(s)-3] } }, "87 []", "87 []"},
	{"bytes behind the records", func(d *draft) { d.three(0, 0, 0); d.section = func(s []byte) []byte { return append(s, 0) } }, "87 []", "87 []"},
	{"a length that is no varint", func(d *draft) {
		d.three(0, 0, 0)
		d.section = func(s []byte) []byte { return append(bytes.Repeat([]byte{0xff}, 11), s...) }
	}, "87 []", "87 []"},
}

// TestC10Verdicts: C.10 row by row, for every codec and timestamp type (H.4).
func TestC10Verdicts(t *testing.T) {
	c := dial(t, brokertest.Start(t, atNow()))
	bounds := []string{"cleanup.policy", "compact,delete", "message.timestamp.before.max.ms", "1000", "message.timestamp.after.max.ms", "2000"}
	createTopic(c, "create", 1, bounds...)
	createTopic(c, "append", 1, append(bounds, "message.timestamp.type", "LogAppendTime")...)
	for codec, codecName := range codecNames {
		for _, v := range verdicts {
			for topic, want := range map[string]string{"create": v.create, "append": v.append} {
				d := &draft{Builder: record.NewBuilder()}
				v.spoil(d)
				p := produced(ask[*kmsg.ProduceResponse](c, produceRequest(topic, 0, d.write(t, int8(codec)))))
				named := []int32{}
				for _, r := range p.ErrorRecords {
					named = append(named, r.RelativeOffset)
				}
				if got := fmt.Sprint(p.ErrorCode, " ", named); got != want {
					t.Errorf("%s, %s, topic %s: %s, want %s (%v)", v.name, codecName, topic, got, want, p.ErrorMessage)
				}
				if (p.ErrorMessage == nil) != (p.ErrorCode == 0) || (p.BaseOffset == -1) != (p.ErrorCode != 0) || (p.LogAppendTime == nowMs) != (p.ErrorCode == 0 && topic == "append") {
					t.Errorf("%s, %s, topic %s: answered %+v", v.name, codecName, topic, p)
				}
			}
		}
		// Offsets that are not 0 to n-1: only a compressed batch may be built anew.
		want := int16(0)
		if codec == 0 {
			want = 87
		}
		d := &draft{Builder: record.NewBuilder(), header: func(b []byte) { b[26] = 1 }}
		d.AddAt(3, nowMs, []byte("k"), nil)
		d.AddAt(9, nowMs, []byte("k"), nil)
		if p := produced(ask[*kmsg.ProduceResponse](c, produceRequest("create", 0, d.write(t, int8(codec))))); p.ErrorCode != want {
			t.Errorf("inner offsets 3 and 9, %s: code %d, want %d", codecName, p.ErrorCode, want)
		}
		if codec > 0 {
			d := &draft{Builder: record.NewBuilder()}
			d.three(0, 0, 0)
			raw := resealed(d.AppendCompressed(nil, int8(codec), []byte("what no codec makes")))
			if p := produced(ask[*kmsg.ProduceResponse](c, produceRequest("create", 0, raw))); p.ErrorCode != 2 {
				t.Errorf("not compressed, %s: code %d, want 2", codecName, p.ErrorCode)
			}
		}
	}
}

// TestC10WhatIsKept: records and the producer's fields stay as they were sent, whatever codec and timestamp type the topic
// wants; base offset, leader epoch, max timestamp, timestamp type and CRC are the broker's (H.4). Compressed bytes are not
// touched unless the codec differs: a topic's level is none.
func TestC10WhatIsKept(t *testing.T) {
	c := dial(t, brokertest.Start(t, atNow()))
	for sent, sentName := range codecNames {
		for _, stored := range append([]string{"producer"}, codecNames...) {
			for _, kind := range []string{"CreateTime", "LogAppendTime"} {
				topic := sentName + "-" + stored + "-" + kind
				settings := []string{"message.timestamp.type", kind, "compression.type", strings.Replace(stored, "none", "uncompressed", 1)}
				for codec, level := range map[string]string{"gzip": "1", "lz4": "17", "zstd": "22"} {
					settings = append(settings, "compression."+codec+".level", level)
				}
				createTopic(c, topic, 1, settings...)
				produce(c, topic, 0, batchOf(nowMs, "before"))
				d := &draft{Builder: record.NewBuilder(), header: func(b []byte) { binary.BigEndian.PutUint64(b[35:], 1) }}
				d.ProducerID, d.ProducerEpoch, d.BaseSequence = 77, 3, 2147483646
				d.Add(nowMs+9, []byte("key"), []byte(strings.Repeat("value", 50)), record.HeaderField{Key: "h", Value: []byte("v")}, record.HeaderField{Key: "h"})
				d.Add(nowMs-4, nil, nil)
				d.Add(nowMs, []byte{}, []byte{})
				raw := d.write(t, int8(sent))
				offset := produce(c, topic, 0, bytes.Clone(raw))
				checkKept(t, topic, raw, fetched(ask[*kmsg.FetchResponse](c, fetchRequest(topic, 0, offset))).RecordBatches, kind == "LogAppendTime")
				if want := slices.Index(codecNames, stored); want >= 0 {
					if h, _ := record.ParseHeader(fetched(ask[*kmsg.FetchResponse](c, fetchRequest(topic, 0, offset))).RecordBatches); int(h.Codec()) != want {
						t.Errorf("%s: stored with codec %d", topic, h.Codec())
					}
				}
			}
		}
	}
}

// checkKept compares a batch as it was sent with what is stored of it, at offset 1 in the first life of a broker.
func checkKept(t *testing.T, topic string, sent, stored []byte, appendTime bool) {
	t.Helper()
	h, err := record.ParseHeader(stored)
	if err != nil || !record.CheckCRC(stored) {
		t.Fatalf("%s: %v", topic, err)
	}
	was, err := record.ParseHeader(sent)
	if err != nil {
		t.Fatal(err)
	}
	want := was
	want.BaseOffset, want.LeaderEpoch, want.MaxTimestamp = 1, 1, nowMs+9
	want.CRC, want.SizeBytes = h.CRC, h.SizeBytes
	want.Attributes = h.Attributes & 7
	if appendTime {
		want.MaxTimestamp, want.Attributes = nowMs, want.Attributes|8
	}
	if diff := cmp.Diff(want, h); diff != "" {
		t.Errorf("%s: header (-want +got):\n%s", topic, diff)
	}
	if was.Codec() == h.Codec() && !bytes.Equal(sent[record.HeaderSize:], stored[record.HeaderSize:]) {
		t.Errorf("%s: the records were compressed again", topic)
	}
	if diff := cmp.Diff(unpacked(t, sent, was), unpacked(t, stored, h)); diff != "" {
		t.Errorf("%s: records (-sent +stored):\n%s", topic, diff)
	}
}

func unpacked(t *testing.T, raw []byte, h record.Header) []byte {
	t.Helper()
	section := raw[record.HeaderSize:]
	if h.Codec() == record.CodecNone {
		return section
	}
	section, err := compress.Decode(h.Codec(), section, nil, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return section
}

// TestC10MaxMessageBytes: max.message.bytes bounds the batch as it comes and as it is stored, to the byte, for every codec.
func TestC10MaxMessageBytes(t *testing.T) {
	c := dial(t, brokertest.Start(t, atNow()))
	for codec, name := range codecNames {
		batch := compressed(t, int8(codec), strings.Repeat("value", 100))
		for _, less := range []int{0, 1} {
			topic := fmt.Sprint(name, "-", less)
			createTopic(c, topic, 1, "max.message.bytes", fmt.Sprint(len(batch)-less))
			if p := produced(ask[*kmsg.ProduceResponse](c, produceRequest(topic, 0, batch))); p.ErrorCode != int16(10*less) {
				t.Errorf("%s of %d bytes, max.message.bytes %d less: code %d", name, len(batch), less, p.ErrorCode)
			}
		}
		plain := batchOf(nowMs, strings.Repeat("value", 100))
		topic := name + "-unpacked"
		createTopic(c, topic, 1, "compression.type", "uncompressed", "max.message.bytes", fmt.Sprint(len(plain)-10))
		if p := produced(ask[*kmsg.ProduceResponse](c, produceRequest(topic, 0, batch))); p.ErrorCode != 10 {
			t.Errorf("%s of %d bytes, unpacked: code %d", name, len(batch), p.ErrorCode)
		}
	}
}
