package wire

import (
	"fmt"
	"os"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCompatPageIsTrue compares the table of docs/compat.md with what is served.
func TestCompatPageIsTrue(t *testing.T) {
	page, err := os.ReadFile("../../docs/compat.md")
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+) \| (\w+) \| (\d+-\d+) \|`).FindAllStringSubmatch(string(page), -1) {
		got = append(got, fmt.Sprint(row[1], " ", row[2], " ", row[3]))
	}
	for _, a := range APIs() {
		want = append(want, fmt.Sprintf("%d %s %d-%d", a.Key, a.Name, a.Min, a.Max))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the page (-served +page):\n%s", diff)
	}
}
