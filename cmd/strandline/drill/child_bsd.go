//go:build unix && !linux

package drill

import "syscall"

func dieWithParent(*syscall.SysProcAttr) {}
