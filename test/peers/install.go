package peers

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// PythonPackages is a folder with packages of PyPI, each named with its version ("kafka-python==3.0.12"), to be set as
// PYTHONPATH. The test is skipped if they cannot be had.
func PythonPackages(t testing.TB, packages ...string) (dir string) {
	t.Helper()
	return installed(t, "python", packages, func(dir string) *exec.Cmd {
		args := []string{"-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", dir}
		return exec.Command("python3", append(args, packages...)...)
	})
}

// NodePackages is a folder with packages of npm, each named with its version ("kafkajs@2.2.4"), to be set as NODE_PATH. The
// test is skipped if they cannot be had.
func NodePackages(t testing.TB, packages ...string) (dir string) {
	t.Helper()
	dir = installed(t, "node", packages, func(dir string) *exec.Cmd {
		args := []string{"install", "--prefix", dir, "--no-audit", "--no-fund", "--loglevel=error", "--ignore-scripts"}
		return exec.Command("npm", append(args, packages...)...)
	})
	return filepath.Join(dir, "node_modules")
}

// GoProgram builds a command of a nested module, so that the client which it needs is no requirement of this module, and says
// which version of the client that is. The test is skipped if it cannot be had.
func GoProgram(t testing.TB, module, pkg, client string) (binary, version string) {
	t.Helper()
	folder := filepath.Join(root(), filepath.FromSlash(module))
	fetch := exec.Command("go", "mod", "download")
	fetch.Dir = folder
	if _, err := TryRun(fetch); err != nil {
		t.Skipf("what %s needs is not to be had: %v", module, err)
	}
	binary = filepath.Join(t.TempDir(), filepath.Base(pkg))
	build := exec.Command("go", "build", "-o", binary, pkg)
	build.Dir = folder
	Run(t, build)
	list := exec.Command("go", "list", "-m", "-f", "{{.Version}}", client)
	list.Dir = folder
	return binary, strings.TrimPrefix(strings.TrimSpace(Run(t, list)), "v")
}

// installed runs a package manager once for a list of packages. A folder in which it failed is removed.
func installed(t testing.TB, manager string, packages []string, install func(dir string) *exec.Cmd) (dir string) {
	t.Helper()
	sum := sha256.Sum256([]byte(strings.Join(packages, " ")))
	dir = filepath.Join(CacheDir(t), manager+"-"+hex.EncodeToString(sum[:8]))
	once(t, filepath.Join(dir, ".complete"), func() error {
		if _, err := TryRun(install(dir)); err != nil {
			os.RemoveAll(dir)
			t.Skipf("%s is not to be had: %v", strings.Join(packages, ", "), err)
		}
		return nil
	})
	return dir
}
