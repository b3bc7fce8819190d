// Command sim runs the simulation for one seed, or for many. -seed N -v prints a readable trace, the same each time;
// -seed N -shrink looks for the least that still fails. With -cores it runs the pure cores alone, hundreds of seeds a second.
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
	pure := flag.Bool("cores", false, "simulate the pure cores alone: hundreds of seeds a second")
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
	if err := errors.Join(misused(), misnamed()); err != nil {
		refuse(err)
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
			refuse(err)
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
		refuse(err)
	}
	if !ok {
		os.Exit(1)
	}
}

func refuse(err error) {
	fmt.Fprintln(os.Stderr, "sim:", err)
	os.Exit(2)
}

func misused() error {
	if !slices.Contains([]string{"", "broker", "job"}, jobs) || flag.NArg() > 0 {
		return fmt.Errorf("-world is %q, want broker or job; arguments beside flags: %q, want none", jobs, flag.Args())
	}
	return nil
}

// Without the build tag mutants there are no defects to switch on.
var (
	// misnamed says that no defect has the name that was given, unasked that no code which ran has that defect.
	misnamed = func() error { return nil }
	unasked  = func() error { return nil }
	// program is how a command that repeats a run begins.
	program = func() string { return "go run ./internal/sim" }
)

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
	s := fmt.Sprintf("%s -seed %d", program(), o.Seed)
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

// progressEvery is how often a run of many seeds tells on standard error how far it is.
const progressEvery = 10 * time.Second

// runSeeds runs consecutive seeds, several at a time, adds up what they cross and prints those that fail, each with the command
// that repeats it.
func runSeeds[S any](from, to uint64, parallel int, sum *S, add func(*S, S), run func(seed uint64) (S, error), command func(seed uint64) string) bool {
	var mu sync.Mutex
	next, done, failed, start := from, uint64(0), 0, time.Now()
	n := to - from + 1
	rate := func() float64 { return float64(done) / time.Since(start).Seconds() }
	stop := repeat(progressEvery, func() {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(os.Stderr, "sim: %d of %d seeds done, %d failed, %.1f seeds/s\n", done, n, failed, rate())
	})
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
				done++
				if err != nil {
					failed++
					fmt.Printf("seed %d fails: %v\n  %s -v\n", seed, err, command(seed))
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	stop()
	if unasked() == nil { // else the seeds have judged nothing
		fmt.Printf("%d seeds, %d failed, %.1f seeds/s; %+v\n", n, failed, rate(), *sum)
	}
	return failed == 0
}

// repeat calls f at intervals until the returned call, which waits for the last one.
func repeat(every time.Duration, f func()) (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				f()
			}
		}
	}()
	return func() {
		close(quit)
		<-ended
	}
}
