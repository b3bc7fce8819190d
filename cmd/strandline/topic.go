package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	defaultBroker = "127.0.0.1:9092"
	adminTimeout  = 15 * time.Second
)

func topicCommand() *cobra.Command {
	var brokers []string
	cmd := &cobra.Command{Use: "topic", Short: "List, describe, create and delete topics"}
	cmd.PersistentFlags().StringSliceVar(&brokers, "brokers", []string{defaultBroker}, "addresses of the broker, host:port")
	cmd.AddCommand(topicList(&brokers), topicDescribe(&brokers), topicCreate(&brokers), topicDelete(&brokers))
	return cmd
}

// withAdmin runs f with an admin client that gives up in time and says where it looked.
func withAdmin(cmd *cobra.Command, brokers []string, f func(context.Context, *kadm.Client) error) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), adminTimeout)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		return fmt.Errorf("no broker answers at %s: %w; start one with `strandline serve`, or name another with --brokers",
			strings.Join(brokers, ","), err)
	}
	return f(ctx, kadm.NewClient(client))
}

func topicList(brokers *[]string) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the topics", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withAdmin(cmd, *brokers, func(ctx context.Context, admin *kadm.Client) error {
				topics, err := admin.ListTopics(ctx)
				if err != nil {
					return err
				}
				w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
				fmt.Fprintln(w, "TOPIC\tPARTITIONS\tID")
				for _, t := range topics.Sorted() {
					fmt.Fprintf(w, "%s\t%d\t%s\n", t.Topic, len(t.Partitions), t.ID)
				}
				return w.Flush()
			})
		},
	}
}

func topicDescribe(brokers *[]string) *cobra.Command {
	return &cobra.Command{
		Use: "describe TOPIC...", Short: "Show partitions, offsets and settings", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			return withAdmin(cmd, *brokers, func(ctx context.Context, admin *kadm.Client) error {
				for _, name := range names {
					if err := describeTopic(ctx, cmd, admin, name); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

func describeTopic(ctx context.Context, cmd *cobra.Command, admin *kadm.Client, name string) error {
	topics, err := admin.ListTopics(ctx, name)
	if err != nil {
		return err
	}
	if err := topics[name].Err; err != nil {
		return fmt.Errorf("topic %s: %w", name, err)
	}
	starts, err := admin.ListStartOffsets(ctx, name)
	if err != nil {
		return err
	}
	ends, err := admin.ListEndOffsets(ctx, name)
	if err != nil {
		return err
	}
	stable, err := admin.ListCommittedOffsets(ctx, name)
	if err != nil {
		return err
	}
	configs, err := admin.DescribeTopicConfigs(ctx, name)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "topic %s, id %s, %d partitions\n", name, topics[name].ID, len(topics[name].Partitions))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PARTITION\tSTART\tLAST STABLE\tHIGH WATERMARK\tLEADER\tEPOCH")
	for _, p := range topics[name].Partitions.Sorted() {
		s, _ := starts.Lookup(name, p.Partition)
		e, _ := ends.Lookup(name, p.Partition)
		l, _ := stable.Lookup(name, p.Partition)
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%d\n", p.Partition, s.Offset, l.Offset, e.Offset, p.Leader, p.LeaderEpoch)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, r := range configs {
		for _, c := range r.Configs {
			if c.Source.String() == "DYNAMIC_TOPIC_CONFIG" {
				fmt.Fprintf(out, "%s=%s\n", c.Key, c.MaybeValue())
			}
		}
	}
	return nil
}

func topicCreate(brokers *[]string) *cobra.Command {
	var partitions int32
	var settings []string
	cmd := &cobra.Command{
		Use: "create TOPIC...", Short: "Create topics", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			configs := map[string]*string{}
			for _, s := range settings {
				key, value, ok := strings.Cut(s, "=")
				if !ok {
					return fmt.Errorf("setting %q is not key=value", s)
				}
				configs[key] = &value
			}
			return withAdmin(cmd, *brokers, func(ctx context.Context, admin *kadm.Client) error {
				made, err := admin.CreateTopics(ctx, partitions, -1, configs, names...)
				return reportTopics(cmd, "created", err, made.Sorted(), func(r kadm.CreateTopicResponse) (topic, message string, err error) {
					return r.Topic, r.ErrMessage, r.Err
				})
			})
		},
	}
	cmd.Flags().Int32Var(&partitions, "partitions", -1, "partitions (default: the broker's)")
	cmd.Flags().StringArrayVar(&settings, "config", nil, "setting as key=value, may be repeated")
	return cmd
}

func topicDelete(brokers *[]string) *cobra.Command {
	return &cobra.Command{
		Use: "delete TOPIC...", Short: "Delete topics and their records", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			return withAdmin(cmd, *brokers, func(ctx context.Context, admin *kadm.Client) error {
				gone, err := admin.DeleteTopics(ctx, names...)
				return reportTopics(cmd, "deleted", err, gone.Sorted(), func(r kadm.DeleteTopicResponse) (topic, message string, err error) {
					return r.Topic, r.ErrMessage, r.Err
				})
			})
		},
	}
}

// reportTopics prints a line for each topic and returns the refusals together.
func reportTopics[R any](cmd *cobra.Command, done string, err error, all []R, of func(R) (topic, message string, err error)) error {
	if err != nil {
		return err
	}
	var refused []error
	for _, r := range all {
		topic, message, err := of(r)
		if err == nil {
			fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", done, topic)
			continue
		}
		var code *kerr.Error
		if message == "" && errors.As(err, &code) {
			message = code.Description
		}
		refused = append(refused, fmt.Errorf("topic %s: %w: %s", topic, err, message))
	}
	return errors.Join(refused...)
}
