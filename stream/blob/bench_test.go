package blob_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/blob"
	"github.com/strandline-io/strandline/stream/blob/blobtest"
)

// nowhere stages into nothing.
type nowhere struct{ blob.Store }

func (nowhere) Stage(context.Context, string, blob.BlockID, []byte) error { return nil }

// BenchmarkWrite is what the sink itself costs for a row of about 100 bytes, with a commit every 10,000 rows.
func BenchmarkWrite(b *testing.B) {
	type event struct {
		Key     string  `avro:"key"`
		Day     string  `avro:"day"`
		Flights int64   `avro:"flights"`
		Delay   float64 `avro:"delay"`
		Text    string  `avro:"text"`
	}
	rows := make([]event, 1000)
	for i := range rows {
		rows[i] = event{Key: fmt.Sprintf("K%03d", i%300), Day: "2024-01-02", Flights: int64(i), Delay: float64(i) * 1.37,
			Text: fmt.Sprintf("a line of text with some words in it, the number %d and %d more", i, i*7919%1000)}
	}
	for _, codec := range []blob.Codec{blob.Null, blob.Snappy, blob.Zstandard, blob.Deflate} {
		b.Run(codec.String(), func(b *testing.B) {
			s := blob.New("out", nowhere{blobtest.NewFake().Client("a")}, blob.WithType[event](), blob.WithCodec(codec))
			w := openWriter(b, s, 0)
			b.ReportAllocs()
			b.SetBytes(100)
			for n := range int64(b.N) {
				r := stream.SinkRecord{Value: &rows[n%1000], TimestampMs: firstMs, RowSequence: n}
				if err := w.Write(b.Context(), r); err != nil {
					b.Fatal(err)
				}
				if n%10_000 == 9999 {
					if _, err := w.Prepare(b.Context(), n); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
