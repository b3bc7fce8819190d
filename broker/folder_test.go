package broker_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/strandline-io/strandline/broker"
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
