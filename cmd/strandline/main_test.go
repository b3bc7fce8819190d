package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/strandline-io/strandline/cmd/strandline/admin"
	"github.com/strandline-io/strandline/cmd/strandline/drill"
)

func TestExitCodes(t *testing.T) {
	failed := &drill.FailedError{What: "lost: 1"}
	f := func(command string, err error, want int) {
		t.Helper()
		if got := exitCode(command, err); got != want {
			t.Errorf("%s: %v: exit %d, want %d", command, err, got, want)
		}
	}
	f("drill", errors.Join(failed, errors.New("read: timeout")), 1)
	f("drill", errors.New("no broker"), 2)
	f("serve", errors.New("no broker"), 1)
	f("topics", fmt.Errorf("%w: 1", admin.ErrFound), 2)
}
