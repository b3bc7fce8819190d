package record_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/record"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// golden is two records of producer 7, epoch 2, sequence 5, the second with a null key and with headers, one null.
func golden() *record.Builder {
	b := record.NewBuilder()
	b.BaseOffset, b.LeaderEpoch = 42, 3
	b.ProducerID, b.ProducerEpoch, b.BaseSequence, b.Transactional = 7, 2, 5, true
	b.Add(1_700_000_000_000, []byte("k"), []byte("value"))
	b.Add(1_700_000_000_010, nil, []byte{}, record.HeaderField{Key: "h", Value: []byte("x")}, record.HeaderField{Key: "n"})
	return b
}

func TestGoldenBatch(t *testing.T) {
	want := unhex(t, `
	000000000000002a 0000004c 00000003 02 451a3950 0010 00000001
	0000018bcfe56800 0000018bcfe5680a 0000000000000007 0002 00000005 00000002
	18 00 00 00 02 6b 0a 76616c7565 00
	1a 00 14 02 01 00 04 02 68 02 78 02 6e 01`)
	got := golden().Append(nil)
	if diff := cmp.Diff(hex.EncodeToString(want), hex.EncodeToString(got)); diff != "" {
		t.Fatalf("batch (-want +got):\n%s", diff)
	}
	h, err := record.ParseHeader(got[:record.HeaderSize])
	if err != nil {
		t.Fatal(err)
	}
	wantHeader := record.Header{
		BaseOffset: 42, SizeBytes: int32(len(got)), LeaderEpoch: 3, Magic: 2, CRC: 0x451a3950, Attributes: 0x10, LastOffsetDelta: 1,
		BaseTimestamp: 1_700_000_000_000, MaxTimestamp: 1_700_000_000_010, ProducerID: 7, ProducerEpoch: 2, BaseSequence: 5, RecordCount: 2,
	}
	if diff := cmp.Diff(wantHeader, h); diff != "" {
		t.Fatalf("header (-want +got):\n%s", diff)
	}
	if !record.CheckCRC(got) || record.CheckCRC(got[:60]) {
		t.Fatal("CheckCRC is wrong")
	}
	if !h.Transactional() || h.Control() || h.LogAppendTime() || !h.Idempotent() || h.LastOffset() != 43 || h.NextOffset() != 44 || h.LastSequence() != 6 || h.Codec() != 0 {
		t.Fatalf("methods of %+v", h)
	}
}

// TestForeignBatch lets the code that kgo uses write and read the same batch.
func TestForeignBatch(t *testing.T) {
	ours := golden().Append(nil)
	var theirs kmsg.RecordBatch
	if err := theirs.ReadFrom(ours); err != nil {
		t.Fatal(err)
	}
	if again := theirs.AppendTo(nil); !bytes.Equal(again, ours) {
		t.Fatalf("kmsg writes\n%x for\n%x", again, ours)
	}
	rest, it, n := theirs.Records, record.Records(theirs.Records, theirs.NumRecords), 0
	var r record.Record
	for ; it.Next(&r); n++ {
		var foreign kmsg.Record
		if err := foreign.ReadFrom(rest); err != nil {
			t.Fatal(err)
		}
		var headers []kmsg.Header
		for hs := r.Headers(); ; {
			key, value, ok := hs.Next()
			if !ok {
				break
			}
			headers = append(headers, kmsg.Header{Key: string(key), Value: value})
		}
		mine := kmsg.Record{Length: foreign.Length, TimestampDelta64: r.TimestampDelta, TimestampDelta: int32(r.TimestampDelta), OffsetDelta: r.OffsetDelta, Key: r.Key, Value: r.Value, Headers: headers}
		if diff := cmp.Diff(foreign, mine); diff != "" {
			t.Fatalf("record %d (-theirs +ours):\n%s", n, diff)
		}
		rest = rest[1+foreign.Length:]
	}
	if it.Err() != nil || n != 2 {
		t.Fatalf("%d records, error %v", n, it.Err())
	}
}

func TestParseHeaderRefuses(t *testing.T) {
	f := func(want int16, change func(b []byte) []byte) {
		t.Helper()
		_, err := record.ParseHeader(change(golden().Append(nil)))
		var refusal *record.Refusal
		if !errors.As(err, &refusal) || refusal.Code != want {
			t.Fatalf("error %v, want code %d", err, want)
		}
	}
	f(2, func(b []byte) []byte { return b[:60] })
	f(87, func(b []byte) []byte { b[16] = 1; return b })
	f(2, func(b []byte) []byte { copy(b[8:], []byte{0, 0, 0, 48}); return b })
	f(2, func(b []byte) []byte { copy(b[8:], []byte{0xff, 0xff, 0xff, 0xff}); return b })
	f(2, func(b []byte) []byte { copy(b[8:], []byte{0x7f, 0xff, 0xff, 0xff}); return b })
}

func TestSequences(t *testing.T) {
	const most = math.MaxInt32
	f := func(first, count, last, next int32) {
		t.Helper()
		if got := record.LastSequence(first, count); got != last {
			t.Fatalf("LastSequence(%d, %d) = %d, want %d", first, count, got, last)
		}
		if got := record.FirstSequence(last, count); got != first {
			t.Fatalf("FirstSequence(%d, %d) = %d, want %d", last, count, got, first)
		}
		if got := record.NextSequence(last); got != next {
			t.Fatalf("NextSequence(%d) = %d, want %d", last, got, next)
		}
		h := record.Header{BaseSequence: first, LastOffsetDelta: count - 1}
		if got := h.LastSequence(); got != last {
			t.Fatalf("header's last sequence is %d, want %d", got, last)
		}
	}
	f(0, 1, 0, 1)
	f(0, 10, 9, 10)
	f(most, 1, most, 0)
	f(most-5, 6, most, 0)
	f(most-5, 10, 3, 4)
	f(most, 2, 0, 1)
	if got := record.NextSequence(record.NoSequence); got != 0 {
		t.Fatalf("first sequence is %d", got)
	}
	if got := (record.Header{BaseSequence: -1, LastOffsetDelta: 4}).LastSequence(); got != record.NoSequence {
		t.Fatalf("last sequence of none is %d", got)
	}
}

func TestPatch(t *testing.T) {
	parse := func(b []byte) record.Header {
		t.Helper()
		h, err := record.ParseHeader(b)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	b := golden().Append(nil)
	before := parse(b)
	record.PatchOffsets(b, 1<<40, 9)
	after := parse(b)
	if after.BaseOffset != 1<<40 || after.LeaderEpoch != 9 || after.CRC != before.CRC || !record.CheckCRC(b) {
		t.Fatalf("PatchOffsets made %+v", after)
	}
	record.PatchMaxTimestamp(b, 5)
	if h := parse(b); h.MaxTimestamp != 5 || h.LogAppendTime() || !record.CheckCRC(b) {
		t.Fatalf("PatchMaxTimestamp made %+v", h)
	}
	record.PatchAppendTime(b, 77)
	if h := parse(b); h.MaxTimestamp != 77 || !h.LogAppendTime() || !h.Transactional() || !record.CheckCRC(b) {
		t.Fatalf("PatchAppendTime made %+v", h)
	}
	record.PatchCreateTime(b, 78)
	if h := parse(b); h.MaxTimestamp != 78 || h.LogAppendTime() || !h.Transactional() || !record.CheckCRC(b) {
		t.Fatalf("PatchCreateTime made %+v", h)
	}
}

func TestMarker(t *testing.T) {
	m := record.Marker{ProducerID: 4000, ProducerEpoch: 6, CoordinatorEpoch: 11, Commit: true, TimestampMs: 1_700_000_000_000}
	want := unhex(t, `
	0000000000000010 00000042 00000005 02 86c6c4d9 0030 00000000
	0000018bcfe56800 0000018bcfe56800 0000000000000fa0 0006 ffffffff 00000001
	20 00 00 00 08 0000 0001 0c 0000 0000000b 00`)
	got := record.AppendMarker([]byte("x"), 16, 5, m)
	if diff := cmp.Diff(hex.EncodeToString(want), hex.EncodeToString(got[1:])); diff != "" || len(got) != 1+record.MarkerSize {
		t.Fatalf("marker of %d bytes (-want +got):\n%s", len(got)-1, diff)
	}
	for _, commit := range []bool{true, false} {
		m.Commit = commit
		b := record.AppendMarker(nil, 16, 5, m)
		if again, err := record.ParseMarker(b); err != nil || again != m || !record.CheckCRC(b) {
			t.Fatalf("%+v came back as %+v, error %v", m, again, err)
		}
	}
	f := func(change func(b []byte) []byte) {
		t.Helper()
		if got, err := record.ParseMarker(change(record.AppendMarker(nil, 16, 5, m))); err == nil {
			t.Fatalf("accepted as %+v", got)
		}
	}
	f(func(b []byte) []byte { return b[:77] })
	f(func(b []byte) []byte { return append(b, 0) })
	f(func(b []byte) []byte { b[22] = 0x10; return b }) // no control batch
	f(func(b []byte) []byte { b[60] = 2; return b })    // two records
	f(func(b []byte) []byte { b[61+8] = 2; return b })  // leader change
	f(func(b []byte) []byte { b[61+9] = 1; return b })  // null value
	f(func(b []byte) []byte { return golden().Append(nil) })

	f(func(b []byte) []byte { b[11]++; return b }) // one byte more than there is
	short := record.NewBuilder()
	short.Control, short.Transactional = true, true
	short.Add(5, []byte{0, 0, 0, 1}, []byte{0, 0, 0, 0, 7})
	f(func([]byte) []byte { return short.Append(nil) })

	// A longer value of a later version is still a marker.
	later := record.NewBuilder()
	later.Control, later.Transactional, later.ProducerID, later.ProducerEpoch = true, true, 4000, 6
	later.Add(5, []byte{0, 1, 0, 1}, []byte{0, 1, 0, 0, 0, 7, 1, 2, 3})
	got2, err := record.ParseMarker(later.Append(nil))
	if want := (record.Marker{ProducerID: 4000, ProducerEpoch: 6, CoordinatorEpoch: 7, Commit: true, TimestampMs: 5}); err != nil || got2 != want {
		t.Fatalf("later version: %+v, error %v", got2, err)
	}
}

func TestDeleteHorizon(t *testing.T) {
	h := record.Header{Attributes: 0x40, BaseTimestamp: 99}
	if ms, ok := h.DeleteHorizon(); !ok || ms != 99 {
		t.Fatalf("delete horizon %d, %v", ms, ok)
	}
	h.Attributes = 0
	if _, ok := h.DeleteHorizon(); ok {
		t.Fatal("delete horizon without its bit")
	}
}

func TestIterateRefuses(t *testing.T) {
	section := golden().Section()
	f := func(section []byte, count int32, wantRecords int) {
		t.Helper()
		it := record.Records(section, count)
		var r record.Record
		n := 0
		for it.Next(&r) {
			n++
		}
		if it.Err() == nil || n != wantRecords || it.Next(&r) {
			t.Fatalf("%d records, error %v, want %d and an error", n, it.Err(), wantRecords)
		}
	}
	f(section, -1, 0)
	f(section, 0, 0)
	f(section, 1, 1)
	f(section, 3, 2)
	for cut := 1; cut < 13; cut++ {
		f(section[:len(section)-cut], 2, 1)
	}
	f([]byte{0}, 1, 0)                                                                         // empty record
	f([]byte{12, 0, 0, 0, 1, 1, 2, 0}, 1, 0)                                                   // a header but no room for it
	f([]byte{14, 0, 0, 0, 1, 1, 2, 1, 1}, 1, 0)                                                // null header key
	f([]byte{12, 0, 0, 0, 1, 1, 1, 0}, 1, 0)                                                   // negative header count
	f([]byte{14, 0, 0, 0, 1, 1, 0, 0}, 1, 0)                                                   // longer than it is
	f([]byte{14, 0, 0, 0, 1, 1, 0, 0, 0}, 1, 0)                                                // shorter than it says
	f([]byte{12, 0, 0, 0, 3, 1, 0}, 1, 0)                                                      // key length -2
	f([]byte{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0}, 1, 0) // endless varint
	f([]byte{0xff, 0xff, 0xff, 0xff, 0x7f, 0}, 1, 0)                                           // length beyond int32
	f([]byte{0xfe, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0, 1, 1, 0}, 1, 0)                            // largest int32
}

func TestIterateAllocatesNothing(t *testing.T) {
	b := golden()
	for i := range int64(1000) {
		b.Add(1_700_000_000_000+i, []byte("key"), make([]byte, 200), record.HeaderField{Key: "h", Value: []byte("v")})
	}
	section, count := b.Section(), b.Count()
	allocs := testing.AllocsPerRun(10, func() {
		it := record.Records(section, count)
		var r record.Record
		for it.Next(&r) {
			hs := r.Headers()
			for _, _, ok := hs.Next(); ok; _, _, ok = hs.Next() {
			}
		}
		if it.Err() != nil {
			t.Fatal(it.Err())
		}
	})
	if allocs != 0 {
		t.Fatalf("%v allocations", allocs)
	}
}

func TestBuilderReset(t *testing.T) {
	b := golden()
	first := b.Append(nil)
	b.Reset()
	empty := b.Append(nil)
	h, err := record.ParseHeader(empty)
	if err != nil || h.RecordCount != 0 || h.LastOffsetDelta != 0 || h.Idempotent() || h.BaseSequence != -1 || h.MaxTimestamp != -1 || len(empty) != record.HeaderSize {
		t.Fatalf("after Reset: %+v, error %v", h, err)
	}
	if !bytes.Equal(first, golden().Append(nil)) {
		t.Fatal("Reset changed a batch made before")
	}
}

func BenchmarkIterate(b *testing.B) {
	batch := record.NewBuilder()
	for i := range int64(10_000) {
		batch.Add(1_700_000_000_000+i, []byte("key"), make([]byte, 80))
	}
	section, count := batch.Section(), batch.Count()
	b.SetBytes(int64(len(section)))
	for b.Loop() {
		it := record.Records(section, count)
		var r record.Record
		for it.Next(&r) {
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(count), "ns/record")
}
