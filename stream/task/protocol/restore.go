package protocol

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/strandline-io/strandline/internal/failpoint"
	"github.com/strandline-io/strandline/internal/mutant"
	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/state"
	"github.com/strandline-io/strandline/stream/task/core"
)

// Restore finds out everything about a task. It reads in the order that makes a predecessor's last transaction either wholly visible or impossible:
// OffsetFetch with require-stable first, then the ends, then everything up to them.
func Restore(ctx context.Context, c *kafka.Client, plan *stream.Plan, topicIDs map[string]string, own core.Ownership, stores []state.Store, nowMs int64) (core.Restored, error) {
	st, _ := plan.Stage(own.Task.Stage)
	r := core.Restored{Task: own.Task, Token: own.Token}
	var err error
	if r.Inputs, err = restoreInputs(ctx, c, plan.Job, st, own.Task.Number); err != nil {
		return r, err
	}
	failpoint.Hit("restore.offsets")
	n := int32(own.Task.Number)
	checkpoints := kafka.TopicPartition{Topic: plan.CheckpointTopic, Partition: n}
	read := []kafka.TopicPartition{checkpoints}
	for _, s := range st.Stores {
		read = append(read, kafka.TopicPartition{Topic: s.ChangelogTopic, Partition: n})
	}
	upTo := kafka.Uncommitted
	if mutant.On("restore not waiting for the end of checkpoint and changelog") {
		upTo = kafka.Committed
	}
	ends, err := c.EndOffsets(ctx, read, upTo)
	if err != nil {
		return r, err
	}
	if r.Checkpoint, err = readCheckpoint(ctx, c, checkpoints, own.Task.Name(), ends[checkpoints]); err != nil {
		return r, err
	}
	failpoint.Hit("restore.checkpoint")
	for i, s := range stores {
		tp := read[1+i]
		changelog := func(ctx context.Context, from, end int64, f func(key, value []byte) error) (int64, error) {
			return c.ReadTo(ctx, tp, from, end, func(r kafka.Record) error { return f(r.Key, r.Value) })
		}
		if err := state.Restore(ctx, s, topicIDs[tp.Topic], ends[tp], nowMs, changelog); err != nil {
			return r, fmt.Errorf("store %s: %w", st.Stores[i].Name, err)
		}
		r.Stores = append(r.Stores, s)
	}
	failpoint.Hit("restore.done")
	return r, stillThere(ctx, c, plan.Job, st, own.Task.Number, r.Inputs)
}

// errOvertaken says that somebody committed while a task was being restored, so that what was read does not fit together.
var errOvertaken = errors.New("task: the group's offsets moved during the restore: another worker has the task")

// errReadOn says that a position is gone because somebody else has read on from it and has had the records deleted.
var errReadOn = errors.New("task: the group's offsets are past what was read: another worker has the task")

// Gone explains why a position lies outside of the log. A process that stood still while its successor read on and
// deleted what it had read must not take that for a loss: where the group's offset has reached the log's start, nothing
// unread is gone, and the error is not final.
func Gone(ctx context.Context, c *kafka.Client, group string, e *kafka.OffsetRangeError) error {
	committed, err := c.CommittedOffsets(ctx, group, []kafka.TopicPartition{e.TopicPartition})
	if err != nil {
		return err
	}
	return whyGone(e, committed[e.TopicPartition])
}

func whyGone(e *kafka.OffsetRangeError, committed int64) error {
	if e.Position < e.LogStart && e.LogStart <= committed {
		return fmt.Errorf("%w: %w", errReadOn, e)
	}
	return fmt.Errorf("task: reading %s: %w", e.TopicPartition, lostRecords{e})
}

// lostRecords are gone although nobody has read them.
type lostRecords struct{ *kafka.OffsetRangeError }

func (e lostRecords) Unwrap() error { return e.OffsetRangeError }
func (lostRecords) Permanent() bool { return true }

// stillThere makes sure that the offsets are those which were read first. A process that stood still in between would take
// what its successor did meanwhile for damage.
func stillThere(ctx context.Context, c *kafka.Client, group string, st *stream.Stage, number int, first []core.RestoredInput) error {
	again, err := restoreInputs(ctx, c, group, st, number)
	if err != nil {
		return err
	}
	for i := range again {
		if again[i].GroupOffset != first[i].GroupOffset {
			return errOvertaken
		}
	}
	return nil
}

func restoreInputs(ctx context.Context, c *kafka.Client, group string, st *stream.Stage, number int) ([]core.RestoredInput, error) {
	var tps, topics []kafka.TopicPartition
	for _, in := range st.Inputs {
		tp := kafka.TopicPartition{Topic: in.Topic, Partition: int32(number)}
		tps = append(tps, tp)
		if in.Kind != stream.InputFile {
			topics = append(topics, tp)
		}
	}
	committed, err := c.CommittedOffsets(ctx, group, tps)
	if err != nil {
		return nil, err
	}
	starts, err := c.StartOffsets(ctx, topics)
	if err != nil {
		return nil, err
	}
	out := make([]core.RestoredInput, len(tps))
	for i, tp := range tps {
		out[i] = core.RestoredInput{GroupOffset: -1, StartOffset: starts[tp]}
		if o, ok := committed[tp]; ok {
			out[i].GroupOffset = o
		}
	}
	return out, nil
}

// readCheckpoint finds the newest value under the task's name.
func readCheckpoint(ctx context.Context, c *kafka.Client, tp kafka.TopicPartition, task string, end int64) ([]byte, error) {
	var newest []byte
	_, err := c.ReadTo(ctx, tp, 0, end, func(r kafka.Record) error {
		if string(r.Key) == task {
			newest = r.Value
		}
		return nil
	})
	return newest, err
}

// Stores hold the committed content of the stores of a worker's tasks. It outlives a drop: what an aborted or
// unknown transaction left behind in the changelog is read on top. The loop owns it; while a restore runs it alone
// touches the stores that it was lent.
type Stores struct {
	plan     *stream.Plan
	topicIDs map[string]string
	open     func(name string) (state.Store, error)
	stores   map[core.Task][]state.Store
	cancel   map[core.Task]context.CancelFunc
}

// NewStores returns an empty set. open makes a store.
func NewStores(plan *stream.Plan, topicIDs map[string]string, open func(name string) (state.Store, error)) *Stores {
	return &Stores{plan: plan, topicIDs: topicIDs, open: open, stores: make(map[core.Task][]state.Store), cancel: make(map[core.Task]context.CancelFunc)}
}

// Lend gives the stores of a task to a restore, which ends with ctx or when the task is forgotten.
func (s *Stores) Lend(life context.Context, t core.Task) ([]state.Store, context.Context) {
	ctx, cancel := context.WithCancel(life)
	if old := s.cancel[t]; old != nil {
		old()
	}
	s.cancel[t] = cancel
	if stores, ok := s.stores[t]; ok {
		return stores, ctx
	}
	st, _ := s.plan.Stage(t.Stage)
	stores := []state.Store{}
	for _, spec := range st.Stores {
		store, err := s.open(spec.Name + "/" + t.Name())
		if err != nil {
			store = brokenStore{state.NewMemory(spec.Name, 1), err}
		}
		stores = append(stores, store)
	}
	s.stores[t] = stores
	return stores, ctx
}

// brokenStore fails a restore with the reason why there is no store.
type brokenStore struct {
	state.Store
	err error
}

func (b brokenStore) Apply([]state.Write, state.Stamp) error { return b.err }

// Forget gives up a task's content: it belongs to somebody else now.
func (s *Stores) Forget(t core.Task) {
	if cancel := s.cancel[t]; cancel != nil {
		cancel()
	}
	delete(s.cancel, t)
	delete(s.stores, t)
}

func (s *Stores) find(t core.Task, name string) (state.Store, stream.StoreSpec, bool) {
	st, ok := s.plan.Stage(t.Stage)
	if !ok {
		return nil, stream.StoreSpec{}, false
	}
	i := slices.IndexFunc(st.Stores, func(spec stream.StoreSpec) bool { return spec.Name == name })
	if i < 0 || i >= len(s.stores[t]) {
		return nil, stream.StoreSpec{}, false
	}
	return s.stores[t][i], st.Stores[i], true
}

// CheckRoom makes sure, before a transaction is decided, that its writes will fit the stores.
func (s *Stores) CheckRoom(changelog []core.OutRecord) error {
	type part struct {
		topic     string
		partition int
	}
	add := make(map[part]int64)
	for _, r := range changelog {
		if r.Value != nil {
			add[part{r.Topic, r.Partition}] += int64(len(r.Key) + len(r.Value))
		}
	}
	for p, n := range add {
		if err := s.checkRoom(p.topic, p.partition, n); err != nil {
			return err
		}
	}
	return nil
}

// checkRoom asks the store behind a changelog partition.
func (s *Stores) checkRoom(topic string, partition int, addBytes int64) error {
	for _, st := range s.plan.Stages {
		for _, spec := range st.Stores {
			if spec.ChangelogTopic != topic {
				continue
			}
			if store, _, ok := s.find(core.Task{Stage: st.Name, Number: partition}, spec.Name); ok {
				return store.CheckRoom(addBytes)
			}
		}
	}
	return nil
}

// Apply brings a store up to the transaction that was committed. ends are the ends of what it wrote.
func (s *Stores) Apply(w core.StoreWrites, ends map[kafka.TopicPartition]int64, nowMs int64) error {
	store, spec, ok := s.find(w.Task, w.Store)
	if !ok {
		panic(fmt.Sprintf("BUG: writes for store %s of %s, which is not held", w.Store, w.Task.Name()))
	}
	if len(w.Writes) == 0 {
		return nil
	}
	end, ok := ends[kafka.TopicPartition{Topic: spec.ChangelogTopic, Partition: int32(w.Task.Number)}]
	if !ok {
		panic(fmt.Sprintf("BUG: writes for store %s of %s without a changelog record", w.Store, w.Task.Name()))
	}
	writes := make([]state.Write, len(w.Writes))
	for i, x := range w.Writes {
		writes[i] = state.Write{Key: x.Key, Value: x.Value}
	}
	return store.Apply(writes, state.Stamp{
		TopicID: s.topicIDs[spec.ChangelogTopic], NextOffset: end, AtMs: nowMs,
	})
}
