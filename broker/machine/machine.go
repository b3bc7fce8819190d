package machine

import (
	"github.com/strandline-io/strandline/broker/machine/group"
	"github.com/strandline-io/strandline/broker/machine/producer"
	"github.com/strandline-io/strandline/broker/machine/txn"
)

// Machine is the broker's state. Its methods must not overlap.
type Machine struct {
	cfg Config

	// Durable state: moved by apply alone, kept in snapshots.
	lastNow         Now
	hash            uint64
	incarnation     uint32
	forgets         bool  // a power cut may take back what the run of this incarnation answers
	producerIDsEnd  int64 // producer ids below it are reserved: they may have been given out
	nextPartition   PartitionID
	settingsVersion uint32 // the newest; topics' versions are never repeated
	features        features
	topics          map[string]*topic
	topicsByID      map[[16]byte]*topic
	sorted          []*topic          // by name
	collisions      map[string]string // collisionKey of every topic → its name
	partitions      map[PartitionID]*partition
	producers       *producer.Table
	txns            *txn.Coordinator
	groups          *group.Groups // its membership in flux is volatile

	// Volatile state.
	nextProducerID int64  // the next of the reserved ones
	topicsVersion  uint64 // rises whenever a topic comes or goes or gets partitions
	step           step
	metaChunk      []byte
	may            Authorizer
}

// New returns an empty machine.
func New(cfg Config) *Machine {
	cfg = cfg.orDefaults()
	may := cfg.May
	if may == nil {
		may = anybodyMay
	}
	return &Machine{
		cfg:        cfg,
		topics:     make(map[string]*topic),
		topicsByID: make(map[[16]byte]*topic),
		collisions: make(map[string]string),
		partitions: make(map[PartitionID]*partition),
		producers:  producer.NewTable(cfg.Producer),
		txns:       txn.New(cfg.Txn),
		groups:     group.New(cfg.Group),
		may:        may,

		nextPartition: 1,
		topicsVersion: 1,
	}
}

// NextTimer returns the engine time at which a Tick has something to do; ok is false if there is nothing to wait for.
func (m *Machine) NextTimer() (engineMs int64, ok bool) {
	earliest := func(ms int64, has bool) {
		if has && (!ok || ms < engineMs) {
			engineMs, ok = ms, true
		}
	}
	earliest(m.txns.NextTimeout())
	earliest(m.txns.NextExpiry())
	earliest(m.producers.NextExpiry())
	earliest(m.groups.NextTimer())
	return engineMs, ok
}

// Hash sums up every applied record and what it did. Machines that applied the same units have the same hash, also
// when one of them came out of a snapshot.
func (m *Machine) Hash() uint64 { return mix(m.hash, m.groups.Hash()) }

// Views returns what may be seen of every partition, ascending by id.
func (m *Machine) Views() []View {
	sorted := m.sortedPartitions()
	all := make([]View, len(sorted))
	for i, p := range sorted {
		all[i] = p.view()
	}
	return all
}

// Topics returns every topic, ascending by name.
func (m *Machine) Topics() []Topic {
	all := make([]Topic, len(m.sorted))
	for i, t := range m.sorted {
		all[i] = *t.Topic
	}
	return all
}

// LastNow is the time of the last applied unit.
func (m *Machine) LastNow() Now { return m.lastNow }

// LeaderEpoch is the leader epoch of all partitions: the number of the last Incarnation, 0 before the first.
func (m *Machine) LeaderEpoch() int32 { return int32(m.incarnation) }

// ShelvedLengths returns how far every partition's own files reach, ascending by id, without those that have none.
func (m *Machine) ShelvedLengths() []ShelvedLength {
	var all []ShelvedLength
	for _, p := range m.sortedPartitions() {
		if p.shelved.EndOffset > 0 {
			all = append(all, p.shelved)
		}
	}
	return all
}
