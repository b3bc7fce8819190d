package journal

import (
	"fmt"
	"slices"
)

// Lane is one of the three sequences in which actions are carried out. Each lane takes its actions one at a time
// and in order; lanes may overlap.
type Lane uint8

// The lanes.
const (
	LaneWrite Lane = iota
	LaneSync
	LaneBackground
	laneCount
)

// Action is what a Core wants to be done. The driver answers each with the Input that doing it returns.
type Action struct {
	Lane Lane
	kind actionKind

	segment   uint64
	seq       uint64
	sizeBytes int64 // of the file
	pos       int64
	group     *group
	segments  []uint64
	footer    *footerWork
	spare     uint64
	recycle   bool
}

type actionKind uint8

const (
	actWrite actionKind = iota
	actSync
	actFooter  // write a sealed segment's footer
	actFree    // remove a segment, or make it a spare
	actPrepare // make the next segment's file
	actSpare   // make a spare file
	actZero    // fill a part of the next segment, or of a spare, with zeros
)

// Input is what a Core is told.
type Input struct {
	kind    inputKind
	segment uint64
	seq     uint64
	bytes   int64
	err     error
	full    bool // err is want of space
	fatal   bool // err ends the journal where it otherwise would not
}

type inputKind uint8

const (
	inWritten inputKind = iota
	inSynced
	inFootered
	inFreed
	inHeld // it could not be freed because somebody reads it
	inReleased
	inPrepared
	inSpare
	inZeroed
	inTick
	inSnapshot
)

// Output collects what a Core answers, until Reset.
type Output struct {
	Actions []Action
	Events  []Event
}

// Reset empties o and keeps its memory.
func (o *Output) Reset() {
	clear(o.Actions)
	clear(o.Events)
	o.Actions, o.Events = o.Actions[:0], o.Events[:0]
}

// segment is what the core knows of one.
type segment struct {
	number    uint64
	firstSeq  uint64
	lastSeq   uint64 // 0 while active
	fileBytes int64
	filledTo  int64 // bytes from the start that are known to be written, not only reserved
	endPos    int64
	prevCRC   uint32
	lastCRC   uint32
	footer    *footer // until it is written; nil also if it must be made from the segment itself
	opened    bool    // made by an open: durable before it was used
	footered  bool
	sealed    bool
	stuck     bool // could not be sealed for want of space, or not be freed; see readers
	readers   bool // because somebody holds it
}

// footerWork is a sealed segment's footer to be written.
type footerWork struct {
	footer   *footer // nil: read the segment
	pointer  footerPointer
	truncate bool
}

// coreConfig is the part of FileConfig that decides.
type coreConfig struct {
	durability   Durability
	segmentBytes int64
	maxUnitBytes int64
	maxExtents   int
	syncBytes    int64
	zeroPerTick  int64
}

// Core decides everything about the journal's layout: where units go, when to sync, seal, prepare and free. It is a
// reactor: it never blocks and has no goroutine, no clock and no file. It is not safe for concurrent use.
//
// A segment passes through: prepared (next) → active → closing (all placed, not all durable, or no footer yet) →
// sealed → freed. Only a prefix of the segments is ever freed, so that a gap is always damage.
type Core struct {
	cfg      coreConfig
	tail     tail
	segments []*segment // oldest first; the last one is active
	footer   *footer    // of the active segment

	slots       [2]group
	queue       []*group // outstanding, oldest first
	held        []Action // writes that wait; see flush
	growing     bool     // the newest write that was passed on makes or lengthens its file
	noRoom      error    // why it could not: it is the first of held, until a tick
	writtenSeq  uint64
	durableSeq  uint64
	unsynced    int64   // bytes written since the last sync was begun
	dirty       []dirty // segments with bytes that are not known durable, oldest first
	syncing     bool
	syncBuf     []uint64
	promptSeq   uint64 // Sync asked for up to here
	trimSeq     uint64
	snapshotSeq uint64
	stopping    bool
	failed      error

	pool
}

type dirty struct {
	segment uint64
	lastSeq uint64 // of its units written so far
}

// active is the segment that takes new units.
func (c *Core) active() *segment { return c.segments[len(c.segments)-1] }

// Room says whether another group may be appended.
func (c *Core) Room() bool { return c.failed == nil && !c.stopping && len(c.queue) < len(c.slots) }

// Append places units as one group. See Journal.Append.
func (c *Core) Append(units []Unit, out *Output) []Placed {
	if c.failed != nil || len(units) == 0 {
		return nil
	}
	if !c.Room() {
		panic(fmt.Sprintf("BUG: Append with %d groups outstanding (stopping: %t); ask Room first", len(c.queue), c.stopping))
	}
	need, extents := c.measure(units)
	g := c.slot()
	g.reset(c.active().number, c.tail.pos)
	if c.mustRoll(need, extents) {
		c.roll(need, g)
	}
	active := c.active()
	placed := c.tail.encode(g, c.footer, units, c.durableSeq)
	g.fileBytes = max(active.fileBytes, alignUp(c.tail.pos+c.footer.size))
	g.grows = g.grows || g.fileBytes > active.fileBytes
	active.fileBytes = g.fileBytes
	active.endPos, active.lastCRC = c.tail.pos, c.tail.prevCRC
	active.filledTo = max(active.filledTo, c.tail.pos)
	c.queue = append(c.queue, g)
	c.appendedBytes += c.tail.pos - g.pos
	c.write(Action{Lane: LaneWrite, kind: actWrite, segment: g.segment, sizeBytes: g.fileBytes, group: g}, out)
	c.background(out)
	return placed
}

// measure returns what units need of a segment and how many batches they hold.
func (c *Core) measure(units []Unit) (need int64, extents int) {
	for i, u := range units {
		n := UnitBytes(u)
		if n > c.cfg.maxUnitBytes {
			panic(fmt.Sprintf("BUG: unit %d of a group has %d bytes; the limit is %d", i, n, c.cfg.maxUnitBytes))
		}
		need += n
		extents += len(u.Batches)
	}
	return need, extents
}

// slot returns the group memory that is not outstanding.
func (c *Core) slot() *group {
	if len(c.queue) == 1 && c.queue[0] == &c.slots[0] {
		return &c.slots[1]
	}
	return &c.slots[0]
}

// capacity is how large a group fits into an empty file of that size.
func capacity(fileBytes int64) int64 { return fileBytes - dataStart - 2*blockBytes }

// remaining is how large a group still fits into the active segment.
func (c *Core) remaining() int64 {
	return c.active().fileBytes - c.tail.pos - c.footer.size - 2*blockBytes
}

func (c *Core) mustRoll(need int64, extents int) bool {
	if c.empty() {
		return false
	}
	large := c.tail.pos > c.cfg.segmentBytes // it was made for a group larger than a segment
	return large || c.rollEarly || need > c.remaining() || c.footer.extents+extents > c.cfg.maxExtents
}

// empty says whether the active segment has no unit yet. Such a one is never sealed: it grows instead.
func (c *Core) empty() bool { return c.active().firstSeq == c.tail.nextSeq }

// roll seals the active segment and lets g begin the next one.
func (c *Core) roll(need int64, g *group) {
	old := c.active()
	old.lastSeq, old.footer = c.tail.nextSeq-1, c.footer
	next := c.takeNext(old.number + 1)
	next.firstSeq, next.prevCRC = c.tail.nextSeq, c.tail.prevCRC
	g.reset(next.number, 0)
	if least := alignUp(need) + dataStart + 2*blockBytes; next.fileBytes < least {
		next.fileBytes = max(least, c.newBytes())
		g.grows = true
	}
	c.segments = append(c.segments, next)
	c.footer = &footer{free: c.footer.free}
	old.footer.free = nil
	c.rollEarly = false
	g.header(c.tail.enter(next.number, c.durableSeq))
}

// newBytes is how long a segment is made that was not prepared: short where there is no space for a whole one, so that
// what must go on does as long as the disk has any.
func (c *Core) newBytes() int64 {
	if c.prepareErr != nil {
		return alignUp(c.cfg.segmentBytes/shortSegments) + dataStart + 2*blockBytes
	}
	return c.cfg.segmentBytes
}

// write passes a write on when its turn comes.
func (c *Core) write(a Action, out *Output) {
	c.held = append(c.held, a)
	c.flush(out)
}

// flush passes writes on, in order, but none whose file the background is busy with, and none behind one that may yet
// find no space.
func (c *Core) flush(out *Output) {
	for len(c.held) > 0 && !c.growing && c.noRoom == nil && !c.busyWith(c.held[0].segment) {
		c.growing = c.held[0].group.grows
		out.Actions = append(out.Actions, c.held[0])
		c.held = slices.Delete(c.held, 0, 1)
	}
}

// Handle takes in and appends the answers to out. The first failure ends everything: one Failed event, then silence.
func (c *Core) Handle(in Input, out *Output) {
	if c.isBackground(in.kind) {
		c.backgroundDone(in, out)
	}
	if in.kind == inSynced {
		c.syncing = false
	}
	if c.failed != nil {
		return
	}
	switch in.kind {
	case inWritten:
		c.written(in, out)
	case inSynced:
		c.synced(in, out)
	case inReleased:
		c.released(in.segment)
	case inTick:
		c.tick()
	case inSnapshot:
		c.snapshotSeq = max(c.snapshotSeq, in.seq)
	}
	if c.failed != nil {
		return
	}
	c.flush(out)
	c.sync(out)
	c.background(out)
}

// fail ends the journal.
func (c *Core) fail(err error, out *Output) {
	if c.failed != nil {
		return
	}
	c.failed = err
	c.held, c.noRoom = nil, nil
	out.Events = append(out.Events, Event{Kind: Failed, Err: err})
}

// written notes that the oldest unwritten group is with the operating system.
func (c *Core) written(in Input, out *Output) {
	at := slices.IndexFunc(c.queue, func(g *group) bool { return !g.written })
	if in.full && !c.stopping {
		c.waitForRoom(c.queue[at], in.err, out)
		return
	}
	if in.err != nil {
		c.fail(in.err, out)
		return
	}
	g := c.queue[at]
	g.written, c.growing = true, c.growing && !g.grows
	c.writtenSeq = g.lastSeq
	c.unsynced += g.release()
	if last := len(c.dirty) - 1; last >= 0 && c.dirty[last].segment == g.segment {
		c.dirty[last].lastSeq = g.lastSeq
	} else {
		c.dirty = append(c.dirty, dirty{g.segment, g.lastSeq})
	}
	out.Events = append(out.Events, Event{Kind: Written, Seq: g.lastSeq})
	if g.grows && c.prepareErr != nil && c.next != nil && len(c.spares) >= preparedSpares {
		c.prepareErr = nil // nothing else wants space
		out.Events = append(out.Events, Event{Kind: SpaceChanged})
	}
	if c.cfg.durability == DurabilityWrite {
		c.queue = slices.Delete(c.queue, at, at+1)
	}
}

// waitForRoom keeps a write that found no space, and with it all behind it: nothing of it is on the disk, and nobody was
// told of it. It asks for no more than it needs from now on.
func (c *Core) waitForRoom(g *group, err error, out *Output) {
	c.growing, c.noRoom = false, err
	c.held = slices.Insert(c.held, 0, Action{Lane: LaneWrite, kind: actWrite, segment: g.segment, group: g})
	s := c.segment(g.segment)
	written := s.footer
	if s == c.active() {
		written = c.footer
	}
	s.fileBytes = alignUp(s.endPos + written.size)
	for i := range c.held {
		if a := &c.held[i]; a.segment == g.segment {
			a.group.grows, a.group.fileBytes, a.sizeBytes = true, s.fileBytes, s.fileBytes
		}
	}
	if c.prepareErr == nil {
		c.prepareErr = err
		out.Events = append(out.Events, Event{Kind: SpaceChanged, Err: err})
	}
}

// synced notes that everything up to in.seq is durable: a prefix, whatever segments it lies in.
func (c *Core) synced(in Input, out *Output) {
	if in.err != nil {
		c.fail(in.err, out)
		return
	}
	c.durableSeq = in.seq
	c.dirty = slices.DeleteFunc(c.dirty, func(d dirty) bool { return d.lastSeq <= in.seq })
	out.Events = append(out.Events, Event{Kind: Synced, Seq: in.seq})
	if c.cfg.durability == DurabilityFsync {
		c.queue = slices.DeleteFunc(c.queue, func(g *group) bool { return g.written && g.lastSeq <= in.seq })
	}
}

// sync begins a sync if one is due and none is under way.
func (c *Core) sync(out *Output) {
	if c.syncing || c.writtenSeq == c.durableSeq || !c.syncDue() {
		return
	}
	c.syncing = true
	c.unsynced = 0
	c.syncBuf = c.syncBuf[:0]
	for _, d := range c.dirty {
		c.syncBuf = append(c.syncBuf, d.segment)
	}
	out.Actions = append(out.Actions, Action{Lane: LaneSync, kind: actSync, seq: c.writtenSeq, segments: c.syncBuf})
}

func (c *Core) syncDue() bool {
	return c.cfg.durability == DurabilityFsync || c.stopping || c.unsynced >= c.cfg.syncBytes ||
		c.promptSeq > c.durableSeq || c.dirty[0].segment != c.active().number
}

// Sync asks for a prompt sync of everything appended so far.
func (c *Core) Sync(out *Output) {
	c.promptSeq = c.tail.nextSeq - 1
	if c.failed == nil {
		c.sync(out)
	}
}

// Stop begins the end: nothing more is appended, what was is synced. See Quiet.
func (c *Core) Stop(out *Output) {
	c.stopping = true
	if c.noRoom != nil {
		c.fail(c.noRoom, out)
	}
	if c.failed == nil {
		c.sync(out)
		c.background(out)
	}
}

// Quiet says, after Stop, that nothing is left to do.
func (c *Core) Quiet() bool {
	return c.failed != nil || len(c.queue) == 0 && !c.syncing && c.doing == nil &&
		c.durableSeq == c.tail.nextSeq-1 && c.unsealed() == nil
}

// release forgets the caller's buffers and returns how many bytes were written.
func (g *group) release() (bytes int64) {
	for _, b := range g.bufs {
		bytes += int64(len(b))
	}
	clear(g.bufs)
	clear(g.pieces)
	return bytes
}
