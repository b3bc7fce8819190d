package machine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/strandline-io/strandline/broker/machine/codec"
	"github.com/strandline-io/strandline/broker/machine/producer"
)

// topic is a topic as the machine keeps it. Its description is replaced, never changed: readers hold it.
type topic struct {
	*Topic
	partitions []*partition // index = partition number
}

// partition is one partition's state.
type partition struct {
	id        PartitionID
	topic     string
	number    int32
	logStart  int64
	end       int64        // the next offset
	epochs    []EpochStart // append-only
	shelved   ShelvedLength
	producers *producer.Partition
}

// lastStable is the LSO: the first offset of the oldest open transaction, else the end (kafka-eos.md C.4).
func (p *partition) lastStable() int64 {
	stable := p.end
	if first, ok := p.producers.FirstUnstable(); ok {
		stable = first
	}
	return max(stable, p.logStart)
}

func (p *partition) view() View {
	return View{
		Partition:     p.id,
		LogStart:      p.logStart,
		HighWatermark: p.end,
		LastStable:    p.lastStable(),
		Aborted:       p.producers.Aborted(),
		Epochs:        p.epochs[:len(p.epochs):len(p.epochs)],
	}
}

// find returns a partition by topic and number.
func (t *topic) find(number int32) *partition {
	if number < 0 || int(number) >= len(t.partitions) {
		return nil
	}
	return t.partitions[number]
}

// addPartitions gives a topic partitions with the ids from first on.
func (m *Machine) addPartitions(t *topic, first PartitionID, count int32) {
	next := *t.Topic
	next.Partitions = slices.Clone(next.Partitions)
	for i := range PartitionID(count) {
		p := &partition{id: first + i, topic: t.Name, number: int32(len(t.partitions)), producers: m.producers.NewPartition(uint32(first + i))}
		m.partitions[p.id] = p
		t.partitions = append(t.partitions, p)
		next.Partitions = append(next.Partitions, p.id)
	}
	t.Topic = &next
	m.nextPartition = first + PartitionID(count)
}

func (m *Machine) applyTopicCreated(c topicCreated) error {
	if m.topics[c.name] != nil || m.topicsByID[c.id] != nil {
		return codec.Corrupt("topic %q with id %x is created twice", c.name, c.id)
	}
	if err := m.checkNewPartitions(c.name, c.firstID, c.partitions); err != nil {
		return err
	}
	if c.settingsVersion <= m.settingsVersion {
		return codec.Corrupt("topic %q has settings of version %d, %d is taken", c.name, c.settingsVersion, m.settingsVersion)
	}
	t := &topic{Topic: &Topic{Name: c.name, ID: c.id, Settings: c.settings, SettingsVersion: c.settingsVersion}}
	m.addPartitions(t, c.firstID, c.partitions)
	m.settingsVersion = c.settingsVersion
	m.topics[c.name], m.topicsByID[c.id] = t, t
	m.collisions[collisionKey(c.name)] = c.name
	at, _ := m.findSorted(c.name)
	m.sorted = slices.Insert(m.sorted, at, t)
	m.topicsVersion++
	return nil
}

// checkNewPartitions refuses ids that were used before: an id is for ever.
func (m *Machine) checkNewPartitions(name string, first PartitionID, count int32) error {
	if count < 1 || count > maxPartitionsPerRecord || first != m.nextPartition || uint64(first)+uint64(count) > maxPartitionID {
		return codec.Corrupt("topic %q gets %d partitions from id %d on, the next free one is %d", name, count, first, m.nextPartition)
	}
	return nil
}

const (
	maxPartitionID         = 1<<32 - 1
	maxPartitionsPerRecord = 10_000
)

func (m *Machine) applyPartitionsAdded(a partitionsAdded) error {
	t := m.topics[a.name]
	if t == nil {
		return codec.Corrupt("topic %q, which is unknown, gets partitions", a.name)
	}
	if err := m.checkNewPartitions(a.name, a.firstID, a.partitions); err != nil {
		return err
	}
	m.addPartitions(t, a.firstID, a.partitions)
	m.topicsVersion++
	return nil
}

func (m *Machine) applyTopicDeleted(name string) error {
	t := m.topics[name]
	if t == nil {
		return codec.Corrupt("topic %q, which is unknown, is deleted", name)
	}
	for _, p := range t.partitions {
		p.producers.Drop()
		delete(m.partitions, p.id)
	}
	delete(m.topics, name)
	delete(m.topicsByID, t.ID)
	delete(m.collisions, collisionKey(name))
	at, _ := m.findSorted(name)
	m.sorted = slices.Delete(m.sorted, at, at+1)
	m.groups.ApplyTopicDeleted(name)
	m.topicsVersion++
	return nil
}

func (m *Machine) findSorted(name string) (at int, found bool) {
	return slices.BinarySearchFunc(m.sorted, name, func(t *topic, name string) int { return cmp.Compare(t.Name, name) })
}

// collisionKey is equal for names that Kafka's metrics cannot tell apart; two such topics must not exist together.
func collisionKey(name string) string { return strings.ReplaceAll(name, ".", "_") }

func (m *Machine) applyShelved(all []ShelvedLength) error {
	for _, s := range all {
		p := m.partitions[s.Partition]
		if p == nil {
			return codec.Corrupt("partition %d, which is unknown, is shelved", s.Partition)
		}
		if s.EndOffset > p.end || s.EndOffset < p.shelved.EndOffset {
			return codec.Corrupt("partition %d is shelved up to offset %d, not in %d to %d", s.Partition, s.EndOffset, p.shelved.EndOffset, p.end)
		}
		p.shelved = s
	}
	return nil
}

// sortedPartitions lists every partition, ascending by id.
func (m *Machine) sortedPartitions() []*partition {
	all := make([]*partition, 0, len(m.partitions))
	for _, t := range m.sorted {
		all = append(all, t.partitions...)
	}
	slices.SortFunc(all, func(a, b *partition) int { return cmp.Compare(a.id, b.id) })
	if len(all) != len(m.partitions) {
		panic(fmt.Sprintf("BUG: %d partitions by topic, %d by id", len(all), len(m.partitions)))
	}
	return all
}
