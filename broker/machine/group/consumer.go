package group

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/tidwall/btree"
)

// consumerState is the durable part of a consumer group (KIP-848) beside saved, whose generation is the group epoch.
// A group has it, or the members of a classic group, never both; members of the classic protocol may be among its own.
type consumerState struct {
	targetEpoch  int32  // the group epoch for which the targets were made
	metadataHash uint64 // of the subscribed topics as they were at the group epoch
	members      btree.Map[string, *consumerMember]

	// What follows is derived.
	statics     map[string]string           // group.instance.id → member id
	subscribers btree.Map[string, int]      // topic → members and patterns that subscribe to it
	patterns    btree.Map[string, *pattern] // of members' subscriptions
	owners      map[topicPartition]string   // partition → the member that has it, or has not given it up yet
	assignors   map[string]int              // server assignor → members that ask for it
	classics    int                         // members of the classic protocol
	support     map[string]int              // classic protocol's name → members of the classic protocol that know it
	sizeBytes   int64                       // of the members
	matchBytes  int64                       // of what the patterns match
}

func newConsumerState() *consumerState {
	return &consumerState{statics: map[string]string{}, owners: map[topicPartition]string{}, assignors: map[string]int{},
		support: map[string]int{}}
}

// reconciliation is how far a member has come towards its target.
type reconciliation uint8

const (
	reconciled reconciliation = iota
	// unrevoked: the member has to confirm that it gave partitions up.
	unrevoked
	// unreleased: the member waits for partitions that others have not given up yet.
	unreleased
)

// leftEpoch is the epoch of a static member that is away for a while.
const leftEpoch = -2

// consumerMember is a member of a consumer group. It is never changed, only replaced.
type consumerMember struct {
	info      *consumerInfo
	epoch     int32
	prevEpoch int32
	state     reconciliation
	assigned  []holding // ascending
	revoking  []holding // ascending
	target    []topicPartition
	hash      uint64
}

// consumerInfo is what a member told about itself. It is never changed, only replaced.
type consumerInfo struct {
	id          string
	instance    *string
	rack        *string
	clientID    string
	clientHost  string
	rebalanceMs int32
	topics      []string     // ascending, distinct
	pattern     string       // "" is none
	assignor    string       // "" leaves it to the others
	classic     *classicInfo // of a member of the classic protocol; nil for one of the consumer protocol
	hash        uint64       // once it is part of the state
}

// classicInfo is what a member of the classic protocol told beside, in a group of the consumer protocol.
type classicInfo struct {
	sessionMs int32
	protocols []protocol // at least one, in the order of preference, names distinct
}

// pattern is a regular expression to which members subscribe.
type pattern struct {
	members int
	names   []string // the topics that matched when it was last resolved; ascending, distinct
	hash    uint64
	// version is that of the topics which were matched, volatile: 0 asks for it to be done again.
	version uint64
}

func (p *pattern) sizeBytes() int64 {
	n := 0
	for _, name := range p.names {
		n += len(name) + stringBytes
	}
	return int64(n)
}

// topicPartition names a partition by its topic's id.
type topicPartition struct {
	topic     [16]byte
	partition int32
}

// holding is a partition that a member has, since an epoch of its own.
type holding struct {
	topicPartition
	since int32
}

func compareTopicPartitions(a, b topicPartition) int {
	return cmp.Or(bytes.Compare(a.topic[:], b.topic[:]), cmp.Compare(a.partition, b.partition))
}

func compareHolding(h holding, p topicPartition) int {
	return compareTopicPartitions(h.topicPartition, p)
}

// find returns the holding of a partition.
func findHolding(list []holding, p topicPartition) (holding, bool) {
	i, ok := slices.BinarySearchFunc(list, p, compareHolding)
	if !ok {
		return holding{}, false
	}
	return list[i], true
}

// placesOf leaves out since when a member has what it has.
func placesOf(list []holding) []topicPartition {
	places := make([]topicPartition, len(list))
	for i, h := range list {
		places[i] = h.topicPartition
	}
	return places
}

const (
	// stringBytes and partitionBytes are about what a string and a partition take beside their content.
	stringBytes    = 16
	partitionBytes = 24
)

func (i *consumerInfo) sizeBytes() int {
	n := overheadBytes + len(i.id) + len(i.clientID) + len(i.clientHost) + len(i.pattern) + len(i.assignor)
	if i.instance != nil {
		n += len(*i.instance)
	}
	if i.rack != nil {
		n += len(*i.rack)
	}
	for _, t := range i.topics {
		n += len(t) + stringBytes
	}
	if i.classic != nil {
		for _, p := range i.classic.protocols {
			n += len(p.name) + len(p.metadata)
		}
	}
	return n
}

func (m *consumerMember) sizeBytes() int64 {
	return int64(m.info.sizeBytes() + partitionBytes*(len(m.assigned)+len(m.revoking)+len(m.target)))
}

func sameSubscription(a, b *consumerInfo) bool {
	return a.pattern == b.pattern && (sameSlice(a.topics, b.topics) || slices.Equal(a.topics, b.topics))
}

// sameSlice tells, at once, whether two slices are one, as they are where a request does not name what has not changed.
func sameSlice(a, b []string) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

func sameInfo(a, b *consumerInfo) bool {
	return sameSubscription(a, b) && a.id == b.id && a.clientID == b.clientID && a.clientHost == b.clientHost &&
		a.rebalanceMs == b.rebalanceMs && a.assignor == b.assignor && sameString(a.instance, b.instance) &&
		sameString(a.rack, b.rack) && sameClassic(a.classic, b.classic)
}

func sameClassic(a, b *classicInfo) bool {
	return a == b || a != nil && b != nil && a.sessionMs == b.sessionMs && sameProtocols(a.protocols, b.protocols)
}

func sameString(a, b *string) bool { return a == b || a != nil && b != nil && *a == *b }

// hasConsumers tells whether the group has members of the consumer protocol.
func (g *group) hasConsumers() bool {
	return g.saved.consumer != nil && g.saved.consumer.members.Len() > 0
}

// empty tells whether the group has no members of any protocol.
func (g *group) empty() bool { return g.live.phase == phaseEmpty && !g.hasConsumers() }

// state is the name that descriptions and lists show.
func (g *group) state() string {
	c := g.saved.consumer
	switch {
	case c == nil || g.live.phase != phaseEmpty:
		return g.live.phase.String()
	case c.members.Len() == 0:
		return phaseEmpty.String()
	case g.saved.generation > c.targetEpoch:
		return "Assigning"
	}
	stable := true
	c.members.Scan(func(_ string, m *consumerMember) bool {
		stable = m.state == reconciled && m.epoch == c.targetEpoch
		return stable
	})
	if stable {
		return phaseStable.String()
	}
	return "Reconciling"
}

// groupType is what ListGroups calls the group's protocol.
func (g *group) groupType() string {
	if g.saved.consumer != nil && g.live.phase == phaseEmpty {
		return "consumer"
	}
	return "classic"
}

// subscribes tells whether a member wants the topic.
func (c *consumerState) subscribes(topic string) bool {
	n, _ := c.subscribers.Get(topic)
	return n > 0
}

// countTopics adds a subscription to these topics, or takes it out.
func (c *consumerState) countTopics(names []string, n int) {
	for _, name := range names {
		count, _ := c.subscribers.Get(name)
		if count+n == 0 {
			c.subscribers.Delete(name)
		} else {
			c.subscribers.Set(name, count+n)
		}
	}
}
