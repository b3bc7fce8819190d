package broker

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/strandline-io/strandline/internal/vfs"
)

// The cluster id lies in a file of its own beside the journal: 16 random bytes in base64url without padding, and a
// newline.
const (
	clusterIDFile    = "cluster-id"
	clusterIDNewFile = "cluster-id.new"
	clusterIDBytes   = 16
)

// clusterID returns the id of the cluster in the data folder, which it gives one if it has none. The folder must be
// locked by the caller. Without a folder every broker is a cluster of its own.
func clusterID(cfg Config) (string, error) {
	if cfg.DataDir == "" {
		return newClusterID(), nil
	}
	disk := cfg.FS
	if disk == nil {
		disk = vfs.OS(cfg.DataDir)
	}
	id, err := readClusterID(disk)
	if errors.Is(err, fs.ErrNotExist) {
		id = newClusterID()
		err = writeClusterID(disk, id)
	}
	if err != nil {
		return "", fmt.Errorf("the cluster id in %s/%s: %w", cfg.DataDir, clusterIDFile, err)
	}
	return id, nil
}

func newClusterID() string {
	var b [clusterIDBytes]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return base64.RawURLEncoding.EncodeToString(b[:])
}

func readClusterID(disk vfs.FS) (string, error) {
	f, err := disk.Open(clusterIDFile)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text := make([]byte, base64.RawURLEncoding.EncodedLen(clusterIDBytes)+1)
	if n, err := f.ReadAt(text, 0); err != nil && !errors.Is(err, io.EOF) {
		return "", err
	} else {
		text = text[:n]
	}
	id := strings.TrimSuffix(string(text), "\n")
	if raw, err := base64.RawURLEncoding.DecodeString(id); err != nil || len(raw) != clusterIDBytes {
		return "", fmt.Errorf("%q is not an id; remove the file to get a new one", id)
	}
	return id, nil
}

// writeClusterID writes the file under another name first, so that it is there whole or not at all.
func writeClusterID(disk vfs.FS, id string) error {
	if err := disk.Remove(clusterIDNewFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := disk.Create(clusterIDNewFile)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(id+"\n"), 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := disk.Rename(clusterIDNewFile, clusterIDFile); err != nil {
		return err
	}
	return disk.SyncDir(".")
}
