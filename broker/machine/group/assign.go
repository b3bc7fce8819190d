package group

import (
	"bytes"
	"cmp"
	"container/heap"
	"slices"
	"strings"

	"github.com/strandline-io/strandline/internal/mutant"
)

// Assignment is a target for a consumer group that is still to be made. It is made outside of the loop if the group is
// large, and depends on nothing but what it holds: no state that changes.
type Assignment struct {
	Group string
	Epoch int32 // of the group for which it is made

	assignor string
	members  []assignorMember // ascending by id
	topics   []assignorTopic  // ascending by name, later by id
	patterns map[string][]string
	classes  []subscriptionClass
}

type assignorMember struct {
	*consumerMember
	class  int
	target []topicPartition
}

type assignorTopic struct {
	name       string
	id         [16]byte
	partitions int32
	classes    []int // those that subscribe
	taken      []bool
}

// subscriptionClass are members that subscribe to the same topics.
type subscriptionClass struct {
	members []int
	topics  []string // ascending
}

const defaultAssignor = "uniform"

// assignors fill the targets of an assignment's members. They cost about as much as subscriptions and partitions are
// many.
var assignors = map[string]func(*Assignment){defaultAssignor: (*Assignment).uniform, "range": (*Assignment).ranges}

// assign makes new targets if the group epoch asks for them, at most once in an interval. For a large group it returns
// what the caller has to make outside, and to bring back by Assigned.
func (gs *Groups) assign(ctx Context, g *group) *Assignment {
	c, l := g.saved.consumer, &g.live.consumers
	if g.saved.generation == c.targetEpoch || c.targetEpoch > 0 && ctx.EngineMs() < l.assignMs {
		return nil
	}
	l.assignMs = ctx.EngineMs() + int64(gs.assignmentIntervalMs(g.name))
	a := c.assignment(ctx, g)
	outside := a.size() > gs.cfg.InlineAssignment
	if !outside {
		a.Make()
		gs.Assigned(ctx, a)
	}
	if c.targetEpoch == 0 {
		// Members must not be told epoch 0, which is how they join: until there are targets, nobody should have anything.
		gs.record(ctx, kindConsumerTarget, &consumerTargetRecord{group: g.name, epoch: g.saved.generation})
		gs.bump(ctx, g, c.metadataHash)
		a.Epoch = g.saved.generation
	}
	if outside {
		return a
	}
	return nil
}

// Assigned takes an assignment that was made. It is dropped if the group has gone on meanwhile.
func (gs *Groups) Assigned(ctx Context, a *Assignment) {
	gs.start(ctx)
	g, ok := gs.groups.Get(a.Group)
	if !ok || g.saved.consumer == nil || g.saved.generation != a.Epoch && !mutant.On("outdated assignment taken") || g.saved.consumer.targetEpoch >= a.Epoch {
		return
	}
	rec := &consumerTargetRecord{group: a.Group, epoch: a.Epoch}
	grows := 0
	for i := range a.members {
		m := &a.members[i]
		now, ok := g.saved.consumer.members.Get(m.info.id)
		if !ok {
			return // replaced, which is the one change that leaves the epoch as it is
		}
		if !slices.Equal(m.target, now.target) {
			rec.members = append(rec.members, memberTarget{m.info.id, m.target})
			// A target that is reached is kept twice.
			grows += 2 * partitionBytes * (len(m.target) - len(now.target))
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

// assignment collects what an assignor needs to know.
func (c *consumerState) assignment(ctx Context, g *group) *Assignment {
	a := &Assignment{Group: g.name, Epoch: g.saved.generation, assignor: c.assignor(), patterns: map[string][]string{}}
	c.subscribers.Scan(func(name string, _ int) bool {
		if id, partitions, ok := ctx.Topic(name); ok {
			a.topics = append(a.topics, assignorTopic{name: name, id: id, partitions: partitions})
		}
		return true
	})
	c.patterns.Scan(func(text string, p *pattern) bool {
		a.patterns[text] = p.names
		return true
	})
	c.members.Scan(func(_ string, m *consumerMember) bool {
		a.members = append(a.members, assignorMember{consumerMember: m})
		return true
	})
	return a
}

// size is about how much there is to do.
func (a *Assignment) size() int {
	n := len(a.members) + len(a.topics)
	for i := range a.topics {
		n += int(a.topics[i].partitions)
	}
	for i := range a.members {
		n += len(a.members[i].info.topics)
	}
	return n
}

// Make decides who should have what.
func (a *Assignment) Make() {
	a.classify()
	assignors[a.assignor](a)
	for i := range a.members {
		slices.SortFunc(a.members[i].target, compareTopicPartitions)
	}
}

// classify puts members with the same subscription together.
func (a *Assignment) classify() {
	byKey := map[string]int{}
	for i := range a.members {
		info := a.members[i].info
		key := info.pattern + "\x00" + strings.Join(info.topics, "\x00")
		class, ok := byKey[key]
		if !ok {
			class = len(a.classes)
			byKey[key] = class
			topics := slices.Concat(info.topics, a.patterns[info.pattern])
			slices.Sort(topics)
			a.classes = append(a.classes, subscriptionClass{topics: slices.Compact(topics)})
		}
		a.members[i].class = class
		a.classes[class].members = append(a.classes[class].members, i)
	}
	for class := range a.classes {
		for _, name := range a.classes[class].topics {
			i, ok := slices.BinarySearchFunc(a.topics, name, func(t assignorTopic, name string) int { return cmp.Compare(t.name, name) })
			if ok {
				a.topics[i].classes = append(a.topics[i].classes, class)
			}
		}
	}
	slices.SortFunc(a.topics, func(x, y assignorTopic) int { return bytes.Compare(x.id[:], y.id[:]) })
}

// topic finds a topic by id.
func (a *Assignment) topic(id [16]byte) *assignorTopic {
	i, ok := slices.BinarySearchFunc(a.topics, id, func(t assignorTopic, id [16]byte) int { return bytes.Compare(t.id[:], id[:]) })
	if !ok {
		return nil
	}
	return &a.topics[i]
}

// keep leaves a member what it had, up to limit, of what it still subscribes to.
func (a *Assignment) keep(member, limit int) {
	m := &a.members[member]
	for _, p := range m.consumerMember.target {
		if len(m.target) >= limit {
			return
		}
		t := a.topic(p.topic)
		if t == nil || p.partition >= t.partitions || t.taken[p.partition] {
			continue
		}
		if _, wants := slices.BinarySearch(t.classes, m.class); wants {
			t.taken[p.partition] = true
			m.target = append(m.target, p)
		}
	}
}

func (a *Assignment) give(member int, t *assignorTopic, partition int) {
	a.members[member].target = append(a.members[member].target, topicPartition{t.id, int32(partition)})
}

// uniform gives all members about the same number of partitions, and leaves with each as much as it can of what it had.
func (a *Assignment) uniform() {
	total := 0
	for i := range a.topics {
		a.topics[i].taken = make([]bool, a.topics[i].partitions)
		total += int(a.topics[i].partitions)
	}
	switch {
	case total == 0 || len(a.members) == 0:
	case len(a.classes) == 1:
		a.divide(total)
	default:
		a.spread((total + len(a.members) - 1) / len(a.members))
	}
}

// divide is uniform for members that all subscribe to the same topics: their numbers of partitions differ by one at most.
func (a *Assignment) divide(total int) {
	quota, extra := total/len(a.members), total%len(a.members)
	for i := range a.members {
		limit := quota
		if extra > 0 && len(a.members[i].consumerMember.target) > quota {
			limit++
		}
		if a.keep(i, limit); len(a.members[i].target) > quota {
			extra--
		}
	}
	i := 0
	for t := range a.topics {
		for p, taken := range a.topics[t].taken {
			if taken {
				continue
			}
			for len(a.members[i].target) >= quota && (extra == 0 || len(a.members[i].target) > quota) {
				i++
			}
			if a.give(i, &a.topics[t], p); len(a.members[i].target) > quota {
				extra--
			}
		}
	}
}

// spread is uniform for members that subscribe to different topics: topics with few subscribers first, each partition
// goes to the subscriber that has the least.
func (a *Assignment) spread(fair int) {
	for i := range a.members {
		a.keep(i, fair)
	}
	loads := make([]*memberHeap, len(a.classes))
	for i := range a.classes {
		loads[i] = &memberHeap{a: a, members: a.classes[i].members}
		heap.Init(loads[i])
	}
	subscribers := func(t *assignorTopic) (n int) {
		for _, class := range t.classes {
			n += len(a.classes[class].members)
		}
		return n
	}
	order := make([]*assignorTopic, len(a.topics))
	for i := range a.topics {
		order[i] = &a.topics[i]
	}
	slices.SortStableFunc(order, func(x, y *assignorTopic) int { return cmp.Compare(subscribers(x), subscribers(y)) })
	for _, t := range order {
		classes := &classHeap{loads: loads, classes: slices.Clone(t.classes)}
		if len(classes.classes) == 0 {
			continue
		}
		heap.Init(classes)
		for p, taken := range t.taken {
			if !taken {
				least := loads[classes.classes[0]]
				a.give(least.members[0], t, p)
				heap.Fix(least, 0)
				heap.Fix(classes, 0)
			}
		}
	}
}

// less tells whether a member has fewer partitions than another, of equals whether it comes first.
func (a *Assignment) less(x, y int) bool {
	return cmp.Or(cmp.Compare(len(a.members[x].target), len(a.members[y].target)), cmp.Compare(x, y)) < 0
}

// fixedHeap makes a heap of elements that do not come or go.
type fixedHeap struct{}

// Push is never called.
func (fixedHeap) Push(any) { panic("BUG: members do not come while partitions are given out") }

// Pop is never called.
func (fixedHeap) Pop() any { panic("BUG: members do not go while partitions are given out") }

// memberHeap has the member of a class with the fewest partitions first.
type memberHeap struct {
	fixedHeap
	a       *Assignment
	members []int
}

func (h *memberHeap) Len() int           { return len(h.members) }
func (h *memberHeap) Less(i, j int) bool { return h.a.less(h.members[i], h.members[j]) }
func (h *memberHeap) Swap(i, j int)      { h.members[i], h.members[j] = h.members[j], h.members[i] }

// classHeap has the class first whose first member has the fewest partitions.
type classHeap struct {
	fixedHeap
	loads   []*memberHeap
	classes []int
}

func (h *classHeap) Len() int { return len(h.classes) }
func (h *classHeap) Less(i, j int) bool {
	x, y := h.loads[h.classes[i]], h.loads[h.classes[j]]
	return x.a.less(x.members[0], y.members[0])
}
func (h *classHeap) Swap(i, j int) { h.classes[i], h.classes[j] = h.classes[j], h.classes[i] }

// ranges gives each member a range of every topic that it subscribes to, so that topics with the same subscribers and as
// many partitions are divided alike. Static members come first, by their instance id, then the others by their member id.
func (a *Assignment) ranges() {
	first := func(x, y int) int {
		a, b := a.members[x].info, a.members[y].info
		switch {
		case a.instance != nil && b.instance != nil:
			return cmp.Compare(*a.instance, *b.instance)
		case a.instance != nil:
			return -1
		case b.instance != nil:
			return 1
		}
		return cmp.Compare(a.id, b.id)
	}
	ordered := map[string][]int{}
	for t := range a.topics {
		topic := &a.topics[t]
		if len(topic.classes) == 0 {
			continue
		}
		var key []byte
		for _, class := range topic.classes {
			key = append(key, byte(class), byte(class>>8), byte(class>>16))
		}
		order, ok := ordered[string(key)]
		if !ok {
			for _, class := range topic.classes {
				order = append(order, a.classes[class].members...)
			}
			slices.SortFunc(order, first)
			ordered[string(key)] = order
		}
		each, extra, next := int(topic.partitions)/len(order), int(topic.partitions)%len(order), 0
		for i := 0; i < len(order) && next < int(topic.partitions); i++ {
			count := each
			if i < extra {
				count++
			}
			for range count {
				a.give(order[i], topic, next)
				next++
			}
		}
	}
}
