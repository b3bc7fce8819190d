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

var points map[string]*armed

func init() {
	var err error
	if points, err = parse(os.Getenv(Variable)); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", Variable, err)
		os.Exit(2)
	}
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
	a := points[name]
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
