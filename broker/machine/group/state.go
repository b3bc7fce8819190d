package group

import (
	"bytes"

	"github.com/tidwall/btree"
)

// phase is a group's state. Kafka's Dead is a group that is not there.
type phase uint8

const (
	phaseEmpty phase = iota
	// phasePreparing: members are asked to join again.
	phasePreparing
	// phaseCompleting: a generation has begun, its leader owes the assignment.
	phaseCompleting
	phaseStable
)

// String returns the name that DescribeGroups and ListGroups show.
func (p phase) String() string {
	return [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable"}[p]
}

// group is one group: what is saved moves only through Apply, what is live is volatile and not hashed.
type group struct {
	name  string
	saved saved
	live  live
}

func newGroup(name string) *group {
	g := &group{name: name}
	g.live.timer = timer{kind: timerPhase, group: g}
	return g
}

// saved is the durable part.
type saved struct {
	exists       bool // false while a group has never completed a join nor committed an offset
	phase        phase
	protocolType string // empty for a group that only committed offsets
	generation   int32  // of a consumer group: the group epoch
	protocol     string
	leader       string
	sinceMs      int64 // wall clock when this generation began or the group became empty
	members      btree.Map[string, *savedMember]
	consumer     *consumerState // of a consumer group; nil for a classic one
	topics       btree.Map[string, *topicOffsets]
	offsets      int // partitions in topics
	pending      int // pending offsets in topics
	hash         uint64
}

type savedMember struct {
	info       *memberInfo
	assignment []byte
	hash       uint64
}

func (m *savedMember) sizeBytes() int64 { return int64(m.info.sizeBytes() + len(m.assignment)) }

// memberInfo is what a member told about itself. It is never changed, only replaced.
type memberInfo struct {
	id          string
	instance    *string // group.instance.id of a static member
	clientID    string
	clientHost  string
	sessionMs   int32
	rebalanceMs int32
	protocols   []protocol // in the order of preference, names distinct
}

type protocol struct {
	name     string
	metadata []byte
}

// overheadBytes is about what a group, a member, an offset or a handed-out id takes beside its strings.
const overheadBytes = 200

func (m *memberInfo) sizeBytes() int {
	n := overheadBytes + len(m.id) + len(m.clientID) + len(m.clientHost)
	if m.instance != nil {
		n += len(*m.instance)
	}
	for _, p := range m.protocols {
		n += len(p.name) + len(p.metadata)
	}
	return n
}

// metadata returns the subscription under the named protocol, nil if the member does not know it.
func (m *memberInfo) metadata(name string) []byte {
	for _, p := range m.protocols {
		if p.name == name {
			return p.metadata
		}
	}
	return nil
}

func sameProtocols(a, b []protocol) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].name != b[i].name || !bytes.Equal(a[i].metadata, b[i].metadata) {
			return false
		}
	}
	return true
}

// live is the volatile part of a group.
type live struct {
	phase        phase
	protocolType string
	leader       string // may have left while a rebalance is prepared
	members      btree.Map[string, *member]
	statics      map[string]*member
	support      map[string]int            // protocol name → members that know it
	pending      btree.Map[string, *timer] // member ids handed out and not used yet
	joining      int                       // members whose JoinGroup waits
	unsynced     int                       // members that owe a SyncGroup
	initial      bool                      // this is the delayed first rebalance of an empty group
	newcomer     bool                      // somebody joined since the delay was last extended
	leftMs       int64                     // how much of the rebalance timeout the delay may still use
	timer        timer                     // end of the join phase, or of the wait for SyncGroup
	sizeBytes    int                       // sum of the members' sizeBytes
	subscribed   map[string]struct{}       // topics of a consumer group, nil until asked for
	subscribedOK bool                      // subscribed was computed for this generation
	consumers    liveConsumers
}

// member is a live member.
type member struct {
	info     *memberInfo
	timer    timer
	isNew    bool // has not seen the end of a join phase yet
	unsynced bool
	join     parked
	sync     parked
}

// parked is a request that waits; its zero value is none.
type parked struct {
	op      uint64
	version int16
}
