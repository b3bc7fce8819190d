//go:build unix

package drill

import (
	"os/exec"
	"syscall"
)

// shell is the command for a line of the user's, or nil for none.
func shell(line string) []string {
	if line == "" {
		return nil
	}
	return []string{"sh", "-c", line}
}

// isolate keeps an interrupt of the terminal from the child and lets all of it be killed.
func isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
}

func killAll(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
