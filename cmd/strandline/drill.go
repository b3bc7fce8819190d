package main

import (
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/strandline-io/strandline/cmd/strandline/admin"
	"github.com/strandline-io/strandline/cmd/strandline/drill"
)

const drillName = "drill"

func drillCommand() *cobra.Command {
	var c drill.Config
	cmd := &cobra.Command{
		Use:   drillName,
		Short: "Kill a broker in the midst of transactions and prove that nothing is lost or doubled",
		Long: `Seed keyed records into a topic. Workers move them to another one, each transaction with its offsets, some aborted on
purpose, while the broker is killed with SIGKILL and started again. In the end read_committed must show every key once,
no transaction may be open and the group must be at the end. The exit code is 1 if the broker broke
its promise (what, the table says), and 2 if the drill could not be run to its end.

Without --brokers the drill starts and kills a broker of its own. Another one is killed and started by shell commands:

  strandline drill --brokers 127.0.0.1:9092 --kill-cmd 'docker kill kafka' --restart-cmd 'docker start kafka'
  strandline drill --brokers 127.0.0.1:9092 --start-cmd 'exec kafka-server-start.sh server.properties'`,
		Args: admin.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := parseDurability(c.Durability); err != nil {
				return err
			}
			if c.Records == 0 || c.Workers == 0 || c.Partitions == 0 || c.Every == 0 {
				return errors.New("--records, --workers, --partitions and --every must not be 0")
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			c.Serve = []string{self, "serve"}
			c.Out = cmd.OutOrStdout()
			return drill.Run(cmd.Context(), c)
		},
	}
	f := cmd.Flags()
	f.Int64Var(&c.Records, "records", 200_000, "records to move, each with a key of its own")
	f.IntVar(&c.Workers, "workers", 4, "workers, each with a transactional id")
	f.IntVar(&c.Kills, "kills", 5, "kills while records are left")
	f.DurationVar(&c.Every, "every", 3*time.Second, "about how long the broker lives; shorter if the work goes fast")
	f.Int32Var(&c.Partitions, "partitions", 8, "partitions of the two topics")
	f.StringVar(&c.DataDir, "data-dir", "", "folder of the drill's own broker (default: a temporary one, removed unless the drill fails)")
	f.StringVar(&c.Durability, "durability", "fsync", "of the drill's own broker: fsync or write")
	f.StringSliceVar(&c.Brokers, "brokers", nil, "addresses of another broker, host:port")
	f.StringVar(&c.StartCmd, "start-cmd", "", "shell command that starts the other broker (default: it runs)")
	f.StringVar(&c.KillCmd, "kill-cmd", "", "shell command that kills it (default: SIGKILL to what --start-cmd started)")
	f.StringVar(&c.RestartCmd, "restart-cmd", "", "shell command that starts it again (default: --start-cmd)")
	return cmd
}
