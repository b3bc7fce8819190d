package streamtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/task/core"
)

// process is one worker process under the scheduler: the real core, and a driver whose every action is one step.
type process struct {
	r     *Runner
	n     int
	id    string // transactional id
	epoch int

	core     *core.Worker
	down     bool
	over     bool // Done was given out
	finished bool // because the job has ended
	effects  []core.Effect
	answers  []core.Event // of this life
	group    []core.Event // assignments and revocations
	restores []core.Restore
	fetches  []*fetch
	writers  map[core.SinkID]stream.SinkWriter
	stores   map[storeKey]*memStore
	tail     []int64 // read positions in the checkpoint topic
	failed   int64   // effects up to this epoch are not carried out
	wanted   int64   // epoch in which SinkWants was told last
}

type fetch struct {
	core.StartFetch
	position core.Position
	polledMs int64
}

type storeKey struct {
	task  core.Task
	store string
}

var ctx = context.Background()

// start begins a new life: a new client, a new core.
func (p *process) start() error {
	w, err := core.New(core.Config{
		Plan: p.r.plan, Job: p.r.job, CommitIntervalMs: p.r.opts.CommitInterval.Milliseconds(),
		ChunkResults: p.r.opts.ChunkResults, MaxAborts: 1000,
	})
	if err != nil {
		return err
	}
	p.core, p.down, p.failed, p.wanted = w, false, 0, 0
	p.forget()
	p.group = nil
	p.tail = make([]int64, len(p.r.cluster.topics[p.r.plan.CheckpointTopic]))
	p.epoch = p.r.cluster.initProducer(p.id)
	return nil
}

// forget drops everything in memory, as the end of the process or a DropEverything does.
func (p *process) forget() {
	p.effects, p.answers, p.restores, p.fetches = nil, nil, nil, nil
	p.writers = map[core.SinkID]stream.SinkWriter{}
	p.stores = map[storeKey]*memStore{}
}

func (p *process) step(e core.Event) {
	p.core.Step(p.r.nowMs, e)
	p.effects = append(p.effects, p.core.Effects()...)
}

func (p *process) answer(e core.Event) { p.answers = append(p.answers, e) }

// act is one thing that the process can do now.
type act struct {
	name string
	do   func()
}

// acts lists what the process can do, in a fixed order.
func (p *process) acts() []act {
	if p.down || p.over {
		return nil
	}
	if len(p.effects) > 0 {
		return []act{{"effect", p.carryOut}}
	}
	var out []act
	for i := range p.restores {
		if p.restorable(p.restores[i]) {
			out = append(out, act{"restore", func() { p.restore(i) }})
		}
	}
	if len(p.answers) > 0 {
		out = append(out, act{"answer", func() {
			e := p.answers[0]
			p.answers = p.answers[1:]
			p.step(e)
		}})
	}
	if len(p.group) > 0 {
		out = append(out, act{"group", func() {
			e := p.group[0]
			p.group = p.group[1:]
			p.step(e)
		}})
	}
	for i := range p.tail {
		if part := p.r.cluster.partition(p.r.plan.CheckpointTopic, i); p.tail[i] < part.lastStableOffset() {
			out = append(out, act{"tail", func() { p.readTail(i) }})
		}
	}
	if p.core.WantsRecords() {
		for _, f := range p.fetches {
			if p.fetchable(f) {
				out = append(out, act{"fetch", func() { p.fetch(f) }})
			}
		}
	}
	if ids := p.wants(); len(ids) > 0 && p.wanted < p.core.Status().Epoch {
		out = append(out, act{"wants", func() {
			p.wanted = p.core.Status().Epoch
			p.step(core.SinkWants{Sinks: ids})
		}})
	}
	if due, ok := p.core.NextTickMs(); ok && due <= p.r.nowMs {
		out = append(out, act{"tick", func() { p.step(core.Tick{}) }})
	}
	return out
}

func (p *process) readTail(i int) {
	records, next := p.r.cluster.partition(p.r.plan.CheckpointTopic, i).read(p.tail[i], 1)
	p.tail[i] = next
	for _, m := range records {
		p.step(core.CheckpointSeen{Key: m.Key, Value: m.Value})
	}
}

// restorable: no pending offset of the task's inputs, and nothing open in what is to be read.
func (p *process) restorable(e core.Restore) bool {
	stage, _ := p.r.plan.Stage(e.Task.Stage)
	for _, in := range stage.Inputs {
		if _, ok := p.r.cluster.stableOffset(in.Topic, e.Task.Number); !ok {
			return false
		}
	}
	topics := []string{p.r.plan.CheckpointTopic}
	for _, s := range stage.Stores {
		topics = append(topics, s.ChangelogTopic)
	}
	return !slices.ContainsFunc(topics, func(topic string) bool {
		part := p.r.cluster.partition(topic, e.Task.Number)
		return part.lastStableOffset() < part.highWatermark()
	})
}

func (p *process) restore(i int) {
	e := p.restores[i]
	p.restores = slices.Delete(p.restores, i, i+1)
	stage, _ := p.r.plan.Stage(e.Task.Stage)
	out := core.Restored{Task: e.Task, Token: e.Token}
	for _, in := range stage.Inputs {
		offset, _ := p.r.cluster.stableOffset(in.Topic, e.Task.Number)
		out.Inputs = append(out.Inputs, core.RestoredInput{GroupOffset: offset})
	}
	records, _ := p.r.cluster.partition(p.r.plan.CheckpointTopic, e.Task.Number).read(0, 1<<30)
	for _, m := range records {
		if string(m.Key) == e.Task.Name() {
			out.Checkpoint = m.Value
		}
	}
	for _, spec := range stage.Stores {
		s := &memStore{}
		records, _ := p.r.cluster.partition(spec.ChangelogTopic, e.Task.Number).read(0, 1<<30)
		for _, m := range records {
			s.set(string(m.Key), m.Value)
		}
		p.stores[storeKey{e.Task, spec.Name}] = s
		out.Stores = append(out.Stores, s)
	}
	p.step(out)
}

func (p *process) fetchable(f *fetch) bool {
	spec := p.input(f)
	if spec.Kind == stream.InputFile {
		return f.position.Offset < spec.Files[f.Task.Number].Split.SizeBytes
	}
	part := p.r.cluster.partition(spec.Topic, f.Task.Number)
	return f.position.Offset < part.lastStableOffset() || f.polledMs < p.r.nowMs
}

func (p *process) input(f *fetch) *stream.Input {
	stage, _ := p.r.plan.Stage(f.Task.Stage)
	return &stage.Inputs[f.Input]
}

func (p *process) fetch(f *fetch) {
	spec := p.input(f)
	f.polledMs = p.r.nowMs
	limit := 1 + p.r.random(p.r.opts.FetchRecords)
	e := core.Records{Task: f.Task, Input: f.Input}
	if spec.Kind == stream.InputFile {
		var err error
		if e.Records, e.Next, err = readLines(spec.Files[f.Task.Number], f.position, limit); err != nil {
			p.r.fail(err)
			return
		}
		e.LastStableOffset = spec.Files[f.Task.Number].Split.SizeBytes
		e.HighWatermark = e.LastStableOffset
	} else {
		part := p.r.cluster.partition(spec.Topic, f.Task.Number)
		e.Records, e.Next.Offset = part.read(f.position.Offset, limit)
		e.LastStableOffset, e.HighWatermark = part.lastStableOffset(), part.highWatermark()
	}
	f.position = e.Next
	p.step(e)
}

func readLines(file stream.File, from core.Position, limit int) ([]stream.Message, core.Position, error) {
	content, err := fs.ReadFile(file.FS, file.Split.Name)
	if err != nil {
		return nil, from, err
	}
	var out []stream.Message
	for len(out) < limit && from.Offset < int64(len(content)) {
		line := content[from.Offset:]
		size := len(line)
		if end := bytes.IndexByte(line, '\n'); end >= 0 {
			line, size = line[:end], end+1
		}
		line = bytes.TrimSuffix(line, []byte("\r"))
		from.Line++
		out = append(out, stream.Message{Offset: from.Offset, Line: from.Line, Value: append([]byte{}, line...)})
		from.Offset += int64(size)
	}
	return out, from, nil
}

// carryOut does the next effect, or skips it if its epoch has failed.
func (p *process) carryOut() {
	e := p.effects[0]
	p.effects = p.effects[1:]
	if epoch, ok := epochOf(e); ok && epoch <= p.failed {
		return
	}
	if epoch, ok := epochOf(e); ok && p.r.faulty() {
		p.failed = epoch
		p.answer(core.Failed{Epoch: epoch, Err: errors.New("injected fault")})
		return
	}
	switch e := e.(type) {
	case core.Restore:
		p.restores = append(p.restores, e)
	case core.OpenSinks:
		p.openSinks(e)
	case core.StartFetch:
		p.fetches = append(p.fetches, &fetch{StartFetch: e, position: e.From, polledMs: -1})
	case core.StopFetch:
		p.fetches = slices.DeleteFunc(p.fetches, func(f *fetch) bool { return f.Task == e.Task && f.Input == e.Input })
	case core.Produce:
		if err := p.r.cluster.produce(p.id, p.epoch, e.Records); err != nil {
			p.failed = e.Epoch
			p.answer(core.Failed{Epoch: e.Epoch, Err: err})
		}
	case core.Flush:
		p.answer(core.Flushed{Epoch: e.Epoch, Ends: p.ends()})
	case core.Commit:
		p.commit(e)
	case core.ApplyStores:
		for _, s := range e.Stores {
			for _, write := range s.Writes {
				p.stores[storeKey{s.Task, s.Store}].set(string(write.Key), write.Value)
			}
		}
	case core.DropEverything:
		p.forget()
		p.epoch = p.r.cluster.initProducer(p.id)
		p.answer(core.Dropped{Epoch: e.Epoch})
	case core.Released:
		p.released(e)
	case core.Done:
		p.over, p.finished = true, e.Finished
		p.r.done(p, e)
	case core.Stopped:
		p.r.fail(e.Err)
	default:
		p.sinkEffect(e)
	}
}

func epochOf(e core.Effect) (int64, bool) {
	switch e := e.(type) {
	case core.Produce:
		return e.Epoch, true
	case core.WriteSinks:
		return e.Epoch, true
	case core.FinishSinks:
		return e.Epoch, true
	case core.Flush:
		return e.Epoch, true
	case core.PrepareSinks:
		return e.Epoch, true
	case core.Commit:
		return e.Epoch, true
	}
	return 0, false
}

// ends reports the ends of what the open transaction wrote.
func (p *process) ends() []core.PartitionEnd {
	s := p.r.cluster.slots[p.id]
	if s.epoch != p.epoch || s.open == nil {
		return nil
	}
	var out []core.PartitionEnd
	for _, part := range s.open.touched {
		for i := len(part.log) - 1; i >= 0; i-- {
			if e := part.log[i]; e.txn == s.open {
				out = append(out, core.PartitionEnd{Topic: e.record.Topic, Partition: e.record.Partition, EndOffset: int64(i) + 1})
				break
			}
		}
	}
	return out
}

// commit is steps 3 and 4, with a chance to die, or to lose the answer, between any two.
func (p *process) commit(e core.Commit) {
	aborted := func(err error) { p.answer(core.TxnEnded{Epoch: e.Epoch, Outcome: core.Aborted, Err: err}) }
	if err := p.r.cluster.produce(p.id, p.epoch, append(slices.Clone(e.Changelog), e.Checkpoints...)); err != nil {
		aborted(err)
		return
	}
	if p.r.mayCrash(p) {
		return
	}
	for _, o := range e.Owned {
		if !p.r.owns(p, o) {
			aborted(fmt.Errorf("task %s is not owned any more", o.Task.Name()))
			return
		}
	}
	if err := p.r.cluster.sendOffsets(p.id, p.epoch, e.Offsets); err != nil {
		aborted(err)
		return
	}
	if p.r.mayCrash(p) {
		return
	}
	lost := p.r.faulty()
	if lost && p.r.random(2) == 0 {
		p.answer(core.TxnEnded{Epoch: e.Epoch, Outcome: core.Unknown, Err: errors.New("the answer to EndTxn was lost, and EndTxn too")})
		return
	}
	if err := p.r.cluster.endTxn(p.id, p.epoch, true); err != nil {
		aborted(err)
		return
	}
	p.r.committed(p, e)
	if p.r.mayCrash(p) {
		return
	}
	if lost {
		p.answer(core.TxnEnded{Epoch: e.Epoch, Outcome: core.Unknown, Err: errors.New("the answer to EndTxn was lost")})
		return
	}
	p.answer(core.TxnEnded{Epoch: e.Epoch, Outcome: core.Committed})
}

func (p *process) released(e core.Released) {
	gone := func(t core.Task) bool { return slices.Contains(e.Tasks, t) }
	p.fetches = slices.DeleteFunc(p.fetches, func(f *fetch) bool { return gone(f.Task) })
	p.restores = slices.DeleteFunc(p.restores, func(r core.Restore) bool { return gone(r.Task) })
	for _, id := range p.sinkIDs() {
		if gone(id.Task) {
			p.writers[id].Close()
			delete(p.writers, id)
		}
	}
	p.r.released(p, e.Tasks)
}

func (p *process) sinkIDs() []core.SinkID {
	var ids []core.SinkID
	for id := range p.writers {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b core.SinkID) int {
		return strings.Compare(a.Task.Name()+" "+a.Sink, b.Task.Name()+" "+b.Sink)
	})
	return ids
}
