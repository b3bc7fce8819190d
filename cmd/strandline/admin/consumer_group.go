package admin

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// describeConsumers describes a group of the consumer protocol (KIP-848), which the requests for classic groups do not
// find.
func (s *session) describeConsumers(name string) (describedGroup, error) {
	d := describedGroup{Group: name, Offsets: []groupOffset{}, Idle: []groupMembers{}}
	fail := func(err error) (describedGroup, error) { return d, fmt.Errorf("group %s: %w", name, err) }
	groups, err := s.DescribeConsumerGroups(s.ctx, name)
	if err != nil {
		// A cluster from before KIP-848 has none.
		return fail(errors.Join(kerr.GroupIDNotFound, err))
	}
	g := groups[name]
	if g.Err != nil {
		return fail(g.Err)
	}
	d.State, d.Members = g.State, len(g.Members)
	committed, err := s.FetchOffsets(s.ctx, name)
	if err != nil {
		return fail(err)
	}
	partitions := g.AssignedPartitions()
	partitions.Merge(committed.Partitions())
	var ends kadm.ListedOffsets
	if len(partitions) > 0 {
		if ends, err = s.ListEndOffsets(s.ctx, partitions.Topics()...); err != nil {
			return fail(err)
		}
	}
	partitions.Each(func(topic string, p int32) { d.Offsets = append(d.Offsets, lagOf(&g, committed, ends, topic, p)) })
	slices.SortFunc(d.Offsets, func(a, b groupOffset) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	for i := range g.Members {
		if m := &g.Members[i]; len(m.Assignment) == 0 {
			d.Idle = append(d.Idle, groupMembers{consumerName(m), m.ClientHost})
		}
	}
	return d, nil
}

// lagOf is how far a group is with one partition. Where nothing is committed all of it is still to be read.
func lagOf(g *kadm.DescribedConsumerGroup, committed kadm.OffsetResponses, ends kadm.ListedOffsets, topic string, p int32) groupOffset {
	o := groupOffset{Topic: topic, Partition: p, Committed: -1, Lag: -1}
	if c, ok := committed.Lookup(topic, p); ok {
		o.Committed = c.At
	}
	if end, ok := ends.Lookup(topic, p); ok && end.Err == nil {
		o.End, o.Lag = end.Offset, max(end.Offset-max(o.Committed, 0), 0)
	} else if ok {
		o.Error = end.Err.Error()
	}
	for i := range g.Members {
		if m := &g.Members[i]; m.Assignment.Lookup(topic, p) {
			o.Member, o.Host = consumerName(m), m.ClientHost
		}
	}
	return o
}

func consumerName(m *kadm.ConsumerGroupMember) string {
	if m.InstanceID != nil {
		return *m.InstanceID
	}
	return m.MemberID
}
