package blob_test

import (
	"testing"

	"github.com/strandline-io/strandline/internal/vfs"

	"github.com/strandline-io/strandline/stream/blob"
	"github.com/strandline-io/strandline/stream/blob/blobtest"
)

func TestFakeStore(t *testing.T) {
	blobtest.TestStore(t, func(t *testing.T) blob.Store { return blobtest.NewFake().Client("test") })
}

func TestFolderStore(t *testing.T) {
	blobtest.TestStore(t, func(t *testing.T) blob.Store {
		dir := t.TempDir()
		return blob.NewFolder(vfs.OS(dir), "file://"+dir, nil)
	})
}
