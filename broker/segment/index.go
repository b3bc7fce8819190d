package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"

	"github.com/strandline-io/strandline/broker/record"
	"github.com/strandline-io/strandline/internal/vfs"
)

// Sizes of an entry in Kafka's index files: relative offset and position; timestamp and relative offset.
const (
	indexEntrySize = 8
	timeEntrySize  = 12
)

// entry is one point of the index in memory. The batch at pos ends with offset base+lastDelta, and no batch up to and
// including it has a larger max timestamp than maxTimestamp.
type entry struct {
	lastDelta    uint32
	pos          uint32
	maxTimestamp int64
}

// fileIndex is an immutable index of a file's first coveredBytes. entries is a prefix shared with newer ones.
type fileIndex struct {
	entries      []entry
	coveredBytes int64
	maxTimestamp int64
	rebuilt      bool // made from the log alone: trying again is no use
	damaged      bool // the log is damaged, entries and maxTimestamp end there
}

// atOrBefore returns the newest point within a file's first size bytes whose batch ends at offset or before it, for a
// file with this base. Without one, ok is false and the search begins at the file's first batch. The index may know
// more of the file than a reader may see.
func (x *fileIndex) atOrBefore(base, offset, size int64) (e entry, ok bool) {
	low, high := 0, len(x.entries)
	for low < high {
		mid := int(uint(low+high) >> 1)
		if base+int64(x.entries[mid].lastDelta) <= offset && int64(x.entries[mid].pos) < size {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == 0 {
		return entry{}, false
	}
	return x.entries[low-1], true
}

// beforeTime returns the newest point within a file's first size bytes up to which no batch has a max timestamp of
// timestamp or more.
func (x *fileIndex) beforeTime(timestamp, size int64) (e entry, ok bool) {
	low, high := 0, len(x.entries)
	for low < high {
		mid := int(uint(low+high) >> 1)
		if x.entries[mid].maxTimestamp < timestamp && int64(x.entries[mid].pos) < size {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == 0 {
		return entry{}, false
	}
	return x.entries[low-1], true
}

// indexBuilder makes the index of one file while its batches are added in order: the sparse one in memory, and the
// bytes of the two index files in Kafka's layout and with Kafka's rule for when an entry is due.
type indexBuilder struct {
	base           int64
	intervalBytes  int64
	memoryInterval int64

	entries      []entry
	coveredBytes int64
	maxTimestamp int64
	maxOffset    int64 // last offset of the first batch that has maxTimestamp

	entryPos      int64 // of the newest entry on disk or pending
	entryTime     int64 // newest timestamp on disk or pending
	indexBytes    int64 // kept of the file on disk
	timesBytes    int64
	pendingIndex  []byte
	pendingTimes  []byte
	rebuilt       bool
	cutBeforeSave bool // the files on disk may be longer than what is kept of them
}

func newIndexBuilder(base int64, cfg *Config) indexBuilder {
	return indexBuilder{
		base:           base,
		intervalBytes:  cfg.IndexIntervalBytes,
		memoryInterval: cfg.MemoryIntervalBytes,
		maxTimestamp:   record.NoTimestamp,
		entryTime:      record.NoTimestamp,
		cutBeforeSave:  true,
	}
}

// add takes the batch at pos, which is where the last one ended.
func (b *indexBuilder) add(pos int64, h *record.Header) {
	if h.MaxTimestamp > b.maxTimestamp {
		b.maxTimestamp = h.MaxTimestamp
		b.maxOffset = h.LastOffset()
	}
	b.coveredBytes = pos + int64(h.SizeBytes)
	if pos-b.entryPos <= b.intervalBytes {
		return
	}
	b.entryPos = pos
	last := h.LastOffset() - b.base
	b.pendingIndex = binary.BigEndian.AppendUint32(b.pendingIndex, uint32(last))
	b.pendingIndex = binary.BigEndian.AppendUint32(b.pendingIndex, uint32(pos))
	b.addTime()
	b.remember(uint32(last), uint32(pos))
}

// addTime appends an entry to the time index if there is something new to say.
func (b *indexBuilder) addTime() {
	if b.maxTimestamp <= b.entryTime {
		return
	}
	b.entryTime = b.maxTimestamp
	b.pendingTimes = binary.BigEndian.AppendUint64(b.pendingTimes, uint64(b.maxTimestamp))
	b.pendingTimes = binary.BigEndian.AppendUint32(b.pendingTimes, uint32(b.maxOffset-b.base))
}

func (b *indexBuilder) remember(lastDelta, pos uint32) {
	if n := len(b.entries); n > 0 && int64(pos)-int64(b.entries[n-1].pos) < b.memoryInterval {
		return
	}
	b.entries = append(b.entries, entry{lastDelta: lastDelta, pos: pos, maxTimestamp: b.maxTimestamp})
}

func (b *indexBuilder) snapshot() *fileIndex {
	return &fileIndex{
		entries:      b.entries[:len(b.entries):len(b.entries)],
		coveredBytes: b.coveredBytes,
		maxTimestamp: b.maxTimestamp,
		rebuilt:      b.rebuilt,
	}
}

// loadIndex builds the index of f's first limitBytes. It takes from the index files what lies before trustedBytes of
// the log and is consistent, and the rest from the log's headers. The index files of a sealed file are brought up to
// what they should be.
func (s *Store) loadIndex(f *fileRef, h *handle, limitBytes int64) (indexBuilder, error) {
	trustedBytes := limitBytes
	if !f.sealed {
		trustedBytes = s.trusted(limitBytes)
	}
	if trustedBytes == 0 {
		return s.rebuildIndex(f, h, limitBytes)
	}
	index, err := s.readSmall(f.indexName(), (trustedBytes/s.cfg.IndexIntervalBytes+1)*indexEntrySize)
	if err != nil {
		return indexBuilder{}, err
	}
	times, err := s.readSmall(f.timesName(), (trustedBytes/s.cfg.IndexIntervalBytes+2)*timeEntrySize)
	if err != nil {
		return indexBuilder{}, err
	}
	b := newIndexBuilder(f.base, &s.cfg)
	last := b.adopt(index, times, trustedBytes)
	err = s.scanIndex(&b, f.file, h, last, limitBytes)
	if errors.Is(err, errIndexWrong) {
		return s.rebuildIndex(f, h, limitBytes)
	}
	if err == nil && f.sealed {
		b.addTime()
		if int64(len(index)) != b.indexBytes || len(b.pendingIndex) > 0 || !bytes.Equal(times[b.timesBytes:], b.pendingTimes) {
			s.repairIndex(f.file, &b)
		}
	}
	return b, err
}

// rebuildIndex builds the index of f's first limitBytes from the log alone.
func (s *Store) rebuildIndex(f *fileRef, h *handle, limitBytes int64) (indexBuilder, error) {
	b := newIndexBuilder(f.base, &s.cfg)
	b.rebuilt = true
	err := s.scanIndex(&b, f.file, h, -1, limitBytes)
	if err == nil && f.sealed {
		b.addTime()
		s.repairIndex(f.file, &b)
	}
	return b, err
}

// repairIndex writes the index files of a sealed file anew. It must not fail the read that noticed: what is in memory
// is right, and the next start tries again. Several that repair at once write the same bytes.
func (s *Store) repairIndex(f *file, b *indexBuilder) {
	if err := s.saveIndex(f, b, true); err != nil {
		b.pendingIndex, b.pendingTimes = nil, nil
	}
}

// errIndexWrong says that an index file contradicts its log.
var errIndexWrong = errors.New("index contradicts its log")

// adopt takes over the consistent beginning of the index files' bytes, as far as it speaks of the log before
// trustedBytes, and returns the last offset of the newest entry's batch, -1 if there is none.
func (b *indexBuilder) adopt(index, times []byte, trustedBytes int64) int64 {
	last, lastPos := int64(-1), int64(-1)
	for ; len(index) >= indexEntrySize; index = index[indexEntrySize:] {
		delta := int64(int32(binary.BigEndian.Uint32(index)))
		pos := int64(int32(binary.BigEndian.Uint32(index[4:])))
		if delta <= last || pos <= lastPos || pos >= trustedBytes {
			break
		}
		last, lastPos = delta, pos
		for len(times) >= timeEntrySize {
			ms := int64(binary.BigEndian.Uint64(times))
			offset := int64(int32(binary.BigEndian.Uint32(times[8:])))
			if offset < 0 || offset > delta || ms <= b.maxTimestamp {
				break
			}
			b.maxTimestamp, b.entryTime, b.maxOffset = ms, ms, b.base+offset
			b.timesBytes += timeEntrySize
			times = times[timeEntrySize:]
		}
		b.indexBytes += indexEntrySize
		b.entryPos = pos
		b.remember(uint32(delta), uint32(pos))
	}
	if last < 0 {
		return -1
	}
	return b.base + last
}

// scanIndex adds what b lacks of the log's first limitBytes. lastOffset is what the batch at b's newest entry must
// end with, -1 if b is empty; the error is errIndexWrong if it does not.
func (s *Store) scanIndex(b *indexBuilder, f *file, h *handle, lastOffset, limitBytes int64) error {
	sc := scanner{name: f.logName(), file: h, pos: b.entryPos, end: limitBytes, offset: b.base, buf: make([]byte, scanBytes)}
	var head record.Header
	if lastOffset >= 0 {
		sc.offset = -1
		if sc.pos >= sc.end {
			return errIndexWrong
		}
		if _, err := sc.next(&head); err != nil || head.LastOffset() != lastOffset || head.MaxTimestamp > b.maxTimestamp {
			return errors.Join(errIndexWrong, notDamage(err))
		}
		b.coveredBytes = sc.pos
	}
	for sc.pos < sc.end {
		pos, err := sc.next(&head)
		if err != nil {
			return err
		}
		if head.LastOffset()-b.base > math.MaxInt32 {
			return damaged(f.logName(), pos, "batch has offsets %d to %d in the file of offset %d", head.BaseOffset, head.LastOffset(), b.base)
		}
		b.add(pos, &head)
	}
	return nil
}

// notDamage lets errors through that say nothing about the bytes.
func notDamage(err error) error {
	if errors.Is(err, ErrCorrupt) {
		return nil
	}
	return err
}

// readSmall reads at most limitBytes of a whole file; a missing file is empty.
func (s *Store) readSmall(name string, limitBytes int64) (data []byte, err error) {
	f, err := s.fs.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return nil, fmt.Errorf("size of %s: %w", name, err)
	}
	data = make([]byte, min(size, limitBytes))
	for done := 0; done < len(data); {
		n := min(pieceBytes, len(data)-done)
		if err := readFull(name, f, data[done:done+n], int64(done)); err != nil {
			return nil, err
		}
		done += n
	}
	return data, nil
}

// saveIndex brings the index files on disk to what b knows, synced if wanted.
func (s *Store) saveIndex(f *file, b *indexBuilder, sync bool) error {
	if err := s.saveIndexFile(f.indexName(), b.pendingIndex, b.indexBytes, b.cutBeforeSave, sync); err != nil {
		return err
	}
	if err := s.saveIndexFile(f.timesName(), b.pendingTimes, b.timesBytes, b.cutBeforeSave, sync); err != nil {
		return err
	}
	b.indexBytes += int64(len(b.pendingIndex))
	b.timesBytes += int64(len(b.pendingTimes))
	b.pendingIndex, b.pendingTimes = nil, nil
	b.cutBeforeSave = false
	return nil
}

func (s *Store) saveIndexFile(name string, pending []byte, at int64, cut, sync bool) (err error) {
	if len(pending) == 0 && !cut && !sync {
		return nil
	}
	f, err := openOrCreate(s.fs, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if cut {
		if err := f.Truncate(at); err != nil {
			return fmt.Errorf("truncate %s to %d: %w", name, at, err)
		}
	}
	for done := 0; done < len(pending); {
		n := min(pieceBytes, len(pending)-done)
		if _, err := f.WriteAt(pending[done:done+n], at+int64(done)); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		done += n
	}
	if sync {
		if err := f.Sync(); err != nil {
			return fmt.Errorf("sync %s: %w", name, err)
		}
	}
	return nil
}

func openOrCreate(fsys vfs.FS, name string) (vfs.File, error) {
	f, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = fsys.Create(name)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return f, nil
}
