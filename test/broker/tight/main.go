// Command tight is `strandline serve` with a journal so small that segments are sealed, moved to the partitions' files
// and covered by snapshots all the time, and verified: tight LISTEN DATA-DIR fsync|write.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/strandline-io/strandline/broker"
)

const (
	segmentBytes = 64 << 10
	journalBytes = 4 * segmentBytes
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "tight:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("want LISTEN DATA-DIR fsync|write, got %q", args)
	}
	cfg := broker.Config{
		Listen: args[0], DataDir: args[1], DefaultPartitions: 4,
		GroupInitialRebalanceDelayMs: -1, // groups work at once
		JournalSegmentBytes:          segmentBytes, JournalMaxBytes: journalBytes,
		Verify: true,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	if args[2] == "write" {
		cfg.Durability = broker.DurabilityWrite
	}
	b, err := broker.New(cfg)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fmt.Printf("tight listening on %s\n", b.Addr())
	return b.Serve(ctx)
}
