package journal

import (
	"errors"
	"fmt"
	"io"

	"github.com/strandline-io/strandline/internal/vfs"
)

// readBlock reads the start of a block, or less at the end of the file.
func readBlock(f vfs.File, pos int64, n int) ([]byte, error) {
	b := make([]byte, n)
	got, err := f.ReadAt(b, pos)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b[:got], nil
}

// readHeader reads the header of a segment that must have one.
func readHeader(s *openSegment, number uint64) (segmentHeader, error) {
	b, err := readBlock(s.file, 0, headerBytes)
	if err != nil {
		return segmentHeader{}, fmt.Errorf("read %s: %w", s.name, err)
	}
	h, ok, err := parseHeader(b, number)
	if err == nil && !ok {
		err = damaged(s.name, 0, "the segment's header is not what was written")
	}
	return h, err
}

// readPointer reads a segment's footer pointer; ok is false if it has none.
func readPointer(f vfs.File, seed uint32, fileBytes int64) (p footerPointer, ok bool, err error) {
	b, err := readBlock(f, blockBytes, pointerBytes)
	if err != nil {
		return p, false, err
	}
	p, ok = parsePointer(b, seed, fileBytes)
	return p, ok, nil
}

// scan calls f for each unit of a complete segment up to lastSeq, heads only: from the footer if it is known to count.
func scan(s *openSegment, number, lastSeq uint64, footered bool, f func(*unit) error) error {
	h, err := readHeader(s, number)
	if err != nil {
		return err
	}
	size, err := s.file.Size()
	if err != nil {
		return err
	}
	if !footered {
		return scanHeads(s, h, size, lastSeq, f)
	}
	p, ok, err := readPointer(s.file, h.secret.seed(number), size)
	if err != nil {
		return fmt.Errorf("read %s: %w", s.name, err)
	}
	if !ok || p.lastSeq != lastSeq || p.firstSeq != h.firstSeq || p.prevCRC != h.prevCRC {
		return damaged(s.name, blockBytes, "the pointer to the footer is not what was written")
	}
	return readFooter(s.file, s.name, p, h, f)
}

// scanHeads walks through a segment itself.
func scanHeads(s *openSegment, h segmentHeader, size int64, lastSeq uint64, f func(*unit) error) error {
	k := newWalker(newWindow(s.file, size, headWindow), h)
	for k.chain.nextSeq <= lastSeq {
		at := k.pos
		bad, err := k.next(false)
		if err != nil {
			return fmt.Errorf("read %s: %w", s.name, err)
		}
		if bad != "" {
			return damaged(s.name, at, "unit %d of a complete segment: %s", k.chain.nextSeq, bad)
		}
		if err := f(&k.unit); err != nil {
			return err
		}
	}
	return nil
}

func newWalker(w *window, h segmentHeader) *walker {
	return &walker{
		w: w, seed: h.secret.seed(h.number), incarnation: h.incarnation, pos: dataStart,
		chain: chain{nextSeq: h.firstSeq, prevCRC: h.prevCRC},
	}
}

// collectFooter makes the footer of a segment that was not sealed when the process before this one ended.
func collectFooter(s *openSegment, number, lastSeq uint64) (*footer, error) {
	h, err := readHeader(s, number)
	if err != nil {
		return nil, err
	}
	size, err := s.file.Size()
	if err != nil {
		return nil, err
	}
	f := &footer{}
	var fixed []byte
	var batches [][]byte
	err = scanHeads(s, h, size, lastSeq, func(u *unit) error {
		fixed = append(u.head.encode(fixed[:0]), u.fixed...)
		batches = batches[:0]
		for i := range u.head.batches {
			batches = append(batches, u.headers[batchHeader*i:][:batchHeader])
		}
		f.add(u.pos, fixed, batches)
		return nil
	})
	return f, err
}
