package core

import (
	"testing"

	"github.com/strandline-io/strandline/stream"
)

// One record through decoding, a map and the re-keying, with its share of the commit.
func BenchmarkRekey(b *testing.B) {
	t := &testing.T{}
	p := echo(t, stream.Stop())
	w, err := New(Config{Plan: p, Job: NewJobRecord(p, 1, nil, nil), CommitIntervalMs: 100})
	if err != nil {
		b.Fatal(err)
	}
	w.Step(0, Assigned{[]Ownership{{inTask, 1}}})
	w.Step(0, Restored{Task: inTask, Token: 1, Inputs: []RestoredInput{{GroupOffset: -1}}})
	values := make([]string, 1000)
	for i := range values {
		values[i] = "some value of a record, a little longer"
	}
	b.ReportAllocs()
	b.ResetTimer()
	epoch, now := int64(1), int64(0)
	for n := int64(0); n < int64(b.N); n += 1000 {
		w.Step(now, records(n, values...))
		now++
		for _, e := range w.Effects() {
			switch e.(type) {
			case Flush:
				w.Step(now, Flushed{Epoch: epoch})
			}
		}
		for _, e := range w.Effects() {
			if _, ok := e.(Commit); ok {
				w.Step(now, TxnEnded{Epoch: epoch, Outcome: Committed})
				epoch++
			}
		}
	}
}
