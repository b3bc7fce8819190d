package group

type timerKind uint8

const (
	// timerSession ends a member that was silent for its session timeout, or a new one whose join waited too long.
	timerSession timerKind = iota
	// timerPending forgets a member id that was handed out and not used.
	timerPending
	// timerPhase ends a join phase, or the wait for the members' SyncGroup.
	timerPhase
	// timerSweep goes on with the expiry of offsets.
	timerSweep
	// timerConsumer ends a member of a consumer group that was silent for the session timeout, timerRevocation one that
	// within its rebalance timeout did not give partitions up or, with the classic protocol, did not join again when it was
	// asked to, timerSync one that did not fetch its assignment.
	timerConsumer
	timerRevocation
	timerSync
)

// timer is volatile. Its zero value is stopped.
type timer struct {
	atMs   int64
	order  uint64
	slot   int // index in the heap plus one, 0 while stopped
	kind   timerKind
	group  *group
	member *member
	id     string // timerPending, timerConsumer, timerRevocation, timerSync: the member id
}

// timers is a heap by time, then by the order in which the timers were set, so that a tick is deterministic.
type timers struct {
	heap  []*timer
	order uint64
}

func (ts *timers) first() *timer {
	if len(ts.heap) == 0 {
		return nil
	}
	return ts.heap[0]
}

// set starts t, or moves it.
func (ts *timers) set(t *timer, atMs int64) {
	ts.order++
	t.atMs, t.order = atMs, ts.order
	if t.slot == 0 {
		ts.heap = append(ts.heap, t)
		t.slot = len(ts.heap)
	}
	ts.fix(t.slot - 1)
}

func (ts *timers) stop(t *timer) {
	if t.slot == 0 {
		return
	}
	i, last := t.slot-1, len(ts.heap)-1
	ts.swap(i, last)
	ts.heap[last] = nil
	ts.heap = ts.heap[:last]
	t.slot = 0
	if i < last {
		ts.fix(i)
	}
}

func (ts *timers) before(i, j int) bool {
	a, b := ts.heap[i], ts.heap[j]
	return a.atMs < b.atMs || a.atMs == b.atMs && a.order < b.order
}

func (ts *timers) swap(i, j int) {
	ts.heap[i], ts.heap[j] = ts.heap[j], ts.heap[i]
	ts.heap[i].slot, ts.heap[j].slot = i+1, j+1
}

func (ts *timers) fix(i int) {
	for i > 0 && ts.before(i, (i-1)/2) {
		ts.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	for {
		child := 2*i + 1
		if child >= len(ts.heap) {
			return
		}
		if child+1 < len(ts.heap) && ts.before(child+1, child) {
			child++
		}
		if !ts.before(child, i) {
			return
		}
		ts.swap(i, child)
		i = child
	}
}
