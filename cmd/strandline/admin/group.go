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
	return parent("group", "List, describe, reset and delete consumer groups", exits+".",
		groupList, groupDescribe, groupReset, groupDelete)
}

type listedGroup struct {
	Group        string `json:"group"`
	State        string `json:"state"`
	Type         string `json:"type"`
	ProtocolType string `json:"protocolType"`
}

// groupStates are those of every kind of group.
var groupStates = []string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Assigning", "Reconciling", "NotReady"}

func groupList(o *options) *cobra.Command {
	var states []string
	cmd := &cobra.Command{
		Use: "list", Short: "List the groups", Args: NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := asKnown("group", states, groupStates); err != nil {
				return err
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
	cmd.Flags().StringSliceVar(&states, "state", nil, "only groups in this state ("+strings.Join(groupStates, ", ")+"), may be repeated")
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
		Use: "describe GROUP...", Short: "Show members, committed offsets and lag", Args: someArgs,
		RunE: func(cmd *cobra.Command, names []string) error {
			return o.run(cmd, func(s *session) error {
				lags, err := s.Lag(s.ctx, names...)
				if err != nil {
					return err
				}
				var all []describedGroup
				var failed []error
				for _, name := range names {
					d, err := s.describeGroup(name, lags[name])
					if err != nil {
						failed = append(failed, err)
						continue
					}
					all = append(all, d)
				}
				if err := errors.Join(failed...); err != nil {
					return err
				}
				return s.printGroups(all)
			})
		},
	}
}

func (s *session) describeGroup(name string, l kadm.DescribedGroupLag) (describedGroup, error) {
	err := l.Error()
	if errors.Is(err, kerr.GroupIDNotFound) {
		return s.describeConsumers(name)
	}
	if err == nil && l.State == "Dead" {
		err = kerr.GroupIDNotFound
	}
	if err != nil {
		return describedGroup{}, fmt.Errorf("group %s: %w", name, err)
	}
	return describeClassic(&l), nil
}

func describeClassic(l *kadm.DescribedGroupLag) describedGroup {
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
		fmt.Fprintf(s.out, "group %s, %s, %s\n", d.Group, d.State, count(d.Members, "member"))
		if len(d.Offsets) == 0 {
			fmt.Fprintln(s.out, "it has committed nothing and reads nothing")
		} else if err := show(s, "TOPIC\tPARTITION\tCOMMITTED\tEND\tLAG\tMEMBER\tHOST", d.Offsets, func(g groupOffset) []any {
			return []any{g.Topic, g.Partition, orDash(g.Committed), g.End, orDash(g.Lag), cmp.Or(g.Member, "-"), cmp.Or(g.Host, "-")}
		}); err != nil {
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
			"Without --execute nothing is changed. Offsets outside of a partition go to its nearer end, which the output marks.",
		Args: oneArg,
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
	const choice = "one of --to-earliest, --to-latest, --to-offset, --shift-by, --to-time"
	switch n {
	case 0:
		return errors.New("say where to: " + choice)
	case 1:
	default:
		return fmt.Errorf("%d destinations are given: want %s", n, choice)
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
	ClampedTo string `json:"clampedTo,omitempty"` // "start" or "end" of the partition, which the destination is outside of
}

func (s *session) resetOffsets(group string, r *reset) error {
	described, err := s.DescribeGroups(s.ctx, group)
	if err != nil {
		return err
	}
	g := described[group]
	members, state := len(g.Members), g.State
	known := g.Err == nil && g.State != "Dead"
	if errors.Is(g.Err, kerr.GroupIDNotFound) {
		if c, err := s.describeConsumers(group); err == nil {
			known, members, state = true, c.Members, c.State
		}
	}
	if members > 0 {
		return fmt.Errorf("group %s is %s with %s: stop what reads there first, it would go on from where it is", group, state, count(members, "member"))
	}
	committed, err := s.FetchOffsets(s.ctx, group)
	switch {
	case err != nil:
		return fmt.Errorf("group %s: %w", group, err)
	case len(r.topics) == 0 && !known:
		return fmt.Errorf("group %s does not exist; to make it, name the topics with --topic", group)
	case len(r.topics) == 0 && len(committed) == 0:
		return fmt.Errorf("group %s has no offsets: name the topics with --topic", group)
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
	if err := show(s, "TOPIC\tPARTITION\tBEFORE\tAFTER\tCLAMPED TO", moved, func(m movedOffset) []any {
		return []any{m.Topic, m.Partition, orDash(m.Before), m.After, cmp.Or(m.ClampedTo, "-")}
	}); err != nil {
		return err
	}
	if !r.execute && !s.json {
		fmt.Fprintln(s.out, "nothing was changed; --execute moves them")
	}
	return nil
}

// failedOffsets is the first refusal among offsets.
func failedOffsets(offsets kadm.ListedOffsets) error {
	var failed []kadm.ListedOffset
	offsets.Each(func(o kadm.ListedOffset) {
		if o.Err != nil {
			failed = append(failed, o)
		}
	})
	if len(failed) == 0 {
		return nil
	}
	first := slices.MinFunc(failed, func(a, b kadm.ListedOffset) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	if first.Partition < 0 { // of a topic that does not exist
		return fmt.Errorf("topic %s: %w", first.Topic, first.Err)
	}
	return fmt.Errorf("partition %s/%d: %w", first.Topic, first.Partition, first.Err)
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
	starts, errStarts := s.ListStartOffsets(s.ctx, topics...)
	ends, errEnds := s.ListCommittedOffsets(s.ctx, topics...)
	if err := cmp.Or(errStarts, errEnds, failedOffsets(starts), failedOffsets(ends)); err != nil { // the first says it for all
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
		switch {
		case m.After < start.Offset:
			m.After, m.ClampedTo = start.Offset, "start"
		case m.After > end.Offset:
			m.After, m.ClampedTo = end.Offset, "end"
		}
		moved = append(moved, m)
	})
	slices.SortFunc(moved, func(a, b movedOffset) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return moved, nil
}

func groupDelete(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "delete GROUP...", Short: "Delete groups without members, with their offsets", Args: someArgs,
		RunE: func(cmd *cobra.Command, names []string) error {
			return o.run(cmd, func(s *session) error {
				names = once(names)
				gone, err := s.DeleteGroups(s.ctx, names...)
				if err != nil {
					return err
				}
				r := results{kind: "group"}
				for _, name := range names {
					g, err := gone.On(name, nil)
					r.add(name, refused(cmp.Or(err, g.Err), g.ErrMessage))
				}
				return s.report("deleted", r)
			})
		},
	}
}
