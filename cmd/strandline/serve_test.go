package main

import (
	"context"
	"io"
	"strings"
	"testing"
)

// TestServeRefusesFlags: a value that a broker.Config would read as "not set" is not what the user asked for.
func TestServeRefusesFlags(t *testing.T) {
	f := func(want string, flags ...string) {
		t.Helper()
		cmd := root()
		cmd.SetArgs(append([]string{"serve", "--listen", "127.0.0.1:0", "--data-dir", t.TempDir()}, flags...))
		cmd.SetOut(io.Discard)
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // a broker that starts all the same ends at once
		if err := cmd.ExecuteContext(ctx); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("serve %q: %v, want %q", flags, err, want)
		}
	}
	f("--data-dir is empty", "--data-dir", "")
	f("--node-id is 0", "--node-id", "0")
	f("--node-id is -1", "--node-id", "-1")
	f("--partitions is 0", "--partitions", "0")
	f("--durability is \"\"", "--durability", "")
}
