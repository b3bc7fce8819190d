package blob_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/strandline-io/strandline/internal/vfs"
	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/blob"
	"github.com/strandline-io/strandline/stream/blob/blobtest"
)

func newSink(fake *blobtest.Fake, seed uint64, options ...blob.Option) *blob.Sink {
	all := append([]blob.Option{blob.WithType[row](), inline(seed)}, options...)
	return blob.New("out", fake.Client("a"), all...)
}

func tokenOf(t *testing.T, data []byte) *blob.Token {
	t.Helper()
	token, err := blob.ParseToken(data)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// TestBlobSpansOwners: each owner goes on in the same blob, with a run of blocks of its own.
func TestBlobSpansOwners(t *testing.T) {
	fake := blobtest.NewFake()
	var token []byte
	for n := range int64(5) {
		w := resume(t, newSink(fake, uint64(n)), token)
		write(t, w, n*10, n*10+5)
		commit(t, w, prepare(t, w))
		write(t, w, n*10+5, n*10+10)
		token = prepare(t, w)
		commit(t, w, token)
		w.Close()
	}
	b := tokenOf(t, token).Blobs
	if len(b) != 1 || b[0].Rows != 50 || len(b[0].Runs) != 5 || b[0].Blocks() != 10 {
		t.Fatalf("%+v", b)
	}
	seen := map[blob.Nonce]bool{}
	for _, r := range b[0].Runs {
		seen[r.Nonce] = true
	}
	if len(seen) != 5 {
		t.Errorf("%d nonces for 5 owners", len(seen))
	}
	finish(t, resume(t, newSink(fake, 9), token))
	wantRows(t, fake.Client("a"), 50)
}

// TestCrowdedBlobsEnd: a blob that many crashes have filled with foreign blocks, or that has many runs, or another
// codec, is not continued.
func TestCrowdedBlobsEnd(t *testing.T) {
	f := func(name string, want bool, disturb func(fake *blobtest.Fake, name string), options ...blob.Option) {
		t.Helper()
		fake := blobtest.NewFake()
		w := openWriter(t, newSink(fake, 1), 0)
		write(t, w, 0, 3)
		token := prepare(t, w)
		disturb(fake, tokenOf(t, token).Blobs[0].Name)
		w = resume(t, newSink(fake, 2, options...), token)
		write(t, w, 3, 6)
		if got := tokenOf(t, prepare(t, w)).Blobs[0].Done; got != want {
			t.Errorf("%s: done %v, want %v", name, got, want)
		}
		finish(t, w)
		wantRows(t, fake.Client("a"), 6)
	}
	crowd := func(n int) func(*blobtest.Fake, string) {
		return func(fake *blobtest.Fake, name string) {
			for i := range n {
				id := blob.NewBlockID(blob.Nonce{1}, uint32(i))
				if err := fake.StageRaw(name, string(id[:]), []byte("x")); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	f("not crowded", false, crowd(0))
	f("10,000 foreign blocks", false, crowd(10_000))
	f("10,001 foreign blocks", true, crowd(10_001))
	f("another codec", true, crowd(0), blob.WithCodec(blob.Deflate))

	fake := blobtest.NewFake()
	var token []byte
	for n := range int64(70) {
		w := resume(t, newSink(fake, uint64(n)), token)
		write(t, w, n, n+1)
		token = prepare(t, w)
		commit(t, w, token)
	}
	b := tokenOf(t, token).Blobs
	if len(b) != 1 || b[0].Rows != 6 {
		t.Errorf("after 70 owners: %d blobs, the newest with %d rows", len(b), b[len(b)-1].Rows)
	}
}

// TestNamesFullOfForeignBlocks: a new name gets a suffix, and the token remembers it.
func TestNamesFullOfForeignBlocks(t *testing.T) {
	f := func(want string, prepareStore func(fake *blobtest.Fake, name string)) {
		t.Helper()
		fake := blobtest.NewFake()
		prepareStore(fake, "out/0/2024/01/02/03/04-05-0.avro")
		w := openWriter(t, newSink(fake, 1), 0)
		write(t, w, 0, 3)
		token := prepare(t, w)
		if got := tokenOf(t, token).Blobs[0].Name; got != want {
			t.Errorf("name %s, want %s", got, want)
		}
		finish(t, resume(t, newSink(fake, 2), token))
		wantRows(t, fake.Client("a"), 3)
	}
	stage := func(fake *blobtest.Fake, name string, n, idBytes int) {
		for i := range n {
			if err := fake.StageRaw(name, fmt.Sprintf("%0*d", idBytes, i), []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
	}
	f("out/0/2024/01/02/03/04-05-0.avro", func(fake *blobtest.Fake, name string) { stage(fake, name, 10_000, 20) })
	f("out/0/2024/01/02/03/04-05-0-r1.avro", func(fake *blobtest.Fake, name string) { stage(fake, name, 10_001, 20) })
	f("out/0/2024/01/02/03/04-05-0-r1.avro", func(fake *blobtest.Fake, name string) { stage(fake, name, 1, 5) })
	f("out/0/2024/01/02/03/04-05-0-r2.avro", func(fake *blobtest.Fake, name string) {
		stage(fake, name, 1, 5)
		stage(fake, strings.Replace(name, ".avro", "-r1.avro", 1), 1, 64)
	})
}

func TestGone(t *testing.T) {
	f := func(name string, disturb func(fake *blobtest.Fake, w stream.SinkWriter, token []byte), finished bool) {
		t.Helper()
		fake := blobtest.NewFake()
		w := openWriter(t, newSink(fake, 1), 0)
		write(t, w, 0, 3)
		if finished {
			w.Finish()
		}
		token := prepare(t, w)
		disturb(fake, w, token)
		var e *blob.GoneError
		if err := w.Commit(t.Context(), token); finished && !errors.As(err, &e) {
			t.Errorf("%s: Commit: %v, want a GoneError", name, err)
		}
		if err := openWriter(t, newSink(fake, 2), 0).Restore(t.Context(), token); !errors.As(err, &e) || e.Rows != 3 {
			t.Errorf("%s: Restore: %v, want a GoneError", name, err)
		}
	}
	expire := func(fake *blobtest.Fake, w stream.SinkWriter, token []byte) {
		fake.Expire(tokenOf(t, token).Blobs[0].Name)
	}
	f("a done blob expired", expire, true)
	f("an open blob expired", expire, false)
	f("a published blob was removed", func(fake *blobtest.Fake, w stream.SinkWriter, token []byte) {
		commit(t, w, token)
		if err := fake.Client("user").Delete(t.Context(), tokenOf(t, token).Blobs[0].Name); err != nil {
			t.Fatal(err)
		}
	}, true)
}

func TestOpenBlobTakenByAnother(t *testing.T) {
	fake := blobtest.NewFake()
	w := openWriter(t, newSink(fake, 1), 0)
	write(t, w, 0, 3)
	token := prepare(t, w)
	name := tokenOf(t, token).Blobs[0].Name
	fake.Expire(name)
	fake.Put(name, []byte("theirs"))
	var e *blob.FencedError
	if err := openWriter(t, newSink(fake, 2), 0).Restore(t.Context(), token); !errors.As(err, &e) {
		t.Errorf("%v, want a FencedError", err)
	}
}

// TestSuperseded: a former owner restores while a later one has gone on and published.
func TestSuperseded(t *testing.T) {
	fake := blobtest.NewFake()
	for name, store := range map[string]blob.Store{"fake": fake.Client("a"), "folder": blob.NewFolder(vfs.NewMem(), "memory", nil)} {
		s := blob.New("out", store, blob.WithType[row](), inline(1))
		w := openWriter(t, s, 0)
		write(t, w, 0, 3)
		token := prepare(t, w)
		later := resume(t, s, token)
		write(t, later, 3, 6)
		finish(t, later)
		var e *blob.SupersededError
		if err := openWriter(t, s, 0).Restore(t.Context(), token); !errors.As(err, &e) {
			t.Errorf("%s: %v, want a SupersededError", name, err)
		}
	}
}

// TestPermanent: what a job may repeat, and what must stop it.
func TestPermanent(t *testing.T) {
	f := func(err interface{ Permanent() bool }, want bool) {
		t.Helper()
		if err.Permanent() != want {
			t.Errorf("%T: permanent %v", err, !want)
		}
	}
	f(&blob.StoreError{Kind: blob.ErrRefused}, true)
	f(&blob.StoreError{Kind: blob.ErrInvalid}, true)
	f(&blob.StoreError{Kind: blob.ErrTemporary}, false)
	f(&blob.StoreError{Kind: blob.ErrBlockCount}, false) // the next owner ends that blob
	f(&blob.FencedError{}, true)
	f(&blob.GoneError{}, true)
	f(&blob.OwnerError{}, true)
	f(&blob.TokenError{}, true)
	f(&blob.SizeError{}, true)
}

// TestForeignTokens: a token is its writer's alone.
func TestForeignTokens(t *testing.T) {
	fake := blobtest.NewFake()
	s := newSink(fake, 1)
	w := openWriter(t, s, 0)
	write(t, w, 0, 3)
	w.Finish()
	token := prepare(t, w)
	other := task(0)
	other.Run = "run-2"
	for name, bad := range map[string]stream.SinkTask{"task": task(1), "run": other} {
		v, err := s.Open(t.Context(), bad)
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		var e *blob.TokenError
		if err := v.Restore(t.Context(), token); !errors.As(err, &e) {
			t.Errorf("another %s's token: %v", name, err)
		}
		if err := v.Commit(t.Context(), token); !errors.As(err, &e) {
			t.Errorf("another %s's token: %v", name, err)
		}
	}
	var e *blob.TokenError
	if err := openWriter(t, s, 0).Restore(t.Context(), []byte("nonsense")); !errors.As(err, &e) {
		t.Error(err)
	}
	if len(fake.Visible()) != 0 {
		t.Error("a foreign token was published")
	}
}

// TestTokenBound: what would not fit into a checkpoint is refused before the transaction.
func TestTokenBound(t *testing.T) {
	fake := blobtest.NewFake()
	w := openWriter(t, newSink(fake, 1, func(c *blob.Config) { c.MaxRows, c.TokenBytes = 1, 2000 }), 0)
	var err error
	n := int64(0)
	for ; err == nil && n < 100; n++ {
		err = w.Write(t.Context(), record(n))
	}
	var e *blob.SizeError
	if !errors.As(err, &e) || n < 5 {
		t.Fatalf("row %d: %v, want a SizeError", n, err)
	}
	if _, err := w.Prepare(t.Context(), 1); !errors.As(err, &e) {
		t.Errorf("%v, want the same error", err)
	}
	w = openWriter(t, newSink(fake, 2, func(c *blob.Config) { c.MaxRows, c.TokenBytes = 1, 2000 }), 0)
	for n := int64(0); n < 100; n++ { // committed when asked for, it goes on
		write(t, w, n, n+1)
		if w.WantsCommit(1) {
			commit(t, w, prepare(t, w))
		}
	}
	finish(t, w)
	wantRows(t, fake.Client("a"), 100)
}

func TestEqualNamesAreRefused(t *testing.T) {
	fake := blobtest.NewFake()
	w := openWriter(t, newSink(fake, 1, func(c *blob.Config) { c.MaxRows = 1 }), 0)
	r := record(3)
	if err := w.Write(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := w.Write(t.Context(), r); err == nil || !strings.Contains(err.Error(), "numbers that differ") {
		t.Error(err)
	}
}

func TestNumberOption(t *testing.T) {
	fake := blobtest.NewFake()
	w := openWriter(t, newSink(fake, 1, func(c *blob.Config) {
		c.Number = func(r stream.SinkRecord) int64 { return 1000 + r.Value.(row).N }
	}), 0)
	write(t, w, 4, 6)
	if got := tokenOf(t, prepare(t, w)).Blobs[0].Name; got != "out/0/2024/01/02/03/04-09-1004.avro" {
		t.Error(got)
	}
}

func TestSizeLimit(t *testing.T) {
	fake := blobtest.NewFake()
	w := openWriter(t, newSink(fake, 1, func(c *blob.Config) { c.MaxBytes, c.AvroBlockBytes, c.BlockBytes = 1000, 100, 300 }), 0)
	write(t, w, 0, 500)
	finish(t, w)
	blobs := wantRows(t, fake.Client("a"), 500)
	if blobs < 5 || blobs > 10 {
		t.Errorf("%d blobs", blobs)
	}
	for name, data := range fake.Visible() {
		if len(data) > 1100 {
			t.Errorf("%s has %d bytes", name, len(data))
		}
	}
}

// TestClockGoingBack: another owner's clock may be behind.
func TestClockGoingBack(t *testing.T) {
	fake := blobtest.NewFake()
	aged := func(c *blob.Config) { c.MaxAge = time.Minute }
	w := openWriter(t, newSink(fake, 1, aged), 0)
	write(t, w, 0, 1)
	w.WantsCommit(1_000_000)
	token := prepare(t, w)
	w = resume(t, newSink(fake, 2, aged), token)
	if w.WantsCommit(500_000) || w.WantsCommit(559_000) {
		t.Error("older than its clock says")
	}
	if !w.WantsCommit(560_000) {
		t.Error("never gets old")
	}
}

func TestMisuse(t *testing.T) {
	fake := blobtest.NewFake()
	w := openWriter(t, newSink(fake, 1), 0)
	write(t, w, 0, 1)
	if err := w.Restore(t.Context(), nil); err == nil {
		t.Error("restored after a Write")
	}
	token := prepare(t, w)
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if err := w.Write(t.Context(), record(1)); err == nil {
		t.Error("wrote after Close")
	}
	if _, err := w.Prepare(t.Context(), 1); err == nil {
		t.Error("prepared after Close")
	}
	if err := w.Commit(t.Context(), token); err == nil {
		t.Error("committed after Close")
	}
}
