package core

import (
	"errors"
	"slices"

	"github.com/strandline-io/strandline/internal/mutant"
)

var (
	errLost    = errors.New("ownership of the tasks was lost: the group session or the time for a revoke ended before they were given back")
	errExpired = errors.New("the commit before a revoke took longer than the deadline")
)

func (w *Worker) onRevoking(e Revoking) {
	for _, id := range e.Tasks {
		if w.find(id) != nil && !slices.Contains(w.revoking, id) {
			w.revoking = append(w.revoking, id)
		}
	}
	if len(w.revoking) == 0 {
		w.push(Released(e))
	}
}

func (w *Worker) onRevokeExpired() {
	if len(w.revoking) == 0 {
		return
	}
	if w.phase != phaseDropping {
		w.drop(0, errExpired)
	}
	w.giveBack()
}

// onLost aborts: what the lost tasks wrote is part of the open transaction.
func (w *Worker) onLost(e Lost) {
	w.remove(e.Tasks)
	w.revoking = slices.DeleteFunc(w.revoking, func(id Task) bool { return slices.Contains(e.Tasks, id) })
	if w.phase != phaseDropping && !mutant.On("commit after a revoke with the new generation") {
		w.drop(0, errLost)
	}
}

// release gives tasks back once nothing of the worker is uncommitted or unconfirmed.
func (w *Worker) release() {
	if w.phase != phaseOpen || w.sinksPending || w.dirtyButClosing() {
		return
	}
	if len(w.revoking) > 0 {
		w.giveBack()
	}
	if w.stopping {
		w.over(false)
	}
}

// dirtyButClosing leaves out what a chunked close would still do: the next owner goes on with it. A chunk that was given
// out already is part of the open transaction: a task that is restored while it is revoked, and while sinks are still
// publishing, has one.
func (w *Worker) dirtyButClosing() bool {
	return slices.ContainsFunc(w.tasks, func(t *task) bool { return t.dirty() && (t.touched || !t.closing) })
}

func (w *Worker) giveBack() {
	tasks := w.revoking
	w.revoking = nil
	w.remove(tasks)
	w.push(Released{tasks})
}

func (w *Worker) remove(tasks []Task) {
	gone := func(id Task) bool { return slices.Contains(tasks, id) }
	w.tasks = slices.DeleteFunc(w.tasks, func(t *task) bool { return gone(t.id) })
	w.joining = slices.DeleteFunc(w.joining, func(t *task) bool { return gone(t.id) })
	w.backlog = slices.DeleteFunc(w.backlog, func(r Records) bool { return gone(r.Task) })
}

// onStopping finishes the sinks' open files, commits and gives everything back.
func (w *Worker) onStopping() {
	if w.stopping {
		return
	}
	w.stopping = true
	for _, t := range w.tasks {
		for _, s := range t.sinks {
			s.finish = s.finish || t.phase == taskRunning
		}
	}
}

func (w *Worker) over(finished bool) {
	var all []Task
	for _, t := range w.tasks {
		all = append(all, t.id)
	}
	if len(all) > 0 {
		w.remove(all)
		w.push(Released{all})
	}
	w.push(Done{finished})
	w.phase = phaseOver
}
