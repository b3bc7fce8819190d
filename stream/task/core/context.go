package core

import (
	"fmt"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/progress"
)

// callContext is what a processor sees during one call. What a call of OnRecord does is taken back by rollback.
type callContext struct {
	w *Worker
	t *task
	// err is the first thing that the processor did wrong; damage is an error of a store.
	err, damage error

	recording bool
	out       int // lengths of outbox and writes at begin
	writes    int
	counters  Counters
}

// call returns the context for the next call; there is one per worker.
func (w *Worker) call(t *task) *callContext {
	w.ctx = callContext{w: w, t: t}
	return &w.ctx
}

// begin marks where rollback returns to.
func (c *callContext) begin() {
	c.recording = true
	c.out, c.writes, c.counters = len(c.w.outbox), len(c.w.writes), c.t.counters
	for _, s := range c.t.stores {
		s.begin()
	}
}

func (c *callContext) end() {
	for _, s := range c.t.stores {
		s.end()
	}
}

func (c *callContext) rollback() {
	c.w.outbox = c.w.outbox[:c.out]
	for _, sw := range c.w.writes[c.writes:] {
		for _, s := range c.t.sinks {
			if s.name == sw.Sink {
				s.rows--
			}
		}
	}
	c.w.writes = c.w.writes[:c.writes]
	c.t.counters = c.counters
	for _, s := range c.t.stores {
		s.rollback()
	}
}

func (c *callContext) Task() stream.TaskInfo { return c.t.info }

func (c *callContext) Store(name string) stream.Store {
	for i, s := range c.t.stage.Stores {
		if s.Name == name {
			return storeOfCall{c, c.t.stores[i]}
		}
	}
	panic(fmt.Sprintf("stage %s has no store %q", c.t.stage.Name, name))
}

func (c *callContext) Emit(output int, e stream.Emission) {
	out := &c.t.stage.Outputs[output]
	if err := checkTime(e.TimestampMs); err != nil {
		c.fail(fmt.Errorf("output %s: %w", out.Name, err))
		return
	}
	if n := stream.RecordBytes(e.Key, e.Value, e.Headers) + 1; n > stream.MaxRecordBytes {
		c.fail(fmt.Errorf("output %s: the record takes %d bytes (key %d, value %d), a topic takes up to %d",
			out.Name, n, len(e.Key), len(e.Value), stream.MaxRecordBytes))
		return
	}
	r := OutRecord{Topic: out.Topic, Key: e.Key, Value: e.Value, Headers: e.Headers, TimestampMs: e.TimestampMs}
	if e.Key != nil {
		r.Partition = stream.PartitionFor(e.Key, out.Partitions)
	} else {
		r.Partition = c.t.id.Number % out.Partitions
	}
	if out.Intermediate && e.Value != nil {
		r.Value = progress.AppendUser(make([]byte, 0, len(e.Value)+1), e.Value)
	}
	c.w.outbox = append(c.w.outbox, r)
	c.emitted()
}

func (c *callContext) WriteSink(sink int, r stream.SinkRecord) {
	s := c.t.sinks[sink]
	if err := checkTime(r.TimestampMs); err != nil {
		c.fail(fmt.Errorf("sink %s: %w", s.name, err))
		return
	}
	r.RowSequence = s.rows
	s.rows++
	s.dirty = true
	c.w.writes = append(c.w.writes, SinkWrite{SinkID{c.t.id, s.name}, r})
	c.emitted()
}

func (c *callContext) emitted() {
	c.t.counters.Emitted++
	if !c.recording {
		c.w.results++
	}
	c.t.touched = true
}

func (c *callContext) CountLate() { c.t.counters.Late++ }

func (c *callContext) Room() int { return max(0, c.w.cfg.ChunkResults-c.w.results) }

func (c *callContext) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// storeOfCall remembers the first error of a store, so that a processor cannot hide it.
type storeOfCall struct {
	c *callContext
	o *overlay
}

func (s storeOfCall) note(err error) error {
	if err != nil && s.c.damage == nil {
		s.c.damage = fmt.Errorf("%w: %w", stream.ErrStore, err)
		s.c.fail(s.c.damage)
	}
	return err
}

func (s storeOfCall) Get(key []byte) ([]byte, bool, error) {
	value, ok, err := s.o.Get(key)
	return value, ok, s.note(err)
}

func (s storeOfCall) Put(key, value []byte) error {
	if value == nil {
		panic("Put of a nil value: use Delete")
	}
	s.o.set(key, value)
	return nil
}

func (s storeOfCall) Delete(key []byte) error {
	s.o.set(key, nil)
	return nil
}

func (s storeOfCall) Range(from, to []byte, f func(key, value []byte) bool) error {
	return s.note(s.o.Range(from, to, f))
}
