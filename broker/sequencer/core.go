package sequencer

import (
	"fmt"

	"github.com/strandline-io/strandline/broker/journal"
	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/segment"
	"github.com/strandline-io/strandline/internal/failpoint"
	"github.com/strandline-io/strandline/internal/mutant"
)

// Appender is what deciding needs of a journal (see journal.Journal).
type Appender interface {
	Append(units []journal.Unit) []journal.Placed
	Room() bool
	Space() (freeBytes int64, low bool)
	Reserve(sizeBytes int64) bool
	Sync()
}

// Event is what can happen to the loop.
type Event struct {
	Ops     []*Operation // new operations, in order
	Journal []journal.Event
	Slow    bool // the journal is over its bound: Produce waits until its data has moved on
}

// Update is a partition's next view and the batches that it brings.
type Update struct {
	View    machine.View
	Extents []segment.Extent
}

// Delivery is one mailbox's replies.
type Delivery struct {
	Box     Mailbox
	Replies []machine.Reply
}

// Actions are what the driver must carry out, in the order of the fields: first publish, then deliver. Groups whose
// units are durable together are published together.
type Actions struct {
	Publish []Publication
	Deliver []Delivery
	Release []func() // buffers that are no longer needed
	Sealed  []uint64 // journal segments that are complete
	Marks   []Mark
	Counts  machine.Counts
	// WakeAtEngineMs is when the next Tick is due; 0 is never.
	WakeAtEngineMs int64
	// Err ends the loop for good.
	Err error
}

// Mark is what the machine's state hashes to behind a unit, the newest of a group: replay up to there must give the same.
type Mark struct {
	Seq  uint64
	Hash uint64
}

// Publication is what one group makes visible.
type Publication struct {
	Topics  []machine.TopicChange
	Updates []Update
	// Features, when not nil, are the feature levels from now on.
	Features *machine.Features
}

// Limits bound one group, so that a burst neither delays the first reply much nor needs a huge write.
type Limits struct {
	GroupOps   int   // default 4096
	GroupBytes int64 // default 16 MiB
}

func (l Limits) orDefaults() Limits {
	if l.GroupOps <= 0 {
		l.GroupOps = 4096
	}
	if l.GroupBytes <= 0 {
		l.GroupBytes = 16 << 20
	}
	return l
}

// Core decides. It is a reactor: Handle never blocks, starts nothing and knows no clock.
//
// Order is the whole point (design.md §2.1): a reply carries the sequence of the newest unit decided before it and
// leaves only when that unit is durable, so replies wait in the group in which they were decided, also those that
// wrote nothing themselves.
type Core struct {
	machine    *machine.Machine
	journal    Appender
	replyAfter journal.EventKind
	limits     Limits

	internal opQueue // ticks and housekeeping: never held back
	held     opQueue // held back at the journal's bound, all older than clients
	clients  opQueue
	from     *opQueue        // where the next operation is
	heldOf   map[Mailbox]int // operations in held by connection
	slow     bool
	groups   []*group // decided, not yet released; ascending by seq
	spare    []*group // groups to use again
	decided  uint64   // newest sequence given to the journal
	written  uint64   // newest written sequence
	synced   uint64   // newest synced sequence
	barrier  uint64   // newest sequence that must be synced before anything at or behind it is said
	parked   map[uint64]Mailbox
	tick     bool // a Tick is queued
	err      error

	index map[machine.PartitionID]int // scratch of submit
}

// group is what one decision round decided and holds back. Its memory, the units' included, belongs to the journal
// until the group is written and is used again only after it is released.
type group struct {
	seq     uint64 // newest sequence decided in it or before it
	barrier uint64 // newest one of these that must be synced, whatever the durability
	out     machine.Out
	units   []journal.Unit
	bufs    [][]byte
	publish Publication
	deliver []Delivery
	boxes   map[Mailbox]int
	release []func()
}

// NewCore returns the loop's core over a recovered machine whose units up to lastSeq are durable.
func NewCore(m *machine.Machine, j Appender, d journal.Durability, lastSeq uint64, limits Limits) *Core {
	kind := journal.Synced
	if d == journal.DurabilityWrite {
		kind = journal.Written
	}
	return &Core{
		machine: m, journal: j, replyAfter: kind, limits: limits.orDefaults(),
		decided: lastSeq, written: lastSeq, synced: lastSeq,
		parked: make(map[uint64]Mailbox), heldOf: make(map[Mailbox]int),
		index: make(map[machine.PartitionID]int),
	}
}

// Handle takes one event, decides what can be decided, and appends what the driver must do to a.
func (c *Core) Handle(now machine.Now, ev Event, a *Actions) {
	if c.err != nil {
		a.Err = c.err
		return
	}
	for _, op := range ev.Ops {
		if isInternal(op.Body) {
			c.internal.push(op)
		} else {
			c.clients.push(op)
		}
	}
	c.slow = ev.Slow
	for _, e := range ev.Journal {
		c.journalEvent(e, a)
		if c.err != nil {
			a.Err = c.err
			return
		}
	}
	if due, ok := c.machine.NextTimer(); ok && due <= now.EngineMs && !c.tick {
		c.tick = true
		c.internal.push(&Operation{Op: machine.Op{Body: &machine.Tick{}}})
	}
	for c.journal.Room() && c.decideGroup(now, a) {
	}
	if due, ok := c.machine.NextTimer(); ok {
		a.WakeAtEngineMs = max(due, now.EngineMs+1)
	}
}

// Idle reports that nothing is queued and nothing awaits the journal.
func (c *Core) Idle() bool {
	return c.internal.len() == 0 && c.held.len() == 0 && c.clients.len() == 0 && len(c.groups) == 0
}

func (c *Core) journalEvent(e journal.Event, a *Actions) {
	switch e.Kind {
	case journal.Written:
		c.written = max(c.written, e.Seq)
		for _, g := range c.groups {
			if g.seq <= c.written && len(g.release) > 0 {
				a.Release = append(a.Release, g.release...)
				clear(g.release)
				g.release = g.release[:0]
			}
		}
	case journal.Synced:
		c.synced = max(c.synced, e.Seq)
		c.written = max(c.written, e.Seq)
	case journal.Sealed:
		a.Sealed = append(a.Sealed, e.Segment)
	case journal.Failed:
		c.err = fmt.Errorf("the journal cannot be written any more, the broker stops and answers nothing that is not durable: %w", e.Err)
		return
	}
	n := 0
	for n < len(c.groups) && c.durable(c.groups[n]) {
		c.releaseGroup(c.groups[n], a)
		n++
	}
	c.groups = append(c.groups[:0], c.groups[n:]...)
}

// durable reports whether what g holds back may be said. Some units must survive a power cut also where replies
// otherwise leave after the write: a lost tail could hand the same producer id out twice (design.md §2.2).
func (c *Core) durable(g *group) bool {
	if c.replyAfter == journal.Written || mutant.On("reply before sync") {
		return g.seq <= c.written && g.barrier <= c.synced
	}
	return g.seq <= c.synced
}

func (c *Core) releaseGroup(g *group, a *Actions) {
	if mutant.On("stable offset over an unsynced marker") {
		for i := range g.publish.Updates {
			v := &g.publish.Updates[i].View
			for _, later := range c.groups {
				for k := range later.publish.Updates {
					if next := &later.publish.Updates[k].View; next.Partition == v.Partition {
						v.LastStable = max(v.LastStable, min(next.LastStable, v.HighWatermark))
					}
				}
			}
		}
	}
	if len(g.publish.Topics) > 0 || len(g.publish.Updates) > 0 || g.publish.Features != nil {
		a.Publish = append(a.Publish, g.publish)
	}
	a.Deliver = append(a.Deliver, g.deliver...)
	a.Release = append(a.Release, g.release...)
	a.Counts.Add(g.out.Counts)
	c.putGroup(g)
}

// putGroup keeps a group's memory for the next one. What it published and delivered belongs to the driver now.
func (c *Core) putGroup(g *group) {
	clear(g.boxes)
	clear(g.release)
	clear(g.units)
	clear(g.bufs)
	g.out.Reset()
	g.publish, g.deliver = Publication{}, nil
	g.release, g.units, g.bufs = g.release[:0], g.units[:0], g.bufs[:0]
	c.spare = append(c.spare, g)
}

// decideGroup steps what is queued, up to the limits and the space that the journal has ready, and submits it as one
// group. It reports whether it did anything.
func (c *Core) decideGroup(now machine.Now, a *Actions) bool {
	g := c.newGroup()
	free, low := c.journal.Space()
	room := min(c.limits.GroupBytes, free)
	var bytes int64
	ops := 0
	for ops < c.limits.GroupOps {
		op := c.next()
		if op == nil {
			break
		}
		size := op.SizeBytes + unitOverhead
		if bytes+size > room && (ops > 0 || !low && size > free && !c.journal.Reserve(size)) {
			break // the next group's, or waiting for the space that Reserve makes
		}
		c.pop()
		ops++
		bytes += size
		c.step(now, op, g, low)
	}
	if ops == 0 {
		c.putGroup(g)
		return false
	}
	c.submit(g, a)
	g.seq, g.barrier = c.decided, c.barrier
	if mutant.On("published before durable") {
		a.Publish = append(a.Publish, g.publish)
		g.publish = Publication{}
	}
	overtakes := len(g.out.Units) == 0 && (mutant.On("reply overtakes the durable position") ||
		mutant.On("duplicate acknowledged before its original") && g.onlyProduced())
	if c.durable(g) && len(c.groups) == 0 || overtakes {
		c.releaseGroup(g, a)
		return true
	}
	c.groups = append(c.groups, g)
	return true
}

// onlyProduced says whether g answers nothing but Produce requests.
func (g *group) onlyProduced() bool {
	for _, r := range g.out.Replies {
		if _, ok := r.Body.(*machine.ProduceReply); !ok {
			return false
		}
	}
	return len(g.out.Replies) > 0
}

func (c *Core) newGroup() *group {
	if n := len(c.spare); n > 0 {
		g := c.spare[n-1]
		c.spare = c.spare[:n-1]
		return g
	}
	return &group{boxes: make(map[Mailbox]int)}
}

// unitOverhead is what an operation may add to the journal beside its own bytes: heads, records, padding.
const unitOverhead = 4096

// next is the next operation that may be decided. At the journal's bound Produce is held back, and with it what is
// behind it of the same connection, so that the order of no client's requests changes; other connections go on. What is
// held keeps its order, also among connections: a repeated batch comes behind its original on whatever connection.
func (c *Core) next() *Operation {
	c.from = &c.internal
	if op := c.internal.peek(); op != nil {
		return op
	}
	c.from = &c.held
	if op := c.held.peek(); op != nil && (!c.slow || !isProduce(op)) {
		return op
	}
	c.from = &c.clients
	for {
		op := c.clients.peek()
		if op == nil || !c.slow || !isProduce(op) && c.heldOf[op.Box] == 0 {
			return op
		}
		c.held.push(c.clients.pop())
		c.heldOf[op.Box]++
	}
}

// pop takes what next returned.
func (c *Core) pop() {
	op := c.from.pop()
	if c.from != &c.held {
		return
	}
	if c.heldOf[op.Box]--; c.heldOf[op.Box] == 0 {
		delete(c.heldOf, op.Box)
	}
}

func isProduce(op *Operation) bool {
	_, ok := op.Body.(*machine.Produce)
	return ok
}

// step decides one operation. Without space Produce is refused with KAFKA_STORAGE_ERROR; everything else goes on in
// the journal's reserve (design.md §2.3).
func (c *Core) step(now machine.Now, op *Operation, g *group, low bool) {
	out := &g.out
	replies := len(out.Replies)
	op.Now = now
	switch body := op.Body.(type) {
	case *machine.Tick:
		c.tick = false
		c.machine.Step(&op.Op, out)
	case *machine.Produce:
		body.NoSpace = low
		c.machine.Step(&op.Op, out)
	default:
		c.machine.Step(&op.Op, out)
	}
	answered := false
	for _, r := range out.Replies[replies:] {
		box := op.Box
		if r.ID == op.ID {
			answered = true
		} else {
			box = c.parked[r.ID]
			delete(c.parked, r.ID)
		}
		if box != nil {
			g.reply(box, r)
		}
	}
	if !answered && op.Box != nil {
		c.parked[op.ID] = op.Box
	}
	if op.Written != nil {
		// Released with the group even if nothing of it was written: the reply may still point into its bytes.
		g.release = append(g.release, op.Written)
	}
}

func (g *group) reply(box Mailbox, r machine.Reply) {
	i, ok := g.boxes[box]
	if !ok {
		i = len(g.deliver)
		g.boxes[box] = i
		g.deliver = append(g.deliver, Delivery{Box: box})
	}
	g.deliver[i].Replies = append(g.deliver[i].Replies, r)
}

// submit hands the group's units to the journal and works out what it will make visible.
func (c *Core) submit(g *group, a *Actions) {
	if len(g.out.Topics) > 0 {
		g.publish.Topics = append([]machine.TopicChange(nil), g.out.Topics...)
	}
	g.publish.Features = g.out.Features
	clear(c.index)
	for i := range g.out.Views {
		v := &g.out.Views[i]
		if at, ok := c.index[v.Partition]; ok {
			if !mutant.On("first view of a group kept") {
				g.publish.Updates[at].View = *v
			}
			continue
		}
		c.index[v.Partition] = len(g.publish.Updates)
		g.publish.Updates = append(g.publish.Updates, Update{View: *v})
	}
	if len(g.out.Units) == 0 {
		return
	}
	failpoint.Hit("sequencer.decided")
	placed := c.journal.Append(g.journalUnits())
	for i, p := range placed {
		pos := p.BatchPos
		for k := range g.out.Units[i].Batches {
			b := &g.out.Units[i].Batches[k]
			if at, ok := c.index[b.Partition]; ok {
				u := &g.publish.Updates[at]
				u.Extents = append(u.Extents, segment.Extent{
					BaseOffset: b.BaseOffset, MaxTimestamp: b.MaxTimestamp,
					Segment: p.Segment, Pos: pos,
					LastDelta: int32(b.LastOffset - b.BaseOffset), Len: int32(len(b.Bytes)),
				})
			} else {
				panic(fmt.Sprintf("BUG: unit %d appends to partition %d without a view for it", p.Seq, b.Partition))
			}
			pos += int64(len(b.Bytes))
		}
		c.decided = p.Seq
		if g.out.Units[i].MustSync && !mutant.On("producer ids not synced") {
			c.barrier = p.Seq
		}
	}
	if len(placed) > 0 {
		a.Marks = append(a.Marks, Mark{Seq: c.decided, Hash: c.machine.Hash()})
	}
	if c.barrier > c.synced {
		c.journal.Sync()
	}
}

// journalUnits converts the decided units without copying their bytes.
func (g *group) journalUnits() []journal.Unit {
	total := 0
	for i := range g.out.Units {
		total += len(g.out.Units[i].Batches)
	}
	if cap(g.bufs) < total {
		g.bufs = make([][]byte, 0, 2*total)
	}
	for i := range g.out.Units {
		u := &g.out.Units[i]
		from := len(g.bufs)
		for k := range u.Batches {
			g.bufs = append(g.bufs, u.Batches[k].Bytes)
		}
		g.units = append(g.units, journal.Unit{Meta: u.Meta, Batches: g.bufs[from:len(g.bufs):len(g.bufs)]})
	}
	return g.units
}

// isInternal tells the broker's own operations from clients'.
func isInternal(body any) bool {
	switch body.(type) {
	case *machine.Tick, *machine.Shelved, *machine.Incarnation:
		return true
	}
	return false
}

// opQueue is a first-in first-out queue that reuses its memory. What bounds it is admission: connections read only
// as many bytes and requests as they are granted.
type opQueue struct {
	ops  []*Operation
	head int
}

func (q *opQueue) len() int { return len(q.ops) - q.head }

func (q *opQueue) push(op *Operation) { q.ops = append(q.ops, op) }

func (q *opQueue) peek() *Operation {
	if q.head == len(q.ops) {
		return nil
	}
	return q.ops[q.head]
}

func (q *opQueue) pop() *Operation {
	op := q.peek()
	if op == nil {
		return nil
	}
	q.ops[q.head] = nil
	q.head++
	if q.head == len(q.ops) {
		q.ops, q.head = q.ops[:0], 0
	} else if q.head > 1024 && q.head > len(q.ops)/2 {
		n := copy(q.ops, q.ops[q.head:])
		clear(q.ops[n:])
		q.ops, q.head = q.ops[:n], 0
	}
	return op
}
