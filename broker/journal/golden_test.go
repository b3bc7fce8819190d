package journal

import (
	"bytes"
	"encoding/binary"
	"flag"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"github.com/strandline-io/strandline/internal/vfs"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// goldenUnits are what the golden journal holds; docs/formats/journal.md shows the first one.
func goldenUnits() []Unit {
	batch := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(i)
		}
		binary.BigEndian.PutUint32(b[batchCRCAt:], crc32.Checksum(b[batchPrefix:], castagnoli))
		return b
	}
	return []Unit{
		{Meta: []byte("first"), Batches: [][]byte{batch(70)}},
		{Meta: []byte("second: nothing but meta")},
		{Batches: [][]byte{batch(61), batch(100)}},
	}
}

// TestGolden: the bytes on disk are a promise. A journal written now is the golden one, and the golden one opens.
func TestGolden(t *testing.T) {
	disk := vfs.NewMem()
	secret := bytes.NewReader([]byte("0123456789abcdef"))
	j, _ := openStepped(t, disk, func(c *FileConfig) { c.Rand = secret })
	units := goldenUnits()
	appendUnits(j, units[0])
	j.Append(units[1:])
	drain(j)
	must(t, j.WriteSnapshot(2, []byte("the state")))
	must(t, j.Close())

	names := []string{firstName, snapshotName(2)}
	golden := vfs.NewMem()
	must(t, golden.MkdirAll("journal"))
	for _, name := range names {
		path := filepath.Join("testdata", "golden", name)
		got := readFile(t, disk, name)
		if *rewrite {
			must(t, os.WriteFile(path, got, 0o644))
		}
		want, err := os.ReadFile(path)
		must(t, err)
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what it was; a new format needs a new version byte (docs/formats/journal.md)", name)
		}
		writeFile(t, golden, name, want)
	}
	j, o := openStepped(t, golden)
	if o.snapshotSeq != 2 || string(o.state) != "the state" || len(o.extents) != 1 || len(o.replayed) != 1 {
		t.Fatalf("the golden journal opens with snapshot %d, state %q, %d extents, %d units", o.snapshotSeq, o.state,
			len(o.extents), len(o.replayed))
	}
	for _, k := range append(o.extents, o.replayed...) {
		must(t, k.differs(units[k.seq-1], j.ReadAt))
	}
	must(t, j.Close())
}

func TestNewerFormatIsRefusedAsSuch(t *testing.T) {
	disk, _ := fourUnits(t)
	header := readFile(t, disk, firstName)[:headerBytes]
	header[7]++
	le.PutUint32(header[8:], plainCRC(header))
	overwrite(t, disk, firstName, 0, header...)
	o := &opening{}
	_, err := OpenStepped(o.config(disk), o.replay, o.event)
	if err == nil || !bytes.Contains([]byte(err.Error()), []byte("journal format 2 is not known here")) {
		t.Fatalf("opened with %v", err)
	}
}
