package blob_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/blob"
	"github.com/strandline-io/strandline/stream/blob/blobtest"
)

// The scenarios A1 to A10 are what bit users of other sinks.

// A1: more than 10, 100 and 10,000 blocks.
func TestManyBlocks(t *testing.T) {
	fake := blobtest.NewFake()
	s := blob.New("out", fake.Client("a"), blob.WithType[row](), inline(1), func(c *blob.Config) {
		c.BlockBytes, c.AvroBlockBytes = 1, 1
	})
	w := openWriter(t, s, 0)
	write(t, w, 0, 12_000)
	finish(t, w)
	if n := wantRows(t, fake.Client("a"), 12_000); n != 1 {
		t.Errorf("%d blobs", n)
	}
}

func TestRollsBeforeTheBlockLimit(t *testing.T) {
	fake := blobtest.NewFake()
	s := blob.New("out", fake.Client("a"), blob.WithType[row](), inline(1), func(c *blob.Config) {
		c.BlockBytes, c.AvroBlockBytes, c.MaxBlocks = 1, 1, 10
	})
	w := openWriter(t, s, 0)
	write(t, w, 0, 95)
	most := 0
	for n := int64(95); n < 195; n += 3 { // blocks both of full buffers and of commits
		write(t, w, n, min(n+3, 195))
		token := prepare(t, w)
		commit(t, w, token)
		parsed, err := blob.ParseToken(token)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range parsed.Blobs {
			most = max(most, b.Blocks())
		}
	}
	finish(t, w)
	if most != 10 {
		t.Errorf("a blob has %d blocks, the limit is 10", most)
	}
	wantRows(t, fake.Client("a"), 195)
}

// A2: the list is put, the reply is lost, and the repetition is refused.
func TestLostReplyOfCommitIsOurs(t *testing.T) {
	for _, fault := range []blobtest.Fault{blobtest.LoseReply, blobtest.LoseRequest, blobtest.Busy, blobtest.Late} {
		fake := blobtest.NewFake()
		store := fake.Client("a")
		w := openWriter(t, blob.New("out", store, blob.WithType[row](), inline(1)), 0)
		write(t, w, 0, 5)
		w.Finish()
		token := prepare(t, w)
		faults(fake, "commit", fault, fault)
		commit(t, w, token)
		commit(t, w, token) // repeatable
		for fake.Late() > 0 {
			fake.Land(0)
		}
		wantRows(t, store, 5)
		if w.Pending() {
			t.Errorf("fault %d: still pending", fault)
		}
		resume(t, blob.New("out", store, blob.WithType[row](), inline(2)), token) // and by the next owner
		wantRows(t, store, 5)
	}
}

// A2, mirrored: another writer has the name.
func TestAnothersBlobFences(t *testing.T) {
	fake := blobtest.NewFake()
	store := fake.Client("a")
	w := openWriter(t, blob.New("out", store, blob.WithType[row](), inline(1)), 0)
	write(t, w, 0, 5)
	w.Finish()
	token := prepare(t, w)
	parsed, _ := blob.ParseToken(token)
	fake.Put(parsed.Blobs[0].Name, []byte("theirs"))
	check := func(err error) {
		t.Helper()
		var e *blob.FencedError
		if !errors.As(err, &e) || e.Name != parsed.Blobs[0].Name {
			t.Fatalf("%v, want a FencedError", err)
		}
	}
	check(w.Commit(t.Context(), token))
	if !w.Pending() {
		t.Error("the token is forgotten")
	}
	check(openWriter(t, blob.New("out", store, blob.WithType[row](), inline(2)), 0).Restore(t.Context(), token))
	if got := fake.Visible()[parsed.Blobs[0].Name]; string(got) != "theirs" {
		t.Errorf("their blob was replaced: %q", got)
	}
}

func TestTakenNameFailsBeforeTheTransaction(t *testing.T) {
	fake := blobtest.NewFake()
	fake.Put("out/0/2024/01/02/03/04-05-0.avro", []byte("theirs"))
	s := blob.New("out", fake.Client("a"), blob.WithType[row](), inline(1))
	for _, permanent := range []bool{false, true, true} {
		w := resume(t, s, nil)
		write(t, w, 0, 5)
		_, err := w.Prepare(t.Context(), 1)
		var e *blob.NameTakenError
		if !errors.As(err, &e) || e.Permanent() != permanent {
			t.Fatalf("%v, want a NameTakenError, permanent %v", err, permanent)
		}
	}
}

// A4: a paused owner wakes up after its successor has committed the same rows and more.
func TestZombieNeverBecomesVisible(t *testing.T) {
	fake := blobtest.NewFake()
	sink := func(client string, seed uint64) *blob.Sink {
		return blob.New("out", fake.Client(client), blob.WithType[row](), inline(seed), func(c *blob.Config) { c.AvroBlockBytes, c.BlockBytes = 1, 1 })
	}
	zombie := openWriter(t, sink("zombie", 1), 0)
	write(t, zombie, 0, 3)
	committed := prepare(t, zombie) // in a committed transaction: the blob is open
	commit(t, zombie, committed)
	fake.SetFaults(func(c blobtest.Call) blobtest.Fault {
		if c.Client == "zombie" && c.Op == "stage" {
			return blobtest.Late
		}
		return blobtest.None
	})
	for n := int64(3); n < 6; n++ { // on their way when the zombie is cut off
		zombie.Write(t.Context(), record(n))
	}

	heir := resume(t, sink("heir", 2), committed)
	write(t, heir, 3, 10)
	for fake.Late() > 0 {
		fake.Land(fake.Late() - 1)
	}
	if _, err := zombie.Prepare(t.Context(), 2); err == nil {
		t.Fatal("a writer whose blocks got no answer prepared")
	}
	finish(t, heir)
	if n := wantRows(t, fake.Client("heir"), 10); n != 1 {
		t.Errorf("%d blobs, want the one that both owners wrote", n)
	}
	commit(t, zombie, committed) // repeated for ever
	wantRows(t, fake.Client("heir"), 10)
}

// A6: two schema versions alternate.
func TestAlternatingSchemas(t *testing.T) {
	fake := blobtest.NewFake()
	v1, err1 := blob.SchemaOf[row]()
	v2, err2 := blob.SchemaOf[rowV2]()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	w := openWriter(t, blob.New("out", fake.Client("a"), inline(1)), 0)
	const rows = 20_000
	for n := range int64(rows) {
		r := record(n)
		r.Value = blob.Record{Schema: v1, Value: r.Value}
		if n%2 == 1 {
			r.Value = blob.Record{Schema: v2, Value: rowV2{N: n, Text: fmt.Sprintf("row %d", n)}}
		}
		if err := w.Write(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if n%1000 == 999 {
			commit(t, w, prepare(t, w))
		}
	}
	finish(t, w)
	if n := wantRows(t, fake.Client("a"), rows); n != 2 {
		t.Errorf("%d blobs for 2 schemas", n)
	}
}

func TestTooManySchemasEndTheLeastRecent(t *testing.T) {
	fake := blobtest.NewFake()
	w := openWriter(t, blob.New("out", fake.Client("a"), inline(1), func(c *blob.Config) { c.MaxOpen = 2 }), 0)
	for n, version := range []int{1, 2, 1, 3, 1, 2} { // 3 ends 2, then 2 ends 3
		s, err := blob.ParseSchema(fmt.Sprintf(`{"type":"record","name":"row","doc":"%d","fields":[
			{"name":"n","type":"long"},{"name":"text","type":"string"}]}`, version))
		if err != nil {
			t.Fatal(err)
		}
		r := record(int64(n))
		r.Value = blob.Record{Schema: s, Value: r.Value}
		if err := w.Write(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	parsed, err := blob.ParseToken(prepare(t, w))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range parsed.Blobs {
		got = append(got, fmt.Sprintf("%v %d", b.Done, b.Rows))
	}
	if want := "[true 1 true 1 false 3 false 1]"; fmt.Sprint(got) != want {
		t.Errorf("blobs (done, rows): %v, want %v", got, want)
	}
	finish(t, w)
	wantRows(t, fake.Client("a"), 6)
}

// A8: traffic stops after a few records.
func TestOldBlobWantsACommit(t *testing.T) {
	fake := blobtest.NewFake()
	store := fake.Client("a")
	w := openWriter(t, blob.New("out", store, blob.WithType[row](), inline(1), func(c *blob.Config) { c.MaxAge = time.Minute }), 0)
	if w.WantsCommit(1000) || w.Pending() || prepare(t, w) != nil {
		t.Fatal("something to do before the first row")
	}
	write(t, w, 0, 5)
	commit(t, w, prepare(t, w))
	wantRows(t, store, 0)
	if w.WantsCommit(2000) || w.WantsCommit(61_999-1000) {
		t.Error("wants a commit too early")
	}
	if !w.WantsCommit(62_000) {
		t.Fatal("does not want a commit after a minute")
	}
	token := prepare(t, w)
	if w.WantsCommit(62_000) {
		t.Error("wants another commit while one is under way")
	}
	commit(t, w, token)
	if n := wantRows(t, store, 5); n != 1 {
		t.Errorf("%d blobs", n)
	}
	// The checkpoint still lists the blob: one more transaction drops it, and then all is quiet.
	if w.Pending() || !w.WantsCommit(63_000) {
		t.Error("the confirmed blob is never dropped from the checkpoint")
	}
	if token := prepare(t, w); token != nil || w.WantsCommit(1<<40) {
		t.Errorf("token %x after all is done", token)
	}
	if len(fake.Visible()) != 1 {
		t.Errorf("blobs were made of nothing: %d", len(fake.Visible()))
	}
}

// A9: the service hangs, answers 503 for minutes, or disappears.
func TestStoreThatDoesNotAnswer(t *testing.T) {
	for name, fault := range map[string]blobtest.Fault{"hang": blobtest.Hang, "hang after the work": blobtest.HangDone,
		"503": blobtest.Busy, "gone": blobtest.LoseRequest} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := blobtest.NewFake()
				s := blob.New("out", fake.Client("a"), blob.WithType[row](), func(c *blob.Config) {
					c.BlockBytes, c.AvroBlockBytes, c.Uploads = 100, 50, 2
				})
				w := openWriter(t, s, 0)
				stuck := func(c blobtest.Call) blobtest.Fault {
					if c.Op == "stage" && strings.Contains(c.Name, "/0/") {
						return fault
					}
					return blobtest.None
				}
				fake.SetFaults(stuck)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				start, n := time.Now(), int64(0)
				var err error
				for ; err == nil && n < 1_000_000; n++ {
					err = w.Write(ctx, record(n))
				}
				if err == nil {
					t.Fatal("a million rows were taken by a dead store")
				}
				if !errors.Is(err, blob.ErrTemporary) && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("unclear error %v", err)
				}
				if d := time.Since(start); d > 5*time.Minute {
					t.Errorf("Write returned after %v", d)
				}
				runtime.ReadMemStats(&after)
				if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 64<<20 {
					t.Errorf("%d bytes are held", grown)
				}
				if _, err := w.Prepare(t.Context(), 1); err == nil {
					t.Error("prepared what is not staged")
				}
				w.Close()
				// Another task's blobs are not kept, and this one comes back.
				other := openWriter(t, s, 1)
				write(t, other, 0, 10)
				finish(t, other)
				fake.SetFaults(nil)
				w = resume(t, s, nil)
				write(t, w, 10, 20)
				finish(t, w)
				wantRows(t, fake.Client("a"), 20)
			})
		})
	}
}

// A failed upload fails the next call, not the last one.
func TestFailureSurfacesAtTheNextWrite(t *testing.T) {
	fake := blobtest.NewFake()
	w := openWriter(t, blob.New("out", fake.Client("a"), blob.WithType[row](), inline(1), func(c *blob.Config) {
		c.BlockBytes, c.AvroBlockBytes, c.Tries = 1, 1, 2
	}), 0)
	write(t, w, 0, 3)
	faults(fake, "stage", blobtest.Busy, blobtest.Busy)
	if err := w.Write(t.Context(), record(3)); !errors.Is(err, blob.ErrTemporary) {
		t.Errorf("%v", err)
	}
	calls := fake.Calls()
	for range 3 {
		if err := w.Write(t.Context(), record(4)); !errors.Is(err, blob.ErrTemporary) {
			t.Errorf("%v", err)
		}
	}
	if fake.Calls() != calls {
		t.Error("a writer that has failed goes on staging")
	}
}

func TestPrepareEndsByItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := blobtest.NewFake()
		s := blob.New("out", fake.Client("a"), blob.WithType[row](), func(c *blob.Config) { c.PrepareTimeout = 7 * time.Second })
		w := openWriter(t, s, 0)
		write(t, w, 0, 10)
		faults(fake, "stage", blobtest.Hang, blobtest.Hang, blobtest.Hang)
		start := time.Now()
		if _, err := w.Prepare(t.Context(), 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want a deadline", err)
		}
		if d := time.Since(start); d != 7*time.Second {
			t.Errorf("Prepare took %v", d)
		}
	})
}

// One blob that cannot be published does not keep the others.
func TestOneStuckBlobDoesNotKeepOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := blobtest.NewFake()
		s := blob.New("out", fake.Client("a"), blob.WithType[row](), func(c *blob.Config) { c.MaxRows = 2 })
		w := openWriter(t, s, 0)
		write(t, w, 0, 10)
		token := prepare(t, w)
		stuck := "out/0/2024/01/02/03/04-09-4.avro"
		fake.SetFaults(func(c blobtest.Call) blobtest.Fault {
			if c.Name == stuck {
				return blobtest.Hang
			}
			return blobtest.None
		})
		err := w.Commit(t.Context(), token)
		if err == nil || !strings.Contains(err.Error(), stuck) || !strings.Contains(err.Error(), "staged and listed") {
			t.Errorf("%v", err)
		}
		if got := len(fake.Visible()); got != 3 { // of four done ones; the fifth is open
			t.Errorf("%d blobs are visible", got)
		}
		fake.SetFaults(nil)
		write(t, w, 10, 12)
		finish(t, w) // the next token lists the stuck one again
		wantRows(t, fake.Client("a"), 12)
	})
}

// A10: one bad record fails alone.
func TestBadRecordsFailAlone(t *testing.T) {
	fake := blobtest.NewFake()
	schema, err := blob.SchemaOf[row]()
	if err != nil {
		t.Fatal(err)
	}
	w := openWriter(t, blob.New("out", fake.Client("a"), inline(1)), 0)
	good, err := encode(row{N: 1, Text: "row 1"})
	if err != nil {
		t.Fatal(err)
	}
	bad := func(value any, want string) {
		t.Helper()
		err := w.Write(t.Context(), stream.SinkRecord{Value: value, TimestampMs: firstMs})
		var e *blob.RecordError
		if !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want a RecordError with %q", err, want)
		}
	}
	bad(row{N: 0}, "brings no schema")
	bad([]byte("raw"), "brings no schema")
	bad(blob.Encoded{Data: good}, "no schema")
	bad(blob.Record{Schema: schema, Value: map[string]any{"n": 1}}, "does not fit")
	bad(blob.Record{Schema: schema, Value: 7}, "does not fit")
	bad(blob.Record{Value: row{}}, "brings no schema")
	bad(nil, "brings no schema")
	bad(blob.Encoded{Schema: schema, Data: good[:len(good)-1]}, "do not match")
	bad(blob.Encoded{Schema: schema, Data: append(bytes.Clone(good), 0)}, "1 of 8 encoded bytes are left over")
	bad(blob.Encoded{Schema: schema}, "do not match")
	if fake.Calls() != 0 || w.Pending() {
		t.Error("bad records left a trace")
	}
	r := record(0)
	r.Value = blob.Record{Schema: schema, Value: r.Value}
	if err := w.Write(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	bad(blob.Record{Schema: schema, Value: map[string]any{"n": "x", "text": 1}}, "does not fit")
	if err := w.Write(t.Context(), stream.SinkRecord{Value: blob.Encoded{Schema: schema, Data: good}, RowSequence: 1}); err != nil {
		t.Fatal(err)
	}
	finish(t, w)
	wantRows(t, fake.Client("a"), 2)
}
