package task

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/task/core"
)

// readSplit reads a split from a position to its end.
func readSplit(t *testing.T, fsys fstest.MapFS, split stream.Split, at core.Position, maxLine int) (batches []core.Records, err error) {
	t.Helper()
	s := &splitReader{
		task: core.Task{Stage: "load"}, file: stream.File{FS: fsys, Split: split}, maxLine: maxLine, at: at,
		send: func(b fileBatch) bool {
			batches = append(batches, b.records)
			return true
		},
	}
	return batches, s.read()
}

func fileOf(t *testing.T, data string) (fstest.MapFS, stream.Split) {
	t.Helper()
	fsys := fstest.MapFS{"f": {Data: []byte(data)}}
	split, err := stream.SplitOf(fsys, "f")
	if err != nil {
		t.Fatal(err)
	}
	return fsys, split
}

func TestLines(t *testing.T) {
	t.Parallel()
	f := func(data, want string) {
		t.Helper()
		fsys, split := fileOf(t, data)
		batches, err := readSplit(t, fsys, split, core.Position{}, 8)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for _, batch := range batches {
			for _, m := range batch.Records {
				fmt.Fprintf(&b, "%d@%d:%q ", m.Line, m.Offset, m.Value)
			}
		}
		last := batches[len(batches)-1]
		fmt.Fprintf(&b, "end %d after %d", last.Next.Offset, last.Next.Line)
		if got := b.String(); got != want {
			t.Errorf("%q:\n got %s\nwant %s", data, got, want)
		}
		if last.HighWatermark != int64(len(data)) || last.LastStableOffset != int64(len(data)) {
			t.Errorf("%q: the end is %d and %d", data, last.LastStableOffset, last.HighWatermark)
		}
	}
	f("", `end 0 after 0`)
	f("a\nb\n", `1@0:"a" 2@2:"b" end 4 after 2`)
	f("a\nb", `1@0:"a" 2@2:"b" end 3 after 2`)
	f("a\r\n\r\n\nb\r\n", `1@0:"a" 2@3:"" 3@5:"" 4@6:"b" end 9 after 4`)
	f("a\rb\n", `1@0:"a\rb" end 4 after 1`)
	f("12345678\r\nx\n", `1@0:"12345678" 2@10:"x" end 12 after 2`)
	// One byte more than allowed tells that a line is too long, and the next one is found.
	f("123456789\nx\n", `1@0:"123456789" 2@10:"x" end 12 after 2`)
	f(strings.Repeat("y", 700_000)+"\nx\n", `1@0:"yyyyyyyyy" 2@700001:"x" end 700003 after 2`)
	f(strings.Repeat("y", 700_000), `1@0:"yyyyyyyyy" end 700000 after 1`)
}

func TestSplitGoesOnAnywhere(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(8, 9))
	var data bytes.Buffer
	for data.Len() < 3<<20 {
		data.WriteString(strings.Repeat("z", rng.IntN(200)))
		data.WriteString([]string{"\n", "\r\n"}[rng.IntN(2)])
	}
	fsys, split := fileOf(t, data.String())
	all, err := readSplit(t, fsys, split, core.Position{}, stream.DefaultLineBytes)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 3 {
		t.Fatalf("3 MiB came in %d batches", len(all))
	}
	for _, b := range all[:len(all)-1] {
		rest, err := readSplit(t, fsys, split, b.Next, stream.DefaultLineBytes)
		if err != nil {
			t.Fatal(err)
		}
		first, last := rest[0].Records[0], rest[len(rest)-1]
		if first.Offset != b.Next.Offset || first.Line != b.Next.Line+1 || last.Next != all[len(all)-1].Next {
			t.Errorf("from %+v: began at %d line %d, ended at %+v", b.Next, first.Offset, first.Line, last.Next)
		}
	}
}

func TestChangedFileIsRefused(t *testing.T) {
	t.Parallel()
	_, split := fileOf(t, "one\ntwo\n")
	var changed *ChangedFileError
	for _, data := range []string{"one\ntwo\nthree\n", "one\nTWO\n", ""} {
		_, err := readSplit(t, fstest.MapFS{"f": {Data: []byte(data)}}, split, core.Position{}, 100)
		if !errors.As(err, &changed) {
			t.Errorf("%q: got %v", data, err)
		}
	}
	if _, err := readSplit(t, fstest.MapFS{}, split, core.Position{}, 100); err == nil {
		t.Error("a missing file is no error")
	}
}
