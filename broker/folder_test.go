package broker_test

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/strandline-io/strandline/broker"
	"github.com/strandline-io/strandline/broker/brokertest"
	"github.com/strandline-io/strandline/internal/vfs"
)

// TestAForeignFolderIsRefused: an empty broker must not start beside what the user looks for.
func TestAForeignFolderIsRefused(t *testing.T) {
	open := func(dir string) error {
		b, err := broker.New(broker.Config{Listen: "127.0.0.1:0", DataDir: dir})
		if err != nil {
			return err
		}
		return b.Close()
	}
	parent := t.TempDir()
	child := filepath.Join(parent, "broker")
	for range 2 { // new, then made by a broker
		if err := open(child); err != nil {
			t.Fatal(err)
		}
	}
	if err := open(parent); err == nil || !strings.Contains(err.Error(), `holds "broker"`) {
		t.Fatalf("the parent of a data folder: %v", err)
	}
	mount := t.TempDir()
	if err := os.Mkdir(filepath.Join(mount, "lost+found"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := open(mount); err != nil {
		t.Fatalf("a fresh file system: %v", err)
	}
}

// TestJournalIsGone: a broker whose journal was lost does not take what the partitions' files hold for nobody's.
func TestJournalIsGone(t *testing.T) {
	disk := vfs.NewMem()
	b := brokertest.Start(t, withSmallJournal(disk))
	c := dial(t, b)
	createTopic(c, "t", 1)
	fill(t, c, 4*smallJournal, 10_000)
	c.conn.Close()
	eventually(t, "data moves to the partitions", func() bool { return folderBytes(t, disk, "partitions") > 0 })
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	names, err := disk.List("journal")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := disk.Remove(path.Join("journal", name)); err != nil {
			t.Fatal(err)
		}
	}
	before := folderBytes(t, disk, "partitions")
	_, err = broker.New(broker.Config{Listen: "127.0.0.1:0", DataDir: "small", FS: disk})
	if err == nil || !strings.Contains(err.Error(), "files of 1 partitions and an empty journal") {
		t.Errorf("started over an empty journal: %v", err)
	}
	if after := folderBytes(t, disk, "partitions"); after != before {
		t.Errorf("the partitions' files have %d bytes, they had %d", after, before)
	}
}
