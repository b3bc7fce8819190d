package blob_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/strandline-io/strandline/stream/blob"
	"github.com/strandline-io/strandline/stream/blob/blobtest"
)

func TestReadRows(t *testing.T) {
	fake := blobtest.NewFake()
	store := fake.Client("a")
	w := openWriter(t, newSink(fake, 1), 0)
	write(t, w, 0, 5)
	finish(t, w)
	var name string
	err := store.List(t.Context(), "out/", func(e blob.Entry) error { name = e.Name; return nil })
	if err != nil || !strings.HasSuffix(name, ".avro") {
		t.Fatalf("blob %q, %v", name, err)
	}
	want, err := decode(fake.Visible()[name])
	if err != nil || len(want) != 5 {
		t.Fatalf("%d rows, %v", len(want), err)
	}
	var got []row
	take := func(r row) error { got = append(got, r); return nil }
	if err := blob.ReadRows(t.Context(), store, name, take); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, want %v, %v", got, want, err)
	}
	enough := errors.New("enough")
	if err := blob.ReadRows(t.Context(), store, name, func(row) error { return enough }); err != enough {
		t.Errorf("got %v", err)
	}
	if err := blob.ReadRows(t.Context(), store, "out/none.avro", take); !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}
