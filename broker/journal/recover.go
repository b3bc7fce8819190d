package journal

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/strandline-io/strandline/internal/failpoint"
	"github.com/strandline-io/strandline/internal/vfs"
)

// recovery is what opening a journal finds out. It reads everything before it changes anything that counts.
type recovery struct {
	cfg  FileConfig
	lock io.Closer

	segments    []*found // by number
	snapshots   []uint64 // newest first
	junk        []string // can go at once
	spares      []leftover
	spareIDs    uint64   // the highest seen
	stale       []string // can go once the new segment is durable
	secret      secret
	incarnation uint32 // the highest seen
	maxNumber   uint64
	snapshot    snapshot // seq 0: none
	state       []byte

	chain   chain
	durable uint64 // every unit up to here is known durable
	pending []pending
	end     place
	unused  *found // the first file without a header behind the chain's end
}

// found is a segment file.
type found struct {
	openSegment
	number  uint64
	opened  bool // made by an open: complete before it had its name
	header  segmentHeader
	valid   bool   // the header is
	limit   uint64 // what it holds from here on does not exist
	hidden  bool   // nothing that it holds exists
	reached bool   // by the chain
	pointer footerPointer
	sealed  bool // the footer counts
	lastSeq uint64
	lastCRC uint32
	endPos  int64
}

// leftover is space that the process before this one kept ready, and that need not be given back and asked for again.
type leftover struct {
	id   uint64
	file vfs.File
}

// pending is a unit that is readable but not known durable.
type pending struct {
	in      *found
	pos     int64
	seq     uint64
	bytes   int64
	entry   int64 // of the footer
	prevCRC uint32
	newPos  int64
}

// place is where the chain ends, and why.
type place struct {
	in     *found
	pos    int64
	reason string
}

// recoverJournal opens the journal up to the point where goroutines would start.
func recoverJournal(cfg FileConfig, replay func(Stored) error, events func(Event)) (*engine, func() error, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, nil, err
	}
	r := &recovery{cfg: cfg}
	if err := r.takeFolder(); err != nil {
		return nil, nil, err
	}
	e, err := r.run(replay)
	if err != nil {
		for _, s := range r.segments {
			_ = s.file.Close()
		}
		for _, s := range r.spares {
			_ = s.file.Close()
		}
		return nil, nil, errors.Join(fmt.Errorf("open journal %s: %w", cfg.Dir, err), r.lock.Close())
	}
	e.events = events
	return e, r.lock.Close, nil
}

// takeFolder makes the folder if it is missing, durably, and locks it.
func (r *recovery) takeFolder() (err error) {
	if err := r.cfg.FS.MkdirAll(r.cfg.Dir); err != nil {
		return fmt.Errorf("journal folder: %w", err)
	}
	for dir := r.cfg.Dir; dir != "."; {
		dir = path.Dir(dir)
		if err := r.cfg.FS.SyncDir(dir); err != nil {
			return fmt.Errorf("journal folder: %w", err)
		}
	}
	r.lock, err = r.cfg.FS.Lock(path.Join(r.cfg.Dir, lockName))
	if errors.Is(err, vfs.ErrLocked) {
		return fmt.Errorf("journal folder %s is in use by another process, or twice by this one; stop that first: %w",
			r.cfg.Dir, err)
	}
	return err
}

func (r *recovery) run(replay func(Stored) error) (*engine, error) {
	for _, step := range []func() error{r.list, r.readHeaders, r.chooseSnapshot, r.walk, r.checkEnd} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	r.settle()
	n := r.plan()
	if err := r.deliver(n, replay); err != nil {
		return nil, err
	}
	failpoint.Hit("recovery.replayed")
	if err := r.keepUnused(); err != nil {
		return nil, err
	}
	if err := r.removeAll(r.junk); err != nil {
		return nil, err
	}
	// The new segment's number may be that of a file removed just now, or by an opening that was cut short.
	if err := r.cfg.FS.SyncDir(r.cfg.Dir); err != nil {
		return nil, err
	}
	failpoint.Hit("recovery.removed")
	if err := r.write(n); err != nil {
		return nil, err
	}
	failpoint.Hit("recovery.durable")
	err := r.removeAll(r.stale)
	if err == nil {
		err = r.cfg.FS.SyncDir(r.cfg.Dir)
	}
	if err != nil {
		return nil, errors.Join(err, n.file.Close())
	}
	return r.engine(n), nil
}

// list sorts the folder's files and opens the segments.
func (r *recovery) list() error {
	names, err := r.cfg.FS.List(r.cfg.Dir)
	if err != nil {
		return err
	}
	r.snapshots = snapshotSeqs(names)
	for _, name := range names {
		if strings.HasSuffix(name, tempSuffix) {
			r.junk = append(r.junk, name)
		}
		if strings.HasSuffix(name, spareSuffix) {
			if err := r.keepSpare(name); err != nil {
				return err
			}
		}
		number, incarnation, ok := parseSegmentName(name)
		if !ok {
			continue
		}
		f, err := r.cfg.FS.Open(path.Join(r.cfg.Dir, name))
		if err != nil {
			return err
		}
		s := &found{number: number, opened: incarnation > 0}
		s.openSegment = openSegment{file: f, name: name, named: true}
		r.segments = append(r.segments, s)
		if s.fileBytes, err = f.Size(); err != nil {
			return err
		}
		if n := len(r.segments); n > 1 && r.segments[n-2].number == number {
			return damaged(name, 0, "%s has the same number", r.segments[n-2].name)
		}
		r.maxNumber = max(r.maxNumber, number)
		r.incarnation = max(r.incarnation, incarnation)
	}
	return nil
}

// readHeaders finds out which segments count: what one holds at or above the first sequence of a later one does not
// exist, neither as data nor as damage.
func (r *recovery) readHeaders() error {
	known := false
	for _, s := range r.segments {
		b, err := readBlock(s.file, 0, headerBytes)
		if err != nil {
			return err
		}
		if s.header, s.valid, err = parseHeader(b, s.number); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		switch {
		case !s.valid && s.opened:
			return damaged(s.name, 0, "the segment's header is not what was written")
		case !s.valid:
			continue
		case known && s.header.secret != r.secret:
			return damaged(s.name, 0, "the segment belongs to another journal")
		case s.opened && s.name != openedName(s.number, s.header.incarnation):
			return damaged(s.name, 0, "the header says incarnation %d", s.header.incarnation)
		}
		r.secret, known = s.header.secret, true
		r.incarnation = max(r.incarnation, s.header.incarnation)
	}
	limit := uint64(math.MaxUint64)
	for _, s := range slices.Backward(r.segments) {
		s.limit = limit
		s.hidden = s.valid && s.header.firstSeq >= limit
		if s.valid && !s.hidden {
			limit = s.header.firstSeq
		}
	}
	if known {
		return nil
	}
	if len(r.segments) > 0 {
		return damaged(r.segments[0].name, 0, "no segment has a header")
	}
	if len(r.snapshots) > 0 {
		return damaged(snapshotName(r.snapshots[0]), 0, "there is a snapshot but no segment")
	}
	_, err := io.ReadFull(r.cfg.Rand, r.secret[:])
	return err
}

// first returns the oldest segment that counts, or nil.
func (r *recovery) first() *found {
	for _, s := range r.segments {
		if s.valid && !s.hidden {
			return s
		}
	}
	return nil
}

// chooseSnapshot takes the newest usable snapshot. One that is cut short or damaged is stepped over only if the
// journal still holds everything after the one before it.
func (r *recovery) chooseSnapshot() error {
	first := r.first()
	if first == nil {
		return nil
	}
	var passed []string
	var why error
	for _, seq := range r.snapshots {
		s, state, fault, err := readSnapshot(r.cfg.FS, r.cfg.Dir, seq)
		if err != nil {
			return fmt.Errorf("read %s: %w", snapshotName(seq), err)
		}
		if fault != "" {
			passed = append(passed, snapshotName(seq))
			why = errors.Join(why, damaged(snapshotName(seq), 0, "%s, and the units before it are freed", fault))
			continue
		}
		if s.secret != r.secret {
			return damaged(snapshotName(seq), 0, "the snapshot belongs to another journal")
		}
		r.snapshot, r.state = s, state
		break
	}
	if from := first.header.firstSeq; from > r.snapshot.seq+1 {
		if why != nil {
			return why
		}
		return damaged(first.name, 0, "the journal begins with unit %d, but the newest snapshot is of unit %d", from,
			r.snapshot.seq)
	}
	r.stale = append(r.stale, passed...)
	r.incarnation = max(r.incarnation, r.snapshot.incarnation)
	return nil
}

// settle splits what was read into what is known durable and stays where it is, what must be written anew, and what
// is no longer anything.
func (r *recovery) settle() {
	last := r.chain.nextSeq - 1
	r.durable = min(r.durable, last)
	at, _ := slices.BinarySearchFunc(r.pending, r.durable+1, func(p pending, seq uint64) int {
		return int(int64(p.seq) - int64(seq))
	})
	r.pending = r.pending[at:]
	if len(r.pending) > 0 {
		p := r.pending[0]
		r.chain = chain{nextSeq: p.seq, prevCRC: p.prevCRC}
		p.in.lastSeq, p.in.lastCRC, p.in.endPos = p.seq-1, p.prevCRC, alignUp(p.pos)
	}
	for _, s := range r.segments {
		switch {
		case !s.valid:
			r.junk = append(r.junk, s.name)
		case !s.reached || s.header.firstSeq > r.durable:
			s.reached = false
			r.stale = append(r.stale, s.name)
		}
	}
}

// keepSpare takes a spare file over if it has the size of a segment.
func (r *recovery) keepSpare(name string) error {
	id, ok := parseHex(strings.TrimSuffix(name, spareSuffix), 16)
	if !ok || id > math.MaxInt64 {
		r.junk = append(r.junk, name)
		return nil
	}
	r.spareIDs = max(r.spareIDs, id)
	if len(r.spares) == recycledSpares {
		r.junk = append(r.junk, name)
		return nil
	}
	f, err := r.cfg.FS.Open(path.Join(r.cfg.Dir, name))
	if err != nil {
		return err
	}
	size, err := f.Size()
	if err != nil || size != r.cfg.SegmentBytes {
		r.junk = append(r.junk, name)
		return errors.Join(err, f.Close())
	}
	r.spares = append(r.spares, leftover{id: id, file: f})
	return nil
}

// keepUnused makes spares of segments that were prepared and never begun. Units that a torn write may have left in one
// are of an earlier incarnation than any segment that is still to come, whatever number the file gets.
//
// The name that a segment was found under may itself be of a rename that is not durable. It is made so first: a power cut
// that took that rename back and kept this one would leave the file with two names, as two spares.
func (r *recovery) keepUnused() error {
	durable := false
	for _, s := range r.segments {
		if s.valid || s.fileBytes != r.cfg.SegmentBytes || len(r.spares) == recycledSpares {
			continue
		}
		if !durable {
			if err := r.cfg.FS.SyncDir(r.cfg.Dir); err != nil {
				return err
			}
			durable = true
		}
		r.spareIDs++
		if err := r.cfg.FS.Rename(path.Join(r.cfg.Dir, s.name), path.Join(r.cfg.Dir, spareName(r.spareIDs))); err != nil {
			return err
		}
		r.spares = append(r.spares, leftover{id: r.spareIDs, file: s.file})
		r.junk = slices.DeleteFunc(r.junk, func(name string) bool { return name == s.name })
	}
	return nil
}

// dropSpares gives their space back.
func (r *recovery) dropSpares() error {
	var errs []error
	for _, s := range r.spares {
		errs = append(errs, s.file.Close(), r.cfg.FS.Remove(path.Join(r.cfg.Dir, spareName(s.id))))
	}
	r.spares = nil
	return errors.Join(errs...)
}

// removeAll closes what it removes: an open file would keep its space.
func (r *recovery) removeAll(names []string) error {
	for _, name := range names {
		for _, s := range r.segments {
			if s.name == name {
				_ = s.file.Close()
			}
		}
		if err := r.cfg.FS.Remove(path.Join(r.cfg.Dir, name)); err != nil {
			return err
		}
	}
	return nil
}
