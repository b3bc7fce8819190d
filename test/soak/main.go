// Command soak runs the long proofs one after the other, each for a time or a number of runs: the simulation, the crash
// drill, the fuzzers, the mutants. What was run is kept, a line of JSON for each minute or so, in a file from which the
// next soak sees where to go on: no seed is run twice. docs/proof.md's figures are the table of that file.
//
//	go run ./test/soak                          # every proof that needs no other program, ten minutes each
//	go run ./test/soak -for 1h cores world      # these two, an hour each
//	go run ./test/soak -count 1000 drill        # a thousand rounds more, however long that takes
//	go run ./test/soak -table                   # what has been run so far
//
// The exit code is 1 if anything failed. What failed is shown, and kept in the file, with the command that repeats it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

type options struct {
	legs    []leg
	atMost  time.Duration // of each leg
	count   uint64        // of each leg, 0 for as many as the time allows
	from    uint64        // at least; 0 to go on behind what the file holds
	piece   time.Duration
	results string
	table   bool
}

func main() {
	o, err := parseFlags(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := soak(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
	}
	if !ok || err != nil {
		stop()
		os.Exit(1)
	}
}

func parseFlags(args []string) (o options, err error) {
	f := flag.NewFlagSet("soak", flag.ContinueOnError)
	f.DurationVar(&o.atMost, "for", 10*time.Minute, "run each leg for so long; with -count there is no limit unless it is given")
	f.Uint64Var(&o.count, "count", 0, "run so many of each leg: seeds, rounds, seconds of each fuzz target")
	f.Uint64Var(&o.from, "from", 0, "begin at this seed, if that is behind what the file holds")
	f.DurationVar(&o.piece, "piece", time.Minute, "about how long one line of the file takes")
	f.StringVar(&o.results, "results", filepath.Join("test", "soak", "results.jsonl"), "the `file` of what was run")
	f.BoolVar(&o.table, "table", false, "print the table of the file and do nothing else")
	f.Usage = func() {
		fmt.Fprintf(f.Output(), "usage: soak [flags] [leg …]\n\nLegs:\n")
		for _, l := range legs {
			fmt.Fprintf(f.Output(), "  %-12s %s\n", l.name, l.about)
		}
		fmt.Fprintf(f.Output(), "Without a name: all that need no other program.\n\nFlags:\n")
		f.PrintDefaults()
	}
	if err := f.Parse(args); err != nil {
		return o, err
	}
	timed := false
	f.Visit(func(g *flag.Flag) { timed = timed || g.Name == "for" })
	if o.count > 0 && !timed {
		o.atMost = 0
	}
	for _, name := range f.Args() {
		i := slices.IndexFunc(legs, func(l leg) bool { return l.name == name })
		if i < 0 {
			return o, fmt.Errorf("there is no leg %q", name)
		}
		o.legs = append(o.legs, legs[i])
	}
	if f.NArg() == 0 {
		o.legs = slices.DeleteFunc(slices.Clone(legs), func(l leg) bool { return l.needs != "" })
	}
	return o, nil
}

// soak runs the legs. ok is that nothing failed.
func soak(ctx context.Context, o options) (ok bool, err error) {
	if o.table {
		book, err := openBook(o.results)
		if err != nil {
			return false, err
		}
		fmt.Print(table(book.pieces))
		return true, nil
	}
	book, err := takeBook(o.results)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, book.close()) }()
	bin, err := os.MkdirTemp("", "strandline-soak-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(bin)
	before, built := len(book.pieces), commit()
	for _, l := range o.legs {
		if err := build(ctx, l, bin); err != nil {
			return false, err
		}
	}
	for _, l := range o.legs {
		if err = runLeg(ctx, o, l, bin, built, book); err != nil {
			break
		}
	}
	ran := book.pieces[before:]
	fmt.Printf("\nThis soak:\n%s", table(ran))
	return !slices.ContainsFunc(ran, func(p piece) bool { return p.Failed > 0 }), err
}

// runLeg runs pieces of one leg until its count or its time is reached. What was built for it is of the commit built.
func runLeg(ctx context.Context, o options, l leg, bin, built string, book *book) error {
	start, next, left := time.Now(), max(o.from, book.next(l.name)), o.count
	size := l.first
	for {
		n := size
		if o.count > 0 {
			n = min(n, left)
		}
		if len(l.build) == 0 {
			built = commit()
		}
		p, err := runPiece(ctx, l, bin, next, next+n-1)
		p.Commit = built
		if err != nil {
			return err
		}
		if err := book.add(p); err != nil {
			return err
		}
		fmt.Printf("%-12s %d-%d: %d %s in %.0f s, %d failed; %s\n", l.name, p.From, p.To, p.Done, p.Unit, p.Seconds, p.Failed, p.Detail)
		for _, line := range p.Failures {
			fmt.Println("   ", line)
		}
		next, left = p.To+1, left-min(left, n)
		remaining := o.atMost - time.Since(start)
		if l.once || o.count > 0 && left == 0 || o.atMost > 0 && remaining < o.piece/10 {
			return nil
		}
		size = max(l.first, resize(n, p.Seconds, o.piece))
		if o.atMost > 0 {
			size = min(size, max(1, resize(n, p.Seconds, remaining)))
		}
	}
}

// resize says how many fit into d when n took so many seconds.
func resize(n uint64, seconds float64, d time.Duration) uint64 {
	return uint64(d.Seconds() * float64(n) / max(seconds, 0.001))
}

func build(ctx context.Context, l leg, bin string) error {
	for _, pkg := range l.build {
		out := filepath.Join(bin, filepath.Base(pkg))
		if _, err := os.Stat(out); err == nil {
			continue
		}
		if message, err := exec.CommandContext(ctx, "go", "build", "-o", out, pkg).CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", pkg, err, message)
		}
	}
	return nil
}

// runPiece runs the seeds from to to. A run that was interrupted is an error and leaves nothing behind.
func runPiece(ctx context.Context, l leg, bin string, from, to uint64) (piece, error) {
	args := l.command(bin, from, to)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	end := group(cmd)
	defer end()
	cmd.WaitDelay = 30 * time.Second
	cmd.Env = append(os.Environ(), l.env...)
	start := time.Now()
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return piece{}, ctx.Err()
	}
	p := piece{
		Leg: l.name, Unit: l.unit, From: from, To: to, Seconds: time.Since(start).Seconds(),
		Go: runtime.Version(), CPUs: runtime.NumCPU(), Began: start.UTC().Truncate(time.Second),
	}
	found := p.read(l, string(out))
	if !found {
		p.Done = 0 // nobody knows how far it came
	}
	if err != nil && p.Failed == 0 || !found {
		p.Failed++
		p.Failures = append(p.Failures, fmt.Sprintf("%s: %v, and its last lines are", strings.Join(args, " "), err))
		p.Failures = append(p.Failures, lastLines(string(out), 12)...)
	}
	return p, nil
}

// commit names what was run; + marks a tree with changes.
func commit() string {
	hash, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return ""
	}
	name := strings.TrimSpace(string(hash))
	if changed, err := exec.Command("git", "status", "--porcelain", "--untracked-files=no", "--", "*.go", "go.mod").Output(); err != nil || len(changed) > 0 {
		name += "+"
	}
	return name
}
