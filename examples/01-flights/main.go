// Command 01-flights reads 20,000 flights of the year 2001, re-keys them over an intermediate stream, counts per origin
// and day, and writes the result twice, to a topic and to Avro blobs, each row exactly once. Kill it at any moment, run it
// again, and the result is the same.
package main

import (
	"bufio"
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/strandline-io/strandline/broker"
	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/blob"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/task"
)

//go:embed flights.ndjson
var bundled embed.FS

// options are the flags.
type options struct {
	listen, brokers, input, data, store string
	badInput, durability, show          string
	workers, replica                    int
	verbose                             bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// startDeadline is how long a process waits for a broker, short for somebody who mistyped -brokers.
const startDeadline = 15 * time.Second

// The exit codes. A child that ends with exitRefused is not started again.
const (
	exitOK      = 0
	exitRefused = 1
	exitUsage   = 2
	exitAgain   = 75
)

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	o, err := parseFlags(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if err != nil {
		return exitUsage
	}
	if o.show != "" {
		return exit(stderr, show(ctx, o, stdout))
	}
	if o.replica >= 0 {
		return exit(stderr, runChild(ctx, o, stdin, stderr))
	}
	return exit(stderr, runParent(ctx, o, stdout, stderr))
}

func exit(stderr io.Writer, err error) int {
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, task.ErrFenced), notYet(err):
		fmt.Fprintln(stderr, "01-flights:", err)
		return exitAgain
	}
	fmt.Fprintln(stderr, "01-flights:", err)
	if _, ok := errors.AsType[*task.DifferentInputError](err); ok {
		fmt.Fprintln(stderr, "(-data names the folder that holds what the job has done, -brokers if given the cluster: another begins anew)")
	}
	if _, ok := errors.AsType[*broker.DataDirInUseError](err); ok {
		fmt.Fprintln(stderr, "(-data names another folder, -brokers a broker that runs: -brokers 127.0.0.1:9092 is that of strandline serve)")
	}
	if bad, ok := errors.AsType[*stream.RecordError](err); ok && bad.File != "" {
		fmt.Fprintln(stderr, "(a mended file needs fresh data: another -data, and -brokers if given; the same data goes on only with "+
			"-bad-input skip; dead-letter must be chosen from the start)")
	}
	return exitRefused
}

// notYet reports whether err is no refusal: the broker was away for as long as a start waits.
func notYet(err error) bool {
	_, unreachable := errors.AsType[*kafka.UnreachableError](err)
	_, slow := errors.AsType[*task.StartDeadlineError](err)
	return unreachable || slow
}

func parseFlags(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("01-flights", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.listen, "listen", "127.0.0.1:0", "`host:port` of the embedded broker; port 0 takes a free one")
	f.StringVar(&o.brokers, "brokers", "", "`host:port,…` of a Kafka cluster to use instead of the embedded broker")
	f.StringVar(&o.input, "input", "", "`file` with one flight a line (default: the bundled flights.ndjson)")
	f.StringVar(&o.data, "data", "strandline-data", "`folder` for broker/ and blobs/")
	f.StringVar(&o.store, "store", "", "blob store `URL`: azblob://account/container/prefix or file:///folder (default: blobs/ in -data)")
	f.StringVar(&o.badInput, "bad-input", "stop", "what to do with a line that is no flight: `stop|skip|dead-letter`")
	f.StringVar(&o.durability, "durability", "fsync", "of the embedded broker: `fsync|write`")
	f.IntVar(&o.workers, "workers", 1, "run the job in `N` worker processes")
	f.IntVar(&o.replica, "replica", -1, "(internal) run as worker process `N` of the parent")
	f.StringVar(&o.show, "show", "", "only print the rows of this `blob` of the store, such as daily-delays/0/…avro")
	f.BoolVar(&o.verbose, "v", false, "log what happens")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	var err error
	switch {
	case f.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.workers < 1 || o.workers > 64:
		err = fmt.Errorf("-workers is %d, must be 1 to 64", o.workers)
	case o.durability != "fsync" && o.durability != "write":
		err = fmt.Errorf("-durability is %q, must be fsync or write", o.durability)
	default:
		_, err = o.policy()
	}
	if err != nil {
		fmt.Fprintln(stderr, "01-flights:", err)
	}
	return o, err
}

func (o options) policy() (stream.Policy, error) {
	switch o.badInput {
	case "stop":
		return stream.Stop(), nil
	case "skip":
		return stream.Skip(), nil
	case "dead-letter":
		return stream.DeadLetter(deadLetters), nil
	}
	return stream.Policy{}, fmt.Errorf("-bad-input is %q, must be stop, skip or dead-letter", o.badInput)
}

func (o options) logger(stderr io.Writer) *slog.Logger {
	if !o.verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(stderr, nil))
}

// plan builds the topology over the chosen input and blob store.
func (o options) plan() (*stream.Plan, blob.Store, error) {
	policy, err := o.policy()
	if err != nil {
		return nil, nil, err
	}
	store, err := o.openStore()
	if err != nil {
		return nil, nil, err
	}
	var files fs.FS = bundled
	name := "flights.ndjson"
	if o.input != "" {
		path, err := filepath.Abs(o.input)
		if err != nil {
			return nil, nil, err
		}
		files, name = os.DirFS(filepath.Dir(path)), filepath.Base(path)
	}
	plan, err := topology(files, name, policy, store)
	return plan, store, err
}

func (o options) openStore() (blob.Store, error) {
	if o.store != "" {
		return blob.OpenStore(o.store)
	}
	return blob.OpenStore("file:" + filepath.ToSlash(filepath.Join(o.data, "blobs")))
}

func (o options) config(brokers []string, stderr io.Writer) task.Config {
	log := o.logger(stderr)
	cfg := task.Config{
		Kafka: kafka.Config{Brokers: brokers, ClientID: "01-flights", Logger: log}, Logger: log, StartDeadline: startDeadline,
	}
	if !o.verbose && o.replica < 0 {
		// That it waits for a broker is always said, by the parent for all.
		cfg.Logger = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	}
	return cfg
}

// embedded starts the broker of this process. stop ends it and waits.
func (o options) embedded(stderr io.Writer) (address string, stop func() error, err error) {
	cfg := broker.Config{
		Listen: o.listen, DataDir: filepath.Join(o.data, "broker"), Logger: o.logger(stderr),
		Durability:                   broker.DurabilityFsync,
		GroupInitialRebalanceDelayMs: int32(min(o.workers-1, 3) * 100), // let the workers meet
	}
	if o.durability == "write" {
		cfg.Durability = broker.DurabilityWrite
	}
	if cfg.GroupInitialRebalanceDelayMs == 0 {
		cfg.GroupInitialRebalanceDelayMs = -1
	}
	b, err := broker.New(cfg)
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- b.Serve(ctx) }()
	return b.Addr().String(), func() error {
		cancel()
		return <-served
	}, nil
}

func runParent(ctx context.Context, o options, stdout, stderr io.Writer) (err error) {
	stderr = &lineWriter{w: stderr}
	plan, store, err := o.plan()
	if err != nil {
		return err
	}
	brokers := strings.Split(o.brokers, ",")
	if o.brokers == "" {
		address, stop, startErr := o.embedded(stderr)
		if startErr != nil {
			return startErr
		}
		// A broker that stopped says why; what its clients saw of that only follows.
		defer func() { err = errors.Join(stop(), err) }()
		brokers = []string{address}
		// Nobody else has this broker: what a killed run left need not time out.
		if err := task.Evict(ctx, plan, o.config(brokers, stderr).Kafka); err != nil {
			return err
		}
	}
	d := newScreen(stdout)
	fmt.Fprintf(stdout, "broker %s · blobs %s\n", strings.Join(brokers, ","), store)
	cfg := o.config(brokers, stderr)
	cfg.Progress = d.progress
	if o.workers == 1 {
		err = task.Run(ctx, plan, cfg)
	} else {
		err = runChildren(ctx, o, plan, cfg, stderr)
	}
	d.end()
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		fmt.Fprintln(stdout, "stopped; run it again to go on")
		return nil
	}
	return report(ctx, o, d.last, cfg.Kafka, store, stdout)
}

// runChild is one worker process. It ends when its parent does, which shows as the end of its standard input.
func runChild(ctx context.Context, o options, stdin io.Reader, stderr io.Writer) error {
	signal.Ignore(os.Interrupt) // the terminal sends it to all; the parent decides
	plan, _, err := o.plan()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, bufio.NewReader(stdin))
		cancel()
	}()
	cfg := o.config(strings.Split(o.brokers, ","), stderr)
	cfg.Replica = o.replica
	cfg.StopDeadline = childStop
	return task.Run(ctx, plan, cfg)
}
