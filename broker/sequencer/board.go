package sequencer

import (
	"sort"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/segment"
)

// Published is what readers of one partition may see. It is immutable: load it once and use only that, since reading
// its parts at different moments would leak aborted records.
type Published struct {
	machine.View
	// Log says where the partition's bytes lie.
	Log *segment.Log
	// LeaderEpoch is the newest leader epoch, which is the broker's incarnation.
	LeaderEpoch int32
	// Deleted is set once, by the last publication of a topic that was deleted.
	Deleted bool
}

// Waiter is woken when a watched partition's view changes. C has room for one signal, so a wake-up is never lost and
// never blocks the publisher.
type Waiter struct{ C chan struct{} }

// NewWaiter returns a waiter that watches nothing yet.
func NewWaiter() *Waiter { return &Waiter{C: make(chan struct{}, 1)} }

func (w *Waiter) wake() {
	select {
	case w.C <- struct{}{}:
	default:
	}
}

// Partition is the published side of one partition. All methods may be called from anywhere.
type Partition struct {
	ID   machine.PartitionID
	view atomic.Pointer[Published]

	mu       sync.Mutex // guards the swap of view and waiters
	waiters  map[*Waiter]struct{}
	watching atomic.Int32
}

// Load returns the current view.
func (p *Partition) Load() *Published { return p.view.Load() }

// Watch wakes w at every change from now on, until Unwatch. Load after Watch, not before: a change in between would
// be missed.
func (p *Partition) Watch(w *Waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiters == nil {
		p.waiters = make(map[*Waiter]struct{})
	}
	p.waiters[w] = struct{}{}
	p.watching.Store(int32(len(p.waiters)))
}

// Unwatch ends Watch.
func (p *Partition) Unwatch(w *Waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiters, w)
	p.watching.Store(int32(len(p.waiters)))
}

// change swaps the view for what f makes of it and wakes the waiters if wake is set.
func (p *Partition) change(wake bool, f func(old *Published) *Published) {
	p.mu.Lock()
	p.view.Store(f(p.view.Load()))
	if wake && p.watching.Load() > 0 {
		for w := range p.waiters {
			w.wake()
		}
	}
	p.mu.Unlock()
}

// Board is everything published: topics and their partitions' views. Reading never waits for the loop.
type Board struct {
	newLog      func(machine.PartitionID) *segment.Log
	leaderEpoch int32
	features    atomic.Pointer[machine.Features]

	mu         sync.RWMutex
	byName     map[string]*machine.Topic
	byID       map[[16]byte]*machine.Topic
	partitions map[machine.PartitionID]*Partition
}

// NewBoard returns an empty board. newLog gives a partition's log as it was found at the start.
func NewBoard(leaderEpoch int32, newLog func(machine.PartitionID) *segment.Log) *Board {
	return &Board{
		newLog:      newLog,
		leaderEpoch: leaderEpoch,
		byName:      make(map[string]*machine.Topic),
		byID:        make(map[[16]byte]*machine.Topic),
		partitions:  make(map[machine.PartitionID]*Partition),
	}
}

// SetFeatures makes feature levels visible.
func (b *Board) SetFeatures(f *machine.Features) { b.features.Store(f) }

// Features are the feature levels; they must not be changed.
func (b *Board) Features() *machine.Features { return b.features.Load() }

// Topic finds a topic by name.
func (b *Board) Topic(name string) (*machine.Topic, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	t, ok := b.byName[name]
	return t, ok
}

// TopicByID finds a topic by its id.
func (b *Board) TopicByID(id [16]byte) (*machine.Topic, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	t, ok := b.byID[id]
	return t, ok
}

// Topics returns all topics, sorted by name.
func (b *Board) Topics() []*machine.Topic {
	b.mu.RLock()
	all := make([]*machine.Topic, 0, len(b.byName))
	for _, t := range b.byName {
		all = append(all, t)
	}
	b.mu.RUnlock()
	sort.Slice(all, func(i, j int) bool { return strings.Compare(all[i].Name, all[j].Name) < 0 })
	return all
}

// Partition returns the partition with this id, or nil when it does not exist (any more).
func (b *Board) Partition(id machine.PartitionID) *Partition {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.partitions[id]
}

// Shelved swaps a partition's log after its batches have moved, to what f makes of it. A partition that is gone is
// left alone.
func (b *Board) Shelved(id machine.PartitionID, f func(*segment.Log) *segment.Log) {
	p := b.Partition(id)
	if p == nil {
		return
	}
	p.change(false, func(old *Published) *Published {
		v := *old
		v.Log = f(old.Log)
		return &v
	})
}

// Publish makes topics and views visible, topics first. Deleted partitions get a last view so that parked readers
// wake and see it. It returns the partitions whose log start has moved up.
func (b *Board) Publish(topics []machine.TopicChange, updates []Update) (trimmed []machine.PartitionID) {
	if len(topics) > 0 {
		b.publishTopics(topics)
	}
	for i := range updates {
		u := &updates[i]
		p := b.Partition(u.View.Partition)
		if p == nil {
			continue // deleted in the same group
		}
		before := p.Load().LogStart
		p.change(true, func(old *Published) *Published {
			v := *old
			v.View = u.View
			v.Log = old.Log.Append(u.Extents...)
			return &v
		})
		if u.View.LogStart > before {
			trimmed = append(trimmed, p.ID)
		}
	}
	return trimmed
}

func (b *Board) publishTopics(topics []machine.TopicChange) {
	var gone []*Partition
	b.mu.Lock()
	for i := range topics {
		t := &topics[i].Topic
		if topics[i].Deleted {
			delete(b.byName, t.Name)
			delete(b.byID, t.ID)
			for _, id := range t.Partitions {
				if p := b.partitions[id]; p != nil {
					gone = append(gone, p)
					delete(b.partitions, id)
				}
			}
			continue
		}
		b.byName[t.Name] = t
		b.byID[t.ID] = t
		for _, id := range t.Partitions {
			if b.partitions[id] == nil {
				b.partitions[id] = b.newPartition(id)
			}
		}
	}
	b.mu.Unlock()
	for _, p := range gone {
		p.change(true, func(old *Published) *Published {
			v := *old
			v.Deleted = true
			return &v
		})
	}
}

func (b *Board) newPartition(id machine.PartitionID) *Partition {
	p := &Partition{ID: id}
	p.view.Store(&Published{View: machine.View{Partition: id}, Log: b.newLog(id), LeaderEpoch: b.leaderEpoch})
	return p
}
