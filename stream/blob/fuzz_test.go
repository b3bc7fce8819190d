package blob_test

import (
	"bytes"
	"testing"

	"github.com/strandline-io/strandline/internal/alloc"
	"github.com/strandline-io/strandline/stream/blob"
	"github.com/strandline-io/strandline/stream/blob/blobtest"
)

// readBoundBytes is what reading may take whatever a blob announces: twice the largest block that the Avro library takes,
// packed and unpacked.
const readBoundBytes = 4 * 64 << 20

// FuzzReadRows reads any bytes as a blob: rows, or an error, in bounded memory.
func FuzzReadRows(f *testing.F) {
	for _, codec := range []blob.Codec{blob.Null, blob.Deflate, blob.Snappy, blob.Zstandard} {
		fake := blobtest.NewFake()
		w := openWriter(f, newSink(fake, 1, func(c *blob.Config) { c.Codec = codec }), 0)
		write(f, w, 0, 5)
		finish(f, w)
		for _, content := range fake.Visible() {
			if bytes.HasPrefix(content, []byte("Obj\x01")) {
				f.Add(content)
			}
		}
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		fake := blobtest.NewFake()
		fake.Put("b.avro", content)
		alloc.Within(t, readBoundBytes+1024*len(content), 1, func() {
			err := blob.ReadRows(t.Context(), fake.Client("a"), "b.avro", func(row) error { return nil })
			_ = blob.ReadRows(t.Context(), fake.Client("a"), "b.avro", func(map[string]any) error { return nil })
			if err == nil && !bytes.HasPrefix(content, []byte("Obj\x01")) {
				t.Fatal("no Avro file, and no error")
			}
		})
	})
}

// FuzzResume opens a writer that goes on from any token: it is refused, or the writer works and its next token is one.
func FuzzResume(f *testing.F) {
	fake := blobtest.NewFake()
	w := openWriter(f, newSink(fake, 1), 0)
	write(f, w, 0, 5)
	f.Add(prepare(f, w))
	w.Finish()
	f.Add(prepare(f, w))
	f.Fuzz(func(t *testing.T, token []byte) {
		fake := blobtest.NewFake()
		w, err := newSink(fake, 2).Open(t.Context(), task(0))
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		if w.Restore(t.Context(), token) != nil {
			return
		}
		if w.Write(t.Context(), record(1000)) != nil {
			return
		}
		next, err := w.Prepare(t.Context(), 2)
		if err != nil {
			return
		}
		if _, err := blob.ParseToken(next); err != nil {
			t.Fatalf("own token: %v", err)
		}
		_ = w.Commit(t.Context(), next)
	})
}
