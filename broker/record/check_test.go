package record_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline-io/strandline/broker/record"
	"github.com/strandline-io/strandline/internal/alloc"
)

const nowMs = 1_700_000_000_000

// lenient is what Apache Kafka's defaults demand.
func lenient() record.Policy {
	return record.Policy{NowMs: nowMs, MaxBatchBytes: 1048588, TimestampBeforeMaxMs: math.MaxInt64, TimestampAfterMaxMs: 3_600_000}
}

func plain(timestamps ...int64) *record.Builder {
	b := record.NewBuilder()
	for _, ms := range timestamps {
		b.Add(ms, []byte("k"), []byte("v"))
	}
	return b
}

// judge is what a connection does with an uncompressed batch.
func judge(t *testing.T, raw []byte, p record.Policy) record.Result {
	t.Helper()
	h, err := record.ParseHeader(raw)
	if err != nil {
		t.Fatal(err)
	}
	return record.Check(h, raw, raw[record.HeaderSize:], p)
}

// patched changes bytes of a batch and repairs its CRC.
func patched(raw []byte, pos int, b ...byte) []byte {
	raw = bytes.Clone(raw)
	copy(raw[pos:], b)
	binary.BigEndian.PutUint32(raw[17:], record.ComputeCRC(raw))
	return raw
}

func TestCheckBatch(t *testing.T) {
	raw := plain(nowMs, nowMs+5).Append(nil)
	idempotent := plain(nowMs)
	idempotent.ProducerID, idempotent.ProducerEpoch, idempotent.BaseSequence = 1, 0, 0
	f := func(want int16, raw []byte, change func(p *record.Policy)) {
		t.Helper()
		p := lenient()
		if change != nil {
			change(&p)
		}
		if got := judge(t, raw, p); got.Code != want || (got.Message == "") != (want == 0) {
			t.Fatalf("code %d (%s), want %d", got.Code, got.Message, want)
		}
	}
	f(0, raw, nil)
	f(0, idempotent.Append(nil), nil)
	f(87, patched(raw, 0, 0, 0, 0, 0, 0, 0, 0, 1), nil)
	f(10, raw, func(p *record.Policy) { p.MaxBatchBytes = int32(len(raw)) - 1 })
	f(0, raw, func(p *record.Policy) { p.MaxBatchBytes = int32(len(raw)) })
	f(0, raw, func(p *record.Policy) { p.MaxBatchBytes = 0 })
	f(2, append(bytes.Clone(raw[:len(raw)-1]), 1), nil)
	f(2, append(bytes.Clone(raw), 0), nil)
	f(87, patched(raw, 21, 0, 0x20), nil)
	f(87, patched(raw, 21, 0, 0x40), nil)
	f(87, patched(raw, 21, 0x80, 0), nil)
	f(76, patched(raw, 21, 0, 5), nil)
	f(87, patched(raw, 57, 0, 0, 0, 3), nil)
	f(87, patched(raw, 57, 0xff, 0xff, 0xff, 0xff), nil)
	f(87, patched(raw, 23, 0, 0, 0, 2), nil)
	f(87, patched(raw, 23, 0x7f, 0xff, 0xff, 0xff), nil)
	f(87, plain().Append(nil), nil)
	f(87, patched(idempotent.Append(nil), 53, 0xff, 0xff, 0xff, 0xff), nil)
	f(87, patched(idempotent.Append(nil), 51, 0xff, 0xff), nil)
	f(87, patched(raw, 21, 0, 0x10), nil)
	logAppend := patched(raw, 21, 0, 0x08)
	f(0, logAppend, nil)
	f(32, logAppend, func(p *record.Policy) { p.LogAppendTime = true })
}

func TestCheckRecords(t *testing.T) {
	f := func(want record.Result, raw []byte, change func(p *record.Policy)) {
		t.Helper()
		p := lenient()
		p.TimestampBeforeMaxMs = 1000
		if change != nil {
			change(&p)
		}
		got := judge(t, raw, p)
		if want.Code != 0 {
			got.Message, got.MaxTimestamp, got.Renumber = "", 0, false
		}
		for i := range got.Records {
			got.Records[i].Message = ""
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	}
	bad := func(code int16, indexes ...int32) record.Result {
		r := record.Result{Code: code}
		for _, i := range indexes {
			r.Records = append(r.Records, record.RecordError{Index: i})
		}
		return r
	}
	f(record.Result{MaxTimestamp: nowMs + 5}, plain(nowMs, nowMs+5, nowMs-1).Append(nil), nil)
	f(record.Result{MaxTimestamp: -1}, plain(-1, -1).Append(nil), nil)
	f(record.Result{MaxTimestamp: nowMs + 3_600_000}, plain(nowMs-1000, nowMs+3_600_000).Append(nil), nil)
	f(bad(32, 0, 2), plain(nowMs-1001, nowMs, nowMs+3_600_001).Append(nil), nil)
	f(record.Result{MaxTimestamp: 5}, plain(5).Append(nil), func(p *record.Policy) { p.LogAppendTime = true })
	f(record.Result{MaxTimestamp: math.MinInt64}, plain(math.MinInt64).Append(nil), func(p *record.Policy) { p.TimestampBeforeMaxMs = math.MaxInt64; p.NowMs = -10 })
	f(bad(32, 0), plain(math.MinInt64).Append(nil), func(p *record.Policy) { p.TimestampBeforeMaxMs = math.MaxInt64 })
	f(bad(32, 0), plain(math.MaxInt64).Append(nil), nil)

	// A delta that leaves the range of timestamps.
	f(bad(32, 1), patched(plain(nowMs, nowMs+1).Append(nil), 27, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), func(p *record.Policy) {
		p.LogAppendTime = true
	})

	keyless := record.NewBuilder()
	keyless.Add(nowMs, []byte{}, nil)
	keyless.Add(nowMs, nil, []byte("v"))
	f(record.Result{MaxTimestamp: nowMs}, keyless.Append(nil), nil)
	f(bad(87, 1), keyless.Append(nil), func(p *record.Policy) { p.Compacted = true })

	// One bad timestamp decides the code.
	keyless.Add(5, []byte("k"), nil)
	f(bad(32, 1, 2), keyless.Append(nil), func(p *record.Policy) { p.Compacted = true })

	timestampFirst := plain(5)
	timestampFirst.Add(nowMs, nil, nil)
	f(bad(32, 0, 1), timestampFirst.Append(nil), func(p *record.Policy) { p.Compacted = true })

	gaps := record.NewBuilder()
	gaps.AddAt(0, nowMs, nil, nil)
	gaps.AddAt(0, nowMs, nil, nil)
	gaps.AddAt(2, nowMs, nil, nil)
	f(bad(87, 1), gaps.Append(nil), nil)

	raw := plain(nowMs, nowMs).Append(nil)
	f(bad(87), patched(raw, len(raw)-1, 2), nil)
	f(bad(87), patched(raw, record.HeaderSize, 0x7f), nil)
}

func TestCheckBoundsItsReport(t *testing.T) {
	b := record.NewBuilder()
	for range 500 {
		b.Add(5, nil, nil)
		b.Add(5, []byte("k"), nil)
	}
	p := lenient()
	p.Compacted, p.TimestampBeforeMaxMs = true, 0
	got := judge(t, b.Append(nil), p)
	if got.Code != 32 || len(got.Records) != record.MaxRecordErrors {
		t.Fatalf("code %d, %d records named", got.Code, len(got.Records))
	}
}

// TestRenumber rebuilds a compressed batch whose inner offsets have gaps: nothing but them changes.
func TestRenumber(t *testing.T) {
	b := record.NewBuilder()
	b.AddAt(5, nowMs, []byte("a"), nil, record.HeaderField{Key: "h", Value: []byte("v")})
	b.AddAt(70, nowMs+1, nil, []byte("b"))
	section := b.Section()
	header := record.Header{Attributes: 1, RecordCount: 2, LastOffsetDelta: 1, BaseTimestamp: nowMs}
	got := record.CheckRecords(header, section, lenient())
	if got.Code != 0 || !got.Renumber || got.MaxTimestamp != nowMs+1 {
		t.Fatalf("judgement %+v", got)
	}
	renumbered, err := record.AppendRenumbered(nil, section, 2)
	if err != nil {
		t.Fatal(err)
	}
	want := record.NewBuilder()
	want.Add(nowMs, []byte("a"), nil, record.HeaderField{Key: "h", Value: []byte("v")})
	want.Add(nowMs+1, nil, []byte("b"))
	if !bytes.Equal(renumbered, want.Section()) {
		t.Fatalf("renumbered to\n%x, want\n%x", renumbered, want.Section())
	}
	if got := record.CheckRecords(header, renumbered, lenient()); got.Code != 0 || got.Renumber {
		t.Fatalf("renumbered and judged %+v", got)
	}
	rebuilt := record.AppendRebuilt(nil, header, record.CodecZstd, []byte("packed"))
	h, err := record.ParseHeader(rebuilt)
	if err != nil || h.Codec() != record.CodecZstd || int(h.SizeBytes) != len(rebuilt) || !record.CheckCRC(rebuilt) || h.RecordCount != 2 {
		t.Fatalf("rebuilt header %+v, error %v", h, err)
	}
}

func TestSettle(t *testing.T) {
	raw := plain(nowMs, nowMs+9).Append(nil)
	f := func(raw []byte) {
		t.Helper()
		result := judge(t, raw, lenient())
		h, err := record.ParseHeader(raw)
		if err != nil || result.Code != 0 {
			t.Fatal(err, result)
		}
		settled := record.Settle(h, raw, result)
		again, err := record.ParseHeader(raw)
		if err != nil || again != settled || settled.MaxTimestamp != nowMs+9 || settled.LogAppendTime() || !record.CheckCRC(raw) {
			t.Fatalf("settled %+v, error %v", settled, err)
		}
	}
	f(bytes.Clone(raw))
	f(patched(raw, 35, 0, 0, 0, 0, 0, 0, 0, 1))
	f(patched(raw, 21, 0, 0x08))
}

func TestOneBatch(t *testing.T) {
	raw := plain(nowMs).Append(nil)
	if batch, h, err := record.OneBatch(raw); err != nil || !bytes.Equal(batch, raw) || h.RecordCount != 1 {
		t.Fatalf("header %+v, error %v", h, err)
	}
	f := func(want int16, records []byte) {
		t.Helper()
		_, _, err := record.OneBatch(records)
		var refusal *record.Refusal
		if !errors.As(err, &refusal) || refusal.Code != want {
			t.Fatalf("error %v, want code %d", err, want)
		}
	}
	f(87, nil)
	f(2, raw[:10])
	f(2, raw[:60])
	f(87, raw[:len(raw)-1]) // as in Apache Kafka: there is no whole batch
	f(87, append(bytes.Clone(raw), raw...))
	f(87, append(bytes.Clone(raw), 0))
	f(87, patched(raw, 16, 1))
	f(87, patched(raw, 16, 0)[:17])
}

func TestMaxTimestamp(t *testing.T) {
	b := plain(nowMs+3, nowMs+7, nowMs)
	h := record.Header{RecordCount: 3, BaseTimestamp: nowMs + 3, MaxTimestamp: 1}
	if got, err := record.MaxTimestamp(h, b.Section()); err != nil || got != nowMs+7 {
		t.Fatalf("max timestamp %d, error %v", got, err)
	}
	h.Attributes = 0x08
	if got, err := record.MaxTimestamp(h, nil); err != nil || got != 1 {
		t.Fatalf("max timestamp %d, error %v", got, err)
	}
}

// walk reads raw as the readers do that look at no CRC: whatever the header says, every record lies within it.
func walk(t *testing.T, raw []byte) {
	record.EndOffset(raw)
	h, err := record.ParseHeader(raw)
	if err != nil {
		return
	}
	section := raw[record.HeaderSize:]
	it := record.Records(section, h.RecordCount)
	left := len(section)
	for r := (record.Record{}); it.Next(&r); {
		left -= len(r.Key) + len(r.Value)
		headers := r.Headers()
		for {
			key, value, ok := headers.Next()
			if !ok {
				break
			}
			left -= len(key) + len(value)
		}
		if left < 0 {
			t.Fatalf("the records of a section of %d bytes have more", len(section))
		}
	}
	record.MaxTimestamp(h, section)
}

// FuzzBatch feeds any bytes to everything that reads batches: no panic, and what is accepted can be written again.
func FuzzBatch(f *testing.F) {
	f.Add(golden().Append(nil))
	f.Add(plain(nowMs, nowMs+1).Append(nil))
	f.Add(record.AppendMarker(nil, 5, 1, record.Marker{ProducerID: 1, Commit: true}))
	f.Add(plain().Append(nil))
	for codec := range record.CodecZstd + 1 {
		f.Add(plain(nowMs, nowMs+1, nowMs+2).AppendCompressed(nil, codec, []byte("packed")))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		raw := bytes.Clone(sent)
		if len(raw) >= record.HeaderSize { // so that the fuzzer need not guess a CRC
			binary.BigEndian.PutUint32(raw[17:], record.ComputeCRC(raw))
		}
		alloc.Within(t, len(raw), 16, func() { walk(t, raw) })
		if m, err := record.ParseMarker(raw); err == nil {
			h, _ := record.ParseHeader(raw)
			again, err := record.ParseMarker(record.AppendMarker(nil, h.BaseOffset, h.LeaderEpoch, m))
			if err != nil || again != m {
				t.Fatalf("marker %+v came back as %+v, error %v", m, again, err)
			}
		}
		batch, h, err := record.OneBatch(raw)
		if err != nil {
			return
		}
		for _, p := range []record.Policy{lenient(), {LogAppendTime: true, Compacted: true}} {
			result := record.Check(h, batch, batch[record.HeaderSize:], p)
			if len(result.Records) > record.MaxRecordErrors || (len(result.Records) > 0 && result.Code == 0) {
				t.Fatalf("judgement %+v", result)
			}
			if result.Code != 0 || h.Codec() != record.CodecNone {
				continue
			}
			section, err := record.AppendRenumbered(nil, batch[record.HeaderSize:], h.RecordCount)
			if err != nil {
				t.Fatalf("accepted, but: %v", err)
			}
			again := record.AppendRebuilt(nil, h, record.CodecNone, section)
			h2, err := record.ParseHeader(again)
			if err != nil {
				t.Fatal(err)
			}
			second := record.Check(h2, again, again[record.HeaderSize:], p)
			if diff := cmp.Diff(result, second); diff != "" && len(again) <= len(batch) {
				t.Fatalf("judged differently when written again:\n%s", diff)
			}
		}
	})
}
