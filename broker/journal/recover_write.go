package journal

import (
	"errors"
	"fmt"
	"path"

	"github.com/strandline-io/strandline/internal/failpoint"
	"github.com/strandline-io/strandline/internal/mutant"
	"github.com/strandline-io/strandline/internal/vfs"
)

// rewriteGroupBytes is how much recovery writes at once, a larger unit apart.
const rewriteGroupBytes = 1 << 20

// newSegment is the one that an opening adds: it begins with everything that is readable but not known durable.
type newSegment struct {
	openSegment
	number uint64
	tail   tail
	footer *footer
	groups [][]pending
	least  int64 // bytes for what is rewritten
}

// plan lays out the new segment without writing anything, so that replay can name final positions.
func (r *recovery) plan() *newSegment {
	n := &newSegment{number: r.maxNumber + 1, footer: &footer{}}
	n.tail = tail{
		secret: r.secret, incarnation: r.incarnation + 1, nextSeq: r.chain.nextSeq, prevCRC: r.chain.prevCRC,
	}
	pos, entries := int64(dataStart), int64(0)
	for from := 0; from < len(r.pending); {
		to, bytes := from, int64(0)
		for to < len(r.pending) && (to == from || bytes+r.pending[to].bytes <= rewriteGroupBytes) {
			r.pending[to].newPos = pos + bytes
			bytes += r.pending[to].bytes
			entries += r.pending[to].entry
			to++
		}
		n.groups = append(n.groups, r.pending[from:to])
		pos = alignUp(pos + bytes)
		from = to
	}
	n.least = alignUp(pos + entries)
	return n
}

// deliver gives the owner everything that was found.
func (r *recovery) deliver(n *newSegment, replay func(Stored) error) error {
	if r.snapshot.seq > 0 {
		if r.cfg.Restore == nil {
			return fmt.Errorf("%s: there is a snapshot, but nothing to restore it with", snapshotName(r.snapshot.seq))
		}
		if err := r.cfg.Restore(r.snapshot.seq, r.state); err != nil {
			return fmt.Errorf("restore %s: %w", snapshotName(r.snapshot.seq), err)
		}
		r.state = nil
		failpoint.Hit("recovery.restored")
	}
	give := func(u *unit, segment uint64, pos int64) error {
		switch {
		case u.head.seq > r.snapshot.seq:
			if err := replay(u.stored(segment, pos)); err != nil {
				return fmt.Errorf("replay unit %d: %w", u.head.seq, err)
			}
		case r.cfg.Extents != nil && u.head.batches > 0:
			if err := r.cfg.Extents(u.stored(segment, pos)); err != nil {
				return fmt.Errorf("extents of unit %d: %w", u.head.seq, err)
			}
		}
		return nil
	}
	for _, s := range r.segments {
		if !s.reached {
			continue
		}
		each := func(u *unit) error { return give(u, s.number, u.pos) }
		var err error
		if s.sealed {
			err = readFooter(s.file, s.name, s.pointer, s.header, each)
		} else {
			err = scanHeads(&s.openSegment, s.header, s.fileBytes, s.lastSeq, each)
		}
		if err != nil {
			return err
		}
	}
	return r.deliverPending(n, give)
}

// deliverPending gives the units that are to be rewritten, with the place where they will lie.
func (r *recovery) deliverPending(n *newSegment, give func(*unit, uint64, int64) error) error {
	var w *window
	var in *found
	var u unit
	for _, p := range r.pending {
		if in != p.in {
			in, w = p.in, newWindow(p.in.file, p.in.fileBytes, headWindow)
		}
		bad, err := readUnit(w, &u, r.secret.seed(in.number), p.pos, false)
		if err != nil {
			return fmt.Errorf("read %s: %w", in.name, err)
		}
		if bad != "" {
			return damaged(in.name, p.pos, "unit %d was readable a moment ago: %s", p.seq, bad)
		}
		if mutant.On("replay skips the last unit") && p.seq == r.pending[len(r.pending)-1].seq {
			break
		}
		if err := give(&u, n.number, p.newPos); err != nil {
			return err
		}
	}
	return nil
}

// write builds the new segment under a temporary name and renames it when it is durable: bytes found after a process
// was killed may be only in the page cache, and the owner is about to answer for them.
func (r *recovery) write(n *newSegment) error {
	temp := path.Join(r.cfg.Dir, fmt.Sprintf("%016x%s", n.number, tempSuffix))
	if n.tail.incarnation == 0 {
		return errors.New("the journal has been opened 4,294,967,295 times; its incarnations are used up")
	}
	n.name = openedName(n.number, n.tail.incarnation)
	if mutant.On("rewrite at recovery not atomic") {
		temp = path.Join(r.cfg.Dir, n.name)
	}
	err := r.fill(n, temp)
	if err == nil {
		failpoint.Hit("recovery.rewritten")
		err = r.cfg.FS.Rename(temp, path.Join(r.cfg.Dir, n.name))
	}
	if err == nil {
		failpoint.Hit("recovery.renamed")
		err = r.cfg.FS.SyncDir(r.cfg.Dir)
	}
	if err != nil && n.file != nil {
		err = errors.Join(err, n.file.Close())
	}
	n.named = true
	return err
}

func (r *recovery) fill(n *newSegment, temp string) (err error) {
	if n.file, err = r.cfg.FS.Create(temp); err != nil {
		return err
	}
	// A full disk must not keep the journal closed while the space for what is rewritten is there.
	n.fileBytes = max(r.cfg.SegmentBytes, n.least+2*blockBytes)
	err = n.file.Allocate(0, n.fileBytes)
	if errors.Is(err, vfs.ErrNoSpace) && len(r.spares) > 0 {
		if err = r.dropSpares(); err == nil {
			err = n.file.Allocate(0, n.fileBytes)
		}
	}
	if errors.Is(err, vfs.ErrNoSpace) {
		n.fileBytes = n.least
		err = n.file.Allocate(0, n.fileBytes)
	}
	if err != nil {
		return err
	}
	last := r.chain.nextSeq - 1 + uint64(len(r.pending))
	header := n.tail.enter(n.number, last)
	var g group
	g.reset(n.number, 0)
	g.header(header)
	if err := n.file.WriteVecAt([][]byte{g.arena}, 0); err != nil {
		return err
	}
	if len(n.groups) > 0 {
		failpoint.Hit("recovery.rewrite-half")
	}
	for _, units := range n.groups {
		g.reset(n.number, n.tail.pos)
		if err := r.rewrite(n, &g, units); err != nil {
			return err
		}
	}
	if mutant.On("recovery answers before its rewrite is durable") {
		return nil
	}
	return n.file.Sync()
}

// rewrite copies one group.
func (r *recovery) rewrite(n *newSegment, g *group, from []pending) error {
	units := make([]Unit, len(from))
	for i, p := range from {
		var err error
		if units[i], err = loadUnit(p); err != nil {
			return fmt.Errorf("read unit %d of %s: %w", p.seq, p.in.name, err)
		}
	}
	placed := n.tail.encode(g, n.footer, units, r.durable)
	for i, p := range from {
		if u := units[i]; placed[i].BatchPos != p.newPos+unitBytes(Unit{Meta: u.Meta})+lengthBytes*int64(len(u.Batches)) {
			panic(fmt.Sprintf("BUG: unit %d was planned at %d but its batches are at %d", p.seq, p.newPos, placed[i].BatchPos))
		}
	}
	return n.file.WriteVecAt(g.bufs, g.pos)
}

// loadUnit reads a unit that was checked before.
func loadUnit(p pending) (Unit, error) {
	b := make([]byte, p.bytes)
	if _, err := p.in.file.ReadAt(b, p.pos); err != nil {
		return Unit{}, err
	}
	head, ok := parseUnitHead(b, p.bytes)
	if !ok || head.seq != p.seq || head.totalBytes != p.bytes {
		return Unit{}, damaged(p.in.name, p.pos, "unit %d was readable a moment ago", p.seq)
	}
	table, rest := b[unitHeadBytes:][:lengthBytes*head.batches], b[unitHeadBytes+lengthBytes*head.batches:]
	u := Unit{Meta: rest[:head.metaBytes]}
	rest = rest[head.metaBytes:]
	for len(table) > 0 {
		n := int64(le.Uint32(table))
		if n > int64(len(rest)) {
			return Unit{}, damaged(p.in.name, p.pos, "unit %d was readable a moment ago", p.seq)
		}
		u.Batches = append(u.Batches, rest[:n])
		table, rest = table[lengthBytes:], rest[n:]
	}
	return u, nil
}

// engine makes the running journal of what was found.
func (r *recovery) engine(n *newSegment) *engine {
	d := &disk{
		fs: r.cfg.FS, dir: r.cfg.Dir, secret: r.secret,
		files: make(map[uint64]*openSegment), spares: make(map[uint64]vfs.File),
	}
	last := n.tail.nextSeq - 1
	c := &Core{
		cfg: coreConfig{
			durability: r.cfg.Durability, segmentBytes: r.cfg.SegmentBytes, maxUnitBytes: r.cfg.MaxUnitBytes,
			maxExtents: r.cfg.MaxExtents, syncBytes: r.cfg.SyncBytes, zeroPerTick: r.cfg.ZeroFillBytesPerTick,
		},
		tail: n.tail, footer: n.footer, writtenSeq: last, durableSeq: last, snapshotSeq: r.snapshot.seq,
	}
	for _, s := range r.segments {
		if !s.reached {
			continue
		}
		c.segments = append(c.segments, &segment{
			number: s.number, firstSeq: s.header.firstSeq, lastSeq: s.lastSeq, fileBytes: s.fileBytes,
			filledTo: min(s.endPos, s.fileBytes), endPos: s.endPos, prevCRC: s.header.prevCRC, lastCRC: s.lastCRC,
			footered: s.sealed, sealed: true, opened: s.opened,
		})
		d.files[s.number] = &s.openSegment
	}
	c.segments = append(c.segments, &segment{
		number: n.number, firstSeq: r.chain.nextSeq, fileBytes: n.fileBytes, filledTo: n.tail.pos, endPos: n.tail.pos,
		prevCRC: r.chain.prevCRC, lastCRC: n.tail.prevCRC, opened: true,
	})
	d.files[n.number] = &n.openSegment
	c.spareIDs = r.spareIDs
	for _, s := range r.spares {
		c.spares = append(c.spares, spare{id: s.id, fileBytes: r.cfg.SegmentBytes})
		d.spares[s.id] = s.file
	}
	return newEngine(d, c, n.tail.incarnation)
}
