package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/strandline-io/strandline/internal/sim/cores"
)

// runCores is the command with -cores: one seed, its smallest failing run, or many seeds.
func runCores(o cores.Options, from, to uint64, parallel int, verbose, shrink bool) bool {
	switch {
	case from != to:
		return runManyCores(o, from, to, parallel)
	case shrink:
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
	s := fmt.Sprintf("go run ./internal/sim -cores -seed %d", seed)
	if operations > 0 {
		s += fmt.Sprintf(" -operations %d", operations)
	}
	return s
}

// runManyCores runs consecutive seeds, several at a time, in pieces: a seed takes less than handing it over.
func runManyCores(o cores.Options, from, to uint64, parallel int) bool {
	const piece = 100
	var mu sync.Mutex
	var sum cores.Stats
	next, failed, start := from, 0, time.Now()
	var all sync.WaitGroup
	for range max(parallel, 1) {
		all.Go(func() {
			for {
				mu.Lock()
				first := next
				next += piece
				mu.Unlock()
				if first > to {
					return
				}
				var mine cores.Stats
				for seed := first; seed < first+piece && seed <= to; seed++ {
					one := o
					one.Seed = seed
					r := cores.Run(one)
					mine.Add(r.Stats)
					if r.Err != nil {
						mu.Lock()
						failed++
						fmt.Printf("seed %d fails: %v\n  %s -v\n", seed, r.Err, coresCommand(seed, o.Operations))
						mu.Unlock()
					}
				}
				mu.Lock()
				sum.Add(mine)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	n := to - from + 1
	fmt.Printf("%d seeds, %d failed, %.0f seeds/s; %+v\n", n, failed, float64(n)/time.Since(start).Seconds(), sum)
	return failed == 0
}
