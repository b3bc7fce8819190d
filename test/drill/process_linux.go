package main

import (
	"os/exec"
	"syscall"
)

// dieWithParent lets the kernel kill a child, also one that stands still, when the drill is gone.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
