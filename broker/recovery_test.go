package broker_test

import (
	"errors"
	"path"
	"strings"
	"testing"

	"github.com/strandline-io/strandline/broker"
	"github.com/strandline-io/strandline/broker/brokertest"
	"github.com/strandline-io/strandline/broker/journal"
	"github.com/strandline-io/strandline/broker/keeper"
	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/segment"
	"github.com/strandline-io/strandline/internal/vfs"
)

// countingFS counts what is read, by the folder.
type countingFS struct {
	vfs.FS
	readBytes map[string]int
}

type countingFile struct {
	vfs.File
	fs     *countingFS
	folder string
}

func (c *countingFS) Open(name string) (vfs.File, error) {
	f, err := c.FS.Open(name)
	if err != nil {
		return nil, err
	}
	folder, _, _ := strings.Cut(name, "/")
	return countingFile{f, c, folder}, nil
}

func (f countingFile) ReadAt(p []byte, pos int64) (int, error) {
	n, err := f.File.ReadAt(p, pos)
	f.fs.readBytes[f.folder] += n
	return n, err
}

// folderBytes is what lies in a folder and below.
func folderBytes(t *testing.T, disk vfs.FS, dir string) (sum int64) {
	t.Helper()
	names, err := disk.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		f, err := disk.Open(path.Join(dir, name))
		if err != nil {
			sum += folderBytes(t, disk, path.Join(dir, name))
			continue
		}
		size, err := f.Size()
		if err != nil {
			t.Fatal(err)
		}
		sum += size
		f.Close()
	}
	return sum
}

// TestRecoveryReadsNoData: before it answers, a broker reads what is in its journal, and nothing of what the partitions
// hold (V6).
func TestRecoveryReadsNoData(t *testing.T) {
	const journalBytes, dataBytes, batchBytes = 256 << 10, 6 << 20, 40_000
	disk := vfs.NewMem()
	b := brokertest.Start(t, brokertest.Configure(func(c *broker.Config) {
		c.FS, c.DataDir, c.JournalSegmentBytes, c.JournalMaxBytes = disk, "data", journalBytes/4, journalBytes
	}))
	c := dial(t, b)
	createTopic(c, "t", 1)
	for range dataBytes / batchBytes {
		produce(c, "t", 0, batchOf(1, strings.Repeat("x", batchBytes)))
	}
	c.conn.Close()
	eventually(t, "most of the data moves to the partitions", func() bool { return folderBytes(t, disk, "partitions") >= dataBytes/2 })
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	inJournal, inPartitions := folderBytes(t, disk, "journal"), folderBytes(t, disk, "partitions")

	recoverOnce(t, disk, journalBytes/4) // cuts what the stop has left half moved
	counting := &countingFS{FS: disk, readBytes: make(map[string]int)}
	r := recoverOnce(t, counting, journalBytes/4)
	if read := counting.readBytes; read["partitions"] > 0 || int64(read["journal"]) > 2*inJournal || read["journal"] == 0 {
		t.Errorf("over a journal of %d bytes and partitions of %d it reads %v", inJournal, inPartitions, read)
	}
	if views := r.Machine.Views(); len(views) != 1 || views[0].HighWatermark != dataBytes/batchBytes {
		t.Errorf("recovered %+v", views)
	}
}

// recoverOnce does what a broker does before it answers.
func recoverOnce(t *testing.T, disk vfs.FS, segmentBytes int64) *keeper.Recovery {
	t.Helper()
	r := keeper.NewRecovery(machine.Config{})
	j, err := journal.OpenStepped(journal.FileConfig{
		FS: disk, Dir: "journal", SegmentBytes: segmentBytes, Restore: r.Restore, Extents: r.Place,
	}, r.Replay, func(journal.Event) {})
	if err != nil {
		t.Fatal(err)
	}
	store, err := segment.Open(disk, segment.Config{}, r.Lengths())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(store.Close(), j.Close()); err != nil {
		t.Fatal(err)
	}
	return r
}
