package task

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/strandline-io/strandline/internal/failpoint"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/task/core"
)

// ownership holds the tokens under which tasks are owned, and the membership that goes with them. It is read by commits
// and ended by the group's callbacks, so it has a lock.
type ownership struct {
	mu         sync.Mutex
	last       int64
	tokens     map[core.Task]int64
	membership kafka.Membership
}

func newOwnership() *ownership { return &ownership{tokens: make(map[core.Task]int64)} }

// give makes tokens that were never used before.
func (o *ownership) give(m kafka.Membership, tasks []core.Task) []core.Ownership {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.membership = m
	out := make([]core.Ownership, len(tasks))
	for i, t := range tasks {
		o.last++
		o.tokens[t] = o.last
		out[i] = core.Ownership{Task: t, Token: o.last}
	}
	return out
}

func (o *ownership) end(tasks []core.Task) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, t := range tasks {
		delete(o.tokens, t)
	}
}

func (o *ownership) endAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.tokens)
}

// hold returns the membership if every one of owned still holds its token.
func (o *ownership) hold(owned []core.Ownership) (kafka.Membership, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, own := range owned {
		if o.tokens[own.Task] != own.Token {
			return kafka.Membership{}, false
		}
	}
	return o.membership, true
}

// assigned, revoke and lost come from the group's callbacks, which wait for done.
type assigned struct {
	membership kafka.Membership
	owned      []kafka.TopicPartition
	done       chan struct{}
}

type revoke struct {
	waiting map[core.Task]bool // tasks not yet released
	done    chan struct{}
}

type lost struct{ done chan struct{} }

func (w *worker) join() (*kafka.Member, error) {
	var stages []kafka.StageInputs
	for _, st := range w.plan.Stages {
		in := kafka.StageInputs{Stage: st.Name, Tasks: int32(st.Tasks)}
		for _, i := range st.Inputs {
			in.Topics = append(in.Topics, i.Topic)
		}
		stages = append(stages, in)
	}
	return w.run.client.Join(kafka.MemberConfig{
		Group: w.plan.Job, InstanceID: w.slot, Stages: stages,
		SessionTimeout: w.cfg.SessionTimeout, RebalanceTimeout: w.cfg.RebalanceTimeout,
		OnAssigned: func(m kafka.Membership, owned []kafka.TopicPartition) {
			done := make(chan struct{})
			w.box.post(assigned{m, owned, done})
			w.joinOnce.Do(func() { close(w.joined) })
			w.await(done, nil)
		},
		OnRevoked: func([]kafka.TopicPartition) { w.revoked() },
		OnLost: func([]kafka.TopicPartition) {
			w.tokens.endAll() // at once: no commit may begin any more
			m := &lost{make(chan struct{})}
			w.box.post(m)
			if !w.await(m.done, time.After(revokeGrace)) {
				w.interrupt()
				w.await(m.done, time.After(w.cfg.RevokeDeadline))
			}
		},
		OnError: func(err error, final bool) {
			w.log.Warn("the group session ended", "err", err)
			if final {
				w.box.post(fatal{err})
				w.joinOnce.Do(func() { close(w.joined) })
			}
		},
	})
}

// await waits for the loop, at most until the loop has ended.
func (w *worker) await(done <-chan struct{}, deadline <-chan time.Time) (inTime bool) {
	select {
	case <-done:
	case <-w.closed:
	case <-deadline:
		return false
	}
	return true
}

// revokeGrace is how long after the deadline of a revoke the callback waits for the abort that it caused.
const revokeGrace = 2 * time.Second

// revoked lets the worker commit, within its deadline, before the rebalance takes the tasks.
func (w *worker) revoked() {
	m := &revoke{done: make(chan struct{})}
	w.box.post(m)
	if w.await(m.done, time.After(w.cfg.RevokeDeadline)) {
		return
	}
	w.log.Warn("a revoke ran out of time, aborting", "deadline", w.cfg.RevokeDeadline)
	w.tokens.endAll()
	w.interrupt()
	w.box.post(revokeExpired{m})
	w.await(m.done, time.After(revokeGrace))
}

// revokeExpired follows a revoke whose deadline has passed.
type revokeExpired struct{ of *revoke }

func (w *worker) onAssigned(m assigned) {
	if len(w.held) > 0 {
		w.lose() // a revoke whose deadline passed while the loop was busy
	}
	have := make(map[core.Task]int)
	for _, tp := range m.owned {
		if in, ok := w.inputs[tp]; ok {
			have[in.task]++
		}
	}
	var tasks []core.Task
	for _, st := range w.plan.Stages {
		for n := range st.Tasks {
			if t := (core.Task{Stage: st.Name, Number: n}); have[t] == len(st.Inputs) {
				tasks = append(tasks, t)
			}
		}
	}
	w.log.Info("tasks assigned", "tasks", len(tasks), "generation", m.membership.Generation)
	given := w.tokens.give(m.membership, tasks)
	for _, t := range tasks {
		w.held[t] = true
	}
	close(m.done)
	if len(given) > 0 {
		w.step(core.Assigned{Tasks: given})
	}
}

func (w *worker) onRevoke(m *revoke) {
	if len(w.held) == 0 {
		close(m.done)
		return
	}
	m.waiting = maps.Clone(w.held)
	w.revoking = m
	failpoint.Hit("revoke.begun")
	w.log.Info("tasks revoked", "tasks", len(w.held))
	w.step(core.Revoking{Tasks: sortedTasks(w.held)})
}

func (w *worker) onRevokeExpired(m revokeExpired) {
	if w.revoking == m.of {
		w.step(core.RevokeExpired{})
	}
	w.afterInterrupt()
}

func (w *worker) onLost(m *lost) {
	w.lose()
	close(m.done)
}

// lose gives up what the worker still holds.
func (w *worker) lose() {
	tasks := sortedTasks(w.held)
	w.log.Warn("tasks lost", "tasks", len(tasks))
	if len(tasks) > 0 {
		w.step(core.Lost{Tasks: tasks})
	}
	w.released(tasks)
	w.afterInterrupt()
}

// released lets a waiting rebalance go on when it has all of its tasks.
func (w *worker) released(tasks []core.Task) {
	w.tokens.end(tasks)
	for _, t := range tasks {
		delete(w.held, t)
		w.forget(t)
	}
	if w.revoking == nil {
		return
	}
	for _, t := range tasks {
		delete(w.revoking.waiting, t)
	}
	if len(w.revoking.waiting) == 0 {
		close(w.revoking.done)
		w.revoking = nil
	}
}

// forget closes what the worker holds of a task.
func (w *worker) forget(t core.Task) {
	st, ok := w.plan.Stage(t.Stage)
	if !ok {
		return
	}
	for i := range st.Inputs {
		w.stopFetch(t, i)
	}
	for _, s := range w.sinks.take(t) {
		w.background.Add(1)
		go func() {
			defer w.background.Done()
			s.close()
		}()
	}
	w.stores.forget(t)
}

// sortedTasks lists tasks by stage, then number.
func sortedTasks(set map[core.Task]bool) []core.Task {
	return slices.SortedFunc(maps.Keys(set), func(a, b core.Task) int {
		return cmp.Or(cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Number, b.Number))
	})
}
