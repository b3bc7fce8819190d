package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/strandline-io/strandline/cmd/strandline/admin"
	"github.com/strandline-io/strandline/cmd/strandline/bench"
)

func benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure any Kafka-protocol broker",
	}
	cmd.AddCommand(
		benchKind("produce", "Write records and measure throughput and latency", bench.Produce, produceFlags),
		benchKind("consume", "Read a topic from its start and measure throughput (a fresh topic is filled first, unmeasured)", bench.Consume, consumeFlags),
		benchKind("txn", "Write transactions and measure their rate and latency", bench.Transactions, txnFlags),
	)
	return cmd
}

type measure func(context.Context, bench.Config) (bench.Result, error)

func benchKind(use, short string, run measure, flags func(*cobra.Command, *bench.Config)) *cobra.Command {
	var c bench.Config
	var asJSON bool
	cmd := &cobra.Command{
		Use: use, Short: short, Args: admin.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := run(cmd.Context(), c)
			if err != nil {
				return err
			}
			return r.Print(cmd.OutOrStdout(), asJSON)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&c.Brokers, "brokers", []string{admin.DefaultBroker}, "addresses of the broker, host:port")
	f.StringVar(&c.Topic, "topic", "", "topic to use (default: a fresh one, removed afterwards)")
	f.Int32Var(&c.Partitions, "partitions", 4, "partitions of a fresh topic")
	f.Int64Var(&c.Records, "records", 1_000_000, "records in all")
	f.IntVar(&c.SizeBytes, "size", 1024, "bytes of each value")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	flags(cmd, &c)
	return cmd
}

func producerFlags(cmd *cobra.Command, c *bench.Config) {
	f := cmd.Flags()
	f.IntVar(&c.Producers, "producers", 1, "concurrent clients")
	f.StringVar(&c.Compression, "compression", "none", "none, gzip, snappy, lz4 or zstd")
	f.Int32Var(&c.BatchBytes, "batch-bytes", 1_000_012, "largest batch")
	f.IntVar(&c.LingerMs, "linger-ms", 0, "how long a batch waits for more records")
}

func produceFlags(cmd *cobra.Command, c *bench.Config) {
	producerFlags(cmd, c)
	f := cmd.Flags()
	f.Int64Var(&c.Rate, "rate", 0, "records per second over all producers (0: as fast as possible)")
	f.StringVar(&c.Acks, "acks", "all", "all, 1 or 0")
	f.IntVar(&c.InFlight, "in-flight", 10_000, "records in flight per producer")
}

func consumeFlags(cmd *cobra.Command, c *bench.Config) {
	f := cmd.Flags()
	f.BoolVar(&c.Committed, "read-committed", false, "read_committed; a fresh topic is then filled by transactions")
	f.IntVar(&c.PerTxn, "records-per-txn", 10, "records per transaction of a fresh topic")
}

func txnFlags(cmd *cobra.Command, c *bench.Config) {
	producerFlags(cmd, c)
	cmd.Flags().IntVar(&c.PerTxn, "records-per-txn", 10, "records per transaction")
}
