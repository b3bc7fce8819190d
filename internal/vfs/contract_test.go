package vfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// contract runs one test over both file systems: what the code learns on Mem must hold on the real disk.
func contract(t *testing.T, name string, f func(t *testing.T, disk FS)) {
	t.Helper()
	t.Run("os/"+name, func(t *testing.T) { f(t, OS(t.TempDir())) })
	t.Run("mem/"+name, func(t *testing.T) { f(t, NewMem()) })
	t.Run("volatile/"+name, func(t *testing.T) { f(t, Volatile(OS(t.TempDir()), 1)) })
	for seed := range uint64(50) {
		t.Run("volatile over mem/"+name, func(t *testing.T) { f(t, newVolatile(NewMem(), seed)) })
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("got error %v, want %v", got, want)
	}
}

func create(t *testing.T, disk FS, name, content string) File {
	t.Helper()
	f, err := disk.Create(name)
	must(t, err)
	must(t, f.WriteVecAt([][]byte{[]byte(content)}, 0))
	return f
}

func content(t *testing.T, disk FS, name string) string {
	t.Helper()
	f, err := disk.Open(name)
	must(t, err)
	defer f.Close()
	return fileContent(t, f)
}

func fileContent(t *testing.T, f File) string {
	t.Helper()
	size, err := f.Size()
	must(t, err)
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); n != len(b) {
		t.Fatalf("read %d of %d bytes: %v", n, size, err)
	}
	return string(b)
}

func list(t *testing.T, disk FS, dir string, want ...string) {
	t.Helper()
	got, err := disk.List(dir)
	must(t, err)
	if diff := cmp.Diff(append([]string{}, want...), got); diff != "" {
		t.Fatalf("List(%q) (-want +got):\n%s", dir, diff)
	}
}

func TestContractNames(t *testing.T) {
	contract(t, "names", func(t *testing.T, disk FS) {
		must(t, disk.MkdirAll("."))
		must(t, disk.MkdirAll("a/b"))
		must(t, disk.MkdirAll("a/b"))
		list(t, disk, ".", "a")
		list(t, disk, "a", "b")
		list(t, disk, "a/b")
		_, err := disk.List("nothing")
		wantErr(t, err, fs.ErrNotExist)

		must(t, create(t, disk, "a/two", "2").Close())
		must(t, create(t, disk, "a/one", "1").Close())
		list(t, disk, "a", "b", "one", "two")
		_, err = disk.Create("a/one")
		wantErr(t, err, fs.ErrExist)
		_, err = disk.Create("nowhere/one")
		wantErr(t, err, fs.ErrNotExist)
		_, err = disk.Open("a/three")
		wantErr(t, err, fs.ErrNotExist)
		wantErr(t, disk.Remove("a/three"), fs.ErrNotExist)
		if disk.Remove("a") == nil {
			t.Fatal("a folder that is not empty was removed")
		}

		must(t, disk.Rename("a/one", "a/two"))
		list(t, disk, "a", "b", "two")
		if got := content(t, disk, "a/two"); got != "1" {
			t.Fatalf("after a replacing rename: %q", got)
		}
		wantErr(t, disk.Rename("a/one", "a/x"), fs.ErrNotExist)
		must(t, disk.Rename("a/two", "a/b/moved"))
		list(t, disk, "a", "b")
		list(t, disk, "a/b", "moved")

		must(t, disk.Link("a/b/moved", "a/second"))
		wantErr(t, disk.Link("a/b/moved", "a/second"), fs.ErrExist)
		must(t, disk.Remove("a/b/moved"))
		if got := content(t, disk, "a/second"); got != "1" {
			t.Fatalf("after removing the first name: %q", got)
		}
		must(t, disk.SyncDir("a"))
		must(t, disk.SyncDir("."))
		wantErr(t, disk.SyncDir("nothing"), fs.ErrNotExist)
		must(t, disk.Remove("a/b"))
	})
}

func TestContractNamesStayInside(t *testing.T) {
	contract(t, "inside", func(t *testing.T, disk FS) {
		must(t, disk.MkdirAll("."))
		for _, name := range []string{"../x", "/x", "a/../x", "", "a//b"} {
			_, err := disk.Create(name)
			wantErr(t, err, fs.ErrInvalid)
			_, err = disk.Open(name)
			wantErr(t, err, fs.ErrInvalid)
			wantErr(t, disk.MkdirAll(name), fs.ErrInvalid)
			wantErr(t, disk.Rename(name, "y"), fs.ErrInvalid)
			wantErr(t, disk.Remove(name), fs.ErrInvalid)
		}
	})
}

func TestContractBytes(t *testing.T) {
	contract(t, "bytes", func(t *testing.T, disk FS) {
		must(t, disk.MkdirAll("."))
		f := create(t, disk, "f", "hello")
		n, err := f.WriteAt([]byte("world"), 10)
		must(t, err)
		if n != 5 {
			t.Fatalf("wrote %d of 5 bytes", n)
		}
		if got := fileContent(t, f); got != "hello\x00\x00\x00\x00\x00world" {
			t.Fatalf("hole: %q", got)
		}
		p := make([]byte, 10)
		if n, err := f.ReadAt(p, 12); n != 3 || err != io.EOF || string(p[:n]) != "rld" {
			t.Fatalf("read at the end: %d %v %q", n, err, p[:n])
		}
		if n, err := f.ReadAt(p, 99); n != 0 || err != io.EOF {
			t.Fatalf("read behind the end: %d %v", n, err)
		}
		must(t, f.WriteVecAt([][]byte{[]byte("a"), nil, []byte("bc")}, 4))
		must(t, f.Sync())
		if got := fileContent(t, f); got != "hellabc\x00\x00\x00world" {
			t.Fatalf("vectored write: %q", got)
		}
		must(t, f.Truncate(6))
		must(t, f.Truncate(8))
		if got := fileContent(t, f); got != "hellab\x00\x00" {
			t.Fatalf("cut and grown: %q", got)
		}
		must(t, f.Close())
		if f.Close() == nil {
			t.Fatal("closed twice")
		}
		_, err = f.ReadAt(p, 0)
		wantErr(t, err, fs.ErrClosed)
	})
}

func TestContractVectoredWriteOfManySlices(t *testing.T) {
	contract(t, "vectored", func(t *testing.T, disk FS) {
		must(t, disk.MkdirAll("."))
		f, err := disk.Create("f")
		must(t, err)
		var bufs [][]byte
		var want []byte
		for i := range 3000 {
			b := bytes.Repeat([]byte{byte(i)}, i%7)
			bufs = append(bufs, b)
			want = append(want, b...)
		}
		must(t, f.WriteVecAt(bufs, 5000))
		got := make([]byte, len(want))
		if _, err := f.ReadAt(got, 5000); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("read back: %v, equal %t", err, bytes.Equal(got, want))
		}
		must(t, f.Close())
	})
}

func TestContractAllocate(t *testing.T) {
	contract(t, "allocate", func(t *testing.T, disk FS) {
		must(t, disk.MkdirAll("."))
		f := create(t, disk, "f", "data")
		must(t, f.Allocate(0, 10_000))
		got := fileContent(t, f)
		if len(got) != 10_000 || got[:4] != "data" || got[4:] != string(make([]byte, 9996)) {
			t.Fatalf("allocated file of %d bytes begins %q", len(got), got[:8])
		}
		must(t, f.Allocate(0, 100))
		if size, _ := f.Size(); size != 10_000 {
			t.Fatalf("a shorter allocation cut the file to %d", size)
		}
		wantErr(t, f.Allocate(-1, 5), fs.ErrInvalid)
		wantErr(t, f.Allocate(0, 0), fs.ErrInvalid)
		must(t, f.Close())
	})
}

func TestContractOpenFileOutlivesItsName(t *testing.T) {
	contract(t, "outlives", func(t *testing.T, disk FS) {
		must(t, disk.MkdirAll("."))
		f := create(t, disk, "f", "still here")
		must(t, disk.Rename("f", "g"))
		must(t, disk.Remove("g"))
		if got := fileContent(t, f); got != "still here" {
			t.Fatalf("removed file reads %q", got)
		}
		must(t, f.Close())
		list(t, disk, ".")
	})
}

func TestContractLock(t *testing.T) {
	contract(t, "lock", func(t *testing.T, disk FS) {
		must(t, disk.MkdirAll("."))
		lock, err := disk.Lock("LOCK")
		must(t, err)
		_, err = disk.Lock("LOCK")
		wantErr(t, err, ErrLocked)
		other, err := disk.Lock("LOCK2")
		must(t, err)
		must(t, lock.Close())
		lock, err = disk.Lock("LOCK")
		must(t, err)
		must(t, lock.Close())
		must(t, other.Close())
		list(t, disk, ".", "LOCK", "LOCK2")
	})
}

func TestOSMakesItsRoot(t *testing.T) {
	disk := OS(filepath.Join(t.TempDir(), "not", "yet"))
	must(t, disk.MkdirAll("a"))
	must(t, disk.SyncDir("."))
	list(t, disk, ".", "a")
}
