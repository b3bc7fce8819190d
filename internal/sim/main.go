// Command sim runs the simulation for one seed, or for many. -seed N -v prints a readable trace, the same each time.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/strandline-io/strandline/internal/sim/world"
)

func main() {
	seed := flag.Uint64("seed", 0, "run this seed")
	seeds := flag.String("seeds", "", "run the seeds A-B")
	verbose := flag.Bool("v", false, "print every event")
	flag.Parse()
	from, to := *seed, *seed
	if *seeds != "" {
		if _, err := fmt.Sscanf(*seeds, "%d-%d", &from, &to); err != nil {
			fmt.Fprintf(os.Stderr, "sim: -seeds is %q, want A-B: %v\n", *seeds, err)
			os.Exit(2)
		}
	}
	if !run(from, to, *verbose) {
		os.Exit(1)
	}
}

func run(from, to uint64, verbose bool) (ok bool) {
	var trace io.Writer
	if verbose {
		trace = os.Stdout
	}
	failed := 0
	var sum world.Stats
	for seed := from; seed <= to; seed++ {
		r := world.Run(world.Options{Seed: seed, Trace: trace})
		sum.Add(r.Stats)
		if r.Err != nil {
			failed++
			fmt.Printf("seed %d fails: %v\n  go run ./internal/sim -seed %d -v\n", seed, r.Err, seed)
		} else if from == to {
			fmt.Printf("seed %d: %d events, hash %016x\n", seed, r.Events, r.Hash)
		}
	}
	fmt.Printf("%d seeds, %d failed; %+v\n", to-from+1, failed, sum)
	return failed == 0
}
