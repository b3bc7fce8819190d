package group

import (
	"bytes"
	"encoding/hex"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestFormatPage: the golden bytes in docs/formats/group.md are what records and snapshot of sampleRecords look like.
// What is written there can be in a journal: a difference means a new kind or snapshot version, not a new page.
func TestFormatPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/formats/group.md")
	if err != nil {
		t.Fatal(err)
	}
	var golden []string
	for _, m := range regexp.MustCompile(`(?m)^((?:[0-9a-f]{2} ?)+)$`).FindAllSubmatch(page, -1) {
		golden = append(golden, string(bytes.TrimSpace(m[1])))
	}
	var want []string
	gs := New(Config{})
	for data := sampleRecords(); len(data) > 2; {
		n := int(data[1])
		want = append(want, spaced(append([]byte{data[0]}, data[2:2+n]...)))
		if err := gs.Apply(data[0], data[2:2+n]); err != nil {
			t.Fatal(err)
		}
		data = data[2+n:]
	}
	want = append(want, spaced(gs.AppendSnapshot(nil)))
	if got, want := strings.Join(golden, "\n"), strings.Join(want, "\n"); got != want {
		t.Errorf("the page has\n%s\nwant\n%s", got, want)
	}
}

func spaced(b []byte) string {
	var parts []string
	for _, c := range b {
		parts = append(parts, hex.EncodeToString([]byte{c}))
	}
	return strings.Join(parts, " ")
}
