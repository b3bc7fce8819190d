//go:build !linux

package peers

import "os/exec"

func dieWithParent(*exec.Cmd) {}

// lockFile does nothing here: elsewhere than on Linux one test process at a time may install.
func lockFile(string) (func(), error) { return func() {}, nil }
