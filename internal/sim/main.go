// Command sim runs the simulation for one seed, or for many. -seed N -v prints a readable trace, the same each time;
// -seed N -shrink looks for the least that still fails. With -cores it runs the pure cores alone, and many seeds a second.
// With -blob it runs the world of blob sinks instead of the broker's, with -world job -blob stream jobs with blob sinks.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/strandline-io/strandline/internal/sim/cores"
	"github.com/strandline-io/strandline/internal/sim/world"
)

// memoryLimit is how much the process should have in all. A few dozen megabytes are usual.
const memoryLimit = 1 << 30

func main() {
	seed := flag.Uint64("seed", 0, "run this seed")
	seeds := flag.String("seeds", "", "run the seeds A-B")
	verbose := flag.Bool("v", false, "print every event")
	shrink := flag.Bool("shrink", false, "leave out faults and clients while the seed fails in the same check")
	parallel := flag.Int("parallel", runtime.GOMAXPROCS(0), "how many seeds run at a time")
	readers := flag.Bool("readers", false, "judge by what clients see alone")
	without := flag.String("without", "", "clients and faults (by number) to leave out, separated by commas")
	faultsMs := flag.Int64("faults-ms", 0, "when faults end, earlier than usual")
	pure := flag.Bool("cores", false, "simulate the pure cores alone: a thousand seeds a second")
	operations := flag.Int("operations", 0, "with -cores: random steps before the faults end, fewer than usual")
	blobs := flag.Bool("blob", false, "run the world of blob sinks instead of the broker's; with -world job: stream jobs with blob sinks")
	kind := flag.String("world", "", "broker: producers and consumers; job: a stream job; else the seed decides: odd ones have a job")
	flag.Parse()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // a world is small and makes much garbage
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit) // where a world is large, its garbage shall not be four times that
	}
	o := world.Options{Seed: *seed, ReadersOnly: *readers, FaultsMs: *faultsMs, Blobs: *blobs}
	jobs = *kind
	if jobs == "job" {
		o.Blobs, o.JobBlobs = false, *blobs
	}
	if !slices.Contains([]string{"", "broker", "job"}, jobs) || flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "sim: -world is %q, want broker or job; arguments beside flags: %q, want none\n", jobs, flag.Args())
		os.Exit(2)
	}
	o.Job = hasJob(o.Seed)
	for name := range strings.SplitSeq(*without, ",") {
		if n, err := strconv.Atoi(name); err == nil {
			o.WithoutFaults = append(o.WithoutFaults, n)
		} else if name != "" {
			o.WithoutClients = append(o.WithoutClients, name)
		}
	}
	ok := true
	var from, to uint64
	if *seeds != "" {
		var err error
		if from, to, err = span(*seeds); err != nil {
			fmt.Fprintln(os.Stderr, "sim:", err)
			os.Exit(2)
		}
	}
	one := cores.Options{Seed: *seed, Operations: *operations}
	switch {
	case *pure && *seeds != "":
		ok = runManyCores(one, from, to, *parallel)
	case *pure:
		ok = runCores(one, *verbose, *shrink)
	case *seeds != "":
		ok = runMany(o, from, to, *parallel)
	case *shrink:
		ok = runShrink(o)
	default:
		if *verbose {
			o.Trace = os.Stdout
		}
		ok = runOne(os.Stdout, o)
	}
	if err := errors.Join(unasked(), unknown(o, *seeds == "" && !*pure)); err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// unasked says that the defect that was to be switched on is none; without the build tag mutants there are none.
var unasked = func() error { return nil }

// unknown says which of the clients and faults to leave out a run with all of them does not have. A successor, after the
// dot, may come in one run and not in another.
func unknown(o world.Options, judged bool) error {
	if !judged || len(o.WithoutClients)+len(o.WithoutFaults) == 0 {
		return nil
	}
	whole := o
	whole.WithoutClients, whole.WithoutFaults, whole.FaultsMs, whole.Trace = nil, nil, 0, nil
	r := world.Run(whole)
	family := func(name string) string { name, _, _ = strings.Cut(name, "."); return name }
	var wrong []string
	for _, name := range o.WithoutClients {
		if !slices.ContainsFunc(r.Clients, func(c string) bool { return family(c) == family(name) }) {
			wrong = append(wrong, name)
		}
	}
	for _, n := range o.WithoutFaults {
		if !slices.Contains(r.Faults, n) {
			wrong = append(wrong, strconv.Itoa(n))
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("-without names %s; seed %d has the clients %v and the faults %v", strings.Join(wrong, ", "), o.Seed, r.Clients, r.Faults)
}

// span reads "A-B".
func span(s string) (from, to uint64, err error) {
	a, b, _ := strings.Cut(s, "-")
	from, errA := strconv.ParseUint(a, 10, 64)
	to, errB := strconv.ParseUint(b, 10, 64)
	if errA != nil || errB != nil || from > to || to == math.MaxUint64 {
		return 0, 0, fmt.Errorf("-seeds is %q, want A-B, A not above B", s)
	}
	return from, to, nil
}

// jobs says which seeds have a stream job.
var jobs string

func hasJob(seed uint64) bool { return jobs == "job" || jobs != "broker" && seed%2 == 1 }

func runOne(out io.Writer, o world.Options) bool {
	r := world.Run(o)
	if r.Err != nil {
		fmt.Fprintf(out, "seed %d fails: %v\n  %s -v\n", o.Seed, r.Err, command(o))
		return false
	}
	fmt.Fprintf(out, "seed %d: %d events, hash %016x; %+v\n", o.Seed, r.Events, r.Hash, r.Stats)
	return true
}

// command replays a run.
func command(o world.Options) string {
	s := fmt.Sprintf("go run ./internal/sim -seed %d", o.Seed)
	if jobs != "" {
		s += " -world " + jobs
	}
	if o.Blobs || o.JobBlobs {
		s += " -blob"
	}
	if o.ReadersOnly {
		s += " -readers"
	}
	if o.FaultsMs > 0 {
		s += fmt.Sprintf(" -faults-ms %d", o.FaultsMs)
	}
	without := slices.Clone(o.WithoutClients)
	for _, n := range o.WithoutFaults {
		without = append(without, strconv.Itoa(n))
	}
	if len(without) > 0 {
		s += " -without " + strings.Join(without, ",")
	}
	return s
}

func runShrink(o world.Options) bool {
	o, r := world.Shrink(o)
	if r.Err == nil {
		fmt.Printf("seed %d does not fail\n", o.Seed)
		return true
	}
	fmt.Printf("seed %d fails: %v\n  left are the faults %v and the clients %v\n  %s -v\n", o.Seed, r.Err, r.Faults, r.Clients, command(o))
	return false
}

// runMany runs consecutive seeds.
func runMany(o world.Options, from, to uint64, parallel int) bool {
	of := func(seed uint64) world.Options {
		one := o
		one.Seed, one.Job = seed, hasJob(seed)
		return one
	}
	var sum world.Stats
	return runSeeds(from, to, parallel, &sum, (*world.Stats).Add, func(seed uint64) (world.Stats, error) {
		r := world.Run(of(seed))
		return r.Stats, r.Err
	}, func(seed uint64) string { return command(of(seed)) })
}

// runSeeds runs consecutive seeds, several at a time, adds up what they cross and prints those that fail, each with the command
// that repeats it.
func runSeeds[S any](from, to uint64, parallel int, sum *S, add func(*S, S), run func(seed uint64) (S, error), command func(seed uint64) string) bool {
	var mu sync.Mutex
	next, failed, start := from, 0, time.Now()
	var all sync.WaitGroup
	for range max(parallel, 1) {
		all.Go(func() {
			for {
				mu.Lock()
				seed := next
				next++
				mu.Unlock()
				if seed > to {
					return
				}
				one, err := run(seed)
				mu.Lock()
				add(sum, one)
				if err != nil {
					failed++
					fmt.Printf("seed %d fails: %v\n  %s -v\n", seed, err, command(seed))
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	n := to - from + 1
	fmt.Printf("%d seeds, %d failed, %.1f seeds/s; %+v\n", n, failed, float64(n)/time.Since(start).Seconds(), *sum)
	return failed == 0
}
