package segment

import (
	"fmt"
	"slices"
	"sort"
)

// Log is what a reader of one partition may read and where it lies: the partition's files, then extents of the
// journal. It is immutable; any number of readers may use it at once, and older Logs stay valid until a read says
// ErrMoved. The methods that derive a new Log belong to one owner per partition.
type Log struct {
	store   *Store
	journal Journal
	files   []fileRef
	tail    tail
	// filesEnd is the first offset that is not in files.
	filesEnd int64
}

// tail is a slice of extents whose array is shared with newer Logs, which see more of it. Only the newest slice may
// grow in place: end counts every extent ever pushed, and used is the largest end of any tail derived from this one.
type tail struct {
	extents []Extent
	end     int64
	used    *int64 // the deriving owner's
}

// push appends behind the shared prefix. A tail that is not the newest gets an array of its own.
func (t tail) push(extents []Extent) tail {
	if t.used == nil || *t.used != t.end {
		t.extents = slices.Clone(t.extents)
		t.used = new(int64)
	}
	t.extents = append(t.extents, extents...)
	t.end += int64(len(extents))
	*t.used = t.end
	return t
}

// sparseTail is how many times larger than its content an array may be before dropping moves the content.
const sparseTail = 4

// dropBelow leaves out what ends below offset. The memory of a long gone prefix goes with it.
func (t tail) dropBelow(offset int64) tail {
	t.extents = t.extents[t.find(offset):]
	if len(t.extents) == 0 {
		t.extents = nil
	} else if cap(t.extents) > sparseTail*len(t.extents) {
		t.extents = slices.Clone(t.extents)
	}
	return t
}

// find returns the index of the first extent that ends at offset or behind it.
func (t tail) find(offset int64) int {
	low, high := 0, len(t.extents)
	for low < high {
		mid := int(uint(low+high) >> 1)
		if t.extents[mid].LastOffset() < offset {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// Append returns a log with the batches of extents behind l's. They must lie in ascending order behind l's end, save
// those that are in the files already, which are left out. It takes amortised constant time per batch.
func (l *Log) Append(extents ...Extent) *Log {
	for len(extents) > 0 && extents[0].LastOffset() < l.filesEnd {
		extents = extents[1:]
	}
	if len(extents) == 0 {
		return l
	}
	end := l.EndOffset()
	for i := range extents {
		e := &extents[i]
		if e.BaseOffset < end || e.LastDelta < 0 {
			panic(fmt.Sprintf("BUG: appending extent with offsets %d to %d behind end offset %d", e.BaseOffset, e.LastOffset(), end))
		}
		end = e.LastOffset() + 1
	}
	n := *l
	n.tail = l.tail.push(extents)
	return &n
}

// WithShelved returns a log that reads what files hold from them and no longer from the journal. Older files than
// l's change nothing.
func (l *Log) WithShelved(files Files) *Log {
	if files.endOffset < l.filesEnd {
		return l
	}
	n := *l
	n.files, n.filesEnd = files.list, files.endOffset
	n.tail = l.tail.dropBelow(files.endOffset)
	return &n
}

// StartOffset is the first offset that the log holds.
func (l *Log) StartOffset() int64 {
	if len(l.files) > 0 {
		return l.files[0].base
	}
	if len(l.tail.extents) > 0 {
		return l.tail.extents[0].BaseOffset
	}
	return l.filesEnd
}

// EndOffset is the first offset behind the log.
func (l *Log) EndOffset() int64 {
	if n := len(l.tail.extents); n > 0 {
		return l.tail.extents[n-1].LastOffset() + 1
	}
	return l.filesEnd
}

// InJournal lists the batches that lie in journal segments up to that number and not in files yet. It must not be changed.
func (l *Log) InJournal(upTo uint64) []Extent {
	n := sort.Search(len(l.tail.extents), func(i int) bool { return l.tail.extents[i].Segment > upTo })
	return l.tail.extents[:n:n]
}

// ShelvedOffset is the first offset that is not in files.
func (l *Log) ShelvedOffset() int64 { return l.filesEnd }

// SizeBytes is what the log's batches take on disk: in files, and in the journal as long as they are not moved. Files that
// were complete before the store was opened are asked for their size, each time.
func (l *Log) SizeBytes() (int64, error) {
	total := int64(0)
	for i := range l.files {
		f := &l.files[i]
		if f.sizeBytes >= 0 {
			total += f.sizeBytes
			continue
		}
		h, err := l.store.handles.acquire(f.file)
		if err != nil {
			return 0, err
		}
		total += f.size(h)
		if err := l.store.handles.release(h); err != nil {
			return 0, err
		}
	}
	for i := range l.tail.extents {
		total += int64(l.tail.extents[i].Len)
	}
	return total, nil
}
