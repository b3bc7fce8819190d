package failpoint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestEveryPointHasOnePlace: a name that nothing hits would never fire, and one that is not listed cannot be asked for.
func TestEveryPointHasOnePlace(t *testing.T) {
	places := make(map[string][]string)
	for _, dir := range []string{"broker", "stream", "cmd"} {
		err := filepath.WalkDir(filepath.Join("..", "..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			for _, name := range hits(t, f) {
				places[name] = append(places[name], path)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range Points {
		if n := len(places[p.Name]); n != 1 {
			t.Errorf("%s is hit at %d places, want 1: %v", p.Name, n, places[p.Name])
		}
		if p.In != Broker && p.In != Worker {
			t.Errorf("%s is in %q", p.Name, p.In)
		}
		delete(places, p.Name)
	}
	for name, where := range places {
		t.Errorf("%s, in %v, is not in Points", name, where)
	}
}

// hits lists the names that a file hits.
func hits(t *testing.T, f *ast.File) []string {
	var names []string
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || sel.Sel.Name != "Hit" {
			return true
		}
		if id, ok := sel.X.(*ast.Ident); !ok || id.Name != "failpoint" {
			return true
		}
		lit, ok := call.Args[0].(*ast.BasicLit)
		if !ok {
			t.Errorf("a failpoint whose name is no literal")
			return true
		}
		name, err := strconv.Unquote(lit.Value)
		if err != nil {
			t.Error(err)
		}
		names = append(names, name)
		return true
	})
	return names
}
