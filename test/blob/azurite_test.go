//go:build peers

package blob

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/strandline-io/strandline/stream/blob"
	"github.com/strandline-io/strandline/test/peers"
)

// azuriteVersion speaks the API version of azblob 1.8.0 without --skipApiVersionCheck.
const azuriteVersion = "3.37.0"

// azurite is one running blob service.
type azurite struct {
	*peers.Process
	endpoint string
	dir      string
	port     int
}

// azuriteProgram returns the program, installing it with npm the first time.
func azuriteProgram(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(peers.CacheDir(t), "azurite-"+azuriteVersion)
	program := filepath.Join(dir, "node_modules", ".bin", "azurite-blob")
	marker := filepath.Join(dir, ".complete")
	if _, err := os.Stat(marker); err != nil {
		_, err := peers.TryRun(exec.Command("npm", "install", "--prefix", dir, "--no-audit", "--no-fund", "--loglevel=error",
			"azurite@"+azuriteVersion))
		if err == nil {
			err = os.WriteFile(marker, nil, 0o644)
		}
		if err != nil {
			t.Fatalf("npm (Debian package npm) is needed to install Azurite: %v", err)
		}
	}
	return program
}

var listens = regexp.MustCompile(`listens on http://127\.0\.0\.1:(\d+)`)

// startAzurite starts a service with a folder of its own on a free port.
func startAzurite(t testing.TB) *azurite {
	t.Helper()
	a := &azurite{dir: t.TempDir()}
	a.again(t)
	return a
}

// again starts the service once more over its folder, on its port.
func (a *azurite) again(t testing.TB) {
	t.Helper()
	a.Process = peers.Start(t, "azurite-blob", exec.Command(azuriteProgram(t), "--blobHost", "127.0.0.1", "--blobPort",
		strconv.Itoa(a.port), "--location", a.dir, "--disableTelemetry"))
	m := listens.FindStringSubmatch(a.WaitLine(t, "successfully listens on"))
	if m == nil {
		t.Fatal("the ready line names no port")
	}
	a.port, _ = strconv.Atoi(m[1])
	a.endpoint = fmt.Sprintf("http://127.0.0.1:%d/%s", a.port, blob.AzuriteAccount)
}

var containers atomic.Int64

// newContainer is a container name that was not used before.
func newContainer() string { return fmt.Sprintf("container-%d", containers.Add(1)) }

// open opens a store on the service; environment variables are given as name, value pairs.
func (a *azurite) open(t testing.TB, path string, env ...string) blob.Store {
	t.Helper()
	if len(env) == 0 {
		env = []string{blob.EnvKey, blob.AzuriteKey}
	}
	s, err := blob.OpenStore("azblob://"+blob.AzuriteAccount+"/"+path, blob.WithEnv(func(name string) string {
		for i := 0; i < len(env); i += 2 {
			if env[i] == name {
				return env[i+1]
			}
		}
		if name == blob.EnvEndpoint {
			return a.endpoint
		}
		return ""
	}))
	if err != nil {
		t.Fatal(err)
	}
	return s
}
