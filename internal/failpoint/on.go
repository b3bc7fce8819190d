//go:build failpoints && unix

package failpoint

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// armed is what happens at a point.
type armed struct {
	at   int64
	stop bool
	hits atomic.Int64
}

var points atomic.Pointer[map[string]*armed]

func init() {
	if err := Arm(os.Getenv(Variable)); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", Variable, err)
		os.Exit(2)
	}
}

// Arm replaces what the process is to do at its points, as if s had been in the environment; hits are counted from now on.
// It may be called from anywhere. An error names what is wrong with s and changes nothing.
func Arm(s string) error {
	parsed, err := parse(s)
	if err != nil {
		return err
	}
	points.Store(&parsed)
	return nil
}

func known(name string) bool {
	return slices.ContainsFunc(Points, func(p Point) bool { return p.Name == name })
}

// parse reads "NAME:COUNT[:stop],…".
func parse(s string) (map[string]*armed, error) {
	out := make(map[string]*armed)
	if s == "" {
		return out, nil
	}
	for one := range strings.SplitSeq(s, ",") {
		parts := strings.Split(one, ":")
		if !known(parts[0]) {
			return nil, fmt.Errorf("there is no failpoint %q", parts[0])
		}
		if len(parts) < 2 || len(parts) > 3 || len(parts) == 3 && parts[2] != "stop" {
			return nil, fmt.Errorf("%q is not like NAME:COUNT or NAME:COUNT:stop", one)
		}
		at, err := strconv.ParseInt(parts[1], 10, 64)
		if err != nil || at < 1 {
			return nil, fmt.Errorf("%q: the count must be 1 or more", one)
		}
		out[parts[0]] = &armed{at: at, stop: len(parts) == 3}
	}
	return out, nil
}

// Hit ends or stops the process if the environment says so. It may be called from anywhere.
func Hit(name string) {
	a := (*points.Load())[name]
	if a == nil {
		if !known(name) {
			panic(fmt.Sprintf("BUG: failpoint %q is not in failpoint.Points", name))
		}
		return
	}
	if a.hits.Add(1) != a.at {
		return
	}
	fmt.Fprintf(os.Stderr, "failpoint %s hit %d\n", name, a.at)
	if a.stop {
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
		return
	}
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
	select {}
}
