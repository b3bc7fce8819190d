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

// firstSnapshot is what a program wrote that knew snapshots of version 1, from the records of kinds 64 to 71.
const firstSnapshot = "01 03 02 01 67 01 08 63 6f 6e 73 75 6d 65 72 02 05 72 61 6e 67 65 00 0a 01 02 6d 33 02 69 01 63 01 68 e0 5d 90 4e " +
	"01 05 72 61 6e 67 65 01 78 00 01 01 74 01 02 01 0c 04 0e 01 01 01 6d 00 01 68 00 00 00 00 00 10 00 02 01 73 01 06 " +
	"00 01 02 10 01 10 12 02 00 01 74 01 00 00 01 02 0e 01 10 12 02 00"

// secondSnapshot is what a program wrote that knew snapshots of version 2, from the records of kinds 64 to 78.
const secondSnapshot = "02 03 03 01 63 00 08 63 6f 6e 73 75 6d 65 72 08 00 00 12 00 00 01 08 4d 02 02 6d 31 00 00 01 63 01 68 90 4e 01 01 74 03 " +
	"74 2e 2a 05 72 61 6e 67 65 06 04 01 01 01 74 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 04 01 01 74 00 00 00 00 00 " +
	"00 00 00 00 00 00 00 00 00 00 04 02 02 01 74 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 02 02 6d 33 02 69 00 01 " +
	"63 01 68 90 4e 01 01 74 00 05 72 61 6e 67 65 00 00 00 00 00 01 01 74 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 04 01 " +
	"03 74 2e 2a 02 01 74 02 74 32 01 67 01 08 63 6f 6e 73 75 6d 65 72 02 05 72 61 6e 67 65 00 0a 01 02 6d 33 02 69 01 63 01 " +
	"68 e0 5d 90 4e 01 05 72 61 6e 67 65 01 78 00 01 01 74 01 02 01 0c 04 0e 01 01 01 6d 00 00 01 68 00 00 00 00 00 10 00 02 " +
	"01 73 01 06 00 01 02 10 01 10 12 02 00 01 74 01 00 00 01 02 0e 01 10 12 02 00 00"

// TestOlderSnapshots: snapshots of version 1, which knew classic groups only, and of version 2, in which the groups of the two
// protocols had nothing to do with each other, are still read.
func TestOlderSnapshots(t *testing.T) {
	for _, older := range []struct {
		snapshot string
		until    uint8 // the first kind of record that was not known
	}{{firstSnapshot, kindConsumerEpoch}, {secondSnapshot, kindClassicMember}} {
		b, err := hex.DecodeString(strings.ReplaceAll(older.snapshot, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		gs, want := New(Config{}), New(Config{})
		if err := gs.Restore(b); err != nil {
			t.Fatal(err)
		}
		for data := sampleRecords(); len(data) > 2 && data[0] < older.until; data = data[2+int(data[1]):] {
			if err := want.Apply(data[0], data[2:2+int(data[1])]); err != nil {
				t.Fatal(err)
			}
		}
		if gs.Hash() != want.Hash() {
			t.Errorf("what version %d holds is not what the records say", b[0])
		}
	}
}
