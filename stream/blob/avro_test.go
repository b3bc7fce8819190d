package blob_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/strandline-io/strandline/stream/blob"
	"github.com/strandline-io/strandline/stream/blob/blobtest"
	"github.com/twmb/avro"
	"github.com/twmb/avro/ocf"
)

func encode(v any) ([]byte, error) { return avro.MustSchemaFor[row]().AppendEncode(nil, v) }

// TestCodecs reads files of all codecs, each written over several commits and owners, with the library's reader.
func TestCodecs(t *testing.T) {
	for _, codec := range []blob.Codec{blob.Null, blob.Deflate, blob.Snappy, blob.Zstandard} {
		t.Run(codec.String(), func(t *testing.T) {
			fake := blobtest.NewFake()
			sink := blob.New("out", fake.Client("a"), blob.WithType[row](), inline(1), blob.WithCodec(codec),
				func(c *blob.Config) { c.AvroBlockBytes, c.BlockBytes = 1000, 10_000 })
			w := openWriter(t, sink, 0)
			write(t, w, 0, 2000)
			token := prepare(t, w)
			w.Close()
			w = resume(t, sink, token)
			write(t, w, 2000, 3000)
			finish(t, w)
			if n := wantRows(t, fake.Client("a"), 3000); n != 1 {
				t.Fatalf("%d blobs", n)
			}
			for name, data := range fake.Visible() {
				checkFile(t, name, data, codec)
			}
		})
	}
}

func checkFile(t *testing.T, name string, data []byte, codec blob.Codec) {
	r, err := ocf.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	meta := r.Metadata()
	if got := string(meta["avro.codec"]); got != codec.String() {
		t.Errorf("%s: codec %q", name, got)
	}
	if got := string(meta["avro.schema"]); got != avro.MustSchemaFor[row]().String() {
		t.Errorf("%s: schema %s", name, got)
	}
	sync := data[len(data)-16:]
	blocks := bytes.Count(data, sync) - 1
	if blocks < 10 || blocks > 100 {
		t.Errorf("%s: 3000 rows in %d Avro blocks", name, blocks)
	}
	if codec != blob.Null && len(data) > 40_000 {
		t.Errorf("%s: %d bytes with codec %v", name, len(data), codec)
	}
}

// TestSyncMarkersDiffer: a marker that is the same in all files makes a reader that seeks find the wrong place.
func TestSyncMarkersDiffer(t *testing.T) {
	fake := blobtest.NewFake()
	w := openWriter(t, blob.New("out", fake.Client("a"), blob.WithType[row](), func(c *blob.Config) { c.MaxRows = 1 }), 0)
	write(t, w, 0, 10)
	finish(t, w)
	seen := map[string]bool{}
	for _, data := range fake.Visible() {
		seen[string(data[len(data)-16:])] = true
	}
	if len(seen) != 10 {
		t.Errorf("%d markers in 10 files", len(seen))
	}
}

func TestMetadata(t *testing.T) {
	fake := blobtest.NewFake()
	store := fake.Client("a")
	w := openWriter(t, blob.New("out", store, blob.WithType[row](), inline(1), func(c *blob.Config) { c.Stream = "a/b" }), 0)
	write(t, w, 0, 10)
	finish(t, w)
	name := "a/b/0/2024/01/02/03/04-05-0.avro"
	p, err := store.Props(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	schema, _ := blob.SchemaOf[row]()
	for key, want := range map[string]string{"numberofrecords": "10", "rawsizebytes": "70", "streamname": "a/b",
		"strandline_schema": schema.Fingerprint().String()} {
		if got := p.Metadata[key]; got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if id := p.Metadata["strandline_commit"]; !strings.HasPrefix(id, "1/job/run-1/stage-0/") || len(id) != len("1/job/run-1/stage-0/")+32 {
		t.Errorf("commit id %q", id)
	}
}

// TestEmptyRows: rows that take no bytes must not make a block that readers refuse.
func TestEmptyRows(t *testing.T) {
	fake := blobtest.NewFake()
	type none struct{}
	w := openWriter(t, blob.New("out", fake.Client("a"), blob.WithType[none](), inline(1)), 0)
	const rows = 20_000
	for n := range int64(rows) {
		r := record(n)
		r.Value = none{}
		if err := w.Write(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	finish(t, w)
	total := 0
	for _, data := range fake.Visible() {
		r, err := ocf.NewReader(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		for {
			var v none
			if r.Decode(&v) != nil {
				break
			}
			total++
		}
		r.Close()
	}
	if total != rows {
		t.Errorf("%d rows read, want %d", total, rows)
	}
}

func TestSchemaFingerprints(t *testing.T) {
	seen := map[blob.Fingerprint]string{}
	for _, text := range []string{
		`"long"`,
		`{"type":"long","logicalType":"timestamp-millis"}`, // the same to Avro's own fingerprint
		`{"type":"long","logicalType":"timestamp-micros"}`,
		`"string"`,
	} {
		s, err := blob.ParseSchema(text)
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[s.Fingerprint()]; ok {
			t.Errorf("%s and %s have one fingerprint", text, other)
		}
		seen[s.Fingerprint()] = text
		again, _ := blob.ParseSchema(s.String())
		if again.Fingerprint() != s.Fingerprint() {
			t.Errorf("%s: the fingerprint of its text differs", text)
		}
	}
	for _, bad := range []string{"", "{", `"lang"`, `{"type":"record"}`} {
		if _, err := blob.ParseSchema(bad); err == nil {
			t.Errorf("%q is no schema", bad)
		}
	}
	if _, err := blob.SchemaOf[int](); err == nil || !strings.Contains(err.Error(), "int") {
		t.Error(fmt.Errorf("int as a record: %w", err))
	}
}
