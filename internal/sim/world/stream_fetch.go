package world

import (
	"bytes"
	"context"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/task/core"
)

// inputFetch reads one input partition of a task.
type inputFetch struct {
	core.StartFetch
	tp      kafka.TopicPartition
	stopped bool
	waiting int // batches that the worker has not taken
	c       *coroutine
}

type fetchedBatch struct {
	f *inputFetch
	e core.Event
}

// maxWaiting is how far a fetch reads ahead.
const maxWaiting = 2

func (p *worker) startFetch(e core.StartFetch) {
	f := &inputFetch{StartFetch: e, tp: p.partitionOf(e.Task, e.Input)}
	p.stopFetch(f.tp)
	p.inputs[f.tp] = f
	st, _ := p.plan.Stage(e.Task.Stage)
	in := &st.Inputs[e.Input]
	f.c = p.spawn("fetch-"+f.tp.String(), func(c *client) {
		if in.Kind == stream.InputFile {
			p.readFile(c, f, p.s.files[in.Files[e.Task.Number].Split.Name].Data)
			return
		}
		p.readTopic(c, f)
	})
}

func (p *worker) stopFetch(tp kafka.TopicPartition) {
	if f := p.inputs[tp]; f != nil {
		f.stopped = true
		f.c.end()
		delete(p.inputs, tp)
	}
}

// put hands a batch over and waits until there is room for the next.
func (p *worker) put(c *client, f *inputFetch, e core.Event) {
	p.batches = append(p.batches, fetchedBatch{f, e})
	f.waiting++
	p.main.signal()
	for f.waiting >= maxWaiting {
		c.await(secondInUs, func() bool { return f.waiting < maxWaiting })
	}
}

// takeRecords gives core one batch, if it wants records.
func (p *worker) takeRecords() bool {
	if len(p.batches) == 0 || !p.core.WantsRecords() {
		return false
	}
	b := p.batches[0]
	p.batches = p.batches[1:]
	if b.f.stopped {
		return true
	}
	b.f.waiting--
	b.f.c.signal()
	before := p.idle(b.f.Task)
	p.step(b.e)
	if e, ok := b.e.(core.Records); ok && !p.over && !before && p.idle(e.Task) && !caughtUp(e) {
		p.w.fail("idle: task %s is idle after a fetch up to %d, stable is %d of %d", e.Task.Name(), e.Next.Offset, e.LastStableOffset, e.HighWatermark)
	}
	return true
}

func (p *worker) idle(t core.Task) bool {
	if p.s.shape.idleMs == 0 || p.isIntermediate(t) {
		return false
	}
	for _, st := range p.core.Status().Tasks {
		if st.Task == t {
			return st.State == "idle"
		}
	}
	return false
}

func (p *worker) isIntermediate(t core.Task) bool {
	st, _ := p.plan.Stage(t.Stage)
	return st.Inputs[0].Kind == stream.InputIntermediate
}

func caughtUp(e core.Records) bool {
	return len(e.Records) == 0 && e.Next.Offset == e.LastStableOffset && e.LastStableOffset == e.HighWatermark
}

func (p *worker) readTopic(c *client, f *inputFetch) {
	client := (&streamLink{c: c, v2: p.v2}).client()
	for at := f.From.Offset; ; {
		b, err := client.Fetch(context.Background(), f.tp, at, 100+c.w.Int32N(600))
		switch {
		case err != nil:
			p.put(c, f, core.FetchFailed{Task: f.Task, Input: f.Input})
			c.sleep(c.w.Int64N(100 * msInUs))
			continue
		case b.Err != nil:
			c.w.fail("fetch: %s: %s at %d: %v", c.name, f.tp, at, b.Err)
		}
		p.put(c, f, core.Records{
			Task: f.Task, Input: f.Input, Records: streamMessages(b.Records), Next: core.Position{Offset: b.NextOffset},
			LastStableOffset: b.LastStableOffset, HighWatermark: b.HighWatermark,
		})
		c.sleep(10*msInUs + c.w.Int64N(p.s.paceUs))
		at = b.NextOffset
	}
}

func streamMessages(rs []kafka.Record) []stream.Message {
	out := make([]stream.Message, len(rs))
	for i, r := range rs {
		out[i] = stream.Message{Offset: r.Offset, Key: r.Key, Value: r.Value, TimestampMs: r.TimestampMs}
	}
	return out
}

func (p *worker) readFile(c *client, f *inputFetch, content []byte) {
	size := int64(len(content))
	for at := f.From; at.Offset < size; {
		e := core.Records{Task: f.Task, Input: f.Input, LastStableOffset: size, HighWatermark: size}
		for range 1 + c.w.IntN(12) {
			line, _, _ := bytes.Cut(content[at.Offset:], []byte("\n"))
			if at.Offset >= size {
				break
			}
			at.Line++
			e.Records = append(e.Records, stream.Message{Offset: at.Offset, Line: at.Line, Value: bytes.Clone(line)})
			at.Offset += int64(len(line)) + 1
		}
		e.Next = at
		p.put(c, f, e)
		c.sleep(c.w.Int64N(p.s.paceUs))
	}
}

// follow tells core what the checkpoint topic holds, from its beginning.
func (p *worker) follow(c *client) {
	client := (&streamLink{c: c, v2: p.v2}).client()
	var all []kafka.TopicPartition
	for _, t := range p.plan.Topics {
		if t.Name == p.plan.CheckpointTopic {
			for n := range t.Partitions {
				all = append(all, kafka.TopicPartition{Topic: t.Name, Partition: int32(n)})
			}
		}
	}
	at := make([]int64, len(all))
	for {
		moved := false
		for i, tp := range all {
			b, err := client.Fetch(context.Background(), tp, at[i], 1<<20)
			if err != nil {
				continue
			}
			moved = moved || b.NextOffset > at[i]
			at[i] = b.NextOffset
			for _, r := range b.Records {
				p.post(func() { p.step(core.CheckpointSeen{Key: r.Key, Value: r.Value}) })
			}
		}
		if !moved {
			c.sleep(20*msInUs + c.w.Int64N(200*msInUs))
		}
	}
}
