package peers

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// azuriteVersion speaks the API version of azblob 1.8.0.
const azuriteVersion = "3.37.0"

var azuriteListens = regexp.MustCompile(`listens on http://127\.0\.0\.1:(\d+)`)

// StartAzurite starts the emulator on a free port, fetching it with npm the first time, and returns the endpoint of its
// account.
func StartAzurite(t testing.TB) (endpoint string) {
	t.Helper()
	dir := filepath.Join(CacheDir(t), "azurite-"+azuriteVersion)
	once(t, filepath.Join(dir, ".complete"), func() error {
		_, err := TryRun(exec.Command("npm", "install", "--prefix", dir, "--no-audit", "--no-fund", "--loglevel=error",
			"azurite@"+azuriteVersion))
		return err
	})
	p := Start(t, "azurite-blob", exec.Command(filepath.Join(dir, "node_modules", ".bin", "azurite-blob"),
		"--blobHost", "127.0.0.1", "--blobPort", "0", "--location", t.TempDir(), "--disableTelemetry"))
	m := azuriteListens.FindStringSubmatch(p.WaitLine(t, "successfully listens on"))
	if m == nil {
		t.Fatal("the ready line names no port")
	}
	return fmt.Sprintf("http://127.0.0.1:%s/%s", m[1], "devstoreaccount1")
}
