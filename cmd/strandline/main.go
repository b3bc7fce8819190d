// Command strandline serves the broker and measures and administers any Kafka-protocol broker. It turns flags into
// configurations and runs them; it decides nothing.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := root().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "strandline:", err)
		stop()
		os.Exit(1)
	}
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "strandline",
		Short:         "Exactly-once streaming: a Kafka-protocol broker, a stream processor, a blob sink",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
	}
	cmd.AddCommand(serveCommand(), topicCommand(), benchCommand(), drillCommand())
	return cmd
}
