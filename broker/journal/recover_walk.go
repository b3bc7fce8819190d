package journal

import (
	"fmt"
	"github.com/strandline-io/strandline/internal/mutant"
	"slices"
)

// walk follows the chain from the oldest segment to its end.
func (r *recovery) walk() error {
	first := r.first()
	if first == nil {
		r.chain = chain{nextSeq: 1}
		return nil
	}
	r.chain = chain{nextSeq: first.header.firstSeq, prevCRC: first.header.prevCRC}
	r.durable = r.snapshot.seq
	for _, s := range r.segments {
		if s.hidden {
			continue
		}
		if !s.valid {
			if r.unused == nil && r.end.in != nil {
				r.unused = s
			}
			continue
		}
		h := s.header
		if h.firstSeq != r.chain.nextSeq || h.prevCRC != r.chain.prevCRC {
			// Everything before a segment made by an open was durable then. Behind any other one a gap may be the
			// hole that two groups leave of which only the second reached the disk: checkEnd decides.
			if s.opened {
				return r.lost(fmt.Sprintf("%s says that units up to %d were durable", s.name, h.firstSeq-1))
			}
			return nil
		}
		if err := r.enter(s); err != nil {
			return fmt.Errorf("read %s: %w", s.name, err)
		}
	}
	return nil
}

// enter reads one segment, by its footer if that counts.
func (r *recovery) enter(s *found) error {
	r.durable = max(r.durable, s.header.durable)
	r.unused = nil
	s.reached = true
	ok, err := r.footer(s)
	if err != nil {
		return err
	}
	if ok {
		p := s.pointer
		s.sealed, s.lastSeq, s.lastCRC, s.endPos = true, p.lastSeq, p.lastCRC, p.endPos
		r.chain = chain{nextSeq: p.lastSeq + 1, prevCRC: p.lastCRC}
		r.durable = max(r.durable, p.lastSeq)
		r.end = place{in: s, pos: p.endPos}
		return nil
	}
	return r.units(s)
}

// footer says whether s has a footer that the chain reaches.
func (r *recovery) footer(s *found) (bool, error) {
	seed := r.secret.seed(s.number)
	p, ok, err := readPointer(s.file, seed, s.fileBytes)
	if err != nil || !ok {
		return false, err
	}
	if (p.firstSeq != s.header.firstSeq || p.prevCRC != s.header.prevCRC) && !mutant.On("stale footer believed") {
		return false, nil
	}
	crc, err := newWindow(s.file, s.fileBytes, bodyWindow).crc(seed, p.pos, p.size)
	s.pointer = p
	return err == nil && crc == p.crc, err
}

// units reads the segment itself, bodies included.
func (r *recovery) units(s *found) error {
	k := newWalker(newWindow(s.file, s.fileBytes, bodyWindow), s.header)
	for k.chain.nextSeq < s.limit {
		pos, before := k.pos, k.chain
		bad, err := k.next(!mutant.On("torn tail accepted"))
		if err != nil {
			return err
		}
		if bad != "" {
			k.pos = pos
			r.end = place{in: s, pos: pos, reason: bad}
			break
		}
		h := k.unit.head
		r.durable = max(r.durable, h.durable)
		r.pending = append(r.pending, pending{
			in: s, pos: pos, seq: h.seq, bytes: h.totalBytes, prevCRC: before.prevCRC,
			entry: positionBytes + unitHeadBytes + int64(len(k.unit.fixed)) + batchHeader*h.batches,
		})
		r.forget()
		r.end = place{in: s, pos: k.pos, reason: "no unit was expected"}
	}
	if r.end.in != s {
		r.end = place{in: s, pos: k.pos, reason: "the segment is empty"}
	}
	r.chain = k.chain
	s.lastSeq, s.lastCRC, s.endPos = k.chain.nextSeq-1, k.chain.prevCRC, alignUp(k.pos)
	return nil
}

// forget drops the pending units that turned out to be durable, now and then.
func (r *recovery) forget() {
	const often = 4096
	if len(r.pending)%often != 0 {
		return
	}
	r.pending = slices.DeleteFunc(r.pending, func(p pending) bool { return p.seq <= r.durable })
}

// lost is the damage that the chain's end turns out to be.
func (r *recovery) lost(evidence string) error {
	at := r.end
	if at.in != nil && at.in.sealed && r.unused != nil {
		at = place{in: r.unused, reason: "the segment's header is not what was written"}
	}
	if at.reason == "" {
		at.reason = "the next segment is missing"
	}
	return damaged(at.in.name, at.pos, "unit %d is gone (%s), but %s", r.chain.nextSeq, at.reason, evidence)
}

// checkEnd decides whether the chain's end is the torn tail of a crash or damage: it is damage if anything valid
// says that the unit which should come next was durable.
func (r *recovery) checkEnd() error {
	if r.end.in == nil {
		return nil
	}
	if r.durable >= r.chain.nextSeq {
		return r.lost(fmt.Sprintf("units up to %d are known to have been durable", r.durable))
	}
	behind := false
	for _, s := range r.segments {
		from := int64(dataStart)
		if s == r.end.in {
			behind = true
			from = alignUp(r.end.pos)
			if s.sealed {
				continue
			}
		}
		if !behind || s.hidden {
			continue
		}
		evidence, err := r.evidence(s, from)
		if err != nil {
			return fmt.Errorf("read %s: %w", s.name, err)
		}
		if evidence != "" {
			return r.lost(evidence)
		}
	}
	return nil
}

// evidence searches s from a block on for something valid that names the chain's next unit as durable. Groups begin
// at blocks, and all units of a group name the same position.
func (r *recovery) evidence(s *found, from int64) (string, error) {
	missing, seed := r.chain.nextSeq, r.secret.seed(s.number)
	if s.valid && s.header.durable >= missing {
		return fmt.Sprintf("%s says that units up to %d were durable", s.name, s.header.durable), nil
	}
	p, ok, err := readPointer(s.file, seed, s.fileBytes)
	if err != nil {
		return "", err
	}
	if ok && p.lastSeq >= missing {
		return fmt.Sprintf("%s was sealed with unit %d", s.name, p.lastSeq), nil
	}
	w := newWindow(s.file, s.fileBytes, bodyWindow)
	var u unit
	for pos := from; pos+unitHeadBytes <= s.fileBytes; pos += blockBytes {
		b, err := w.bytes(pos, unitHeadBytes)
		if err != nil {
			return "", err
		}
		head, ok := parseUnitHead(b, s.fileBytes-pos)
		if !ok || head.durable < missing {
			continue
		}
		bad, err := readUnit(w, &u, seed, pos, false)
		if err != nil {
			return "", err
		}
		if bad == "" {
			return fmt.Sprintf("unit %d at offset %d of %s says that units up to %d were durable", head.seq, pos, s.name,
				head.durable), nil
		}
	}
	return "", nil
}
