//go:build unix

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/strandline-io/strandline/broker"
	"github.com/strandline-io/strandline/internal/vfs"
	"github.com/strandline-io/strandline/stream/blob"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/task"
)

// What the drill runs itself as.
const (
	asBroker = "run-broker"
	asWorker = "run-worker"
)

// The exit codes of children; exitAgain means that the child wants to be started again.
const (
	exitOK     = 0
	exitFailed = 1
	exitAgain  = 75
)

// The journal is so small that every path is crossed: seal, shelve, snapshot, free.
const (
	segmentBytes = 32 << 10
	journalBytes = 4 * segmentBytes
)

// sessionTimeout is the shortest that Apache Kafka allows.
const sessionTimeout = 6 * time.Second

// untilParentEnds returns a context that ends with standard input, which the parent holds open.
func untilParentEnds() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return ctx
}

func childLog() *slog.Logger { return slog.New(slog.NewTextHandler(os.Stderr, nil)) }

// runBroker is a broker with a small journal, which it compares with its state all the time.
func runBroker(args []string) int {
	cfg := broker.Config{
		DefaultPartitions: partitions, GroupInitialRebalanceDelayMs: -1,
		JournalSegmentBytes: segmentBytes, JournalMaxBytes: journalBytes, Logger: childLog(), Verify: true,
	}
	var power uint64
	f := flag.NewFlagSet(asBroker, flag.ExitOnError)
	f.StringVar(&cfg.Listen, "listen", "", "")
	f.StringVar(&cfg.DataDir, "data", "", "")
	f.BoolFunc("write", "", func(string) error { cfg.Durability = broker.DurabilityWrite; return nil })
	f.Uint64Var(&power, "power", 0, "")
	_ = f.Parse(args)
	if power > 0 {
		cfg.FS = vfs.Volatile(vfs.OS(cfg.DataDir), power)
	}
	ctx := untilParentEnds()
	b, err := broker.New(cfg)
	if err == nil {
		fmt.Fprintf(os.Stderr, "%s%s\n", listens, b.Addr())
		err = b.Serve(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "the broker ended:", err)
		return exitFailed
	}
	return exitOK
}

// listens begins the line that a broker prints when it is ready.
const listens = "the broker listens on "

// runWorker is one worker process of the drill's job.
func runWorker(args []string) int {
	var o jobOptions
	var files, brokers, store string
	cfg := task.Config{
		Logger: childLog(), PrepareDeadline: 3 * time.Second, TransactionTimeout: 5 * time.Second, SessionTimeout: sessionTimeout, TrimInterval: 300 * time.Millisecond,
		StopDeadline: 3 * time.Second, StartDeadline: 30 * time.Second,
	}
	f := flag.NewFlagSet(asWorker, flag.ExitOnError)
	f.StringVar(&o.name, "job", "", "")
	f.StringVar(&o.dir, "dir", "", "")
	f.DurationVar(&o.pace, "pace", 0, "")
	f.StringVar(&files, "files", "", "")
	f.StringVar(&brokers, "brokers", "", "")
	f.StringVar(&store, "store", "", "")
	f.IntVar(&cfg.Replica, "replica", 0, "")
	f.DurationVar(&cfg.CommitInterval, "commit", 0, "")
	_ = f.Parse(args)
	o.files = strings.Split(files, ",")
	ctx := untilParentEnds()
	cfg.Kafka = kafka.Config{Brokers: strings.Split(brokers, ","), ClientID: "drill", Logger: cfg.Logger}
	err := work(ctx, o, cfg, store)
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(os.Stderr, "the worker ended:", err)
	_, unreachable := errors.AsType[*kafka.UnreachableError](err)
	_, slow := errors.AsType[*task.StartDeadlineError](err)
	if errors.Is(err, task.ErrFenced) || unreachable || slow {
		return exitAgain
	}
	return exitFailed
}

func work(ctx context.Context, o jobOptions, cfg task.Config, store string) (err error) {
	if o.store, err = blob.OpenStore(store); err != nil {
		return err
	}
	plan, err := o.topology()
	if err != nil {
		return err
	}
	return task.Run(ctx, plan, cfg)
}
