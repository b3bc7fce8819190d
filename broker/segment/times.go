package segment

import (
	"fmt"

	"github.com/strandline-io/strandline/broker/record"
	"github.com/strandline-io/strandline/internal/compress"
)

// Found is the record that a time lookup found.
type Found struct {
	Offset      int64
	TimestampMs int64
}

// OffsetForTime returns the first record, by offset, whose timestamp is timestampMs or later and whose offset is at least from
// and below upTo (kafka-eos.md C.7); ok is false when there is none. It looks into one batch, or few where compaction has
// removed the one that a batch's max timestamp speaks of. Errors as for Read.
func (l *Log) OffsetForTime(timestampMs, from, upTo int64) (found Found, ok bool, err error) {
	for i := range l.files {
		f := &l.files[i]
		if f.base >= upTo {
			return Found{}, false, nil
		}
		if f.endOffset <= from {
			continue
		}
		if found, ok, err = l.timeInFile(f, timestampMs, from, upTo); ok || err != nil {
			return found, ok, err
		}
	}
	for i := range l.tail.extents {
		e := &l.tail.extents[i]
		if e.BaseOffset >= upTo {
			break
		}
		if e.MaxTimestamp < timestampMs || e.LastOffset() < from {
			continue
		}
		raw, err := l.readExtent(e)
		if err != nil {
			return Found{}, false, err
		}
		found, ok, err = l.store.timeInBatch(raw, timestampMs, from, upTo)
		if err != nil {
			return Found{}, false, fmt.Errorf("%s at byte %d: %w", journalName(e.Segment), e.Pos, err)
		}
		if ok {
			return found, true, nil
		}
	}
	return Found{}, false, nil
}

// MaxTimestamp returns the first record, by offset, that has the largest timestamp of those from from on and below upTo; ok is
// false when there is no record, or none with a timestamp. upTo must not lie inside a batch, as no high watermark and no
// LSO does. If from lies inside of the batch with the largest timestamp, which may then be that of a record below it, there
// may be none. Errors as for Read.
func (l *Log) MaxTimestamp(from, upTo int64) (found Found, ok bool, err error) {
	largest := record.NoTimestamp
	for i := range l.files {
		f := &l.files[i]
		if f.base >= upTo {
			break
		}
		if f.endOffset <= from {
			continue
		}
		ms, err := l.maxInFile(f, from, upTo)
		if err != nil {
			return Found{}, false, err
		}
		largest = max(largest, ms)
	}
	for i := range l.tail.extents {
		e := &l.tail.extents[i]
		if e.BaseOffset >= upTo {
			break
		}
		if e.LastOffset() >= from {
			largest = max(largest, e.MaxTimestamp)
		}
	}
	if largest == record.NoTimestamp {
		return Found{}, false, nil
	}
	return l.OffsetForTime(largest, from, upTo)
}

func (l *Log) readExtent(e *Extent) ([]byte, error) {
	release, ok := l.journal.Hold(e.Segment)
	if !ok {
		return nil, ErrMoved
	}
	defer release()
	raw := make([]byte, e.Len)
	if err := l.journal.ReadAt(e.Segment, raw, e.Pos); err != nil {
		return nil, err
	}
	if !e.matches(raw) {
		return nil, damaged(journalName(e.Segment), e.Pos, "no record batch with offsets %d to %d", e.BaseOffset, e.LastOffset())
	}
	return raw, nil
}

// timeInFile is OffsetForTime within one file.
func (l *Log) timeInFile(f *fileRef, timestampMs, from, upTo int64) (found Found, ok bool, err error) {
	err = l.scanFile(f, func(x *fileIndex, h *handle, size int64, scratch []byte) error {
		found, ok = Found{}, false
		if x.coveredBytes >= size && x.maxTimestamp < timestampMs && !x.damaged {
			return nil
		}
		e, fromEntry := x.beforeTime(timestampMs, size)
		sc, err := startScan(f, h, size, e, fromEntry, scratch)
		var head record.Header
		for err == nil && !ok && sc.pos < sc.end {
			var pos int64
			if pos, err = sc.next(&head); err != nil || head.BaseOffset >= upTo {
				break
			}
			if head.MaxTimestamp < timestampMs || head.LastOffset() < from {
				continue
			}
			raw := make([]byte, head.SizeBytes)
			if err = readFull(f.logName(), h, raw, pos); err != nil {
				break
			}
			if found, ok, err = l.store.timeInBatch(raw, timestampMs, from, upTo); err != nil {
				err = fmt.Errorf("%s at byte %d: %w", f.logName(), pos, err)
			}
		}
		return err
	})
	return found, ok, err
}

// maxInFile is the largest max timestamp of f's batches that end at from or behind it and begin below upTo.
func (l *Log) maxInFile(f *fileRef, from, upTo int64) (largest int64, err error) {
	err = l.scanFile(f, func(x *fileIndex, h *handle, size int64, scratch []byte) error {
		if f.base >= from && f.endOffset <= upTo && x.coveredBytes == size && !x.damaged {
			largest = x.maxTimestamp
			return nil
		}
		largest = record.NoTimestamp
		start := upTo - 1
		if f.base < from {
			start = from // an entry's max timestamp speaks of batches below from too
		}
		e, fromEntry := x.atOrBefore(f.base, start, size)
		if fromEntry && f.base >= from {
			largest = e.maxTimestamp
		}
		sc, err := startScan(f, h, size, e, fromEntry, scratch)
		var head record.Header
		for err == nil && sc.pos < sc.end {
			if _, err = sc.next(&head); err != nil || head.BaseOffset >= upTo {
				break
			}
			if head.LastOffset() >= from {
				largest = max(largest, head.MaxTimestamp)
			}
		}
		return err
	})
	return largest, err
}

// scanFile opens f and calls scan with its index, once more with a new one if the index was wrong.
func (l *Log) scanFile(f *fileRef, scan func(x *fileIndex, h *handle, size int64, scratch []byte) error) error {
	h, err := l.store.handles.acquire(f.file)
	if err != nil {
		return err
	}
	size := f.size(h)
	scratch := make([]byte, scanBytes)
	err = l.store.withIndex(f, h, size, func(x *fileIndex) error { return scan(x, h, size, scratch) })
	if released := l.store.handles.release(h); err == nil {
		err = released
	}
	return err
}

// timeInBatch returns the first record of the batch raw from offset from on that is at timestampMs or later, if its offset is
// below upTo.
func (s *Store) timeInBatch(raw []byte, timestampMs, from, upTo int64) (found Found, ok bool, err error) {
	h, err := record.ParseHeader(raw)
	if err != nil {
		return Found{}, false, fmt.Errorf("%w: %w", err, ErrCorrupt)
	}
	if !record.CheckCRC(raw) { // no client sees these bytes, to find that out
		return Found{}, false, fmt.Errorf("batch with offset %d fails its CRC: %w", h.BaseOffset, ErrCorrupt)
	}
	if h.LogAppendTime() {
		return Found{Offset: max(h.BaseOffset, from), TimestampMs: h.MaxTimestamp}, h.MaxTimestamp >= timestampMs && h.RecordCount > 0, nil
	}
	section := raw[record.HeaderSize:]
	if h.Codec() != record.CodecNone {
		if section, err = compress.Decode(h.Codec(), section, nil, s.cfg.MaxDecodedBytes); err != nil {
			return Found{}, false, fmt.Errorf("batch with offset %d: %w: %w", h.BaseOffset, err, ErrCorrupt)
		}
	}
	it := record.Records(section, h.RecordCount)
	var r record.Record
	for it.Next(&r) {
		found = Found{Offset: h.BaseOffset + int64(r.OffsetDelta), TimestampMs: h.BaseTimestamp + r.TimestampDelta}
		if found.TimestampMs >= timestampMs && found.Offset >= from {
			return found, found.Offset < upTo, nil
		}
	}
	if err := it.Err(); err != nil {
		return Found{}, false, fmt.Errorf("batch with offset %d: %w: %w", h.BaseOffset, err, ErrCorrupt)
	}
	return Found{}, false, nil
}
