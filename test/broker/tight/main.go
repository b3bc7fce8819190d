// Command tight is `strandline serve` with a journal so small that segments are sealed, moved to the partitions' files
// and covered by snapshots all the time, and verified: tight LISTEN DATA-DIR fsync|write [SEED [JOURNAL-BYTES]]. With a seed
// other than 0 its disk loses what is not synced when the process dies (vfs.Volatile). With the build tag failpoints each line
// of its standard input arms what it names (package failpoint), and is confirmed by a line "armed …".
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/strandline-io/strandline/broker"
	"github.com/strandline-io/strandline/internal/failpoint"
	"github.com/strandline-io/strandline/internal/vfs"
)

const segmentBytes = 64 << 10

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "tight:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 3 || len(args) > 5 {
		return fmt.Errorf("want LISTEN DATA-DIR fsync|write [SEED [JOURNAL-BYTES]], got %q", args)
	}
	seed, journalBytes := uint64(0), int64(4*segmentBytes)
	var err error
	if len(args) > 3 {
		if seed, err = strconv.ParseUint(args[3], 10, 64); err != nil {
			return err
		}
	}
	if len(args) > 4 {
		if journalBytes, err = strconv.ParseInt(args[4], 10, 64); err != nil {
			return err
		}
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
	if seed > 0 {
		cfg.FS = vfs.Volatile(vfs.OS(args[1]), seed)
	}
	b, err := broker.New(cfg)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fmt.Printf("tight listening on %s\n", b.Addr())
	go obey(os.Stdin)
	return b.Serve(ctx)
}

// obey arms what it is told to.
func obey(orders io.Reader) {
	for lines := bufio.NewScanner(orders); lines.Scan(); {
		if err := failpoint.Arm(lines.Text()); err != nil {
			fmt.Println("not armed:", err)
			continue
		}
		fmt.Println("armed", lines.Text())
	}
}
