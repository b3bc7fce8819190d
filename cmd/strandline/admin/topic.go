package admin

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

func topicCommand() *cobra.Command {
	return parent("topic", "List, describe, create, alter and delete topics", exits+".",
		topicList, topicDescribe, topicCreate, topicAlter, topicDelete)
}

type listedTopic struct {
	Name       string `json:"name"`
	ID         string `json:"id"`
	Partitions int    `json:"partitions"`
}

func topicList(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the topics", Args: NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd, func(s *session) error {
				topics, err := s.ListTopics(s.ctx)
				if err != nil {
					return err
				}
				var rows []listedTopic
				for _, t := range topics.Sorted() {
					rows = append(rows, listedTopic{t.Topic, topicID(t.ID), len(t.Partitions)})
				}
				return show(s, "TOPIC\tPARTITIONS\tID", rows, func(t listedTopic) []any { return []any{t.Name, t.Partitions, t.ID} })
			})
		},
	}
}

type describedTopic struct {
	Name       string               `json:"name"`
	ID         string               `json:"id"`
	Partitions []describedPartition `json:"partitions"`
	Settings   map[string]string    `json:"settings"`
}

type describedPartition struct {
	Partition     int32 `json:"partition"`
	LogStart      int64 `json:"logStart"`
	LastStable    int64 `json:"lastStable"`
	HighWatermark int64 `json:"highWatermark"`
	Leader        int32 `json:"leader"`
	LeaderEpoch   int32 `json:"leaderEpoch"`
}

func topicDescribe(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "describe TOPIC...", Short: "Show partitions, offsets and settings", Args: someArgs,
		RunE: func(cmd *cobra.Command, names []string) error {
			return o.run(cmd, func(s *session) error {
				var all []describedTopic
				var failed []error
				for _, name := range names {
					t, err := s.describeTopic(name)
					if err != nil {
						failed = append(failed, err)
						continue
					}
					all = append(all, t)
				}
				if err := errors.Join(failed...); err != nil {
					return err
				}
				if s.json {
					return s.encode(all)
				}
				for _, t := range all {
					if err := s.printTopic(t); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

// topicID writes an id as Apache Kafka's tools do.
func topicID(id kadm.TopicID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

func (s *session) printTopic(t describedTopic) error {
	fmt.Fprintf(s.out, "topic %s, id %s, %s\n", t.Name, t.ID, count(len(t.Partitions), "partition"))
	err := show(s, "PARTITION\tSTART\tLAST STABLE\tHIGH WATERMARK\tLEADER\tEPOCH", t.Partitions, func(p describedPartition) []any {
		return []any{p.Partition, p.LogStart, p.LastStable, p.HighWatermark, p.Leader, p.LeaderEpoch}
	})
	var settings []string
	for key, value := range t.Settings {
		settings = append(settings, key+"="+value)
	}
	slices.Sort(settings)
	for _, line := range settings {
		fmt.Fprintln(s.out, line)
	}
	return err
}

func (s *session) describeTopic(name string) (d describedTopic, err error) {
	topics, err := s.ListTopics(s.ctx, name)
	if err != nil {
		return d, err
	}
	if err := topics[name].Err; err != nil {
		return d, fmt.Errorf("topic %s: %w", name, err)
	}
	starts, errStarts := s.ListStartOffsets(s.ctx, name)
	ends, errEnds := s.ListEndOffsets(s.ctx, name)
	stable, errStable := s.ListCommittedOffsets(s.ctx, name)
	configs, errConfigs := s.DescribeTopicConfigs(s.ctx, name)
	if err := cmp.Or(errStarts, errEnds, errStable, errConfigs); err != nil { // the first says it for all
		return d, err
	}
	d = describedTopic{Name: name, ID: topicID(topics[name].ID), Settings: map[string]string{}}
	for _, p := range topics[name].Partitions.Sorted() {
		start, _ := starts.Lookup(name, p.Partition)
		end, _ := ends.Lookup(name, p.Partition)
		last, _ := stable.Lookup(name, p.Partition)
		d.Partitions = append(d.Partitions, describedPartition{p.Partition, start.Offset, last.Offset, end.Offset, p.Leader, p.LeaderEpoch})
	}
	for _, r := range configs {
		for _, c := range r.Configs {
			if c.Source.String() == "DYNAMIC_TOPIC_CONFIG" {
				d.Settings[c.Key] = c.MaybeValue()
			}
		}
	}
	return d, nil
}

func topicCreate(o *options) *cobra.Command {
	var partitions int32
	var settings []string
	cmd := &cobra.Command{
		Use: "create TOPIC...", Short: "Create topics", Args: someArgs,
		RunE: func(cmd *cobra.Command, names []string) error {
			configs, err := parseSettings(settings)
			if err != nil {
				return err
			}
			return o.run(cmd, func(s *session) error {
				names = once(names)
				made, err := s.CreateTopics(s.ctx, partitions, -1, configs, names...)
				if err != nil {
					return err
				}
				r := results{kind: "topic"}
				for _, name := range names {
					t, err := made.On(name, nil)
					r.add(name, refused(cmp.Or(err, t.Err), t.ErrMessage))
				}
				return s.report("created", r)
			})
		},
	}
	cmd.Flags().Int32Var(&partitions, "partitions", -1, "partitions (default: the broker's)")
	cmd.Flags().StringArrayVar(&settings, "config", nil, "setting as key=value, may be repeated")
	return cmd
}

func topicAlter(o *options) *cobra.Command {
	var partitions int
	var settings, unset []string
	cmd := &cobra.Command{
		Use: "alter TOPIC...", Short: "Change settings, or add partitions", Args: someArgs,
		RunE: func(cmd *cobra.Command, names []string) error {
			configs, err := parseSettings(settings)
			if err != nil {
				return err
			}
			var ops []kadm.AlterConfig
			for key, value := range configs {
				ops = append(ops, kadm.AlterConfig{Op: kadm.SetConfig, Name: key, Value: value})
			}
			for _, key := range unset {
				ops = append(ops, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: key})
			}
			slices.SortFunc(ops, func(a, b kadm.AlterConfig) int { return strings.Compare(a.Name, b.Name) })
			switch grow := cmd.Flags().Changed("partitions"); {
			case grow && partitions < 1:
				return fmt.Errorf("--partitions is %d: use 1 or more", partitions)
			case len(ops) == 0 && !grow:
				return errors.New("nothing to change: give --config key=value, --unset key or --partitions")
			}
			return o.run(cmd, func(s *session) error { return s.alterTopics(once(names), ops, partitions) })
		},
	}
	cmd.Flags().IntVar(&partitions, "partitions", 0, "the new number of partitions, which can only grow")
	cmd.Flags().StringArrayVar(&settings, "config", nil, "setting as key=value, may be repeated")
	cmd.Flags().StringArrayVar(&unset, "unset", nil, "setting that goes back to its default, may be repeated")
	return cmd
}

// alterTopics adds no partitions to a topic whose settings were refused.
func (s *session) alterTopics(names []string, ops []kadm.AlterConfig, partitions int) error {
	failed := map[string]error{}
	if len(ops) > 0 {
		altered, err := s.AlterTopicConfigs(s.ctx, ops, names...)
		if err != nil {
			return err
		}
		for _, name := range names {
			a, err := altered.On(name, nil)
			failed[name] = refused(cmp.Or(err, a.Err), a.ErrMessage)
		}
	}
	grow := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return failed[name] != nil })
	if partitions > 0 && len(grow) > 0 {
		grown, err := s.UpdatePartitions(s.ctx, partitions, grow...)
		if err != nil {
			return err
		}
		for _, name := range grow {
			g, err := grown.On(name, nil)
			err = refused(cmp.Or(err, g.Err), g.ErrMessage)
			if err != nil && len(ops) > 0 {
				err = fmt.Errorf("its settings are changed, but no partitions are added: %w", err)
			}
			failed[name] = err
		}
	}
	r := results{kind: "topic"}
	for _, name := range names {
		r.add(name, failed[name])
	}
	return s.report("changed", r)
}

func topicDelete(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "delete TOPIC...", Short: "Delete topics and their records", Args: someArgs,
		RunE: func(cmd *cobra.Command, names []string) error {
			return o.run(cmd, func(s *session) error {
				names = once(names)
				gone, err := s.DeleteTopics(s.ctx, names...)
				if err != nil {
					return err
				}
				r := results{kind: "topic"}
				for _, name := range names {
					t, err := gone.On(name, nil)
					r.add(name, refused(cmp.Or(err, t.Err), t.ErrMessage))
				}
				return s.report("deleted", r)
			})
		},
	}
}
