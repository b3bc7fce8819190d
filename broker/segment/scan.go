package segment

import (
	"errors"
	"fmt"
	"io"

	"github.com/strandline-io/strandline/broker/record"
)

// scanBytes is how much of a file one step of a header scan reads.
const scanBytes = 16 << 10

// scanner walks the batch headers of a file. It needs a buffer of at least record.HeaderSize bytes.
type scanner struct {
	name   string
	file   io.ReaderAt
	pos    int64 // of the next batch
	end    int64 // behind the last batch
	offset int64 // with which the next batch must begin, -1 if that is not known
	buf    []byte
	bufPos int64
	filled int
}

// next decodes the header of the batch at s.pos and moves behind it. It must not be called at the end. pos is where
// the batch lies.
func (s *scanner) next(h *record.Header) (pos int64, err error) {
	pos = s.pos
	if s.end-pos < record.HeaderSize {
		return pos, damaged(s.name, pos, "%d bytes are left, less than a batch header", s.end-pos)
	}
	if pos < s.bufPos || pos+record.HeaderSize > s.bufPos+int64(s.filled) {
		n := int(min(int64(len(s.buf)), s.end-pos))
		s.bufPos, s.filled = pos, 0
		if err := readFull(s.name, s.file, s.buf[:n], pos); err != nil {
			return pos, err
		}
		s.filled = n
	}
	*h, err = record.ParseHeader(s.buf[pos-s.bufPos : s.filled])
	if err != nil {
		return pos, damaged(s.name, pos, "%v", err)
	}
	if int64(h.SizeBytes) > s.end-pos {
		return pos, damaged(s.name, pos, "batch of %d bytes, only %d are left", h.SizeBytes, s.end-pos)
	}
	if h.BaseOffset < 0 || h.LastOffsetDelta < 0 {
		return pos, damaged(s.name, pos, "batch has base offset %d and last offset delta %d", h.BaseOffset, h.LastOffsetDelta)
	}
	if s.offset >= 0 && h.BaseOffset != s.offset {
		return pos, damaged(s.name, pos, "batch has base offset %d, want %d", h.BaseOffset, s.offset)
	}
	s.pos, s.offset = pos+int64(h.SizeBytes), h.NextOffset()
	return pos, nil
}

// readFull reads len(p) bytes at pos, of which it is known that they were written.
func readFull(name string, f io.ReaderAt, p []byte, pos int64) error {
	n, err := f.ReadAt(p, pos)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return damaged(name, pos+int64(n), "file ends here, %d bytes early", len(p)-n)
	}
	return fmt.Errorf("read %s at byte %d: %w", name, pos, err)
}
