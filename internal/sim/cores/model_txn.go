package cores

import (
	"cmp"
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/strandline-io/strandline/broker/machine"
)

// modelTxn is a transactional id. It is Empty, Ongoing, or completed one way or the other.
type modelTxn struct {
	id          string
	pid, prev   int64
	epoch, last int16
	timeoutMs   int32
	state       txnState
	startMs     int64
	updatedMs   int64
	touch       int
	parts       map[machine.PartitionID]bool
	groups      map[string]bool
}

type txnState uint8

const (
	txnEmpty txnState = iota
	txnOngoing
	txnCommitted
	txnAborted
)

// maxEpoch is the highest producer epoch that a client is given.
const maxEpoch = 32766

// fencedBefore says PRODUCER_FENCED as clients of before that code hear it.
func fencedBefore(since, version, code int16) int16 {
	if code == kerr.ProducerFenced.Code && version < since {
		return kerr.InvalidProducerEpoch.Code
	}
	return code
}

// participant is a coordinator's refusal as a partition or a group passes it on.
func participant(code int16, knowsAbortable bool) int16 {
	switch {
	case code == kerr.ProducerFenced.Code:
		return kerr.InvalidProducerEpoch.Code
	case code == kerr.TransactionAbortable.Code && !knowsAbortable:
		return kerr.InvalidTxnState.Code
	}
	return code
}

func (m *model) touchID(t *modelTxn) {
	m.touches++
	t.touch, t.updatedMs = m.touches, m.engineMs
}

func (m *model) init(r *request) *reply {
	refused := func(code int16) *reply {
		return &reply{codes: []int16{fencedBefore(4, r.version, code)}, pid: -1, epoch: -1}
	}
	pid, epoch := r.pid, r.epoch
	if r.version < 3 {
		pid, epoch = -1, -1
	}
	given := pid != -1
	if given != (epoch != -1) {
		return refused(kerr.InvalidRequest.Code)
	}
	if r.none {
		return &reply{codes: []int16{0}, pid: m.newPID()}
	}
	if r.timeoutMs <= 0 || r.timeoutMs > m.bounds.maxTimeoutMs {
		return refused(kerr.InvalidTransactionTimeout.Code)
	}
	t := m.ids[r.id]
	switch {
	case t == nil:
		if t = m.newTxn(r.id); t == nil {
			return refused(kerr.CoordinatorNotAvailable.Code)
		}
		t.pid = m.newPID()
	case given && !t.may(pid, epoch):
		return refused(kerr.ProducerFenced.Code)
	case t.state == txnOngoing: // two bumps: the markers' and the new owner's
		m.end(t, false, true)
		t.last = epoch // -1 if none is given
		m.bump(t)
	case given && epoch != t.epoch: // the answer was lost
	default:
		t.last = -1
		if given {
			t.last = t.epoch
		}
		m.bump(t)
	}
	t.state, t.timeoutMs = txnEmpty, r.timeoutMs
	m.touchID(t)
	return &reply{codes: []int16{0}, pid: t.pid, epoch: t.epoch}
}

// newTxn makes an id, in the place of the longest idle one if there are too many; nil if none is idle.
func (m *model) newTxn(id string) *modelTxn {
	if len(m.ids) >= m.bounds.maxIDs {
		oldest := m.idleID()
		if oldest == nil {
			return nil
		}
		delete(m.ids, oldest.id)
	}
	t := &modelTxn{id: id, prev: -1, last: -1, parts: map[machine.PartitionID]bool{}, groups: map[string]bool{}}
	m.ids[id] = t
	return t
}

func (m *model) idleID() *modelTxn {
	var oldest *modelTxn
	for _, t := range m.ids {
		if t.state != txnOngoing && (oldest == nil || t.touch < oldest.touch) {
			oldest = t
		}
	}
	return oldest
}

// may passes the current producer, and one that did not hear of its bump or its new id.
func (t *modelTxn) may(pid int64, epoch int16) bool {
	if pid != t.pid && !(pid == t.prev && t.last >= t.epoch) {
		return false
	}
	return pid == t.pid && epoch == t.epoch || epoch == t.last && t.state != txnOngoing
}

// bump gives the next epoch, or a new producer id when there is none.
func (m *model) bump(t *modelTxn) {
	if t.epoch >= maxEpoch {
		t.prev, t.pid, t.epoch = t.pid, m.newPID(), 0
		return
	}
	t.epoch++
}

// member is what everybody hears who speaks for a transaction.
func (m *model) member(r *request) (*modelTxn, int16) {
	t := m.ids[r.id]
	switch {
	case t == nil || t.pid != r.pid:
		return nil, kerr.InvalidProducerIDMapping.Code
	case t.epoch != r.epoch:
		return nil, kerr.ProducerFenced.Code
	}
	return t, 0
}

// join takes partitions or a group into the transaction, or, if add is false, verifies that they are in.
func (m *model) join(r *request, parts []machine.PartitionID, group string, add bool) int16 {
	t, code := m.member(r)
	if code != 0 {
		return code
	}
	all := group == "" || t.groups[group]
	for _, id := range parts {
		all = all && t.parts[id]
	}
	switch {
	case !add && !all:
		return kerr.TransactionAbortable.Code
	case !add, all && t.state == txnOngoing:
		return 0
	case group != "" && !t.groups[group] && len(t.groups) >= m.bounds.maxGroups:
		return kerr.PolicyViolation.Code
	}
	for _, id := range parts {
		t.parts[id] = true
	}
	if group != "" {
		t.groups[group] = true
	}
	if t.state != txnOngoing {
		t.state, t.startMs = txnOngoing, m.engineMs
	}
	t.updatedMs = m.engineMs
	return 0
}

func (m *model) addPartitions(r *request) *reply {
	a := &reply{codes: make([]int16, len(r.parts))}
	ids := make([]machine.PartitionID, len(r.parts))
	whole := true
	for i, at := range r.parts {
		if p := m.find(at); p != nil {
			ids[i] = p.id
		} else {
			a.codes[i], whole = kerr.UnknownTopicOrPartition.Code, false
		}
	}
	for i := range a.codes {
		switch {
		case a.codes[i] != 0:
		case !whole:
			a.codes[i] = kerr.OperationNotAttempted.Code
		case r.kind == kindVerify:
			a.codes[i] = m.join(r, ids[i:i+1], "", false)
		}
	}
	if whole && r.kind == kindAdd {
		code := m.join(r, ids, "", true)
		if r.version < 4 {
			code = fencedBefore(2, r.version, code)
		}
		for i := range a.codes {
			a.codes[i] = code
		}
	}
	return a
}

// endTxn is EndTxn of both transaction versions. A retry is known by its epoch: one behind, or rotated away.
func (m *model) endTxn(r *request) *reply {
	refused := func(code int16) *reply {
		return &reply{codes: []int16{fencedBefore(2, r.version, code)}, pid: -1, epoch: -1}
	}
	t := m.ids[r.id]
	bumps := r.version >= 5
	rotated := t != nil && bumps && r.pid >= 0 && r.pid == t.prev && t.epoch == 0 && t.last == r.epoch
	if t == nil || t.pid != r.pid && !rotated {
		return refused(kerr.InvalidProducerIDMapping.Code)
	}
	current := r.epoch == t.epoch && !rotated
	retry := bumps && (rotated || int(t.epoch) == int(r.epoch)+1 && t.last == r.epoch) // not over a bump of InitProducerId
	same := t.state == txnCommitted && r.commit || t.state == txnAborted && !r.commit
	switch {
	case !current && !retry:
		return refused(kerr.ProducerFenced.Code)
	case t.state == txnOngoing && current:
		m.end(t, r.commit, bumps)
	case t.state == txnOngoing || t.state == txnEmpty && retry:
		return refused(kerr.ProducerFenced.Code)
	case retry && same:
	case !bumps && same:
	case bumps && current && !r.commit: // nothing was added, or the client cannot know
		m.end(t, false, true)
	default:
		return refused(kerr.InvalidTxnState.Code)
	}
	return &reply{codes: []int16{0}, pid: t.pid, epoch: t.epoch}
}

// end writes the markers, settles the offsets and moves the id on.
func (m *model) end(t *modelTxn, commit, bump bool) {
	pid, epoch := t.pid, t.epoch
	if bump {
		t.last = t.epoch
		m.bump(t)
		epoch++
	}
	for _, p := range m.sortedParts() {
		if t.parts[p.id] {
			m.mark(p, pid, epoch, commit)
		}
	}
	for _, g := range m.groups {
		g.settle(pid, commit)
	}
	t.state = txnAborted
	if commit {
		t.state = txnCommitted
	}
	clear(t.parts)
	clear(t.groups)
	m.touchID(t)
}

// tick ends what has timed out and forgets what was idle for too long.
func (m *model) tick() {
	for range 100 {
		var due *modelTxn
		for _, t := range m.ids {
			if t.state == txnOngoing && (due == nil || cmp.Or(cmp.Compare(t.deadlineMs(), due.deadlineMs()), cmp.Compare(t.id, due.id)) < 0) {
				due = t
			}
		}
		if due == nil || due.deadlineMs() > m.engineMs {
			break
		}
		m.end(due, false, true)
	}
	for t := m.idleID(); t != nil && t.updatedMs+m.bounds.idMs <= m.engineMs; t = m.idleID() {
		delete(m.ids, t.id)
	}
	for {
		p, pid := m.longestIdle()
		if p == nil || m.forgetMs(p.entries[pid]) > m.engineMs {
			return
		}
		m.forget(p, pid)
	}
}

// forgetMs is when an idle producer is forgotten. Markers for unknown ones may pass the bound; the next tick comes back to it.
func (m *model) forgetMs(e *modelEntry) int64 {
	if m.entries > m.bounds.maxEntries {
		return e.touchedMs
	}
	return e.touchedMs + m.bounds.producerMs
}

func (t *modelTxn) deadlineMs() int64 { return t.startMs + int64(t.timeoutMs) }

// timers is when the next tick has something to do for producers and transactions.
func (m *model) timers() (dueMs int64) {
	dueMs = math.MaxInt64
	for _, t := range m.ids {
		if t.state == txnOngoing {
			dueMs = min(dueMs, t.deadlineMs())
		} else {
			dueMs = min(dueMs, t.updatedMs+m.bounds.idMs)
		}
	}
	for _, p := range m.parts {
		for _, e := range p.entries {
			if e.open < 0 {
				dueMs = min(dueMs, m.forgetMs(e))
			}
		}
	}
	return dueMs
}

// sortedIDs lists the transactional ids by name.
func (m *model) sortedIDs() []*modelTxn {
	all := make([]*modelTxn, 0, len(m.ids))
	for _, t := range m.ids {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b *modelTxn) int { return cmp.Compare(a.id, b.id) })
	return all
}
