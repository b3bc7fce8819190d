package kafka

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// timestamped is a record batch with a record for each timestamp, as a client writes it that counts milliseconds.
func timestamped(base int64, ms ...int64) []byte {
	b := kmsg.RecordBatch{
		FirstOffset: base, Magic: 2, LastOffsetDelta: int32(len(ms) - 1), FirstTimestamp: ms[0], NumRecords: int32(len(ms)),
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
	}
	for i, t := range ms {
		b.MaxTimestamp = max(b.MaxTimestamp, t)
		r := kmsg.Record{TimestampDelta64: t - ms[0], OffsetDelta: int32(i)}
		r.Length = int32(len(r.AppendTo(nil)) - 1)
		b.Records = r.AppendTo(b.Records)
	}
	out := b.AppendTo(nil)
	binary.BigEndian.PutUint32(out[8:], uint32(len(out)-12))
	binary.BigEndian.PutUint32(out[17:], crc32.Checksum(out[21:], crc32.MakeTable(crc32.Castagnoli)))
	return out
}

// A timestamp that nanoseconds do not hold comes through as it is, so that it can be refused, and never as another time.
func TestTimestampsBeyondNanoseconds(t *testing.T) {
	const year2600, micros, in2001 = 19_894_680_000_000, 980_000_000_000_000, 980_000_000_000
	want := []int64{in2001, in2001 + 1, year2600, year2600 - 5, in2001 + 2, micros, micros + 7}
	raw := timestamped(100, want[0], want[1])
	raw = append(raw, timestamped(102, want[2], want[3])...)
	raw = append(raw, timestamped(104, want[4])...)
	raw = append(raw, timestamped(105, want[5], want[6])...)
	p := kmsg.NewFetchResponseTopicPartition()
	p.RecordBatches, p.HighWatermark, p.LastStableOffset = raw, 107, 107
	b := decode(TopicPartition{"t", 0}, 100, &p, Committed)
	if b.Err != nil || len(b.Records) != len(want) {
		t.Fatalf("%d records, %v", len(b.Records), b.Err)
	}
	for i, r := range b.Records {
		if r.TimestampMs != want[i] || r.Offset != int64(100+i) {
			t.Errorf("offset %d: got %d, want %d", r.Offset, r.TimestampMs, want[i])
		}
	}
	for cut := range raw {
		findFarBatches(raw[:cut])
	}
}
