package txn

import (
	"cmp"
	"container/heap"
	"fmt"
	"iter"
	"slices"

	"github.com/strandline-io/strandline/internal/mutant"
)

// Coordinator knows every transactional id. Its deciding methods only look; what they return is applied, or dropped,
// by the caller before the next decision. Calls must not overlap.
type Coordinator struct {
	cfg  Config
	byID map[string]*transaction
	idle list      // no open transaction; the one untouched for the longest first
	open deadlines // by the time at which they are aborted
	// What counts against Config.MaxIDBytes and MaxOpenBytes.
	idBytes, openBytes int64
	doubted            int64 // see Doubt
}

// transaction is an Entry with its place in the list of idle ids or in the heap of open transactions.
type transaction struct {
	Entry
	prev, next *transaction
	index      int         // in the heap
	spoken     connections // volatile: see Late
}

func (t *transaction) deadlineMs() int64 { return t.StartMs + int64(t.TimeoutMs) }

// About what an id, and a partition and a group of an open transaction, take in memory.
const (
	idOverheadBytes    = 256
	partitionBytes     = 4
	groupOverheadBytes = 32
)

func idBytes(id string) int64 { return idOverheadBytes + int64(len(id)) }

func openBytes(partitions []uint32, groups []string) int64 {
	n := int64(len(partitions)) * partitionBytes
	for _, g := range groups {
		n += groupOverheadBytes + int64(len(g))
	}
	return n
}

// New returns a coordinator without ids.
func New(cfg Config) *Coordinator {
	return &Coordinator{cfg: cfg.orDefaults(), byID: make(map[string]*transaction)}
}

// Doubt says that epochs of producer ids below the given one may have been given out and forgotten since, by a run that
// answers before it syncs and a power cut. Such a producer id gets no further epoch, which somebody may have: where one is due, the
// transactional id gets a new producer id instead. Doubted returns the newest such bound, 0 before the first.
func (c *Coordinator) Doubt(below int64) { c.doubted = below }

// Doubted is durable: see Doubt.
func (c *Coordinator) Doubted() int64 { return c.doubted }

// spent reports that nobody is given the producer id with an epoch after this one.
func (c *Coordinator) spent(producerID int64, epoch int16) bool {
	return producerID < c.doubted || exhausted(epoch)
}

func exhausted(epoch int16) bool { return epoch >= MaxEpoch && !mutant.On("exhausted epoch goes on") }

// MaxTimeoutMs is the longest transaction timeout that is granted.
func (c *Coordinator) MaxTimeoutMs() int32 { return c.cfg.MaxTimeoutMs }

// Get returns what is known of an id. The slices belong to the coordinator and hold until its next change.
func (c *Coordinator) Get(id string) (Entry, bool) {
	t := c.byID[id]
	if t == nil {
		return Entry{}, false
	}
	return t.Entry, true
}

// NextTimeout is when the next open transaction is aborted: see TimedOut.
func (c *Coordinator) NextTimeout() (engineMs int64, ok bool) {
	if len(c.open) == 0 {
		return 0, false
	}
	return c.open[0].deadlineMs(), true
}

// NextExpiry is when the next idle id is forgotten: see Expired. If there are more ids than the bound allows, which an earlier
// start may have left behind, that is long ago.
func (c *Coordinator) NextExpiry() (engineMs int64, ok bool) {
	switch {
	case c.idle.first == nil:
		return 0, false
	case len(c.byID) > c.cfg.MaxIDs:
		return c.idle.first.UpdatedMs, true
	}
	return c.idle.first.UpdatedMs + c.cfg.IDExpirationMs, true
}

// Idle yields the ids without an open transaction, the one untouched for the longest first; Open yields the others,
// ascending by id. The slices of an Entry belong to the coordinator.
func (c *Coordinator) Idle() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for t := c.idle.first; t != nil; t = t.next {
			if !yield(t.Entry) {
				return
			}
		}
	}
}

// Open yields the ids with an open transaction: see Idle.
func (c *Coordinator) Open() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		sorted := slices.SortedFunc(slices.Values(c.open), func(a, b *transaction) int { return cmp.Compare(a.ID, b.ID) })
		for _, t := range sorted {
			if !yield(t.Entry) {
				return
			}
		}
	}
}

// Restore puts an entry back that Idle or Open yielded, in that order. nowMs is the time of the snapshot.
func (c *Coordinator) Restore(e Entry, nowMs int64) error {
	switch {
	case c.byID[e.ID] != nil || e.ID == "":
		return fmt.Errorf("transactional id %q comes twice or is empty", e.ID)
	case e.State != Empty && e.State != Ongoing && e.State != CompleteCommit && e.State != CompleteAbort:
		return fmt.Errorf("transactional id %q is in state %v, which does not last", e.ID, e.State)
	case e.TimeoutMs <= 0 || e.ProducerID < 0 || e.Epoch < 0:
		return fmt.Errorf("transactional id %q has timeout %d, producer id %d, epoch %d", e.ID, e.TimeoutMs, e.ProducerID, e.Epoch)
	case e.UpdatedMs > nowMs || (c.idle.last != nil && e.State != Ongoing && e.UpdatedMs < c.idle.last.UpdatedMs):
		return fmt.Errorf("transactional id %q was updated at %d, out of order or after the snapshot's %d", e.ID, e.UpdatedMs, nowMs)
	case (e.State == Ongoing) != (e.StartMs >= 0) || e.StartMs > nowMs:
		return fmt.Errorf("transactional id %q in state %v has a transaction since %d, at %d", e.ID, e.State, e.StartMs, nowMs)
	case e.State != Ongoing && len(e.Partitions)+len(e.Groups) > 0, !slices.IsSorted(e.Partitions):
		return fmt.Errorf("transactional id %q in state %v has partitions %v and groups %q", e.ID, e.State, e.Partitions, e.Groups)
	}
	t := &transaction{Entry: e}
	c.byID[e.ID] = t
	c.idBytes += idBytes(e.ID)
	c.openBytes += openBytes(e.Partitions, e.Groups)
	c.attach(t)
	return nil
}

// attach puts a transaction where its state belongs.
func (c *Coordinator) attach(t *transaction) {
	if t.State == Ongoing {
		heap.Push(&c.open, t)
	} else {
		c.idle.pushBack(t)
	}
}

func (c *Coordinator) detach(t *transaction) {
	if t.State == Ongoing {
		heap.Remove(&c.open, t.index)
	} else {
		c.idle.remove(t)
	}
}

// deadlines is a heap. Equal times go by id, so that a restored heap empties in the same order.
type deadlines []*transaction

func (d deadlines) Len() int { return len(d) }
func (d deadlines) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(d[i].deadlineMs(), d[j].deadlineMs()), cmp.Compare(d[i].ID, d[j].ID)) < 0
}
func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}
func (d *deadlines) Push(x any) {
	t := x.(*transaction)
	t.index = len(*d)
	*d = append(*d, t)
}
func (d *deadlines) Pop() any {
	last := len(*d) - 1
	t := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	return t
}

// list is an intrusive doubly linked list.
type list struct{ first, last *transaction }

func (l *list) pushBack(t *transaction) {
	t.prev, t.next = l.last, nil
	if l.last == nil {
		l.first = t
	} else {
		l.last.next = t
	}
	l.last = t
}

func (l *list) remove(t *transaction) {
	if t.prev == nil {
		l.first = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		l.last = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.prev, t.next = nil, nil
}
