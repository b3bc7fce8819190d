package task

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/strandline-io/strandline/internal/failpoint"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/task/core"
	"github.com/strandline-io/strandline/stream/task/protocol"
)

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
	return w.run.client.Join(kafka.MemberConfig{
		Group: w.plan.Job, InstanceID: w.slot, Stages: protocol.StageInputs(w.plan),
		SessionTimeout: w.cfg.SessionTimeout, RebalanceTimeout: w.cfg.RebalanceTimeout,
		OnAssigned: func(m kafka.Membership, owned []kafka.TopicPartition) {
			done := make(chan struct{})
			w.box.post(assigned{m, owned, done})
			w.joinOnce.Do(func() { close(w.joined) })
			w.await(done, nil)
		},
		OnRevoked: func([]kafka.TopicPartition) { w.revoked() },
		OnLost: func([]kafka.TopicPartition) {
			w.tokens.EndAll() // at once: no commit may begin any more
			select {
			case <-w.joined:
			default:
				return // the group has given nothing yet
			}
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
	w.tokens.EndAll()
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
	tasks := protocol.TasksOf(w.plan, m.owned)
	w.log.Info("tasks assigned", "tasks", len(tasks), "generation", m.membership.Generation)
	given := w.tokens.Give(m.membership, tasks)
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
	w.tokens.End(tasks)
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
	w.stores.Forget(t)
}

// sortedTasks lists tasks by stage, then number.
func sortedTasks(set map[core.Task]bool) []core.Task {
	return slices.SortedFunc(maps.Keys(set), func(a, b core.Task) int {
		return cmp.Or(cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Number, b.Number))
	})
}
