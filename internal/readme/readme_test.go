package readme

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline-io/strandline/broker/brokertest"
	"github.com/strandline-io/strandline/stream/kafka"
)

const (
	readmeLinesMax       = 150
	architectureLinesMax = 250
	// runTimeout bounds one program of the README, its compilation included.
	runTimeout = 2 * time.Minute
)

var root = filepath.Join("..", "..")

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// find lists the files below a folder whose names end so.
func find(t *testing.T, folder, ending string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ending) {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestPagesAreShort does not count the table of clients, which has a row more with each kind of client that is tried.
func TestPagesAreShort(t *testing.T) {
	table := regexp.MustCompile("(?s)<!-- clients: .*<!-- clients end -->")
	for name, most := range map[string]int{"README.md": readmeLinesMax, "ARCHITECTURE.md": architectureLinesMax} {
		if n := strings.Count(table.ReplaceAllString(read(t, name), ""), "\n"); n > most {
			t.Errorf("%s has %d lines, more than %d", name, n, most)
		}
	}
}

// TestProgramsAreExamples: a program that README.md shows is a file of an example, to the letter.
func TestProgramsAreExamples(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(t, "README.md"), -1)
	if len(blocks) < 2 {
		t.Fatalf("README.md shows %d programs, want one for each door", len(blocks))
	}
	files := find(t, "examples", ".go")
	for _, b := range blocks {
		isProgram := func(name string) bool {
			text, err := os.ReadFile(name)
			return err == nil && string(text) == b[1]
		}
		if !slices.ContainsFunc(files, isProgram) {
			head, _, _ := strings.Cut(b[1], "\n\n")
			t.Errorf("no file under examples/ is this program of README.md, to the letter:\n%s\n…", head)
		}
	}
}

// TestStreamProgram runs the program of door 2 twice as README.md says; its rows must be those that README.md shows,
// each once. (The program of door 1 is a test itself.)
func TestStreamProgram(t *testing.T) {
	b := brokertest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), runTimeout)
	defer cancel()
	binary := filepath.Join(t.TempDir(), "program.exe") // the ending is for Windows
	var said []string
	for _, args := range [][]string{
		{"go", "build", "-o", binary, "./examples/03-stream"},
		{binary, b.Addr()},
		{binary, b.Addr()},
	} {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		said = append(said, string(out))
	}
	if !strings.Contains(said[1], "done already: false") || !strings.Contains(said[2], "done already: true") {
		t.Errorf("the runs said %q", said)
	}
	c, err := kafka.Open(ctx, kafka.Config{Brokers: []string{b.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var got []string
	_, err = c.ReadAll(ctx, kafka.TopicPartition{Topic: "clicks-per-minute"}, kafka.Committed, func(r kafka.Record) error {
		got = append(got, string(r.Key)+" "+string(r.Value))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, m := range regexp.MustCompile("`(/[a-z]* [0-9:]+ [0-9]+)`").FindAllStringSubmatch(read(t, "README.md"), -1) {
		want = append(want, m[1])
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-README.md +seen):\n%s", diff)
	}
}

// TestCommandsNameFolders: what `go run` and `go test` are told to run is there.
func TestCommandsNameFolders(t *testing.T) {
	command := regexp.MustCompile(`go (?:run|test)(?: -tags peers| -race)? (\./[^ \n` + "`" + `]*)`)
	found := 0
	for _, page := range []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"} {
		for _, m := range command.FindAllStringSubmatch(read(t, page), -1) {
			found++
			if info, err := os.Stat(filepath.Join(root, strings.TrimSuffix(m[1], "..."))); err != nil || !info.IsDir() {
				t.Errorf("%s says %q: there is no such folder", page, m[0])
			}
		}
	}
	if found < 5 {
		t.Errorf("found only %d commands", found)
	}
}

// TestLinksLead: a link from one page to another file leads there.
func TestLinksLead(t *testing.T) {
	pages := find(t, "docs", ".md")
	for _, name := range []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "STYLE.md"} {
		pages = append(pages, filepath.Join(root, name))
	}
	link := regexp.MustCompile(`[^\[\]]\]\(([^()#\s]+)(?:#[^()\s]*)?\)`)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", page, m[1])
			}
		}
	}
}

// TestNamesExist: the files and the tests that ARCHITECTURE.md and the decisions name in code style are there. A file
// is named by its path, perhaps with a *; a test by its package and name.
func TestNamesExist(t *testing.T) {
	pages := append(find(t, filepath.Join("docs", "decisions"), ".md"), filepath.Join(root, "ARCHITECTURE.md"))
	file := regexp.MustCompile("`([a-z0-9*._-]+(?:/[A-Za-z0-9*._-]+)+/?)`")
	test := regexp.MustCompile(`\b([a-z]+)\.((?:Test|Fuzz|Benchmark)[A-Z]\w*)`)
	tests := declaredTests(t)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range file.FindAllStringSubmatch(string(text), -1) {
			if found, err := filepath.Glob(filepath.Join(root, m[1])); err != nil || len(found) == 0 {
				t.Errorf("%s names %s, which is not there", page, m[1])
			}
		}
		for _, m := range test.FindAllStringSubmatch(string(text), -1) {
			if !tests[m[1]+"."+m[2]] {
				t.Errorf("%s names %s.%s: no folder %s has such a test", page, m[1], m[2], m[1])
			}
		}
	}
}

// declaredTests lists all tests, fuzz targets, benchmarks and contract suites as folder.Name.
func declaredTests(t *testing.T) map[string]bool {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Z]\w*)\(`)
	names := map[string]bool{}
	for _, folder := range []string{"broker", "stream", "internal", "cmd", "test", "examples"} {
		for _, name := range find(t, folder, ".go") {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
				names[filepath.Base(filepath.Dir(name))+"."+m[1]] = true
			}
		}
	}
	return names
}
