//go:build unix

package main

import (
	"os"
	"os/exec"
	"syscall"
)

// group lets the end of cmd's context interrupt all that cmd has started: a shell does not pass a signal on. end ends what
// is left of it then.
func group(cmd *exec.Cmd) (end func()) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	interrupted := false
	cmd.Cancel = func() error {
		interrupted = true
		return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
	}
	return func() {
		if interrupted {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		}
	}
}

// lock keeps a second soak from the file until f is closed.
func lock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }
