package tidy

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	module           = "github.com/strandline-io/strandline/"
	functionLinesMax = 70
	fileLinesMax     = 800
)

// source is one parsed Go file of the project.
type source struct {
	path string // relative to the root, slashes
	file *ast.File
	text []byte
}

func (s source) dir() string    { return filepath.ToSlash(filepath.Dir(s.path)) }
func (s source) test() bool     { return strings.HasSuffix(s.path, "_test.go") }
func (s source) String() string { return s.path }

var fset = token.NewFileSet()

func sources(t *testing.T) []source {
	t.Helper()
	root := filepath.Join("..", "..")
	var all []source
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata" || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(fset, path, text, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		all = append(all, source{path: filepath.ToSlash(rel), file: f, text: text})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("found only %d Go files under %s: is this the root?", len(all), root)
	}
	return all
}

func line(p token.Pos) int { return fset.Position(p).Line }

func TestFilesAndFunctionsAreShort(t *testing.T) {
	for _, s := range sources(t) {
		if n := bytes.Count(s.text, []byte("\n")); n > fileLinesMax {
			t.Errorf("%s has %d lines, more than %d", s, n, fileLinesMax)
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if n := line(f.End()) - line(f.Pos()) + 1; n > functionLinesMax {
				t.Errorf("%s:%d: %s has %d lines, more than %d", s, line(f.Pos()), f.Name.Name, n, functionLinesMax)
			}
		}
	}
}

func TestEveryPackageIsDocumented(t *testing.T) {
	documented := map[string]bool{}
	for _, s := range sources(t) {
		if s.test() {
			continue
		}
		documented[s.dir()] = documented[s.dir()] || s.file.Doc != nil
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("package %s has no doc comment", dir)
		}
	}
}

func TestNoSleepInTests(t *testing.T) {
	for _, s := range sources(t) {
		if !s.test() && !strings.HasPrefix(s.path, "test/") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if isSelector(n, "time", "Sleep") {
				t.Errorf("%s:%d: time.Sleep in a test: wait for the event, or use a clock of your own", s, line(n.Pos()))
			}
			return true
		})
	}
}

func isSelector(n ast.Node, pkg, name string) bool {
	sel, ok := n.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != name {
		return false
	}
	id, ok := sel.X.(*ast.Ident)
	return ok && id.Name == pkg
}

// allowed says who may import what. A dependency that is listed may be imported only below the listed folders
// (tests excepted where the value says so).
var allowed = map[string][]string{
	"github.com/twmb/franz-go/pkg/kgo":   {"stream/kafka", "cmd", "internal/compress", "test", "examples"},
	"github.com/twmb/franz-go/pkg/kadm":  {"stream/kafka", "cmd", "test", "examples"},
	"github.com/twmb/franz-go/pkg/kmsg":  {"broker/wire", "broker/edge", "broker/machine", "broker/brokertest", "broker", "broker/sequencer", "stream/kafka", "internal/sim", "cmd", "test"},
	"github.com/twmb/franz-go/pkg/kerr":  {"broker/wire", "broker/edge", "broker/machine", "broker/brokertest", "broker", "broker/sequencer", "broker/record", "stream/kafka", "internal/sim", "cmd", "test"},
	"github.com/twmb/franz-go/pkg/kfake": {"test"},
	"github.com/Azure/":                  {"stream/blob"},
	"github.com/cockroachdb/pebble":      {"stream/state"},
	"github.com/twmb/avro":               {"stream/blob"},
	"github.com/spf13/cobra":             {"cmd"},
}

func TestImportArrows(t *testing.T) {
	for _, s := range sources(t) {
		for _, imp := range s.file.Imports {
			path := strings.Trim(imp.Path.Value, `"`)
			checkArrow(t, s, path)
		}
	}
}

func checkArrow(t *testing.T, s source, path string) {
	if own, ok := strings.CutPrefix(path, module); ok {
		from := s.dir()
		for _, pair := range [][2]string{{"broker", "stream"}, {"stream", "broker"}} {
			if within(from, pair[0]) && within(own, pair[1]) {
				t.Errorf("%s imports %s: broker and stream meet only in the Kafka protocol", s, own)
			}
		}
		for _, top := range []string{"cmd", "examples", "test"} {
			if within(own, top) && !within(from, top) {
				t.Errorf("%s imports %s, which nobody outside %s may import", s, own, top)
			}
		}
		if s.test() {
			return
		}
		if want, ok := ownArrows[from]; ok && !slices.Contains(want, own) && !seams[own] {
			t.Errorf("%s imports %s; %s may import only %v", s, own, from, want)
		}
		return
	}
	if s.test() {
		return
	}
	for dep, dirs := range allowed {
		if path != dep && !strings.HasPrefix(path, strings.TrimSuffix(dep, "/")+"/") {
			continue
		}
		if !slices.ContainsFunc(dirs, func(d string) bool { return allowedIn(s.dir(), d) }) {
			t.Errorf("%s imports %s, which is for %v only", s, path, dirs)
		}
	}
}

// within reports whether dir is root or below it.
func within(dir, root string) bool { return dir == root || strings.HasPrefix(dir, root+"/") }

// allowedIn is within, except that "broker" means that package alone.
func allowedIn(dir, root string) bool {
	if root == "broker" || root == "broker/sequencer" {
		return dir == root
	}
	return within(dir, root)
}

// seams are what everybody may import: without their build tags they are nothing.
var seams = map[string]bool{"internal/mutant": true, "internal/failpoint": true}

// ownArrows lists, for the packages at the bottom, all of the project that they may import.
var ownArrows = map[string][]string{
	"internal/vfs":            {},
	"internal/compress":       {},
	"broker/record":           {},
	"broker/machine/producer": {"broker/record"},
	"broker/machine/txn":      {"broker/record", "broker/machine/producer"},
	"broker/machine/codec":    {},
	"broker/machine/group":    {"broker/machine/codec"},
	"broker/machine":          {"broker/record", "broker/machine/codec", "broker/machine/producer", "broker/machine/txn", "broker/machine/group"},
	"broker/journal":          {"internal/vfs"},
	"broker/segment":          {"internal/vfs", "internal/compress", "broker/record"},
	"broker/wire":             {},
	"broker/sequencer":        {"broker/journal", "broker/machine", "broker/segment"},
	"broker/edge":             {"broker/wire", "broker/record", "broker/machine", "broker/machine/producer", "broker/segment", "broker/sequencer", "internal/compress"},
	"broker/keeper":           {"broker/journal", "broker/machine", "broker/record", "broker/segment", "broker/sequencer"},
	"stream/progress":         {},
	"stream/window":           {},
	"stream/task/core":        {"stream", "stream/progress", "stream/window"},
	"stream/blob":             {"stream", "internal/vfs"},
	"stream/state":            {"stream"},
}

// pure are the ° packages: no clock, no I/O, no goroutines, no locks, no randomness.
var pure = []string{
	"broker/record", "broker/machine", "broker/machine/producer", "broker/machine/txn", "broker/machine/group",
	"broker/machine/codec", "stream/progress", "stream/window", "stream/task/core",
}

// reactors are single files or file prefixes held to the same rules.
var reactors = []string{"broker/sequencer/core", "broker/journal/core"}

// blocking are packages that block only through seams, so that a simulation can run them as coroutines.
var blocking = []string{"broker/keeper"}

// impureImports may not appear in a pure file.
var impureImports = []string{
	"os", "io/fs", "net", "sync", "sync/atomic", "math/rand", "math/rand/v2", "crypto/rand", "hash/maphash",
	"runtime", "log", "log/slog", "syscall", "context", module + "internal/vfs",
}

func isPure(s source) bool {
	if s.test() {
		return false
	}
	return slices.Contains(pure, s.dir()) ||
		slices.ContainsFunc(reactors, func(r string) bool { return strings.HasPrefix(s.path, r) })
}

func TestPurity(t *testing.T) {
	for _, s := range sources(t) {
		if !isPure(s) && (s.test() || !slices.Contains(blocking, s.dir())) {
			continue
		}
		for _, imp := range s.file.Imports {
			if path := strings.Trim(imp.Path.Value, `"`); isPure(s) && slices.Contains(impureImports, path) {
				t.Errorf("%s imports %s: this package decides and touches nothing", s, path)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			what := ""
			switch n.(type) {
			case *ast.GoStmt:
				what = "go statement"
			case *ast.SelectStmt:
				what = "select statement"
			case *ast.ChanType:
				what = "channel"
			case *ast.SendStmt:
				what = "send"
			}
			for _, name := range []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"} {
				if isSelector(n, "time", name) {
					what = "time." + name
				}
			}
			if what != "" {
				t.Errorf("%s:%d: %s in pure code, or in code that blocks only through seams", s, line(n.Pos()), what)
			}
			return true
		})
	}
}

// TestMapOrder: in pure code a range over a map must say why its order cannot be seen, in a comment on its line or
// the line above that contains "any order".
func TestMapOrder(t *testing.T) {
	exports := exportData(t)
	byDir := map[string][]source{}
	for _, s := range sources(t) {
		if !s.test() {
			byDir[s.dir()] = append(byDir[s.dir()], s)
		}
	}
	for dir, files := range byDir {
		if !slices.ContainsFunc(files, isPure) {
			continue
		}
		info := typeCheck(t, module+dir, files, exports)
		for _, s := range files {
			if isPure(s) {
				checkMapRanges(t, s, info)
			}
		}
	}
}

func checkMapRanges(t *testing.T, s source, info *types.Info) {
	excused := map[int]bool{}
	for _, group := range s.file.Comments {
		if strings.Contains(group.Text(), "any order") {
			for l := line(group.Pos()); l <= line(group.End())+1; l++ {
				excused[l] = true
			}
		}
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		r, ok := n.(*ast.RangeStmt)
		if !ok {
			return true
		}
		typ := info.TypeOf(r.X)
		if typ == nil {
			return true
		}
		if _, isMap := typ.Underlying().(*types.Map); isMap && !excused[line(r.Pos())] {
			t.Errorf("%s:%d: range over a map in pure code without a word why any order will do", s, line(r.Pos()))
		}
		return true
	})
}

func typeCheck(t *testing.T, path string, files []source, exports map[string]string) *types.Info {
	t.Helper()
	lookup := func(path string) (io.ReadCloser, error) {
		file, ok := exports[path]
		if !ok {
			return nil, fmt.Errorf("no export data for %s", path)
		}
		return os.Open(file)
	}
	var asts []*ast.File
	for _, s := range files {
		asts = append(asts, s.file)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", lookup), FakeImportC: true, Error: func(error) {}}
	if _, err := conf.Check(path, fset, asts, info); err != nil {
		t.Logf("type check of %s: %v", path, err)
	}
	return info
}

// exportData maps import paths to the compiler's export files, building what is not built.
func exportData(t *testing.T) map[string]string {
	t.Helper()
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export", "./broker/...", "./stream/...")
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	exports := map[string]string{}
	dec := json.NewDecoder(bufio.NewReader(bytes.NewReader(out)))
	for dec.More() {
		var p struct{ ImportPath, Export string }
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
	}
	return exports
}

// TestFormatsHavePages: whatever is stored has a page.
func TestFormatsHavePages(t *testing.T) {
	for _, page := range []string{"journal", "snapshot", "segment", "control-message", "checkpoint", "blob-token", "blob-name"} {
		if _, err := os.Stat(filepath.Join("..", "..", "docs", "formats", page+".md")); err != nil {
			t.Errorf("docs/formats/%s.md: %v", page, err)
		}
	}
}
