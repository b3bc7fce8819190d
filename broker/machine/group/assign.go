package group

import (
	"bytes"
	"cmp"
	"container/heap"
	"slices"
)

// assignor decides who should have which partition. It depends on nothing but its input, and costs about as much as
// the input is large.
type assignor func(in *assignorInput)

const defaultAssignor = "uniform"

var assignors = map[string]assignor{defaultAssignor: assignUniform, "range": assignRange}

// assignorInput is who wants what. The assignor fills the members' targets.
type assignorInput struct {
	members []assignorMember // ascending by id
	topics  []assignorTopic  // ascending by id
	same    bool             // all members subscribe to the same topics
}

type assignorMember struct {
	id       string
	instance *string
	previous []topicPartition
	target   []topicPartition
}

type assignorTopic struct {
	id          [16]byte
	partitions  int32
	subscribers []int // indexes of members, ascending
	taken       []bool
}

// assign makes new targets if the group epoch asks for them, at most once in an interval.
func (gs *Groups) assign(ctx Context, g *group) {
	c, l := g.saved.consumer, &g.live.consumers
	if g.saved.generation == c.targetEpoch || ctx.EngineMs() < l.assignMs {
		return
	}
	l.assignMs = ctx.EngineMs() + int64(gs.cfg.AssignmentIntervalMs)
	in := c.assignorInput(ctx)
	assignors[c.assignor()](in)
	rec := &consumerTargetRecord{group: g.name, epoch: g.saved.generation}
	grows := 0
	for i := range in.members {
		m := &in.members[i]
		if slices.SortFunc(m.target, compareTopicPartitions); !slices.Equal(m.target, m.previous) {
			rec.members = append(rec.members, memberTarget{m.id, m.target})
			// A target that is reached is kept twice.
			grows += 2 * partitionBytes * (len(m.target) - len(m.previous))
		}
	}
	if gs.mayGrow(grows) {
		gs.record(ctx, kindConsumerTarget, rec)
	}
}

// assignor is the one that most members ask for; of equals the first by name.
func (c *consumerState) assignor() string {
	best := defaultAssignor
	for _, name := range [...]string{"range", "uniform"} {
		if c.assignors[name] > c.assignors[best] {
			best = name
		}
	}
	return best
}

func (c *consumerState) assignorInput(ctx Context) *assignorInput {
	in := &assignorInput{same: true}
	index := map[string]int{}
	for _, name := range c.topics() {
		if id, partitions, ok := ctx.Topic(name); ok {
			index[name] = len(in.topics)
			in.topics = append(in.topics, assignorTopic{id: id, partitions: partitions, taken: make([]bool, partitions)})
		}
	}
	var first *consumerInfo
	c.members.Scan(func(id string, m *consumerMember) bool {
		if first == nil {
			first = m.info
		}
		in.same = in.same && sameSubscription(first, m.info)
		names := m.info.topics
		if p, ok := c.patterns.Get(m.info.pattern); ok {
			names = slices.Concat(names, p.names)
			slices.Sort(names)
			names = slices.Compact(names)
		}
		for _, name := range names {
			if t, ok := index[name]; ok {
				in.topics[t].subscribers = append(in.topics[t].subscribers, len(in.members))
			}
		}
		in.members = append(in.members, assignorMember{id: id, instance: m.info.instance, previous: m.target})
		return true
	})
	slices.SortFunc(in.topics, func(a, b assignorTopic) int { return bytes.Compare(a.id[:], b.id[:]) })
	return in
}

// topic finds a topic by id.
func (in *assignorInput) topic(id [16]byte) *assignorTopic {
	i, ok := slices.BinarySearchFunc(in.topics, id, func(t assignorTopic, id [16]byte) int { return bytes.Compare(t.id[:], id[:]) })
	if !ok {
		return nil
	}
	return &in.topics[i]
}

// keep leaves a member what it had, up to limit, of what it still subscribes to.
func (in *assignorInput) keep(member, limit int) {
	m := &in.members[member]
	for _, p := range m.previous {
		if len(m.target) >= limit {
			return
		}
		t := in.topic(p.topic)
		if t == nil || p.partition >= t.partitions || t.taken[p.partition] {
			continue
		}
		if _, wants := slices.BinarySearch(t.subscribers, member); wants {
			t.taken[p.partition] = true
			m.target = append(m.target, p)
		}
	}
}

// assignUniform gives all members about the same number of partitions, and leaves with each as much as it can of what
// it had.
func assignUniform(in *assignorInput) {
	total := 0
	for i := range in.topics {
		if len(in.topics[i].subscribers) > 0 {
			total += int(in.topics[i].partitions)
		}
	}
	if total == 0 {
		return
	}
	if !in.same {
		in.spread((total + len(in.members) - 1) / len(in.members))
		return
	}
	quota, extra := total/len(in.members), total%len(in.members)
	for i := range in.members {
		limit := quota
		if extra > 0 && len(in.members[i].previous) > quota {
			limit++
		}
		if in.keep(i, limit); len(in.members[i].target) > quota {
			extra--
		}
	}
	i := 0
	for t := range in.topics {
		for p, taken := range in.topics[t].taken {
			if taken {
				continue
			}
			for len(in.members[i].target) >= quota && (extra == 0 || len(in.members[i].target) > quota) {
				i++
			}
			m := &in.members[i]
			if m.target = append(m.target, topicPartition{in.topics[t].id, int32(p)}); len(m.target) > quota {
				extra--
			}
		}
	}
}

// spread is assignUniform for members that subscribe to different topics: topics with few subscribers first, each
// partition goes to the subscriber that has the least.
func (in *assignorInput) spread(fair int) {
	for i := range in.members {
		in.keep(i, fair)
	}
	order := make([]*assignorTopic, len(in.topics))
	for i := range in.topics {
		order[i] = &in.topics[i]
	}
	slices.SortStableFunc(order, func(a, b *assignorTopic) int { return cmp.Compare(len(a.subscribers), len(b.subscribers)) })
	for _, t := range order {
		if len(t.subscribers) == 0 {
			continue
		}
		load := &loadHeap{in, slices.Clone(t.subscribers)}
		heap.Init(load)
		for p, taken := range t.taken {
			if !taken {
				m := &in.members[load.members[0]]
				m.target = append(m.target, topicPartition{t.id, int32(p)})
				heap.Fix(load, 0)
			}
		}
	}
}

// loadHeap has the member with the fewest partitions first, of equals the first of the group.
type loadHeap struct {
	in      *assignorInput
	members []int
}

func (h *loadHeap) Len() int { return len(h.members) }
func (h *loadHeap) Less(i, j int) bool {
	a, b := h.members[i], h.members[j]
	return cmp.Or(cmp.Compare(len(h.in.members[a].target), len(h.in.members[b].target)), cmp.Compare(a, b)) < 0
}
func (h *loadHeap) Swap(i, j int) { h.members[i], h.members[j] = h.members[j], h.members[i] }
func (h *loadHeap) Push(any)      { panic("BUG: members do not come while partitions are given out") }
func (h *loadHeap) Pop() any      { panic("BUG: members do not go while partitions are given out") }

// assignRange gives each member a range of every topic that it subscribes to, so that topics with the same subscribers
// and as many partitions are divided alike. Static members go by their instance id, the others by their member id.
func assignRange(in *assignorInput) {
	rank := func(i int) string {
		if in.members[i].instance != nil {
			return *in.members[i].instance
		}
		return in.members[i].id
	}
	for t := range in.topics {
		topic := &in.topics[t]
		n := len(topic.subscribers)
		if n == 0 {
			continue
		}
		order := slices.Clone(topic.subscribers)
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rank(a), rank(b)) })
		each, extra, next := int(topic.partitions)/n, int(topic.partitions)%n, int32(0)
		for i, member := range order {
			count := each
			if i < extra {
				count++
			}
			for range count {
				in.members[member].target = append(in.members[member].target, topicPartition{topic.id, next})
				next++
			}
		}
	}
}
