package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/strandline-io/strandline/broker"
)

const defaultDataDir = "./strandline-data/broker"

func serveCommand() *cobra.Command {
	// As in the configuration that Apache Kafka ships: who runs one broker wants the first consumer to start at once.
	c := broker.Config{GroupInitialRebalanceDelayMs: -1}
	var durability string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the broker",
		Long: "Run the broker until it is interrupted. It needs no configuration: it listens on " + broker.DefaultListen +
			",\nkeeps its data in " + defaultDataDir + " and syncs before it answers.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if c.Durability, err = parseDurability(durability); err != nil {
				return err
			}
			// The zero values mean something else in a broker.Config: memory only, and the defaults.
			switch {
			case c.DataDir == "":
				return fmt.Errorf("--data-dir is empty: name the folder that keeps the data, such as %s", defaultDataDir)
			case c.NodeID < 1:
				return fmt.Errorf("--node-id is %d: use 1 or more", c.NodeID)
			case c.DefaultPartitions < 1:
				return fmt.Errorf("--partitions is %d: use 1 or more", c.DefaultPartitions)
			}
			c.Logger = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			return serve(cmd.Context(), cmd, c, durability)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Listen, "listen", broker.DefaultListen, "address to listen on, host:port")
	f.StringVar(&c.Advertise, "advertise", "", "address that clients are told to use, host:port (default: the one at which they came)")
	f.StringVar(&c.DataDir, "data-dir", defaultDataDir, "folder of everything durable")
	f.StringVar(&durability, "durability", "fsync", "when a reply leaves: fsync (survives power loss) or write (survives kill -9)")
	f.BoolVar(&c.Verify, "verify", false, "compare the state with what a replay of the journal gives, all the time; stop if they differ")
	f.Int32Var(&c.NodeID, "node-id", 1, "id of this broker")
	f.Int32Var(&c.DefaultPartitions, "partitions", 1, "partitions of new topics that name none")
	return cmd
}

func parseDurability(s string) (broker.Durability, error) {
	switch s {
	case "fsync":
		return broker.DurabilityFsync, nil
	case "write":
		return broker.DurabilityWrite, nil
	}
	return 0, fmt.Errorf("--durability is %q: use fsync (survives power loss) or write (survives kill -9)", s)
}

func serve(ctx context.Context, cmd *cobra.Command, c broker.Config, durability string) error {
	b, err := broker.New(c)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w; stop what listens there, or choose another address with --listen", err)
	}
	if err != nil {
		return err
	}
	dir := c.DataDir
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	fmt.Fprintf(cmd.OutOrStdout(), "strandline listening on %s, data folder %s, durability %s\n", b.Addr(), dir, durability)
	return b.Serve(ctx)
}
