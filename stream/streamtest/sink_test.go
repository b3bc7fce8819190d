package streamtest

import (
	"fmt"
	"testing"

	"github.com/strandline-io/strandline/stream"
)

type memPlace struct {
	place       *Place
	rowsPerFile int
}

func (p memPlace) Open() stream.Sink {
	return &Sink{SinkName: "mem", Place: p.place, RowsPerFile: p.rowsPerFile}
}

func (p memPlace) Visible() ([]string, error) {
	var out []string
	for _, r := range p.place.Rows() {
		out = append(out, fmt.Sprint(r.Value))
	}
	return out, nil
}

func (p memPlace) Row(n int) stream.SinkRecord {
	return stream.SinkRecord{Value: n, TimestampMs: int64(n)}
}
func (p memPlace) RowText(n int) string { return fmt.Sprint(n) }

func TestMemorySink(t *testing.T) {
	for _, rows := range []int{0, 1, 4} {
		TestSink(t, func(*testing.T) SinkUnderTest { return memPlace{NewPlace(), rows} })
	}
}
