// Command strandline serves the broker and measures and administers any Kafka-protocol broker. It turns flags into
// configurations and runs them; it decides nothing.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/strandline-io/strandline/cmd/strandline/admin"
	"github.com/strandline-io/strandline/cmd/strandline/drill"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if cmd, err := root().ExecuteContextC(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "strandline:", err)
		stop()
		os.Exit(exitCode(cmd.Name(), err))
	}
}

// exitCode tells what a command looked for from its own failure. A drill's 1 is that the broker broke its promise; it is 2
// where the drill could not be run to its end.
func exitCode(command string, err error) int {
	_, broken := errors.AsType[*drill.FailedError](err)
	if errors.Is(err, admin.ErrFound) || command == drillName && !broken {
		return 2
	}
	return 1
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "strandline",
		Short:         "Exactly-once streaming: a Kafka-protocol broker, a stream processor, a blob sink",
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version(),
	}
	cmd.AddCommand(serveCommand(), benchCommand(), drillCommand(), versionCommand())
	cmd.AddCommand(admin.Commands()...)
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		hint := ""
		if e, ok := errors.AsType[shorthandError](err); ok && e.GetSpecifiedShortnames() != "" {
			hint = " (flags have two dashes)"
		}
		return fmt.Errorf("%w; see %s --help%s", err, c.CommandPath(), hint)
	})
	parents(cmd)
	return cmd
}

// shorthandError is what the flag package says of a flag; the names are those of one with a single dash, of which we have none.
type shorthandError interface {
	error
	GetSpecifiedShortnames() string
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: admin.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "strandline version", cmd.Root().Version)
			return err
		},
	}
}

// parents makes every command that only has subcommands refuse a word that is none of them, and show its help
// without one.
func parents(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		parents(c)
	}
	if cmd.Runnable() {
		return
	}
	cmd.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("unknown command %q; see %s --help", args[0], c.CommandPath())
		}
		return c.Help()
	}
	cmd.Args = cobra.ArbitraryArgs
}

// version is what the Go tool knows of this build.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return info.Main.Version
}
