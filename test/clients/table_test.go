//go:build peers

package clients

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/strandline-io/strandline/test/peers"
)

// The compatibility tables say what these tests have run: one row a client, in the README and, by aspect, in
// docs/clients. A test fails if the row of its client is not what it has just shown; with -update it writes the row.
var update = flag.Bool("update", false, "write the tables of compatibility instead of comparing them")

// aspects are what is tried with a client, in the order of the table's columns.
const (
	produce      = "produce"
	idempotence  = "idempotence"
	transactions = "transactions"
	committed    = "read_committed"
	groups       = "groups"
	consumer     = "KIP-848"
	admin        = "admin"
	kills        = "kill -9"
)

var aspects = []string{produce, idempotence, transactions, committed, groups, consumer, admin, kills}

const (
	tableBegins = "<!-- clients: written by go test -tags peers ./test/clients -args -update -->\n"
	tableEnds   = "<!-- clients end -->\n"
)

// row is what one test has shown of one client.
type row struct {
	name, page, version string
	cells               map[string]string
	whole               bool // every trial ran
}

// seen has the rows of this process by name, whether whole or not.
var seen = map[string]*row{}

// TestMain runs the tests and then looks for rows of clients that no test has shown.
func TestMain(m *testing.M) {
	code := peers.BuildMain(m, []string{"./cmd/strandline"}, func(dir string) { binary = filepath.Join(dir, "strandline") })
	if code == 0 && flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.skip").Value.String() == "" {
		if err := onlySeen(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// client begins the row of a client, which is complete when t ends; page is its page in docs/clients without ".md". Call it
// before anything that may skip the test: a client that could not be had keeps its row.
func client(t *testing.T, name, page string) *row {
	t.Helper()
	if seen[name] != nil {
		t.Fatalf("BUG: two tests write the row of %s", name)
	}
	r := &row{name: name, page: page, cells: map[string]string{}, whole: true}
	seen[name] = r
	t.Cleanup(func() {
		if t.Failed() || t.Skipped() || !r.whole {
			return
		}
		if err := r.settle(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// try runs a trial as a subtest and puts what it shows into the table: "yes", or a few words. Several of one aspect share the
// cell.
func (r *row) try(t *testing.T, aspect, shows string, f func(t *testing.T)) {
	t.Helper()
	if !slices.Contains(aspects, aspect) {
		t.Fatalf("BUG: no column for %q", aspect)
	}
	ran := false
	t.Run(aspect, func(t *testing.T) {
		ran = true
		f(t)
		if t.Skipped() {
			r.whole = false
		}
	})
	if !ran {
		r.whole = false
	}
	if before := r.cells[aspect]; before != "" && before != shows {
		shows = before + ", " + shows
	}
	r.cells[aspect] = shows
}

// settle compares the row with the tables, or writes it.
func (r *row) settle() error {
	if r.version == "" {
		return fmt.Errorf("BUG: the test of %s does not tell its version", r.name)
	}
	return inTables(func(rows map[string][]string) { rows[r.name] = r.columns() }, r.name)
}

// onlySeen looks for rows of clients that no test has begun.
func onlySeen() error {
	return inTables(func(rows map[string][]string) {
		maps.DeleteFunc(rows, func(name string, _ []string) bool { return seen[name] == nil })
	}, "clients that no test knows")
}

// columns is the row of docs/clients: the client with its page, its version, and what was shown by aspect.
func (r *row) columns() []string {
	columns := []string{fmt.Sprintf("[%s](%s.md)", r.name, r.page), r.version}
	for _, a := range aspects {
		columns = append(columns, cmp.Or(r.cells[a], "–"))
	}
	return columns
}

// parseTable takes a page apart: what stands before the table, its rows by the client's name, and what follows.
func parseTable(page string) (before string, rows map[string][]string, after string, err error) {
	before, body, begun := strings.Cut(page, tableBegins)
	body, after, ended := strings.Cut(body, tableEnds)
	if !begun || !ended {
		return "", nil, "", fmt.Errorf("it lacks the lines\n%s%s", tableBegins, tableEnds)
	}
	rows = map[string][]string{}
	for line := range strings.Lines(body) {
		columns := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "| "), " |\n"), " | ")
		if name, _, ok := strings.Cut(columns[0], "]("); ok {
			rows[strings.TrimPrefix(name, "[")] = columns
		} // else it is the head, which is written anew
	}
	return before, rows, after, nil
}

// byName sorts clients for the eye.
func byName(a, b string) int {
	return cmp.Or(strings.Compare(strings.ToLower(a), strings.ToLower(b)), strings.Compare(a, b))
}

func lines(rows [][]string) string {
	var b strings.Builder
	for _, columns := range rows {
		b.WriteString("| " + strings.Join(columns, " | ") + " |\n")
	}
	return b.String()
}

// long is the table of docs/clients: a row a client, a column an aspect.
func long(rows map[string][]string) string {
	all := [][]string{append([]string{"Client", "Version"}, aspects...), slices.Repeat([]string{"---"}, 2+len(aspects))}
	for _, name := range slices.SortedFunc(maps.Keys(rows), byName) {
		all = append(all, rows[name])
	}
	return lines(all)
}

// short is the table of the README: clients with which the same was tried share a row, admin calls and kills aside.
func short(rows map[string][]string) string {
	clients := map[string][]string{}
	for _, name := range slices.SortedFunc(maps.Keys(rows), byName) {
		var tried []string
		for i, a := range aspects {
			switch cell := rows[name][2+i]; {
			case cell == "–" || a == admin || a == kills:
			case cell == "offsets": // a part of it
				tried = append(tried, cell+" in "+a)
			default:
				tried = append(tried, a)
			}
		}
		key := strings.Join(tried, ", ")
		clients[key] = append(clients[key], name+" "+rows[name][1])
	}
	all := [][]string{{"Clients", "What runs with each before a change lands, beside admin calls and kill -9"}, {"---", "---"}}
	byClients := func(a, b string) int {
		return cmp.Or(cmp.Compare(strings.Count(b, ","), strings.Count(a, ",")), cmp.Compare(a, b))
	}
	for _, key := range slices.SortedFunc(maps.Keys(clients), byClients) {
		all = append(all, []string{strings.Join(clients[key], ", "), key})
	}
	return lines(all)
}

// inTables changes the rows of docs/clients and brings both tables up to date: with -update on disk, else it is an error if
// that makes a difference.
func inTables(change func(rows map[string][]string), what string) error {
	root := filepath.Join("..", "..")
	index := filepath.Join(root, "docs", "clients", "README.md")
	text, err := os.ReadFile(index)
	if err != nil {
		return err
	}
	_, rows, _, err := parseTable(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", index, err)
	}
	change(rows)
	return errors.Join(
		putTable(index, long(rows), what),
		putTable(filepath.Join(root, "README.md"), short(rows), what))
}

func putTable(path, rows, what string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, _, after, err := parseTable(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	now := before + tableBegins + rows + tableEnds + after
	switch {
	case now == string(text):
		return nil
	case *update:
		return os.WriteFile(path, []byte(now), 0o644)
	}
	return fmt.Errorf("the table in %s is not what this run has shown of %s; with -args -update it would be\n%s", path, what, rows)
}

// TestTable is the tables' own test: rows come, change and go, and what stands around a table stays.
func TestTable(t *testing.T) {
	page := "# a\n\n" + tableBegins + tableEnds + "\nb\n"
	for _, r := range []*row{
		{name: "zeta", page: "z", version: "1.0", cells: map[string]string{produce: "none gzip", kills: "yes"}},
		{name: "Alpha", page: "a", version: "2", cells: map[string]string{produce: "yes", admin: "yes"}},
		{name: "beta", page: "b", version: "3", cells: map[string]string{produce: "yes", groups: "yes", kills: "yes"}},
		{name: "zeta", page: "z", version: "1.1", cells: map[string]string{produce: "yes", groups: "yes", kills: "yes"}},
	} {
		before, rows, after, err := parseTable(page)
		if err != nil {
			t.Fatal(err)
		}
		rows[r.name] = r.columns()
		page = before + tableBegins + long(rows) + tableEnds + after
	}
	before, rows, after, err := parseTable(page)
	if err != nil || before != "# a\n\n" || after != "\nb\n" {
		t.Fatalf("%v; around the table: %q, %q", err, before, after)
	}
	wantLong := "| [Alpha](a.md) | 2 | yes | – | – | – | – | – | yes | – |\n" +
		"| [beta](b.md) | 3 | yes | – | – | – | yes | – | – | yes |\n" +
		"| [zeta](z.md) | 1.1 | yes | – | – | – | yes | – | – | yes |\n"
	if got := long(rows); !strings.HasSuffix(got, "--- |\n"+wantLong) {
		t.Errorf("the long table is\n%s\nand should end in\n%s", got, wantLong)
	}
	wantShort := "| beta 3, zeta 1.1 | produce, groups |\n| Alpha 2 | produce |\n"
	if got := short(rows); !strings.HasSuffix(got, wantShort) {
		t.Errorf("the short table is\n%s\nand should end in\n%s", got, wantShort)
	}
	if _, _, _, err := parseTable("no table\n"); err == nil {
		t.Error("a page without a table passes")
	}
}
