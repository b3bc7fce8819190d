package blob_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/blob"
	"github.com/strandline-io/strandline/stream/blob/blobtest"
	"github.com/twmb/avro/ocf"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// row is what the tests write.
type row struct {
	N    int64  `avro:"n"`
	Text string `avro:"text"`
}

// rowV2 is row in a newer version of its schema.
type rowV2 struct {
	N     int64  `avro:"n"`
	Text  string `avro:"text"`
	Extra *int64 `avro:"extra"`
}

const firstMs = 1_704_164_645_000 // 2024-01-02 03:04:05 UTC

func record(n int64) stream.SinkRecord {
	return stream.SinkRecord{Value: row{N: n, Text: fmt.Sprintf("row %d", n)}, TimestampMs: firstMs + n*1000, RowSequence: n}
}

var job = stream.JobIdentity{Job: "job", Run: "run-1"}

func task(n int) stream.SinkTask {
	return stream.SinkTask{JobIdentity: job, Sink: "out", Task: fmt.Sprintf("stage-%d", n), TaskNumber: n}
}

// inline makes a sink without goroutines, clock and chance of its own.
func inline(seed uint64) blob.Option {
	return func(c *blob.Config) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c.Runtime = blobtest.Inline{}
		c.Codec = blob.Null
		c.Random = func(p []byte) {
			for i := range p {
				p[i] = byte(rng.Uint32())
			}
		}
	}
}

func openWriter(t testing.TB, s *blob.Sink, n int) stream.SinkWriter {
	t.Helper()
	w, err := s.Open(t.Context(), task(n))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

// resume opens a writer that goes on from a token.
func resume(t testing.TB, s *blob.Sink, token []byte) stream.SinkWriter {
	t.Helper()
	w := openWriter(t, s, 0)
	if err := w.Restore(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	return w
}

func write(t testing.TB, w stream.SinkWriter, from, to int64) {
	t.Helper()
	for n := from; n < to; n++ {
		if err := w.Write(t.Context(), record(n)); err != nil {
			t.Fatal(err)
		}
	}
}

func prepare(t testing.TB, w stream.SinkWriter) []byte {
	t.Helper()
	token, err := w.Prepare(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func commit(t testing.TB, w stream.SinkWriter, token []byte) {
	t.Helper()
	if err := w.Commit(t.Context(), token); err != nil {
		t.Fatal(err)
	}
}

// finish ends all blobs and publishes them.
func finish(t testing.TB, w stream.SinkWriter) {
	t.Helper()
	w.Finish()
	commit(t, w, prepare(t, w))
	if w.Pending() {
		t.Error("pending after a confirmed Commit of all")
	}
}

// decode reads an Avro file.
func decode(data []byte) ([]row, error) {
	r, err := ocf.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var rows []row
	for {
		var v map[string]any
		if err := r.Decode(&v); err == io.EOF {
			return rows, nil
		} else if err != nil {
			return rows, err
		}
		n, _ := v["n"].(int64)
		text, _ := v["text"].(string)
		rows = append(rows, row{N: n, Text: text})
	}
}

// visible returns the row numbers of all data blobs of a store, by name.
func visible(ctx context.Context, s blob.Store) (map[string][]int64, error) {
	all := map[string][]int64{}
	err := s.List(ctx, "", func(e blob.Entry) error {
		if !strings.HasSuffix(e.Name, ".avro") {
			return nil
		}
		r, err := s.Read(ctx, e.Name)
		if err != nil {
			return err
		}
		data, err := io.ReadAll(r)
		if err = errors.Join(err, r.Close()); err != nil {
			return err
		}
		rows, err := decode(data)
		if err != nil {
			return fmt.Errorf("%s: %w", e.Name, err)
		}
		if len(rows) == 0 {
			return fmt.Errorf("%s is empty", e.Name)
		}
		for _, v := range rows {
			if want := fmt.Sprintf("row %d", v.N); v.Text != want {
				return fmt.Errorf("%s: row %d holds %q", e.Name, v.N, v.Text)
			}
			all[e.Name] = append(all[e.Name], v.N)
		}
		return nil
	})
	return all, err
}

// wantRows checks that exactly rows 0 to n-1 are visible, each once, and returns how many blobs hold them.
func wantRows(t testing.TB, s blob.Store, n int64) (blobs int) {
	t.Helper()
	byName, err := visible(context.WithoutCancel(t.Context()), s)
	if err != nil {
		t.Fatal(err)
	}
	var all []int64
	for _, rows := range byName {
		all = append(all, rows...)
	}
	slices.Sort(all)
	for i := range n {
		if int(i) >= len(all) || all[i] != i {
			t.Fatalf("%d rows are visible, row %d is missing or double; want 0 to %d once: %v", len(all), i, n-1, all[max(0, i-3):min(int64(len(all)), i+3)])
		}
	}
	if int64(len(all)) != n {
		t.Fatalf("%d rows are visible, want %d", len(all), n)
	}
	return len(byName)
}

// faults makes the next calls of an operation fail as listed.
func faults(f *blobtest.Fake, op string, list ...blobtest.Fault) {
	f.SetFaults(func(c blobtest.Call) blobtest.Fault {
		if c.Op != op || len(list) == 0 || strings.HasSuffix(c.Name, ".json") {
			return blobtest.None
		}
		next := list[0]
		list = list[1:]
		return next
	})
}
