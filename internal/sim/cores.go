package main

import (
	"fmt"
	"os"

	"github.com/strandline-io/strandline/internal/sim/cores"
)

// runCores is the command with -cores: one seed, or its smallest failing run.
func runCores(o cores.Options, verbose, shrink bool) bool {
	if shrink {
		n, r := cores.Shrink(o)
		if r.Err == nil {
			fmt.Printf("seed %d does not fail\n", o.Seed)
			return true
		}
		fmt.Printf("seed %d fails with %d operations: %v\n  %s -v\n", o.Seed, n, r.Err, coresCommand(o.Seed, n))
		return false
	}
	if verbose {
		o.Trace = os.Stdout
	}
	r := cores.Run(o)
	if r.Err != nil {
		fmt.Printf("seed %d fails: %v\n  %s -v\n", o.Seed, r.Err, coresCommand(o.Seed, o.Operations))
		return false
	}
	fmt.Printf("seed %d: %d operations, hash %016x; %+v\n", o.Seed, r.Operations, r.Hash, r.Stats)
	return true
}

func coresCommand(seed uint64, operations int) string {
	s := fmt.Sprintf("%s -cores -seed %d", program(), seed)
	if operations > 0 {
		s += fmt.Sprintf(" -operations %d", operations)
	}
	return s
}

func runManyCores(o cores.Options, from, to uint64, parallel int) bool {
	var sum cores.Stats
	return runSeeds(from, to, parallel, &sum, (*cores.Stats).Add, func(seed uint64) (cores.Stats, error) {
		one := o
		one.Seed = seed
		r := cores.Run(one)
		return r.Stats, r.Err
	}, func(seed uint64) string { return coresCommand(seed, o.Operations) })
}
