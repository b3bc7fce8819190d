// Package cores simulates the pure cores alone, without disk, codec and network layers: the broker's machine under
// clients that lose, delay and repeat, with crashes and old snapshots, against a model of the protocol and what readers
// see; and the stream's tasks against one pass over their input. A seed takes about a millisecond and replays to the
// byte.
package cores

import (
	"io"
	"strings"
)

// Options of one run.
type Options struct {
	Seed uint64
	// Operations bounds the random steps before the faults end, in a stream's topology the accidents; 0 is as many as the
	// seed wants.
	Operations int
	// Trace, when not nil, gets one line for each step.
	Trace io.Writer
}

// Result is what a run came to.
type Result struct {
	// Err is the first violated check; nil if all held.
	Err error
	// Hash sums up the content of every step; equal seeds have equal hashes.
	Hash uint64
	// Operations is how many random steps were taken, in a topology how many accidents could be.
	Operations int
	Stats      Stats
}

// Stats says what a run has crossed.
type Stats struct {
	Steps, Crashes, Lost, Snapshots, Commits, Aborts, Read int // of the machine's world
	Streams, Results                                       int // topologies, and what came out
}

// Add sums up.
func (s *Stats) Add(o Stats) {
	s.Steps += o.Steps
	s.Crashes += o.Crashes
	s.Lost += o.Lost
	s.Snapshots += o.Snapshots
	s.Commits += o.Commits
	s.Aborts += o.Aborts
	s.Read += o.Read
	s.Streams += o.Streams
	s.Results += o.Results
}

// streamEvery: one seed in so many is a stream's topology, which takes longer than a machine's world.
const streamEvery = 8

// Run runs one seed.
func Run(o Options) Result {
	if o.Seed%streamEvery == 0 {
		return runStream(o.Seed, o.Operations, o.Trace)
	}
	return runMachine(o.Seed, o.Operations, o.Trace)
}

// Shrink finds the smallest number of operations with which a failing seed fails in the same check, and that run.
func Shrink(o Options) (operations int, r Result) {
	o.Trace = nil
	whole := Run(o)
	if whole.Err == nil {
		return 0, whole
	}
	for n := 1; n < whole.Operations; n++ {
		o.Operations = n
		if r := Run(o); r.Err != nil && check(r.Err) == check(whole.Err) {
			return n, r
		}
	}
	return whole.Operations, whole
}

// check is the name of the check that err is of.
func check(err error) string {
	name, _, _ := strings.Cut(err.Error(), ":")
	return name
}
