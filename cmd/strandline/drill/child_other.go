//go:build !unix

package drill

import "os/exec"

// shell is the command for a line of the user's, or nil for none.
func shell(line string) []string {
	if line == "" {
		return nil
	}
	return []string{"cmd", "/C", line}
}

func isolate(*exec.Cmd) {}

func killAll(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
