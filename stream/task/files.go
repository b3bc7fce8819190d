package task

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/task/core"
	"github.com/strandline-io/strandline/stream/task/protocol"
)

const (
	// fileBatchBytes and fileBatchLines bound what one Records event brings of a file.
	fileBatchBytes  = 1 << 20
	fileBatchLines  = 10_000
	fileBufferBytes = 256 << 10
)

// fileReaders read splits. The loop owns the set; one goroutine reads each file and waits while its batch is not taken.
type fileReaders struct {
	wake    func()
	readers map[fileKey]*fileReader
	wg      sync.WaitGroup
}

type fileKey struct {
	task  core.Task
	input int
}

type fileReader struct {
	cancel context.CancelFunc
	out    chan fileBatch // capacity 1: read one ahead
}

type fileBatch struct {
	records core.Records
	err     error
}

func newFileReaders(wake func()) *fileReaders {
	return &fileReaders{wake: wake, readers: make(map[fileKey]*fileReader)}
}

// add starts reading a split at a position.
func (f *fileReaders) add(e core.StartFetch, in stream.Input) {
	f.remove(e.Task, e.Input)
	ctx, cancel := context.WithCancel(context.Background())
	r := &fileReader{cancel: cancel, out: make(chan fileBatch, 1)}
	f.readers[fileKey{e.Task, e.Input}] = r
	s := &splitReader{
		task: e.Task, input: e.Input, file: in.Files[e.Task.Number], maxLine: in.MaxLineBytes, at: e.From,
		send: func(b fileBatch) bool {
			select {
			case r.out <- b:
				f.wake()
				return true
			case <-ctx.Done():
				return false
			}
		},
	}
	f.wg.Add(1)
	go func() {
		defer f.wg.Done()
		if err := s.read(); err != nil {
			s.send(fileBatch{err: err})
		}
	}()
}

func (f *fileReaders) remove(t core.Task, input int) {
	key := fileKey{t, input}
	if r := f.readers[key]; r != nil {
		r.cancel()
		delete(f.readers, key)
	}
}

func (f *fileReaders) removeAll() {
	for key := range f.readers {
		f.remove(key.task, key.input)
	}
}

func (f *fileReaders) wait() { f.wg.Wait() }

// take gives a batch that waits, if any.
func (f *fileReaders) take() (core.Records, error, bool) {
	for _, r := range f.readers {
		select {
		case b := <-r.out:
			return b.records, b.err, true
		default:
		}
	}
	return core.Records{}, nil, false
}

// splitReader reads the lines of one split from a position to its end.
type splitReader struct {
	task    core.Task
	input   int
	file    stream.File
	maxLine int
	at      core.Position
	send    func(fileBatch) bool
}

// read first makes sure that the file still is the split, so that the lines before the position are those that were
// processed.
func (s *splitReader) read() error {
	want := s.file.Split
	got, err := stream.SplitOf(s.file.FS, want.Name)
	if err != nil {
		return fmt.Errorf("task: reading file %s: %w", want.Name, err)
	}
	if got != want {
		return &ChangedFileError{Name: want.Name, Want: protocol.DescribeSplits([]stream.Split{want}), Got: protocol.DescribeSplits([]stream.Split{got})}
	}
	file, err := s.file.FS.Open(want.Name)
	if err != nil {
		return fmt.Errorf("task: opening file %s: %w", want.Name, err)
	}
	defer file.Close()
	if err := skip(file, s.at.Offset); err != nil {
		return fmt.Errorf("task: file %s: going to byte %d: %w", want.Name, s.at.Offset, err)
	}
	lines := bufio.NewReaderSize(file, fileBufferBytes)
	for {
		batch, err := s.batch(lines)
		ended := errors.Is(err, io.EOF)
		if err != nil && !ended {
			return fmt.Errorf("task: file %s: line %d: %w", want.Name, s.at.Line+1, err)
		}
		if ended && s.at.Offset != want.SizeBytes {
			return &ChangedFileError{Name: want.Name, Want: fmt.Sprintf("%d bytes long", want.SizeBytes),
				Got: fmt.Sprintf("%d bytes", s.at.Offset)}
		}
		if !s.send(fileBatch{records: batch}) || ended {
			return nil
		}
	}
}

func skip(r io.Reader, n int64) error {
	if n == 0 {
		return nil
	}
	if s, ok := r.(io.Seeker); ok {
		_, err := s.Seek(n, io.SeekStart)
		return err
	}
	_, err := io.CopyN(io.Discard, r, n)
	return err
}

// batch reads the next lines. At the end of the file it returns what is left with io.EOF.
func (s *splitReader) batch(lines *bufio.Reader) (core.Records, error) {
	out := core.Records{
		Task: s.task, Input: s.input, LastStableOffset: s.file.Split.SizeBytes, HighWatermark: s.file.Split.SizeBytes,
	}
	size := 0
	var err error
	for size < fileBatchBytes && len(out.Records) < fileBatchLines {
		var line []byte
		var n int64
		line, n, err = s.line(lines)
		if n > 0 {
			out.Records = append(out.Records, stream.Message{
				Input: s.input, Partition: s.task.Number, Offset: s.at.Offset, Line: s.at.Line + 1, Value: line,
			})
			s.at = core.Position{Offset: s.at.Offset + n, Line: s.at.Line + 1}
			size += len(line)
		}
		if err != nil {
			break
		}
	}
	out.Next = s.at
	return out, err
}

// line reads one line. It keeps at most one byte more than allowed of an overlong one, which tells the topology that it
// is too long. n counts the bytes of the file, ends included.
func (s *splitReader) line(lines *bufio.Reader) (line []byte, n int64, err error) {
	line = []byte{}
	for {
		part, err := lines.ReadSlice('\n')
		n += int64(len(part))
		if room := s.maxLine + 3 - len(line); room > 0 { // "\r\n" and the byte too many
			line = append(line, part[:min(room, len(part))]...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		line = bytes.TrimSuffix(line, []byte("\n"))
		line = bytes.TrimSuffix(line, []byte("\r"))
		return line[:min(len(line), s.maxLine+1)], n, err
	}
}
