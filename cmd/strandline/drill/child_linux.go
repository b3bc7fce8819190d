package drill

import "syscall"

// dieWithParent lets the kernel kill the child when the drill itself is killed.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
