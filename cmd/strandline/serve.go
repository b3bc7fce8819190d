package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/strandline-io/strandline/broker"
	"github.com/strandline-io/strandline/cmd/strandline/admin"
)

const defaultDataDir = "./strandline-data/broker"

func serveCommand() *cobra.Command {
	// As in the configuration that Apache Kafka ships: who runs one broker wants the first consumer to start at once.
	c := broker.Config{GroupInitialRebalanceDelayMs: -1}
	var durability, advertise string
	var listen []string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the broker",
		Long: "Run the broker until it is interrupted. It needs no configuration: it listens on " + broker.DefaultListen +
			",\nkeeps its data in " + defaultDataDir + " and syncs before it answers.",
		Args: admin.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if c.Durability, err = parseDurability(durability); err != nil {
				return err
			}
			if c.Listeners, err = parseListeners(listen, advertise); err != nil {
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
			case c.MaxRequestBytes < 1:
				return fmt.Errorf("--max-request-bytes is %d: use 65536 or more", c.MaxRequestBytes)
			case c.MaxConnections < 1:
				return fmt.Errorf("--max-connections is %d: use 1 or more", c.MaxConnections)
			case c.IdleTimeout <= 0:
				return fmt.Errorf("--idle-timeout is %v: use more than 0", c.IdleTimeout)
			}
			c.Logger = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			return serve(cmd.Context(), cmd, c, durability)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&listen, "listen", []string{broker.DefaultListen},
		"address to listen on, `host:port[=advertised host:port]`; several are several times the flag, and\n"+
			"clients are told the address of the one by which they come, such as\n"+
			"--listen 0.0.0.0:9092=broker:9092 --listen [::]:9094=[2001:db8::1]:19094")
	f.StringVar(&advertise, "advertise", "", "the advertised `host:port` of a single --listen (default: the one at which a client came)")
	f.StringVar(&c.DataDir, "data-dir", defaultDataDir, "folder of everything durable")
	f.StringVar(&durability, "durability", "fsync", "when a reply leaves: fsync (survives power loss) or write (survives kill -9)")
	f.BoolVar(&c.Verify, "verify", false, "compare the state with what a replay of the journal gives, all the time; stop if they differ")
	f.Int32Var(&c.NodeID, "node-id", 1, "id of this broker")
	f.Int32Var(&c.DefaultPartitions, "partitions", 1, "partitions of new topics that name none")
	f.BoolVar(&c.ClampReplicationFactor, "replication-factor-clamp", false, "accept topics with a replication factor above 1 and make them with 1, instead of refusing them")
	f.Int32Var(&c.MaxRequestBytes, "max-request-bytes", 100<<20, "largest request, at most 256 MiB: to be raised with max.message.bytes of a topic beyond 100 MiB")
	f.IntVar(&c.MaxConnections, "max-connections", broker.DefaultMaxConnections, "connections in all; further ones are closed at once")
	f.IntVar(&c.MaxConnectionsPerAddress, "max-connections-per-address", 0, "connections from one client address; 0 is as many as in all")
	f.DurationVar(&c.IdleTimeout, "idle-timeout", broker.DefaultIdleTimeout, "after what silence a connection is closed")
	for _, s := range broker.Settings() {
		f.Var(&settingFlag{s, &c}, flagName(s), strings.ToLower(s.Doc[:1])+strings.TrimSuffix(s.Doc[1:], "."))
	}
	return cmd
}

// flagName is Apache Kafka's name of a setting, as a flag.
func flagName(s *broker.Setting) string { return strings.ReplaceAll(s.Name, ".", "-") }

// settingFlag makes a setting a flag.
type settingFlag struct {
	*broker.Setting
	c *broker.Config
}

func (f *settingFlag) String() string {
	if f.Setting == nil {
		return "" // the flag package makes one to compare with
	}
	return f.Format(f.Get(f.c))
}

func (f *settingFlag) Set(text string) error {
	v, err := f.Parse(text)
	if err != nil {
		return err
	}
	return f.Setting.Set(f.c, v)
}

// Type is the word that stands for the value in the help.
func (f *settingFlag) Type() string {
	switch len(f.Words) {
	case 0:
		return "int"
	case 2:
		return "true|false"
	}
	return "word"
}

// parseListeners takes the values of --listen apart.
func parseListeners(listen []string, advertise string) ([]broker.Listener, error) {
	if len(listen) != 1 && advertise != "" {
		return nil, fmt.Errorf("--advertise is given with %d addresses to listen on: write each as --listen host:port=advertised", len(listen))
	}
	var all []broker.Listener
	for _, text := range listen {
		addr, advertised, named := strings.Cut(text, "=")
		switch {
		case !named:
			advertised = advertise
		case advertise != "":
			return nil, fmt.Errorf("--listen %s and --advertise %s both name an advertised address: use one of them", text, advertise)
		case advertised == "":
			return nil, fmt.Errorf("--listen %s names no address behind the equals sign, want host:port=host:port", text)
		}
		all = append(all, broker.Listener{Listen: addr, Advertise: advertised})
	}
	return all, nil
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
	if _, inUse := errors.AsType[*broker.DataDirInUseError](err); inUse {
		return fmt.Errorf("%w with --data-dir", err)
	}
	if err != nil {
		return err
	}
	dir := c.DataDir
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	var addrs []string
	for _, a := range b.Addrs() {
		addrs = append(addrs, a.String())
	}
	fmt.Fprintf(cmd.OutOrStdout(), "strandline listening on %s, data folder %s, durability %s\n", strings.Join(addrs, " and "), dir, durability)
	return b.Serve(ctx)
}
