package admin

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func groupCommand() *cobra.Command {
	return parent("group", "List, describe, reset and delete consumer groups", groupList, groupDescribe, groupReset, groupDelete)
}

type listedGroup struct {
	Group        string `json:"group"`
	State        string `json:"state"`
	Type         string `json:"type"`
	ProtocolType string `json:"protocolType"`
}

// groupStates are those of every kind of group. Brokers answer an unknown one with an empty list, as if there were no such group.
var groupStates = []string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Assigning", "Reconciling", "NotReady"}

func groupList(o *options) *cobra.Command {
	var states []string
	cmd := &cobra.Command{
		Use: "list", Short: "List the groups", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for i, state := range states {
				at := slices.IndexFunc(groupStates, func(known string) bool { return strings.EqualFold(known, state) })
				if at < 0 {
					return fmt.Errorf("no group can be in state %q, only in one of %s", state, strings.Join(groupStates, ", "))
				}
				states[i] = groupStates[at]
			}
			return o.run(cmd, func(s *session) error {
				groups, err := s.ListGroups(s.ctx, states...)
				if err != nil {
					return err
				}
				var rows []listedGroup
				for _, g := range groups.Sorted() {
					rows = append(rows, listedGroup{g.Group, g.State, g.GroupType, g.ProtocolType})
				}
				return show(s, "GROUP\tSTATE\tTYPE\tPROTOCOL TYPE", rows, func(g listedGroup) []any {
					return []any{g.Group, g.State, g.Type, g.ProtocolType}
				})
			})
		},
	}
	cmd.Flags().StringSliceVar(&states, "state", nil, "only groups in this state, may be repeated")
	return cmd
}

type describedGroup struct {
	Group   string         `json:"group"`
	State   string         `json:"state"`
	Members int            `json:"members"`
	Offsets []groupOffset  `json:"offsets"`
	Idle    []groupMembers `json:"membersWithoutPartitions"`
}

type groupOffset struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed int64  `json:"committed"` // -1: nothing is committed
	End       int64  `json:"end"`
	Lag       int64  `json:"lag"` // -1: unknown
	Member    string `json:"member,omitempty"`
	Host      string `json:"host,omitempty"`
	Error     string `json:"error,omitempty"`
}

type groupMembers struct {
	Member string `json:"member"`
	Host   string `json:"host"`
}

func groupDescribe(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "describe GROUP...", Short: "Show members, committed offsets and lag", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			return o.run(cmd, func(s *session) error {
				lags, err := s.Lag(s.ctx, names...)
				if err != nil {
					return err
				}
				var all []describedGroup
				for _, name := range names {
					l := lags[name]
					if errors.Is(l.Error(), kerr.GroupIDNotFound) {
						d, err := s.describeConsumers(name)
						if err != nil {
							return err
						}
						all = append(all, d)
						continue
					}
					if err := l.Error(); err != nil {
						return fmt.Errorf("group %s: %w", name, err)
					}
					if l.State == "Dead" {
						return fmt.Errorf("group %s: %w", name, kerr.GroupIDNotFound)
					}
					all = append(all, describeGroup(&l))
				}
				return s.printGroups(all)
			})
		},
	}
}

func describeGroup(l *kadm.DescribedGroupLag) describedGroup {
	d := describedGroup{Group: l.Group, State: l.State, Members: len(l.Members), Offsets: []groupOffset{}, Idle: []groupMembers{}}
	busy := map[string]bool{}
	for _, m := range l.Lag.Sorted() {
		g := groupOffset{Topic: m.Topic, Partition: m.Partition, Committed: m.Commit.At, End: m.End.Offset, Lag: m.Lag}
		if m.Member != nil {
			g.Member, g.Host = memberName(m.Member), m.Member.ClientHost
			busy[m.Member.MemberID] = true
		}
		if m.Err != nil {
			g.Error = m.Err.Error()
		}
		d.Offsets = append(d.Offsets, g)
	}
	for i := range l.Members {
		if m := &l.Members[i]; !busy[m.MemberID] {
			d.Idle = append(d.Idle, groupMembers{memberName(m), m.ClientHost})
		}
	}
	return d
}

func memberName(m *kadm.DescribedGroupMember) string {
	if m.InstanceID != nil {
		return *m.InstanceID
	}
	return m.MemberID
}

func (s *session) printGroups(all []describedGroup) error {
	if s.json {
		return s.encode(all)
	}
	for _, d := range all {
		fmt.Fprintf(s.out, "group %s, %s, %d members\n", d.Group, d.State, d.Members)
		err := show(s, "TOPIC\tPARTITION\tCOMMITTED\tEND\tLAG\tMEMBER\tHOST", d.Offsets, func(g groupOffset) []any {
			return []any{g.Topic, g.Partition, orDash(g.Committed), g.End, orDash(g.Lag), cmp.Or(g.Member, "-"), cmp.Or(g.Host, "-")}
		})
		if err != nil {
			return err
		}
		for _, m := range d.Idle {
			fmt.Fprintf(s.out, "member %s at %s has no partition\n", m.Member, m.Host)
		}
	}
	return nil
}

// orDash shows -1 as nothing.
func orDash(n int64) any {
	if n < 0 {
		return "-"
	}
	return n
}

// reset says where offsets are to go.
type reset struct {
	topics                    []string
	earliest, latest, execute bool
	offset, shift             int64
	time                      string
	offsetGiven, shiftGiven   bool
}

func groupReset(o *options) *cobra.Command {
	var r reset
	cmd := &cobra.Command{
		Use:   "reset-offsets GROUP",
		Short: "Show where a group's offsets would go, and with --execute move them",
		Long: "Moves the committed offsets of a group without members, of the topics named by --topic or of all that it has offsets in.\n" +
			"Without --execute nothing is changed. Offsets outside of a partition go to its nearer end.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.offsetGiven, r.shiftGiven = cmd.Flags().Changed("to-offset"), cmd.Flags().Changed("shift-by")
			if err := r.check(); err != nil {
				return err
			}
			return o.run(cmd, func(s *session) error { return s.resetOffsets(args[0], &r) })
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&r.topics, "topic", nil, "only this topic, may be repeated")
	f.BoolVar(&r.earliest, "to-earliest", false, "to the start of each partition")
	f.BoolVar(&r.latest, "to-latest", false, "to the end of each partition")
	f.Int64Var(&r.offset, "to-offset", 0, "to this offset")
	f.Int64Var(&r.shift, "shift-by", 0, "forward by so many records, or backward if negative")
	f.StringVar(&r.time, "to-time", "", "to the first record of this time or later, as 2006-01-02T15:04:05Z")
	f.BoolVar(&r.execute, "execute", false, "move them")
	return cmd
}

// check refuses anything but one destination.
func (r *reset) check() error {
	n := 0
	for _, given := range []bool{r.earliest, r.latest, r.offsetGiven, r.shiftGiven, r.time != ""} {
		if given {
			n++
		}
	}
	if n != 1 {
		return fmt.Errorf("%d destinations are given: want one of --to-earliest, --to-latest, --to-offset, --shift-by, --to-time", n)
	}
	if _, err := r.at(); err != nil {
		return err
	}
	return nil
}

func (r *reset) at() (time.Time, error) {
	if r.time == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, r.time)
	if err != nil {
		return t, fmt.Errorf("--to-time is %q, want a time as 2006-01-02T15:04:05Z", r.time)
	}
	return t, nil
}

type movedOffset struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Before    int64  `json:"before"` // -1: nothing was committed
	After     int64  `json:"after"`
}

func (s *session) resetOffsets(group string, r *reset) error {
	described, err := s.DescribeGroups(s.ctx, group)
	if err != nil {
		return err
	}
	g := described[group]
	members, state := len(g.Members), g.State
	if errors.Is(g.Err, kerr.GroupIDNotFound) {
		if c, err := s.describeConsumers(group); err == nil {
			members, state = c.Members, c.State
		}
	}
	if members > 0 {
		return fmt.Errorf("group %s is %s with %d members: stop them first, they would go on from where they are", group, state, members)
	}
	committed, err := s.FetchOffsets(s.ctx, group)
	if err != nil {
		return fmt.Errorf("group %s: %w", group, err)
	}
	moved, err := s.destinations(committed, r)
	if err != nil {
		return err
	}
	if r.execute {
		var offsets kadm.Offsets
		for _, m := range moved {
			offsets.Add(kadm.Offset{Topic: m.Topic, Partition: m.Partition, At: m.After, LeaderEpoch: -1})
		}
		if err := s.CommitAllOffsets(s.ctx, group, offsets); err != nil {
			return fmt.Errorf("group %s: %w", group, err)
		}
	}
	if err := show(s, "TOPIC\tPARTITION\tBEFORE\tAFTER", moved, func(m movedOffset) []any {
		return []any{m.Topic, m.Partition, orDash(m.Before), m.After}
	}); err != nil {
		return err
	}
	if !r.execute && !s.json {
		fmt.Fprintln(s.out, "nothing was changed; --execute moves them")
	}
	return nil
}

// destinations works out where each partition's offset goes.
func (s *session) destinations(committed kadm.OffsetResponses, r *reset) ([]movedOffset, error) {
	topics := r.topics
	if len(topics) == 0 {
		for topic := range committed {
			topics = append(topics, topic)
		}
		slices.Sort(topics)
	}
	if len(topics) == 0 {
		return nil, errors.New("the group has no offsets: name the topics with --topic")
	}
	starts, errStarts := s.ListStartOffsets(s.ctx, topics...)
	ends, errEnds := s.ListCommittedOffsets(s.ctx, topics...)
	if err := errors.Join(errStarts, errEnds, starts.Error(), ends.Error()); err != nil {
		return nil, err
	}
	at, err := r.at()
	if err != nil {
		return nil, err
	}
	var byTime kadm.ListedOffsets
	if r.time != "" {
		if byTime, err = s.ListOffsetsAfterMilli(s.ctx, at.UnixMilli(), topics...); err != nil {
			return nil, err
		}
	}
	var moved []movedOffset
	ends.Each(func(end kadm.ListedOffset) {
		start, _ := starts.Lookup(end.Topic, end.Partition)
		m := movedOffset{Topic: end.Topic, Partition: end.Partition, Before: -1}
		if c, ok := committed.Lookup(end.Topic, end.Partition); ok {
			m.Before = c.At
		}
		switch {
		case r.earliest:
			m.After = start.Offset
		case r.latest:
			m.After = end.Offset
		case r.offsetGiven:
			m.After = r.offset
		case r.shiftGiven:
			m.After = max(m.Before, start.Offset) + r.shift
		default:
			found, _ := byTime.Lookup(end.Topic, end.Partition)
			m.After = found.Offset
		}
		m.After = min(max(m.After, start.Offset), end.Offset)
		moved = append(moved, m)
	})
	slices.SortFunc(moved, func(a, b movedOffset) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return moved, nil
}

func groupDelete(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "delete GROUP...", Short: "Delete groups without members, with their offsets", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			return o.run(cmd, func(s *session) error {
				gone, err := s.DeleteGroups(s.ctx, names...)
				if err != nil {
					return err
				}
				r := results{kind: "group"}
				for _, g := range gone.Sorted() {
					r.add(g.Group, "", g.Err)
				}
				return s.report("deleted", r)
			})
		},
	}
}
