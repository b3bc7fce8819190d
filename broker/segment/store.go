package segment

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/strandline-io/strandline/internal/vfs"
)

// Store owns the files of all partitions. Open, Shelve, Forget and Close belong to one owner and must not overlap;
// Files, NewLog and everything on a Log may be called from anywhere at any time.
type Store struct {
	fs      vfs.FS
	cfg     Config
	handles handles

	mu         sync.Mutex // guards partitions and the published fields of each
	partitions map[uint32]*partition
}

// partition is one partition's moved part.
type partition struct {
	id  uint32
	dir string

	files     []fileRef // published, ascending; never written to
	endOffset int64     // published

	tail *appender // how the newest file goes on; nil until the owner needs it
}

// fileRef is what of a file was moved and synced.
type fileRef struct {
	*file
	sealed    bool  // it does not grow any more, and its index files are synced
	sizeBytes int64 // -1: all of it, which is sealed since before Open
	endOffset int64 // the first offset that lies in no file up to this one
}

// Files is the immutable set of a partition's files at one moment, for Log.WithShelved.
type Files struct {
	list      []fileRef
	endOffset int64
}

// EndOffset is the first offset that is not in the files.
func (f Files) EndOffset() int64 { return f.endOffset }

// Open brings the folder to the state that lengths describe, as they were journaled, and returns the store: newest
// files are cut to their length, files behind them and partitions without a length are removed. A file that is
// missing or too short is damage (ErrCorrupt): its bytes were synced before its length was journaled. Only names are
// listed and newest files opened, so the time does not depend on the amount of data.
func Open(fsys vfs.FS, cfg Config, lengths []Length) (*Store, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Store{fs: fsys, cfg: cfg, partitions: make(map[uint32]*partition, len(lengths))}
	s.handles.init(fsys, cfg.MaxOpenFiles)
	if err := fsys.MkdirAll(cfg.Dir); err != nil {
		return nil, fmt.Errorf("make folder %s: %w", cfg.Dir, err)
	}
	for dir := path.Dir(cfg.Dir); ; dir = path.Dir(dir) {
		if err := syncDir(fsys, dir); err != nil {
			return nil, err
		}
		if dir == "." || dir == "/" {
			break
		}
	}
	for _, l := range lengths {
		if _, twice := s.partitions[l.Partition]; twice {
			return nil, fmt.Errorf("segment: two lengths for partition %d", l.Partition)
		}
		if l.FileBase < 0 || l.FileBytes < 0 || l.EndOffset < l.FileBase {
			return nil, fmt.Errorf("segment: impossible length %+v", l)
		}
		s.partitions[l.Partition] = &partition{id: l.Partition, dir: s.partitionDir(l.Partition), endOffset: l.EndOffset}
	}
	if err := s.removeStrangers(); err != nil {
		return nil, err
	}
	lengths = slices.Clone(lengths)
	slices.SortFunc(lengths, func(a, b Length) int { return cmp.Compare(a.Partition, b.Partition) })
	for _, l := range lengths {
		if err := s.openPartition(s.partitions[l.Partition], l); err != nil {
			return nil, errors.Join(err, s.handles.closeAll())
		}
	}
	return s, nil
}

func (s *Store) partitionDir(id uint32) string { return path.Join(s.cfg.Dir, fmt.Sprintf("%010d", id)) }

// removeStrangers removes the folders of partitions that have no length. Names that are none of ours stay.
func (s *Store) removeStrangers() error {
	names, err := s.fs.List(s.cfg.Dir)
	if err != nil {
		return fmt.Errorf("list %s: %w", s.cfg.Dir, err)
	}
	for _, name := range names {
		id, ok := parseDigits(name, 10)
		if !ok || id > 1<<32-1 || s.partitions[uint32(id)] != nil {
			continue
		}
		if err := s.removeDir(path.Join(s.cfg.Dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// removeDir removes a partition's folder: its files first, then, where the platform lets us, itself. An empty folder
// that stays is removed at the next start.
func (s *Store) removeDir(dir string) error {
	names, err := s.fs.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", dir, err)
	}
	for _, name := range names {
		if err := s.remove(path.Join(dir, name)); err != nil {
			return err
		}
	}
	if err := s.fs.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove folder %s: %w", dir, err)
	}
	return nil
}

func (s *Store) remove(name string) error {
	if err := s.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}

// openPartition finds p's files, removes what is newer than l, and cuts the newest to its length.
func (s *Store) openPartition(p *partition, l Length) error {
	names, err := s.fs.List(p.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list %s: %w", p.dir, err)
	}
	var bases []int64
	for _, name := range names {
		base, ending, ours := parseFileName(name)
		switch {
		case !ours:
		case base > l.FileBase || base == l.FileBase && l.FileBytes == 0:
			if err := s.remove(path.Join(p.dir, name)); err != nil {
				return err
			}
		case ending == ".log":
			bases = append(bases, base)
		}
	}
	for i, base := range bases { // List sorts, and names have a fixed width
		end := l.EndOffset
		if i+1 < len(bases) {
			end = bases[i+1]
		}
		p.files = append(p.files, fileRef{file: p.newFile(base), sealed: true, sizeBytes: -1, endOffset: end})
	}
	if l.FileBytes == 0 {
		return nil
	}
	if len(bases) == 0 || bases[len(bases)-1] != l.FileBase {
		return damaged(p.newFile(l.FileBase).logName(), 0, "file is missing, its length was recorded as %d", l.FileBytes)
	}
	newest := &p.files[len(p.files)-1]
	newest.sizeBytes, newest.sealed = l.FileBytes, false
	return s.cut(newest)
}

// cut shortens the newest file to its recorded length; its index files too when the log was longer, so that they
// name nothing that is gone.
func (s *Store) cut(f *fileRef) (err error) {
	opened, err := s.fs.Open(f.logName())
	if err != nil {
		return fmt.Errorf("open %s: %w", f.logName(), err)
	}
	h := &handle{File: opened}
	defer func() { err = errors.Join(err, opened.Close()) }()
	size, err := opened.Size()
	if err != nil {
		return fmt.Errorf("size of %s: %w", f.logName(), err)
	}
	if size < f.sizeBytes {
		return damaged(f.logName(), size, "file ends here, its length was recorded as %d", f.sizeBytes)
	}
	if size == f.sizeBytes {
		return nil
	}
	if err := opened.Truncate(f.sizeBytes); err != nil {
		return fmt.Errorf("truncate %s to %d: %w", f.logName(), f.sizeBytes, err)
	}
	if err := opened.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", f.logName(), err)
	}
	b, err := s.loadIndex(f, h, f.sizeBytes)
	if err != nil {
		return err
	}
	return s.saveIndex(f.file, &b, false)
}

// trusted is how much of a growing log its index files surely describe: they were synced then.
func (s *Store) trusted(sizeBytes int64) int64 { return sizeBytes - sizeBytes%s.cfg.IndexSyncBytes }

func (p *partition) newFile(base int64) *file {
	name := path.Join(p.dir, fmt.Sprintf("%020d", base))
	return &file{base: base, name: name, log: name + ".log"}
}

// parseFileName splits a name as Kafka gives them: twenty digits and an ending.
func parseFileName(name string) (base int64, ending string, ok bool) {
	digits, _, found := strings.Cut(name, ".")
	if !found {
		return 0, "", false
	}
	base, ok = parseDigits(digits, 20)
	ending = name[len(digits):]
	if !ok || ending != ".log" && ending != ".index" && ending != ".timeindex" {
		return 0, "", false
	}
	return base, ending, true
}

func parseDigits(s string, width int) (int64, bool) {
	if len(s) != width || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	v, err := strconv.ParseInt(s, 10, 64)
	return v, err == nil
}

// Files returns what is moved of a partition at this moment; of an unknown one, nothing.
func (s *Store) Files(partition uint32) Files {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.partitions[partition]
	if p == nil {
		return Files{}
	}
	return Files{list: p.files, endOffset: p.endOffset}
}

// NewLog returns a log of what is moved of a partition, to which batches in the journal j are then appended.
func (s *Store) NewLog(j Journal, partition uint32) *Log {
	l := &Log{store: s, journal: j}
	return l.WithShelved(s.Files(partition))
}

// Lengths returns what is moved of every partition, in order of their ids: what was returned by the last Shelve of
// each, or given to Open.
func (s *Store) Lengths() []Length {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Length, 0, len(s.partitions))
	for _, p := range s.partitions {
		all = append(all, p.length())
	}
	slices.SortFunc(all, func(a, b Length) int { return cmp.Compare(a.Partition, b.Partition) })
	return all
}

func (p *partition) length() Length {
	l := Length{Partition: p.id, FileBase: p.endOffset, EndOffset: p.endOffset}
	if n := len(p.files); n > 0 && !p.files[n-1].sealed {
		l.FileBase, l.FileBytes = p.files[n-1].base, p.files[n-1].sizeBytes
	}
	return l
}

// Forget removes a partition's files, because its topic was deleted. Logs that still name them fail with ErrMoved.
// It may be repeated after an error; what it leaves behind goes at the next Open.
func (s *Store) Forget(partition uint32) error {
	s.mu.Lock()
	p := s.partitions[partition]
	delete(s.partitions, partition)
	s.mu.Unlock()
	if p != nil {
		var errs []error
		for i := range p.files {
			errs = append(errs, s.handles.forget(p.files[i].file))
		}
		if err := errors.Join(errs...); err != nil {
			return fmt.Errorf("forget partition %d: %w", partition, err)
		}
	}
	return s.removeDir(s.partitionDir(partition))
}

// Trim removes the files of a partition that lie wholly below offset, its log start, if they do not grow any more. publish is
// given what is left before anything is removed, so that readers move over; Logs that still name a removed file fail
// with ErrMoved. What it leaves behind after an error, it finds after the next Open.
func (s *Store) Trim(partition uint32, offset int64, publish func(Files)) error {
	s.mu.Lock()
	p := s.partitions[partition]
	gone := 0
	for p != nil && gone < len(p.files) && p.files[gone].sealed && p.files[gone].endOffset <= offset {
		gone++
	}
	if gone == 0 {
		s.mu.Unlock()
		return nil
	}
	removed := p.files[:gone]
	p.files = slices.Clone(p.files[gone:])
	left := Files{list: p.files, endOffset: p.endOffset}
	s.mu.Unlock()
	publish(left)
	var errs []error
	for i := range removed {
		f := removed[i].file
		errs = append(errs, s.handles.forget(f))
		// The log goes last: indexes without one would never be found again.
		for _, name := range []string{f.indexName(), f.timesName(), f.logName()} {
			errs = append(errs, s.remove(name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove what lies below offset %d of partition %d: %w", offset, partition, err)
	}
	return nil
}

// Close closes the files. Reads in progress end first; later ones fail.
func (s *Store) Close() error { return s.handles.closeAll() }
