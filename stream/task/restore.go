package task

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/strandline-io/strandline/internal/failpoint"
	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/state"
	"github.com/strandline-io/strandline/stream/task/core"
)

const (
	restorePause    = 50 * time.Millisecond
	maxRestorePause = 2 * time.Second
	// restoreDeadline bounds one try. A large changelog that takes longer continues where the try ended.
	restoreDeadline = 2 * time.Minute
)

// restore finds out everything about a task, again and again while the cluster is away.
func (w *worker) restore(own core.Ownership) {
	l := w.life
	stores, ctx := w.stores.lend(l.ctx, own.Task)
	l.run(func(context.Context) {
		for pause := restorePause; ; pause = min(2*pause, maxRestorePause) {
			restored, err := w.tryRestore(ctx, own, stores)
			if ctx.Err() != nil {
				return
			}
			if err == nil {
				w.answer(l, restored)
				return
			}
			if final(err) {
				w.box.post(fatal{fmt.Errorf("task: restoring %s: %w", own.Task.Name(), err)})
				return
			}
			w.log.Warn("cannot restore a task yet", "task", own.Task.Name(), "err", err)
			t := time.NewTimer(pause)
			select {
			case <-ctx.Done():
				t.Stop()
				return
			case <-t.C:
			}
		}
	})
}

// tryRestore reads in the order that makes a predecessor's last transaction either wholly visible or impossible:
// OffsetFetch with require-stable first, then the ends, then everything up to them.
func (w *worker) tryRestore(ctx context.Context, own core.Ownership, stores []state.Store) (core.Restored, error) {
	ctx, cancel := withDeadline(ctx, restoreDeadline, "restoring task "+own.Task.Name())
	defer cancel()
	st, _ := w.plan.Stage(own.Task.Stage)
	r := core.Restored{Task: own.Task, Token: own.Token}
	var err error
	if r.Inputs, err = w.restoreInputs(ctx, st, own.Task.Number); err != nil {
		return r, err
	}
	failpoint.Hit("restore.offsets")
	n := int32(own.Task.Number)
	checkpoints := kafka.TopicPartition{Topic: w.plan.CheckpointTopic, Partition: n}
	read := []kafka.TopicPartition{checkpoints}
	for _, s := range st.Stores {
		read = append(read, kafka.TopicPartition{Topic: s.ChangelogTopic, Partition: n})
	}
	ends, err := w.run.client.EndOffsets(ctx, read, kafka.Uncommitted)
	if err != nil {
		return r, err
	}
	if r.Checkpoint, err = w.readCheckpoint(ctx, checkpoints, own.Task.Name(), ends[checkpoints]); err != nil {
		return r, err
	}
	failpoint.Hit("restore.checkpoint")
	for i, s := range stores {
		tp := read[1+i]
		changelog := func(ctx context.Context, from, end int64, f func(key, value []byte) error) (int64, error) {
			return w.run.client.ReadTo(ctx, tp, from, end, func(r kafka.Record) error { return f(r.Key, r.Value) })
		}
		if err := state.Restore(ctx, s, w.run.topicIDs[tp.Topic], ends[tp], w.cfg.Now().UnixMilli(), changelog); err != nil {
			return r, fmt.Errorf("store %s: %w", st.Stores[i].Name, err)
		}
		r.Stores = append(r.Stores, s)
	}
	failpoint.Hit("restore.done")
	return r, nil
}

func (w *worker) restoreInputs(ctx context.Context, st *stream.Stage, number int) ([]core.RestoredInput, error) {
	var tps, topics []kafka.TopicPartition
	for _, in := range st.Inputs {
		tp := kafka.TopicPartition{Topic: in.Topic, Partition: int32(number)}
		tps = append(tps, tp)
		if in.Kind != stream.InputFile {
			topics = append(topics, tp)
		}
	}
	committed, err := w.run.client.CommittedOffsets(ctx, w.plan.Job, tps)
	if err != nil {
		return nil, err
	}
	starts, err := w.run.client.StartOffsets(ctx, topics)
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
func (w *worker) readCheckpoint(ctx context.Context, tp kafka.TopicPartition, task string, end int64) ([]byte, error) {
	var newest []byte
	_, err := w.run.client.ReadTo(ctx, tp, 0, end, func(r kafka.Record) error {
		if string(r.Key) == task {
			newest = r.Value
		}
		return nil
	})
	return newest, err
}

// storeSet holds the committed content of the stores of a worker's tasks. It outlives a drop: what an aborted or
// unknown transaction left behind in the changelog is read on top. The loop owns it; while a restore runs it alone
// touches the stores that it was lent.
type storeSet struct {
	run    *runner
	stores map[core.Task][]state.Store
	cancel map[core.Task]context.CancelFunc
}

func newStoreSet(r *runner) *storeSet {
	return &storeSet{run: r, stores: make(map[core.Task][]state.Store), cancel: make(map[core.Task]context.CancelFunc)}
}

// lend gives the stores of a task to a restore, which ends with ctx or when the task is forgotten.
func (s *storeSet) lend(life context.Context, t core.Task) ([]state.Store, context.Context) {
	ctx, cancel := context.WithCancel(life)
	if old := s.cancel[t]; old != nil {
		old()
	}
	s.cancel[t] = cancel
	if stores, ok := s.stores[t]; ok {
		return stores, ctx
	}
	st, _ := s.run.plan.Stage(t.Stage)
	stores := []state.Store{}
	for _, spec := range st.Stores {
		store, err := s.run.cfg.NewStore(spec.Name+"/"+t.Name(), s.run.cfg.MaxStoreBytes)
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

// forget gives up a task's content: it belongs to somebody else now.
func (s *storeSet) forget(t core.Task) {
	if cancel := s.cancel[t]; cancel != nil {
		cancel()
	}
	delete(s.cancel, t)
	delete(s.stores, t)
}

func (s *storeSet) find(t core.Task, name string) (state.Store, stream.StoreSpec, bool) {
	st, ok := s.run.plan.Stage(t.Stage)
	if !ok {
		return nil, stream.StoreSpec{}, false
	}
	i := slices.IndexFunc(st.Stores, func(spec stream.StoreSpec) bool { return spec.Name == name })
	if i < 0 || i >= len(s.stores[t]) {
		return nil, stream.StoreSpec{}, false
	}
	return s.stores[t][i], st.Stores[i], true
}

// checkRoom asks the store behind a changelog partition.
func (s *storeSet) checkRoom(topic string, partition int, addBytes int64) error {
	for _, st := range s.run.plan.Stages {
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

func (s *storeSet) apply(w core.StoreWrites, ends map[kafka.TopicPartition]int64) error {
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
		TopicID: s.run.topicIDs[spec.ChangelogTopic], NextOffset: end, AtMs: s.run.cfg.Now().UnixMilli(),
	})
}
