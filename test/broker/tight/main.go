// Command tight is `strandline serve` with a journal so small that segments are sealed, moved to the partitions' files
// and covered by snapshots all the time, and verified: tight LISTEN DATA-DIR fsync|write [SEED]. With a seed its disk loses what
// is not synced when the process dies (vfs.Volatile).
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
		fmt.Fprintln(os.Stderr, "tight:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 && len(args) != 4 {
		return fmt.Errorf("want LISTEN DATA-DIR fsync|write [SEED], got %q", args)
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
	if len(args) == 4 {
		seed, err := strconv.ParseUint(args[3], 10, 64)
		if err != nil {
			return err
		}
		cfg.FS = vfs.Volatile(vfs.OS(args[1]), seed)
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
