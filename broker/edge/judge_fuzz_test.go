package edge

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/record"
	"github.com/strandline-io/strandline/broker/wire"
	"github.com/strandline-io/strandline/internal/alloc"
	"github.com/strandline-io/strandline/internal/compress"
)

const judgeNowMs = 1_700_000_000_000

// FuzzJudge judges any bytes as a batch, under any of the settings that matter. What is accepted holds the records that
// were sent, one for each offset, and is accepted again as it is. pack compresses the section first, so that what lies
// behind a codec is reached.
func FuzzJudge(f *testing.F) {
	b := record.NewBuilder()
	b.Add(judgeNowMs, []byte("k"), []byte("v"), record.HeaderField{Key: "h", Value: []byte("x")})
	b.Add(judgeNowMs+1, []byte("k"), nil)
	f.Add(b.Append(nil), false, byte(0))
	for codec := range byte(record.CodecZstd + 1) {
		f.Add(b.AppendCompressed(nil, int8(codec), b.Section()), true, codec)
		f.Add(b.Append(nil), false, codec|0x40)
	}
	// Two records at one offset, which must be told apart, and a header that says another newest timestamp.
	same := record.NewBuilder()
	same.AddAt(0, judgeNowMs, nil, []byte("v"))
	same.AddAt(0, judgeNowMs, nil, []byte("w"))
	raw := same.AppendCompressed(nil, record.CodecZstd, same.Section())
	raw[26] = 1
	f.Add(raw, true, byte(0x42)) // 0x42: as the producer compressed it, however large
	raw = b.Append(nil)
	record.PatchMaxTimestamp(raw, judgeNowMs-5)
	f.Add(raw, false, byte(0x40))
	f.Fuzz(func(t *testing.T, sent []byte, pack bool, setting byte) {
		raw := bytes.Clone(sent)
		if h, err := record.ParseHeader(raw); err == nil && pack && h.Codec() <= record.CodecZstd {
			packed, err := compress.Encode(h.Codec(), raw[record.HeaderSize:], raw[:record.HeaderSize:record.HeaderSize])
			if err != nil {
				t.Fatal(err)
			}
			raw = packed
			binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
		}
		if len(raw) >= record.HeaderSize {
			binary.BigEndian.PutUint32(raw[17:], record.ComputeCRC(raw))
		}
		judgeAnything(t, raw, settingsOf(setting))
	})
}

const maxUnpackedBytes = 128 << 20

func settingsOf(setting byte) machine.Settings {
	s := machine.DefaultSettings()
	s.CompressionType = []string{"producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"}[setting%6]
	s.LogAppendTime, s.CleanupCompact = setting&0x20 != 0, setting&0x80 != 0
	if setting&0x40 == 0 {
		s.MaxMessageBytes = 1000
	}
	return s
}

func judgeAnything(t *testing.T, raw []byte, settings machine.Settings) {
	batch, h, err := record.OneBatch(raw)
	if err != nil {
		return
	}
	e := New(Config{Now: func() time.Time { return time.UnixMilli(judgeNowMs) }, Pool: new(wire.Pool), MessageMaxBytes: machine.DefaultMessageMaxBytes, MaxUnpackedBytes: maxUnpackedBytes})
	var stored []byte
	var header record.Header
	var verdict machine.Verdict
	const bound = 4 << 20
	alloc.Within(t, bound+len(raw), 16, func() {
		grown := growth{budget: wire.NewBudget(bound), limit: bound}
		stored, header, verdict = e.judgeBatch(bytes.Clone(batch), h, &settings, &grown)
		grown.release()
		if n := grown.budget.InUse(); n != 0 {
			t.Fatalf("%d bytes are still taken", n)
		}
	})
	if verdict.Code != 0 {
		return
	}
	if again, h2, err := record.OneBatch(stored); err != nil || !record.CheckCRC(again) || h2 != header {
		t.Fatalf("accepted as %+v, stored is %+v, error %v", header, h2, err)
	}
	got, want := contentOf(t, header, stored, true), contentOf(t, h, batch, false)
	if len(got) != int(header.RecordCount) || header.RecordCount != header.LastOffsetDelta+1 {
		t.Fatalf("%d records in %+v", len(got), header)
	}
	newest := got[0].TimestampMs
	for _, c := range got {
		newest = max(newest, c.TimestampMs)
	}
	if !settings.LogAppendTime && header.MaxTimestamp != newest {
		t.Fatalf("max timestamp %d, the newest record has %d", header.MaxTimestamp, newest)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("not what was sent:\n%s", diff)
	}
	grown := growth{budget: wire.NewBudget(bound), limit: bound}
	again, _, verdict := e.judgeBatch(bytes.Clone(stored), header, &settings, &grown)
	if verdict.Code != 0 || !bytes.Equal(again, stored) {
		t.Fatalf("judged again: %+v, or it is changed", verdict)
	}
}

type content struct {
	TimestampMs int64
	Key, Value  []byte
	Headers     []string
}

// contentOf decodes a batch. One that is stored has its records at the offsets from 0 on.
func contentOf(t *testing.T, h record.Header, batch []byte, stored bool) (out []content) {
	section, err := compress.Decode(h.Codec(), batch[record.HeaderSize:], nil, maxUnpackedBytes)
	if err != nil {
		t.Fatalf("accepted, but: %v", err)
	}
	it := record.Records(section, h.RecordCount)
	for r := (record.Record{}); it.Next(&r); {
		if stored && int(r.OffsetDelta) != len(out) {
			t.Fatalf("record %d has offset delta %d", len(out), r.OffsetDelta)
		}
		c := content{TimestampMs: h.BaseTimestamp + r.TimestampDelta, Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value)}
		headers := r.Headers()
		for key, value, ok := headers.Next(); ok; key, value, ok = headers.Next() {
			c.Headers = append(c.Headers, string(key), string(value))
		}
		out = append(out, c)
	}
	if it.Err() != nil {
		t.Fatalf("accepted, but: %v", it.Err())
	}
	return out
}
