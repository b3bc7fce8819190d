package blob_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/strandline-io/strandline/internal/vfs"
	"github.com/strandline-io/strandline/stream/blob"
	"github.com/strandline-io/strandline/stream/blob/blobtest"
)

func TestFolderInMemory(t *testing.T) {
	blobtest.TestStore(t, func(t *testing.T) blob.Store { return blob.NewFolder(vfs.NewMem(), "memory", nil) })
}

// TestFolderPowerCuts cuts the power, or kills the process, in the middle of any disk call of a writer, and demands
// that each row of a committed transaction is there once in the end.
func TestFolderPowerCuts(t *testing.T) {
	for seed := range uint64(100) {
		powerCuts(t, seed)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func powerCuts(t *testing.T, seed uint64) {
	const rows = 60
	rng := rand.New(rand.NewPCG(seed, 3))
	disk := vfs.NewMem()
	var token []byte
	committed := int64(0)
	for lives := 0; committed < rows; lives++ {
		if lives < 40 { // then the disk is left in peace
			disk.FailNext(vfs.Op(rng.IntN(int(vfs.OpAllocate))), rng.IntN(40), errors.New("injected"))
		}
		life(t, rng, disk, &token, &committed, rows)
		if rng.IntN(3) == 0 {
			disk = disk.ProcessCrash()
		} else {
			disk = disk.PowerLoss(rng.Uint64())
		}
		if lives > 200 {
			t.Fatalf("seed %d: no progress after %d lives", seed, lives)
		}
	}
	store := blob.NewFolder(disk, "memory", nil)
	finish(t, resume(t, blob.New("out", store, blob.WithType[row](), inline(seed)), token))
	wantRows(t, store, rows)
}

// TestFolderDropsWhatACrashLeft: Commit died after the publication; the repetition finds the blob and cleans up.
func TestFolderDropsWhatACrashLeft(t *testing.T) {
	id, other := blob.NewBlockID(blob.Nonce{1}, 0), blob.NewBlockID(blob.Nonce{2}, 0)
	for removed := range 3 {
		disk := vfs.NewMem()
		s := blob.NewFolder(disk, "memory", nil)
		for _, b := range []blob.BlockID{id, other} {
			if err := s.Stage(t.Context(), "a/x", b, []byte("data")); err != nil {
				t.Fatal(err)
			}
		}
		disk.FailNext(vfs.OpRemove, 1+removed, errors.New("crash")) // the first call removes the part
		if err := s.Commit(t.Context(), "a/x", []blob.BlockID{id}, nil); removed < 2 && err == nil {
			t.Fatal("Commit did not meet the failure")
		}
		disk = disk.ProcessCrash()
		s = blob.NewFolder(disk, "memory", nil)
		if err := s.Commit(t.Context(), "a/x", []blob.BlockID{id}, nil); !errors.Is(err, blob.ErrExists) {
			t.Fatal(err)
		}
		if left, err := disk.List(".strandline-staged"); err != nil || len(left) > 0 {
			t.Errorf("left behind: %q, %v", left, err)
		}
	}
}

// TestFolderDropsNothingBeforeTheNameIsDurable: a process that dies right after it has published leaves a name that a
// power cut may take back. Whoever comes next must not drop the staged blocks before that name is durable.
func TestFolderDropsNothingBeforeTheNameIsDurable(t *testing.T) {
	id := blob.NewBlockID(blob.Nonce{1}, 0)
	for seed := range uint64(200) {
		disk := vfs.NewMem()
		s := blob.NewFolder(disk, "memory", nil)
		if err := s.Stage(t.Context(), "a/x", id, []byte("data")); err != nil {
			t.Fatal(err)
		}
		disk.FailNext(vfs.OpSyncDir, 0, errors.New("killed here"))
		if err := s.Commit(t.Context(), "a/x", []blob.BlockID{id}, nil); err == nil {
			t.Fatal("Commit did not meet the failure")
		}
		disk.CrashAfter(1 + int(seed%8))
		s.Commit(t.Context(), "a/x", []blob.BlockID{id}, nil)
		s = blob.NewFolder(disk.PowerLoss(seed), "memory", nil)
		if err := s.Commit(t.Context(), "a/x", []blob.BlockID{id}, nil); err != nil && !errors.Is(err, blob.ErrExists) {
			t.Fatalf("seed %d: neither published nor staged: %v", seed, err)
		}
	}
}

// TestFolderLookIsDurable: a commit whose sync failed is found by the look that follows; what that says must hold after
// a power cut.
func TestFolderLookIsDurable(t *testing.T) {
	id := blob.NewBlockID(blob.Nonce{1}, 0)
	for seed := range uint64(50) {
		disk := vfs.NewMem()
		s := blob.NewFolder(disk, "memory", nil)
		if err := s.Stage(t.Context(), "a/b/x", id, []byte("data")); err != nil {
			t.Fatal(err)
		}
		disk.FailNext(vfs.OpSyncDir, int(seed%3), errors.New("I/O error"))
		if err := s.Commit(t.Context(), "a/b/x", []blob.BlockID{id}, nil); err == nil {
			t.Fatal("Commit did not meet the failure")
		}
		want, err := s.Props(t.Context(), "a/b/x")
		if err != nil {
			t.Fatal(err)
		}
		disk = disk.PowerLoss(seed)
		if got, err := blob.NewFolder(disk, "memory", nil).Props(t.Context(), "a/b/x"); err != nil || got.Checksum != want.Checksum {
			t.Fatalf("seed %d: after the power cut: %+v, %v", seed, got, err)
		}
	}
}

// TestFolderKeepsWhatAnotherTook: the name is another's, so the staged rows must stay.
func TestFolderKeepsWhatAnotherTook(t *testing.T) {
	disk := vfs.NewMem()
	s := blob.NewFolder(disk, "memory", nil)
	id := blob.NewBlockID(blob.Nonce{1}, 0)
	if err := s.Stage(t.Context(), "a/x", id, []byte("theirs")); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), "a/x", []blob.BlockID{id}, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Stage(t.Context(), "a/x", id, []byte("ours")); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), "a/x", []blob.BlockID{id}, nil); !errors.Is(err, blob.ErrExists) {
		t.Fatal(err)
	}
	if ids, err := s.Uncommitted(t.Context(), "a/x"); err != nil || len(ids) != 1 {
		t.Errorf("staged: %x, %v", ids, err)
	}
}

// life is one process: it ends at the first error, or by chance.
func life(t *testing.T, rng *rand.Rand, disk *vfs.Mem, token *[]byte, committed *int64, rows int64) {
	ctx := context.Background()
	store := blob.NewFolder(disk, "memory", nil)
	s := blob.New("out", store, blob.WithType[row](), inline(rng.Uint64()), func(c *blob.Config) {
		c.MaxRows, c.AvroBlockBytes, c.BlockBytes, c.Tries = 7, 20, 40, 1
	})
	if s.Check(ctx, job) != nil {
		return
	}
	w := openWriter(t, s, 0)
	defer w.Close()
	if w.Restore(ctx, *token) != nil {
		return
	}
	for next := *committed; next < rows; {
		for range min(1+rng.Int64N(6), rows-next) {
			if w.Write(ctx, record(next)) != nil {
				return
			}
			next++
		}
		prepared, err := w.Prepare(ctx, 1)
		if err != nil {
			return
		}
		*token, *committed = prepared, next // the transaction
		if rng.IntN(8) == 0 || w.Commit(ctx, prepared) != nil {
			return
		}
	}
}

func TestFolderRefusesNames(t *testing.T) {
	s := blob.NewFolder(vfs.NewMem(), "memory", nil)
	for _, name := range []string{"", ".", "..", "../x", "/x", "a//b", "a/../b", `a\b`, "c:x", ".strandline-staged/x"} {
		id := blob.NewBlockID(blob.Nonce{}, 0)
		for what, err := range map[string]error{
			"stage":  s.Stage(t.Context(), name, id, []byte("x")),
			"commit": s.Commit(t.Context(), name, []blob.BlockID{id}, nil),
			"delete": s.Delete(t.Context(), name),
			"read":   second(s.Read(t.Context(), name)),
			"props":  second(s.Props(t.Context(), name)),
			"list":   second(s.Uncommitted(t.Context(), name)),
		} {
			if !errors.Is(err, blob.ErrInvalid) {
				t.Errorf("%s %q: %v", what, name, err)
			}
		}
	}
}

func TestFolderErrorsSayWhatToDo(t *testing.T) {
	disk := vfs.NewMem()
	s := blob.NewFolder(disk, "memory", nil)
	f := func(op vfs.Op, cause error, kind error, want string) {
		t.Helper()
		disk.FailNext(op, 0, cause)
		err := s.Stage(t.Context(), "a/x", blob.NewBlockID(blob.Nonce{}, 0), []byte("x"))
		if !errors.Is(err, kind) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "a/x") {
			t.Errorf("%v, want %v and %q", err, kind, want)
		}
	}
	if err := s.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	f(vfs.OpWrite, fmt.Errorf("write: %w", vfs.ErrNoSpace), blob.ErrTemporary, "free space on that disk")
	f(vfs.OpCreate, fs.ErrPermission, blob.ErrRefused, "let this user read and write")
	f(vfs.OpSync, errors.New("I/O error"), blob.ErrTemporary, "I/O error")
	if left, _ := disk.List(".strandline-staged"); len(left) > 0 {
		t.Errorf("failed blocks are left behind: %q", left)
	}
}

// TestFolderTree shows what a user finds, and that a folder that vanished is made again.
func TestFolderTree(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "blobs")
	store, err := blob.OpenStore("file://" + filepath.ToSlash(dir))
	if err != nil {
		t.Fatal(err)
	}
	s := blob.New("daily-delays", store, blob.WithType[row]())
	if err := s.Check(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	w := openWriter(t, s, 3)
	write(t, w, 0, 10)
	if err := os.RemoveAll(filepath.Join(dir, ".strandline-staged")); err != nil {
		t.Fatal(err)
	}
	finish(t, w)
	wantRows(t, store, 10)
	var files []string
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			files = append(files, filepath.ToSlash(rel))
		}
		return err
	})
	want := []string{"daily-delays/3/2024/01/02/03/04-05-0.avro", "daily-delays/_strandline-owner.json"}
	if err != nil || !slices.Equal(files, want) {
		t.Errorf("files %q, %v; want %q", files, err, want)
	}
}

func TestFolderThatCannotBeMade(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := blob.New("out", blob.NewFolder(vfs.OS(file), "file:"+file, nil), inline(1))
	if err := s.Check(t.Context(), job); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("%v", err)
	}
}
