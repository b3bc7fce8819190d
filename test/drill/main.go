//go:build unix

// Command drill kills a broker and a job, again and again, and looks whether every row is there once. One round is a
// broker with a small journal, a job of several worker processes over generated input, and faults that a seed chooses:
// SIGKILL at random moments and at named failpoints (internal/failpoint), two at once and again while recovering, and
// processes that stand still until others have taken their place. Afterwards topic and blobs must hold exactly the
// expected rows, no transaction may be open, and the committed offsets must be at the end.
//
//	go run ./test/drill -rounds 1-50        # seeds 1 to 50
//	go run ./test/drill -seed 7 -v          # one round, with the output of its processes
//	go run ./test/drill -power -rounds 1-50 # the broker's disk forgets what was not synced
//	go run ./test/drill -kafka -rounds 1-20 # the job on Apache Kafka
//
// Timing is not the seed's: a failing seed fails again often, not always. The folder of a failed round is kept, with
// all data and the output of all processes.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/strandline-io/strandline/test/peers"
)

type options struct {
	setting
	from, to uint64
	parallel int
	keep     bool
	verbose  bool
	dir      string
}

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case asBroker:
			os.Exit(runBroker(os.Args[2:]))
		case asWorker:
			os.Exit(runWorker(os.Args[2:]))
		}
	}
	o, err := parseFlags(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "drill:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := drill(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "drill:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

func parseFlags(args []string) (o options, err error) {
	f := flag.NewFlagSet("drill", flag.ExitOnError)
	seed := f.Uint64("seed", 0, "play the round of this `seed` alone")
	rounds := f.String("rounds", "1-10", "play the rounds of the seeds `A-B`")
	f.BoolVar(&o.kafka, "kafka", false, "the job runs on Apache Kafka, which is killed seldom: it needs 12 s to return")
	f.BoolVar(&o.azurite, "azurite", false, "the blobs go to Azurite, not into a folder")
	f.BoolVar(&o.power, "power", false, "the death of the broker is a power cut: what it has not synced is torn or gone")
	f.StringVar(&o.job, "job", "", "`drill` or flights, the program of examples/01-flights (default: it is that of each eighth round)")
	f.IntVar(&o.parallel, "parallel", 1, "play `N` rounds at a time")
	f.BoolVar(&o.keep, "keep", false, "keep the folders of all rounds")
	f.BoolVar(&o.verbose, "v", false, "print the output of all processes")
	_ = f.Parse(args)
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.parallel < 1:
		return o, fmt.Errorf("-parallel is %d, want 1 or more", o.parallel)
	case o.job != "" && o.job != "drill" && o.job != "flights":
		return o, fmt.Errorf("-job is %q, want drill or flights", o.job)
	case o.power && o.kafka:
		return o, fmt.Errorf("-power is for the drill's own broker")
	case o.job == "flights" && (o.kafka || o.azurite):
		return o, fmt.Errorf("the flights job is for the drill's own broker and a folder: its names are fixed")
	}
	one := false
	f.Visit(func(g *flag.Flag) { one = one || g.Name == "seed" })
	if one {
		*rounds = fmt.Sprintf("%d-%d", *seed, *seed)
	}
	o.from, o.to, err = span(*rounds)
	return o, err
}

// span reads "A-B".
func span(s string) (from, to uint64, err error) {
	a, b, _ := strings.Cut(s, "-")
	from, errA := strconv.ParseUint(a, 10, 64)
	to, errB := strconv.ParseUint(b, 10, 64)
	if errA != nil || errB != nil || from == 0 || from > to || to == math.MaxUint64 {
		return 0, 0, fmt.Errorf("the rounds are %q, want A-B, from 1 on, A not above B", s)
	}
	return from, to, nil
}

// drill plays all rounds. ok is that nothing was lost, doubled or left behind in any.
func drill(ctx context.Context, o options) (ok bool, err error) {
	h := newHost(ctx)
	defer h.end()
	defer func() {
		if p := recover(); p != nil {
			if err = hostError(p); ctx.Err() != nil {
				err = ctx.Err() // which ended the build, or the start of another program
			}
		}
	}()
	if o.dir, err = os.MkdirTemp("", "strandline-drill-"); err != nil {
		return false, err
	}
	t := newTally(o)
	fmt.Printf("building with the tag failpoints, playing in %s\n", o.dir)
	bin := programs{peers.Binary(h, "./test/drill", "-tags", "failpoints"), peers.Binary(h, "./examples/01-flights", "-tags", "failpoints")}
	env := environment{bin: bin, tally: t}
	if o.kafka {
		env.kafka = startCluster(h)
	}
	if o.azurite {
		env.azurite = peers.StartAzurite(h)
	}
	seeds := make(chan uint64)
	var playing sync.WaitGroup
	stop := t.live(os.Stdout)
	for range o.parallel {
		playing.Go(func() {
			for seed := range seeds {
				if err := env.play(ctx, o, seed); ctx.Err() == nil {
					t.played(seed, err)
				}
			}
		})
	}
	for seed := o.from; seed <= o.to && ctx.Err() == nil; seed++ {
		seeds <- seed
	}
	close(seeds)
	playing.Wait()
	stop()
	t.report(os.Stdout)
	_ = os.Remove(o.dir) // if nothing was kept in it
	return t.ok(), ctx.Err()
}

// environment is what the rounds of a run share.
type environment struct {
	bin     programs
	tally   *tally
	kafka   *cluster
	azurite string // its endpoint
}

// play plays one round and removes its folder if nothing is wrong.
func (e environment) play(ctx context.Context, o options, seed uint64) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = hostError(p)
		}
	}()
	dir := filepath.Join(o.dir, fmt.Sprint(seed))
	if err := os.MkdirAll(filepath.Join(dir, "blobs"), 0o755); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, "log.txt"))
	if err != nil {
		return err
	}
	defer f.Close()
	var w io.Writer = f
	if o.verbose {
		w = io.MultiWriter(f, os.Stdout)
	}
	r := &round{
		roundPlan: newPlan(seed, o.setting), set: o.setting, bin: e.bin, dir: dir, tally: e.tally, external: e.kafka,
		log: &roundLog{w: w, began: time.Now()}, store: "file:" + filepath.ToSlash(filepath.Join(dir, "blobs")),
	}
	if e.azurite != "" {
		r.store, r.storeEnv = azuriteStore(e.azurite, seed)
	}
	if r.external != nil {
		r.brokers = r.external.Addr
	} else {
		r.brokers = peers.FreeAddress(newHost(ctx))
	}
	if err = r.run(ctx); err == nil && !o.keep {
		return os.RemoveAll(dir)
	}
	if err != nil {
		err = fmt.Errorf("%w\n  all of it is in %s", err, dir)
	}
	return err
}
