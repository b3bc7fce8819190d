package blob_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/strandline-io/strandline/internal/vfs"
	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/blob"
	"github.com/strandline-io/strandline/stream/blob/blobtest"
)

const ownerName = "out/_strandline-owner.json"

func TestOwner(t *testing.T) {
	fake := blobtest.NewFake()
	s := newSink(fake, 1)
	for range 3 {
		if err := s.Check(t.Context(), job); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := string(fake.Visible()[ownerName]), `{"version":1,"job":"job","run":"run-1","sink":"out"}`+"\n"; got != want {
		t.Errorf("owner file %q, want %q", got, want)
	}
	f := func(s *blob.Sink, job stream.JobIdentity) {
		t.Helper()
		var e *blob.OwnerError
		if err := s.Check(t.Context(), job); !errors.As(err, &e) || !strings.Contains(err.Error(), "another prefix") {
			t.Errorf("%v, want an OwnerError", err)
		}
	}
	f(s, stream.JobIdentity{Job: "other", Run: "run-1"})
	f(s, stream.JobIdentity{Job: "job", Run: "run-2"})
	f(blob.New("second", fake.Client("a"), func(c *blob.Config) { c.Stream = "out" }), job)
	if err := blob.New("second", fake.Client("a"), inline(1)).Check(t.Context(), job); err != nil {
		t.Errorf("another stream: %v", err)
	}
}

// A store that does not know a run with rows is not filled on.
func TestRunIsKnown(t *testing.T) {
	fake := blobtest.NewFake()
	s := newSink(fake, 1)
	if e, ok := errors.AsType[*blob.LostError](s.CheckRun(t.Context(), job, 7)); !ok || e.Rows != 7 || e.Name != ownerName {
		t.Errorf("got %v", e)
	}
	if n := len(fake.Visible()); n != 0 {
		t.Errorf("%d blobs were made", n)
	}
	if err := errors.Join(s.Check(t.Context(), job), s.CheckRun(t.Context(), job, 7)); err != nil {
		t.Error(err)
	}
	if _, ok := errors.AsType[*blob.OwnerError](s.CheckRun(t.Context(), stream.JobIdentity{Job: "job", Run: "run-2"}, 7)); !ok {
		t.Error("another run has no OwnerError")
	}
}

// TestOwnerOverFaults: the owner file is claimed once, whatever is lost.
func TestOwnerOverFaults(t *testing.T) {
	for _, op := range []string{"ensure", "read", "stage", "commit"} {
		for _, fault := range []blobtest.Fault{blobtest.Busy, blobtest.LoseRequest, blobtest.LoseReply, blobtest.Late} {
			fake := blobtest.NewFake()
			once := true
			fake.SetFaults(func(c blobtest.Call) blobtest.Fault {
				if c.Op != op || !once {
					return blobtest.None
				}
				once = false
				return fault
			})
			if err := newSink(fake, 1).Check(t.Context(), job); err != nil {
				t.Errorf("%s, fault %d: %v", op, fault, err)
			}
			for fake.Late() > 0 {
				fake.Land(0)
			}
			if err := newSink(fake, 2).Check(t.Context(), job); err != nil {
				t.Errorf("%s, fault %d: again: %v", op, fault, err)
			}
		}
	}
	fake := blobtest.NewFake()
	replies := 0
	fake.SetFaults(func(c blobtest.Call) blobtest.Fault {
		if c.Op != "commit" {
			return blobtest.None
		}
		if replies++; replies == 1 {
			return blobtest.LoseReply // and the repetition, the last there is, finds the name taken
		}
		return blobtest.None
	})
	two := func(c *blob.Config) { c.Tries = 2 }
	reads := 0
	store := lateReads{fake.Client("a"), &reads}
	if err := blob.New("out", store, inline(1), two).Check(t.Context(), job); err != nil {
		t.Errorf("the name is taken at the last try, by ourselves: %v", err)
	}
}

// lateReads does not find the owner file at the first two looks, as if it came to be right after each.
type lateReads struct {
	blob.Store
	reads *int
}

func (l lateReads) Read(ctx context.Context, name string) (io.ReadCloser, error) {
	if *l.reads++; *l.reads <= 2 {
		return nil, &blob.StoreError{Kind: blob.ErrNotFound, Op: "read", Name: name, Where: "fake"}
	}
	return l.Store.Read(ctx, name)
}

// TestClaimIsDurable: a start that finds the claim of one that died relies on it, so a power cut must not take it back.
func TestClaimIsDurable(t *testing.T) {
	for seed := range uint64(200) {
		disk := vfs.NewMem()
		check := func() error {
			return blob.New("out", blob.NewFolder(disk, "memory", nil), inline(1), func(c *blob.Config) { c.Tries = 1 }).Check(t.Context(), job)
		}
		if err := disk.MkdirAll(".strandline-staged"); err != nil {
			t.Fatal(err)
		}
		disk.CrashAfter(1 + int(seed%16))
		check()
		disk = disk.ProcessCrash()
		if err := check(); err != nil {
			t.Fatal(err)
		}
		disk = disk.PowerLoss(seed)
		s := blob.New("out", blob.NewFolder(disk, "memory", nil), inline(1))
		if err := s.CheckRun(t.Context(), job, 1); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// TestOneOwnerOfMany: of many starters at once one claims the prefix.
func TestOneOwnerOfMany(t *testing.T) {
	fake := blobtest.NewFake()
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range 8 {
		wg.Go(func() {
			err := newSink(fake, uint64(i)).Check(t.Context(), stream.JobIdentity{Job: "job", Run: string(rune('a' + i))})
			mu.Lock()
			defer mu.Unlock()
			var e *blob.OwnerError
			if err == nil {
				won++
			} else if !errors.As(err, &e) {
				t.Error(err)
			}
		})
	}
	if wg.Wait(); won != 1 {
		t.Errorf("%d of 8 starters own the prefix", won)
	}
}

func TestOwnerFileThatIsNone(t *testing.T) {
	for _, content := range []string{"", "hello", `{"version":2,"job":"job"}`, `[]`, strings.Repeat("x", 1<<20)} {
		fake := blobtest.NewFake()
		fake.Put(ownerName, []byte(content))
		err := newSink(fake, 1).Check(t.Context(), job)
		if !errors.Is(err, blob.ErrRefused) || !strings.Contains(err.Error(), "no owner file") || len(err.Error()) > 1000 {
			t.Errorf("owner file %.20q: %v", content, err)
		}
	}
}

func TestCheckGivesUp(t *testing.T) {
	fake := blobtest.NewFake()
	fake.SetFaults(func(blobtest.Call) blobtest.Fault { return blobtest.Busy })
	err := newSink(fake, 1).Check(t.Context(), job)
	if !errors.Is(err, blob.ErrTemporary) || fake.Calls() != 3 {
		t.Errorf("%v after %d calls", err, fake.Calls())
	}
}

func TestConfigErrors(t *testing.T) {
	f := func(want string, options ...blob.Option) {
		t.Helper()
		s := blob.New("out", blobtest.NewFake().Client("a"), options...)
		for what, err := range map[string]error{"Check": s.Check(t.Context(), job), "Open": second(s.Open(t.Context(), task(0)))} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", what, err, want)
			}
		}
	}
	set := func(change func(*blob.Config)) blob.Option { return change }
	f("MaxRows is -1", set(func(c *blob.Config) { c.MaxRows = -1 }))
	f("MaxBytes is -5, must be 1 to", set(func(c *blob.Config) { c.MaxBytes = -5 }))
	f("MaxBlocks is 50000, must be 2 to 49999", set(func(c *blob.Config) { c.MaxBlocks = 50_000 }))
	f("MaxAge (ms) is 90000000, must be 1 to 86400000", set(func(c *blob.Config) { c.MaxAge = 25 * time.Hour }))
	f("Codec is 77", set(func(c *blob.Config) { c.Codec = 77 }))
	f("TokenBytes", set(func(c *blob.Config) { c.TokenBytes = 5 }))
	f("Uploads", set(func(c *blob.Config) { c.Uploads = -1 }))
	for _, bad := range []string{"a//b", "/a", "a/", "..", "a/../b", "a b", `a\b`, "_x", ".x", "x.", "é", strings.Repeat("x", 600)} {
		f("stream", set(func(c *blob.Config) { c.Stream = bad }))
	}
	f("MaxRows", set(func(c *blob.Config) { c.MaxRows, c.Uploads = -1, -1 }))
	f("Uploads", set(func(c *blob.Config) { c.MaxRows, c.Uploads = -1, -1 }))
	long := task(0)
	long.Job = strings.Repeat("j", 300)
	if _, err := newSink(blobtest.NewFake(), 1).Open(t.Context(), long); err == nil || !strings.Contains(err.Error(), "the limit is 256") {
		t.Error(err)
	}
}

func second[A any](_ A, err error) error { return err }

// TestBackground: the writers of one sink stage in the background, all within its slots.
func TestBackground(t *testing.T) {
	fake := blobtest.NewFake()
	gate := &gated{Store: fake.Client("a"), limit: 3}
	s := blob.New("out", gate, blob.WithType[row](), func(c *blob.Config) {
		c.BlockBytes, c.AvroBlockBytes, c.Uploads, c.MaxRows = 200, 100, 3, 100
	})
	var wg sync.WaitGroup
	for i := range 4 {
		w := openWriter(t, s, i)
		wg.Go(func() {
			for n := int64(i) * 1000; n < int64(i+1)*1000; n++ {
				if err := w.Write(context.Background(), record(n)); err != nil {
					t.Error(err)
					return
				}
				if n%300 == 299 {
					token, err := w.Prepare(context.Background(), n)
					if err == nil {
						err = w.Commit(context.Background(), token)
					}
					if err != nil {
						t.Error(err)
					}
				}
			}
			w.Finish()
			token, err := w.Prepare(context.Background(), 1)
			if err == nil {
				err = w.Commit(context.Background(), token)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := wantRows(t, fake.Client("a"), 4000); n != 40 {
		t.Errorf("%d blobs", n)
	}
	if gate.most > gate.limit {
		t.Errorf("%d blocks were staged at a time, more than %d", gate.most, gate.limit)
	}
}

// gated counts the Stage calls that run at a time.
type gated struct {
	blob.Store
	mu    sync.Mutex
	limit int
	now   int
	most  int
}

func (g *gated) Stage(ctx context.Context, name string, id blob.BlockID, data []byte) error {
	g.mu.Lock()
	g.now++
	g.most = max(g.most, g.now)
	g.mu.Unlock()
	err := g.Store.Stage(ctx, name, id, data)
	g.mu.Lock()
	g.now--
	g.mu.Unlock()
	return err
}
