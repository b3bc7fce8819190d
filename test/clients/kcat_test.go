//go:build peers

package clients

import (
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

var kcatVersion = regexp.MustCompile(`Version (\S+)[^\n]*librdkafka (\S+)`)

// TestKcat does what people do with kcat, over the librdkafka that Debian ships.
func TestKcat(t *testing.T) {
	r := client(t, "kcat", "kcat")
	version := kcatVersion.FindStringSubmatch(run(t, "", "kcat", "-V"))
	if version == nil {
		t.Fatal("kcat -V names no version")
	}
	r.version = version[1] + " (librdkafka " + version[2] + ")"
	b := broker(t)
	kcat := func(t *testing.T, stdin string, args ...string) string {
		t.Helper()
		return run(t, stdin, "kcat", append([]string{"-b", b.Addr, "-q"}, args...)...)
	}
	input := numbered(0, 1000)
	codecs := []string{"none", "gzip", "snappy", "lz4", "zstd"}
	r.try(t, produce, strings.Join(codecs, " "), func(t *testing.T) {
		for _, codec := range codecs {
			kcat(t, input, "-P", "-t", "kcat-"+codec, "-K:", "-z", codec)
			got := kcat(t, "", "-C", "-t", "kcat-"+codec, "-e", "-o", "beginning", "-f", `%k:%s\n`)
			if got != input {
				t.Fatalf("kcat read %d bytes with %s, want the %d bytes that it wrote", len(got), codec, len(input))
			}
		}
	})
	r.try(t, idempotence, "yes", func(t *testing.T) {
		kcat(t, input, "-P", "-t", "kcat-idempotent", "-K:", "-X", "enable.idempotence=true")
		if got := kcat(t, "", "-C", "-t", "kcat-idempotent", "-e", "-f", `%k:%s\n`, "-X", "isolation.level=read_committed"); got != input {
			t.Fatalf("kcat read %d bytes, want the %d bytes that it wrote", len(got), len(input))
		}
	})
	r.try(t, committed, "yes", func(t *testing.T) {
		kept := abortedBetween(t, b.Addr, "aborted")
		got := kcat(t, "", "-C", "-t", "aborted", "-e", "-f", `%s\n`, "-X", "isolation.level=read_committed")
		if n := strings.Count(got, "kept-"); n != kept || strings.Contains(got, "gone-") {
			t.Fatalf("of %d committed records kcat shows %d, among %d lines", kept, n, strings.Count(got, "\n"))
		}
	})
	r.try(t, groups, "commit, resume", func(t *testing.T) {
		read := func(written int) []string {
			out := kcat(t, "", "-G", "kcat-group", "-X", "auto.offset.reset=earliest", "-e", "-f", `%s\n`, "kcat-grouped")
			if n := strings.Count(out, "\n"); n != written {
				t.Fatalf("the group read %d records, want the %d that were new", n, written)
			}
			return strings.Fields(out)
		}
		kcat(t, "1\n2\n3\n", "-P", "-t", "kcat-grouped")
		read(3)
		kcat(t, "4\n5\n", "-P", "-t", "kcat-grouped")
		if got := read(2); got[0] != "4" || got[1] != "5" {
			t.Fatalf("the group went on with %q", got)
		}
	})
	r.try(t, admin, "list, query offsets", func(t *testing.T) {
		kcat(t, input, "-P", "-t", "kcat-listed")
		contains(t, "kcat -L", kcat(t, "", "-L", "-t", "kcat-listed"), `topic "kcat-listed" with 1 partitions`)
		contains(t, "kcat -Q of the end", kcat(t, "", "-Q", "-t", "kcat-listed:0:-1"), "offset 1000")
		contains(t, "kcat -Q of the beginning", kcat(t, "", "-Q", "-t", "kcat-listed:0:-2"), "offset 0")
		contains(t, "kcat -Q of a time", kcat(t, "", "-Q", "-t", "kcat-listed:0:1000"), "offset 0")
	})
	r.try(t, kills, "produce", func(t *testing.T) {
		const lines = 4000
		cmd := exec.Command("kcat", "-b", b.Addr, "-q", "-E", "-P", "-t", "kcat-killed", "-K:", "-X", "enable.idempotence=true")
		in, end := io.Pipe()
		cmd.Stdin = in
		go writeSlowly(end, lines)
		runUnderKills(t, b, 700*time.Millisecond, cmd)
		if got := kcat(t, "", "-C", "-t", "kcat-killed", "-e", "-f", `%k:%s\n`); got != numbered(0, lines) {
			t.Fatalf("kcat read %d lines, want %d, each once", strings.Count(got, "\n"), lines)
		}
	})
}

// numbered is lines key-N:value-N.
func numbered(from, to int) string {
	var b bytes.Buffer
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "key-%s:value-%d\n", strconv.Itoa(i), i)
	}
	return b.String()
}

// writeSlowly writes numbered lines, 20 every ten milliseconds.
func writeSlowly(w *io.PipeWriter, lines int) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for i := 0; i < lines; i += 20 {
		<-tick.C
		if _, err := io.WriteString(w, numbered(i, min(i+20, lines))); err != nil {
			return
		}
	}
	w.Close()
}
