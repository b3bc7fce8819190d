package streamtest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/strandline-io/strandline/stream"
)

// Place is where a Sink keeps its rows: as an object store would, staged ones invisible. It is safe for concurrent use.
type Place struct {
	mu      sync.Mutex
	nonce   int
	staged  map[string][]stream.SinkRecord // stage name → rows
	visible map[string][]stream.SinkRecord // published file → rows
	names   []string                       // of visible, in order of publishing
}

// NewPlace returns an empty place.
func NewPlace() *Place {
	return &Place{staged: map[string][]stream.SinkRecord{}, visible: map[string][]stream.SinkRecord{}}
}

// Rows returns the visible rows, file by file in the order of publishing.
func (p *Place) Rows() []stream.SinkRecord {
	p.mu.Lock()
	defer p.mu.Unlock()
	var rows []stream.SinkRecord
	for _, name := range p.names {
		rows = append(rows, p.visible[name]...)
	}
	return rows
}

// Files returns the number of visible files.
func (p *Place) Files() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.names)
}

// Sink is a two-phase sink in memory. Files may span commits: one is done at RowsPerFile rows, or by Finish.
type Sink struct {
	SinkName    string
	Place       *Place
	RowsPerFile int // 0: every Prepare ends the file
}

// NewSink returns a sink over a new place.
func NewSink(name string) *Sink { return &Sink{SinkName: name, Place: NewPlace()} }

// Name implements stream.Sink.
func (s *Sink) Name() string { return s.SinkName }

// Check implements stream.Sink.
func (s *Sink) Check(context.Context, stream.JobIdentity) error { return nil }

// Open implements stream.Sink.
func (s *Sink) Open(_ context.Context, task stream.SinkTask) (stream.SinkWriter, error) {
	s.Place.mu.Lock()
	defer s.Place.mu.Unlock()
	s.Place.nonce++
	return &memWriter{place: s.Place, task: task.Task, nonce: s.Place.nonce, rowsPerFile: s.RowsPerFile}, nil
}

// memToken lists done files, and the open one that the next token goes on with.
type memToken struct {
	Done []memFile `json:"done,omitempty"`
	Open *memFile  `json:"open,omitempty"`
}

type memFile struct {
	Name   string   `json:"name"`
	Stages []string `json:"stages"`
	Rows   int      `json:"rows"`
}

type memWriter struct {
	place       *Place
	task        string
	nonce       int
	stages      int
	rowsPerFile int
	buffer      []stream.SinkRecord
	open        *memFile
	done        []memFile // not in a confirmed token yet
	finish      bool
}

func (w *memWriter) Restore(ctx context.Context, token []byte) error {
	if token == nil {
		return nil
	}
	var t memToken
	if err := json.Unmarshal(token, &t); err != nil {
		return fmt.Errorf("token: %w", err)
	}
	w.open = t.Open
	return w.Commit(ctx, token)
}

func (w *memWriter) Write(_ context.Context, r stream.SinkRecord) error {
	w.buffer = append(w.buffer, r)
	if w.rowsPerFile > 0 && w.openRows()+len(w.buffer) >= w.rowsPerFile {
		w.stage()
		w.endFile()
	}
	return nil
}

func (w *memWriter) openRows() int {
	if w.open == nil {
		return 0
	}
	return w.open.Rows
}

// stage makes the buffer durable. The name of a stage is never used twice: the nonce is new for every writer.
func (w *memWriter) stage() {
	if len(w.buffer) == 0 {
		return
	}
	w.place.mu.Lock()
	defer w.place.mu.Unlock()
	w.stages++
	name := fmt.Sprintf("%d-%d", w.nonce, w.stages)
	w.place.staged[name] = w.buffer
	if w.open == nil {
		w.open = &memFile{Name: fmt.Sprintf("%s-%d", w.task, w.buffer[0].RowSequence)}
	}
	open := *w.open
	open.Stages = append(slices.Clone(open.Stages), name)
	open.Rows += len(w.buffer)
	w.open, w.buffer = &open, nil
}

func (w *memWriter) endFile() {
	if w.open != nil {
		w.done = append(w.done, *w.open)
		w.open = nil
	}
}

func (w *memWriter) Prepare(context.Context, int64) ([]byte, error) {
	w.stage()
	if w.rowsPerFile == 0 || w.finish {
		w.endFile()
	}
	w.finish = false
	if len(w.done) == 0 && w.open == nil {
		return nil, nil
	}
	return json.Marshal(memToken{w.done, w.open})
}

func (w *memWriter) Commit(_ context.Context, token []byte) error {
	var t memToken
	if err := json.Unmarshal(token, &t); err != nil {
		return fmt.Errorf("token: %w", err)
	}
	w.place.mu.Lock()
	defer w.place.mu.Unlock()
	for _, f := range t.Done {
		if err := w.place.publish(f); err != nil {
			return err
		}
	}
	w.done = slices.DeleteFunc(w.done, func(f memFile) bool {
		return slices.ContainsFunc(t.Done, func(d memFile) bool { return d.Name == f.Name })
	})
	return nil
}

// publish makes a file visible, create-only: the same content again is fine, another's is not.
func (p *Place) publish(f memFile) error {
	var rows []stream.SinkRecord
	for _, stage := range f.Stages {
		rows = append(rows, p.staged[stage]...)
	}
	if len(rows) != f.Rows {
		return fmt.Errorf("file %s: %d rows are staged, the token says %d", f.Name, len(rows), f.Rows)
	}
	if old, ok := p.visible[f.Name]; ok {
		if fmt.Sprint(old) != fmt.Sprint(rows) {
			return fmt.Errorf("file %s exists with other content: another job writes here", f.Name)
		}
		return nil
	}
	p.visible[f.Name] = rows
	p.names = append(p.names, f.Name)
	return nil
}

func (w *memWriter) Finish()                { w.finish = true }
func (w *memWriter) WantsCommit(int64) bool { return len(w.done) > 0 }
func (w *memWriter) Pending() bool          { return len(w.done) > 0 || w.open != nil || len(w.buffer) > 0 }
func (w *memWriter) Close() error           { w.buffer, w.done, w.open = nil, nil, nil; return nil }
