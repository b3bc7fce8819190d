package journal

import "slices"

const (
	zeroStepBytes   = 1 << 20
	zeroPerTick     = 16 << 20 // written at most between two ticks
	ticksBeforeZero = 5        // after the start, which should be over first
	preparedSpares  = 1        // made ahead: the reserve when the disk is full
	recycledSpares  = 3        // kept of freed segments
	shortSegments   = 64       // so much shorter is one that is made on a full disk
)

// pool is the part of a Core that prepares, seals and frees segments behind the writes, one action at a time.
type pool struct {
	doing    *Action // under way
	next     *segment
	spares   []spare
	spareIDs uint64

	prepareErr    error // why there is no space
	retry         bool
	wantBytes     int64 // Reserve asked for
	appendedBytes int64 // since the last tick
	ticks         int
	zeroBudget    int64
	zeroOff       bool
	rollEarly     bool
	freeAgain     bool // the segment being freed was released meanwhile
}

// spare is a file without a segment yet.
type spare struct {
	id        uint64
	fileBytes int64
	filledTo  int64
}

func (c *Core) isBackground(k inputKind) bool {
	return k >= inFootered && k <= inZeroed && k != inReleased
}

// background begins the most urgent action if none is under way.
func (c *Core) background(out *Output) {
	if c.doing != nil || c.failed != nil {
		return
	}
	if free, _ := c.Space(); c.wantBytes > 0 && c.wantBytes <= free {
		c.wantBytes = 0
		out.Events = append(out.Events, Event{Kind: SpaceChanged, Err: c.prepareErr})
	}
	a, ok := c.choose()
	if !ok {
		return
	}
	a.Lane = LaneBackground
	c.doing = &a
	out.Actions = append(out.Actions, a)
}

func (c *Core) choose() (Action, bool) {
	if s := c.unsealed(); s != nil {
		return c.seal(s), true
	}
	if c.stopping {
		return Action{}, false
	}
	if s := c.segments[0]; s.sealed && !s.stuck && s.lastSeq <= min(c.trimSeq, c.snapshotSeq) && c.headed(c.segments[1]) {
		recycle := s.fileBytes == c.cfg.segmentBytes && len(c.spares) < recycledSpares
		a := Action{kind: actFree, segment: s.number, recycle: recycle}
		if recycle {
			c.spareIDs++
			a.spare = c.spareIDs
		}
		return a, true
	}
	if a, ok := c.choosePrepare(); ok {
		return a, true
	}
	return c.chooseZero()
}

// headed says whether a segment's header is durable. Until then the segment before must stay: with both gone the
// journal would have forgotten its secret and its incarnation.
func (c *Core) headed(s *segment) bool { return s.opened || s.firstSeq <= c.durableSeq }

// unsealed returns what to seal next: the oldest segment that is complete and durable but has no footer yet.
func (c *Core) unsealed() *segment {
	for _, s := range c.segments {
		if s == c.active() && c.stopping && s.lastSeq == 0 && !c.empty() && c.durableSeq == c.tail.nextSeq-1 {
			s.lastSeq, s.footer, s.sealed = c.durableSeq, c.footer, true
		}
		if s.lastSeq != 0 && !s.footered {
			if s.lastSeq > c.durableSeq || s.stuck {
				return nil
			}
			return s
		}
	}
	return nil
}

// seal writes the footer. A file of which much is unused is cut, unless it is soon used again.
func (c *Core) seal(s *segment) Action {
	w := &footerWork{footer: s.footer, pointer: footerPointer{
		pos: alignUp(s.endPos), firstSeq: s.firstSeq, lastSeq: s.lastSeq, endPos: s.endPos,
		prevCRC: s.prevCRC, lastCRC: s.lastCRC,
	}}
	w.truncate = c.stopping || s.footer == nil || alignUp(s.endPos+s.footer.size)*4 < s.fileBytes*3
	return Action{kind: actFooter, segment: s.number, footer: w}
}

func (c *Core) choosePrepare() (Action, bool) {
	if c.prepareErr != nil && !c.retry && c.wantBytes == 0 {
		return Action{}, false
	}
	number := c.active().number + 1
	size := max(c.cfg.segmentBytes, alignUp(c.wantBytes)+dataStart+2*blockBytes)
	switch {
	case c.empty() && c.wantBytes > c.remaining():
		return Action{kind: actPrepare, segment: number - 1, sizeBytes: size}, true
	case c.next == nil:
		a := Action{kind: actPrepare, segment: number, sizeBytes: size}
		if last := len(c.spares) - 1; last >= 0 {
			a.spare = c.spares[last].id
		}
		return a, true
	case !c.empty() && c.wantBytes > capacity(c.next.fileBytes):
		return Action{kind: actPrepare, segment: number, sizeBytes: size}, true
	case len(c.spares) < preparedSpares:
		c.spareIDs++
		return Action{kind: actSpare, spare: c.spareIDs, sizeBytes: c.cfg.segmentBytes}, true
	}
	return Action{}, false
}

func (c *Core) chooseZero() (Action, bool) {
	if c.zeroBudget <= 0 || c.zeroOff {
		return Action{}, false
	}
	step := func(a Action, filledTo, fileBytes int64) (Action, bool) {
		a.kind = actZero
		a.pos = filledTo
		a.sizeBytes = min(zeroStepBytes, fileBytes-filledTo)
		return a, true
	}
	if c.next != nil && c.next.filledTo < c.next.fileBytes {
		return step(Action{segment: c.next.number}, c.next.filledTo, c.next.fileBytes)
	}
	for _, s := range c.spares {
		if s.filledTo < s.fileBytes {
			return step(Action{spare: s.id}, s.filledTo, s.fileBytes)
		}
	}
	return Action{}, false
}

// busyWith says whether the background is working on the file of a segment that has not begun yet.
func (c *Core) busyWith(number uint64) bool {
	return c.doing != nil && c.doing.segment == number && (c.doing.kind == actPrepare || c.doing.kind == actZero)
}

// takeNext gives the segment that comes next. If none is ready, the write that begins it makes its file.
func (c *Core) takeNext(number uint64) *segment {
	s := c.next
	c.next = nil
	if s == nil {
		s = &segment{number: number}
	}
	s.endPos = dataStart
	return s
}

// backgroundDone takes the outcome of the action under way.
func (c *Core) backgroundDone(in Input, out *Output) {
	a := c.doing
	c.doing = nil
	if c.failed != nil {
		return
	}
	switch a.kind {
	case actFooter:
		c.footered(a, in, out)
	case actFree:
		c.freed(a, in, out)
	case actPrepare, actSpare:
		c.prepared(a, in, out)
	case actZero:
		c.zeroed(a, in)
	}
}

func (c *Core) segment(number uint64) *segment {
	for _, s := range c.segments {
		if s.number == number {
			return s
		}
	}
	return nil
}

func (c *Core) footered(a *Action, in Input, out *Output) {
	s := c.segment(a.segment)
	if in.full {
		s.stuck = true
		return
	}
	if in.err != nil {
		c.fail(in.err, out)
		return
	}
	s.footered, s.fileBytes = true, in.bytes
	s.filledTo = min(s.filledTo, s.fileBytes)
	if s.footer != nil {
		s.filledTo = min(max(s.filledTo, alignUp(s.endPos+s.footer.size)), s.fileBytes)
		c.footer.recycle(s.footer)
		s.footer = nil
	}
	if !s.sealed {
		s.sealed = true
		out.Events = append(out.Events, Event{Kind: Sealed, Segment: s.number})
	}
}

// freed takes the oldest segment off the list. One that could not be removed stays, to be tried again at a tick.
func (c *Core) freed(a *Action, in Input, out *Output) {
	if in.fatal {
		c.fail(in.err, out)
		return
	}
	s, again := c.segments[0], c.freeAgain
	c.freeAgain = false
	if in.kind == inHeld || in.err != nil {
		s.readers = in.kind == inHeld
		s.stuck = !s.readers || !again
		return
	}
	c.segments = slices.Delete(c.segments, 0, 1)
	if a.recycle {
		c.spares = append(c.spares, spare{id: a.spare, fileBytes: s.fileBytes, filledTo: s.filledTo})
	}
	c.retry = true
}

// released notes that the last reader of a segment that should be freed has left it. That can be heard of before
// the attempt that found the reader.
func (c *Core) released(number uint64) {
	if c.doing != nil && c.doing.kind == actFree && c.doing.segment == number {
		c.freeAgain = true
	} else if s := c.segment(number); s != nil {
		s.stuck, s.readers = false, false
	}
}

// prepared takes a new file, or the news that there is no space for one: that slows the owner down but ends nothing.
func (c *Core) prepared(a *Action, in Input, out *Output) {
	wanted := c.wantBytes > 0 && a.kind == actPrepare
	changed := (c.prepareErr != nil) != (in.err != nil)
	c.prepareErr, c.retry = in.err, false
	if wanted {
		c.wantBytes = 0
	}
	if wanted || changed {
		defer func() { out.Events = append(out.Events, Event{Kind: SpaceChanged, Err: in.err}) }()
	}
	if in.err != nil {
		return
	}
	if a.kind == actSpare {
		c.spares = append(c.spares, spare{id: a.spare, fileBytes: a.sizeBytes})
		return
	}
	s := &segment{number: a.segment, fileBytes: a.sizeBytes}
	if a.spare != 0 {
		at := slices.IndexFunc(c.spares, func(s spare) bool { return s.id == a.spare })
		s.filledTo = c.spares[at].filledTo
		c.spares = slices.Delete(c.spares, at, at+1)
	}
	switch begun := c.segment(a.segment); {
	case begun != nil:
		begun.filledTo = max(begun.filledTo, s.filledTo)
		begun.fileBytes = max(begun.fileBytes, s.fileBytes)
	case c.next != nil:
		c.next.fileBytes = max(c.next.fileBytes, a.sizeBytes)
	default:
		c.next = s
	}
}

func (c *Core) zeroed(a *Action, in Input) {
	if in.err != nil {
		c.zeroOff = true
		return
	}
	c.zeroBudget -= a.sizeBytes
	filledTo := a.pos + a.sizeBytes
	switch {
	case a.spare != 0:
		at := slices.IndexFunc(c.spares, func(s spare) bool { return s.id == a.spare })
		c.spares[at].filledTo = filledTo
	case c.next != nil && c.next.number == a.segment:
		c.next.filledTo = filledTo
	default:
		begun := c.segment(a.segment)
		begun.filledTo = max(begun.filledTo, filledTo)
	}
}

// tick is what time does: it measures the rate of writing, tries again what failed for space, and lets
// DurabilityWrite sync late.
func (c *Core) tick() {
	c.ticks++
	low := c.cfg.zeroPerTick > 0 && c.appendedBytes <= c.cfg.zeroPerTick && c.ticks > ticksBeforeZero
	c.appendedBytes = 0
	c.zeroBudget = 0
	if low {
		c.zeroBudget = zeroPerTick
		c.rollEarly = c.rollEarly || c.betterNext()
	}
	c.retry, c.noRoom = true, nil
	for _, s := range c.segments {
		s.stuck = s.stuck && s.readers
	}
	c.promptSeq = max(c.promptSeq, c.writtenSeq)
}

// betterNext says whether the next segment is filled and the active one is not, so that changing over is worth the
// rest of the active one.
func (c *Core) betterNext() bool {
	return c.next != nil && c.next.filledTo >= c.next.fileBytes && !c.empty() &&
		c.active().filledTo < c.active().fileBytes
}

// WantsTick says whether an Input made by Tick would do anything, now or after some more.
func (c *Core) WantsTick() bool {
	if c.failed != nil || c.stopping {
		return false
	}
	stuck := func(s *segment) bool { return s.stuck && !s.readers }
	return c.prepareErr != nil || c.noRoom != nil || c.fillable() || slices.ContainsFunc(c.segments, stuck) ||
		c.cfg.durability == DurabilityWrite && c.writtenSeq > c.durableSeq
}

func (c *Core) fillable() bool {
	if c.cfg.zeroPerTick <= 0 || c.zeroOff {
		return false
	}
	unfilled := func(s spare) bool { return s.filledTo < s.fileBytes }
	return c.next != nil && c.next.filledTo < c.next.fileBytes || slices.ContainsFunc(c.spares, unfilled) ||
		!c.rollEarly && c.betterNext()
}

// Trim allows segments to be freed that hold nothing above seq. They are freed once a snapshot covers them too.
func (c *Core) Trim(seq uint64, out *Output) {
	c.trimSeq = max(c.trimSeq, seq)
	c.background(out)
}

// Space says how large a group may be without new space, and whether none could be had.
func (c *Core) Space() (freeBytes int64, low bool) {
	free := c.remaining()
	if c.next != nil && !c.empty() {
		free = max(free, capacity(c.next.fileBytes))
	}
	return max(free, 0), c.prepareErr != nil
}

// Reserve makes room for a group of sizeBytes. See Journal.Reserve.
func (c *Core) Reserve(sizeBytes int64, out *Output) bool {
	if free, _ := c.Space(); sizeBytes <= free {
		return true
	}
	c.wantBytes = max(c.wantBytes, sizeBytes)
	c.retry = true
	c.background(out)
	return false
}
