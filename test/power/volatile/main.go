// Command volatile is a broker with a journal as small as that of test/broker/tight, on a disk that loses what is not
// synced when the process dies: volatile LISTEN DATA-DIR fsync|write SEED.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/strandline-io/strandline/broker"
	"github.com/strandline-io/strandline/internal/vfs"
)

const (
	segmentBytes = 64 << 10
	journalBytes = 4 * segmentBytes
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "volatile:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 4 {
		return fmt.Errorf("want LISTEN DATA-DIR fsync|write SEED, got %q", args)
	}
	seed, err := strconv.ParseUint(args[3], 10, 64)
	if err != nil {
		return err
	}
	cfg := broker.Config{
		Listen: args[0], DataDir: args[1], DefaultPartitions: 4,
		FS:                           vfs.Volatile(vfs.OS(args[1]), seed),
		GroupInitialRebalanceDelayMs: -1, // groups work at once
		JournalSegmentBytes:          segmentBytes, JournalMaxBytes: journalBytes,
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
	fmt.Printf("volatile listening on %s\n", b.Addr())
	return b.Serve(ctx)
}
