//go:build peers

package flights

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/strandline-io/strandline/stream/blob"
	"github.com/strandline-io/strandline/test/peers"
)

// azuriteVersion speaks the API version of azblob 1.8.0.
const azuriteVersion = "3.37.0"

var listens = regexp.MustCompile(`listens on http://127\.0\.0\.1:(\d+)`)

// startAzurite starts the emulator on a free port and returns its endpoint.
func startAzurite(t *testing.T) (endpoint string) {
	t.Helper()
	dir := filepath.Join(peers.CacheDir(t), "azurite-"+azuriteVersion)
	marker := filepath.Join(dir, ".complete")
	if _, err := os.Stat(marker); err != nil {
		if _, err := peers.TryRun(exec.Command("npm", "install", "--prefix", dir, "--no-audit", "--no-fund", "--loglevel=error",
			"azurite@"+azuriteVersion)); err != nil {
			t.Fatalf("npm is needed to install Azurite: %v", err)
		}
		if err := os.WriteFile(marker, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := peers.Start(t, "azurite-blob", exec.Command(filepath.Join(dir, "node_modules", ".bin", "azurite-blob"),
		"--blobHost", "127.0.0.1", "--blobPort", "0", "--location", t.TempDir(), "--disableTelemetry"))
	m := listens.FindStringSubmatch(p.WaitLine(t, "successfully listens on"))
	if m == nil {
		t.Fatal("the ready line names no port")
	}
	return fmt.Sprintf("http://127.0.0.1:%s/%s", m[1], blob.AzuriteAccount)
}
