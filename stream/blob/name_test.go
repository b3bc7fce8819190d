package blob

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func TestBlobName(t *testing.T) {
	f := func(stream string, partition int, at time.Time, n int64, want string) {
		t.Helper()
		if got := blobName(stream, partition, at.UnixMilli(), n); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	f("delays", 0, time.Date(2024, 1, 2, 3, 4, 5, 999e6, time.UTC), 0, "delays/0/2024/01/02/03/04-05-0.avro")
	f("a/b", 12, time.Date(2024, 12, 31, 23, 59, 59, 0, time.FixedZone("", 3600)), 7, "a/b/12/2024/12/31/22/59-59-7.avro")
	f("old", 0, time.UnixMilli(-1), 5, "old/0/1969/12/31/23/59-59-5.avro")
	for ms, want := range map[int64]string{
		math.MinInt64: "x/1/0001/01/01/00/00-00-3.avro",
		math.MaxInt64: "x/1/9999/12/31/23/59-59-3.avro",
	} {
		if got := blobName("x", 1, ms, 3); got != want {
			t.Errorf("%d: got %s, want %s", ms, got, want)
		}
	}
	if got := suffixed("delays/0/2024/01/02/03/04-05-0.avro", 2); got != "delays/0/2024/01/02/03/04-05-0-r2.avro" {
		t.Error(got)
	}
}

func TestCommitID(t *testing.T) {
	b := goldenToken().Blobs[0]
	who := identity{job: "flights", run: "7", sink: "delays", task: "window-0"}
	const want = "1/flights/7/window-0/0be2fc51a8fea02de1c032ed3af964a3"
	if got := who.commitID(&b); got != want {
		t.Errorf("commit id %s, the format page says %s", got, want)
	}
	distinct := map[string]string{}
	f := func(what string, who identity, b Blob) {
		id := who.commitID(&b)
		if other, ok := distinct[id]; ok {
			t.Errorf("%s and %s have the same commit id %s", what, other, id)
		}
		distinct[id] = what
	}
	f("the blob", who, b)
	for what, other := range map[string]identity{
		"job":  {"flights2", "7", "delays", "window-0"},
		"run":  {"flights", "8", "delays", "window-0"},
		"sink": {"flights", "7", "delays2", "window-0"},
		"task": {"flights", "7", "delays", "window-1"},
		"cut":  {"flights/7", "window-0", "delays", ""},
	} {
		f("another "+what, other, b)
	}
	other := goldenToken().Blobs[0]
	other.Runs[1].Nonce[3]++
	f("another nonce", who, other)
	other = goldenToken().Blobs[0]
	other.Runs[0].Count++
	f("another count", who, other)
	other = goldenToken().Blobs[0]
	other.Name += "x"
	f("another name", who, other)
}

func TestIdentityBounds(t *testing.T) {
	f := func(who identity, ok bool) {
		t.Helper()
		err := who.check()
		var e *SizeError
		if ok && err != nil || !ok && !errors.As(err, &e) {
			t.Errorf("job of %d bytes: %v", len(who.job), err)
		}
	}
	f(identity{"job", "run", "sink", "task"}, true)
	f(identity{strings.Repeat("j", 200), "run", "sink", "task"}, true)
	f(identity{strings.Repeat("j", 220), "run", "sink", "task"}, false)
	f(identity{strings.Repeat("ä", 60), "run", "sink", "task"}, false)
	f(identity{"job", "run", strings.Repeat("s", maxTokenString+1), "task"}, false)
}

func TestMetadataFitsAzure(t *testing.T) {
	b := goldenToken().Blobs[0]
	who := identity{job: "flüge 2024/α", run: "7\n", sink: "s", task: "t"}
	size := 0
	for k, v := range who.metadata(&b, strings.Repeat("s", 512)) {
		size += len(k) + len(v)
		for _, r := range v {
			if r <= ' ' || r > '~' {
				t.Errorf("%s: %q is no plain header text", k, v)
			}
		}
	}
	if size > MaxMetadataBytes {
		t.Errorf("%d bytes of metadata", size)
	}
}
