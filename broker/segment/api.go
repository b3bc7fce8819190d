// Package segment holds each partition's batches outside the journal, as plain Kafka .log files with sparse indexes,
// and reads a partition wherever its bytes are: in its own files or still in the journal.
package segment

// Extent is one batch that still lies in the journal. No pointers: many are kept.
type Extent struct {
	BaseOffset   int64
	MaxTimestamp int64
	Segment      uint64
	Pos          int64
	LastDelta    int32 // last offset - base offset
	Len          int32
}

// Journal is what reading needs of the journal.
type Journal interface {
	ReadAt(segment uint64, p []byte, pos int64) error
	Hold(segment uint64) (release func(), ok bool)
}
