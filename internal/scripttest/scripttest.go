// Package scripttest runs the scripts in a package's testdata: text that says what is done and what comes of it, for
// tests that people can read without the program. With -rewrite a test writes what comes of it into the files; read the
// difference before you keep it.
package scripttest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "write what the scripts in testdata give into them")

// Files runs every testdata/*.txt as a subtest: play returns the text as it should be.
func Files(t *testing.T, play func(t *testing.T, text string) string) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(text))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if diff := cmp.Diff(string(text), got); diff != "" {
				t.Errorf("%s (-want +got; -rewrite accepts):\n%s", file, diff)
			}
		})
	}
}

// Lines runs scripts of one command a line, what it answers behind an arrow in the given column. Lines that begin with #
// say why. start begins a script.
func Lines(t *testing.T, column int, start func(t *testing.T) (run func(command string) string)) {
	t.Helper()
	Files(t, func(t *testing.T, text string) string {
		run := start(t)
		lines := strings.Split(text, "\n")
		for i, line := range lines {
			command, _, _ := strings.Cut(line, "→")
			if command = strings.TrimSpace(command); command != "" && !strings.HasPrefix(command, "#") {
				lines[i] = fmt.Sprintf("%-*s→ %s", column, command+" ", run(command))
			}
		}
		return strings.Join(lines, "\n")
	})
}

// Command is a line taken apart: a verb, words of the form key=value, and bare ones in their order.
type Command struct {
	Verb   string
	Values map[string]string
	Bare   []string
}

// Parse takes a line apart.
func Parse(line string) Command {
	words := strings.Fields(line)
	c := Command{Verb: words[0], Values: map[string]string{}}
	for _, word := range words[1:] {
		if k, v, ok := strings.Cut(word, "="); ok {
			c.Values[k] = v
		} else {
			c.Bare = append(c.Bare, word)
		}
	}
	return c
}

// Num is a key's number. A script that has another word there panics.
func (c *Command) Num(key string, or int64) int64 {
	v, ok := c.Values[key]
	if !ok {
		return or
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// Has reports whether a bare word is there.
func (c *Command) Has(word string) bool { return slices.Contains(c.Bare, word) }
