package group

import (
	"github.com/tidwall/btree"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Groups is every group of the broker. It has no clock and no locks: one caller at a time, time comes with Context.
// Requests must own their strings (kmsg's ReadFrom, not UnsafeReadFrom); byte slices are copied when they are kept.
// Responses share byte slices with the state and must not be written to; the state never writes to them either.
type Groups struct {
	cfg     Config
	groups  btree.Map[string, *group]
	byTopic map[string]*btree.Map[string, *group]
	pending map[int64]*btree.BTreeG[pendingKey] // by producer id
	// settings are by group, whether it exists or not.
	settings btree.Map[string, *groupSettings]
	// commits counts offset records: it is the decision order of commits, plain and transactional.
	commits uint64
	sum     uint64 // sum of the hashes of all durable items
	// sizeBytes is about what the state takes in memory, the volatile part included.
	sizeBytes int64

	started   bool // sessions and deadlines run
	timers    timers
	sweep     sweep
	recordBuf []byte
	hashBuf   []byte
}

// New returns a coordinator without groups.
func New(cfg Config) *Groups {
	return &Groups{
		cfg:     cfg.withDefaults(),
		byTopic: map[string]*btree.Map[string, *group]{},
		pending: map[int64]*btree.BTreeG[pendingKey]{},
	}
}

// Config returns the bounds in force, with defaults in the place of zeros.
func (gs *Groups) Config() Config { return gs.cfg }

// start begins the volatile life of what was restored or replayed: every member has a full session timeout, a
// rebalance that was under way starts over with its members' full timeouts.
func (gs *Groups) start(ctx Context) {
	if gs.started {
		return
	}
	gs.started = true
	gs.groups.Scan(func(_ string, g *group) bool {
		gs.resume(ctx, g)
		return true
	})
	gs.sweep = sweep{timer: timer{kind: timerSweep}, partition: -1}
	gs.timers.set(&gs.sweep.timer, ctx.EngineMs()+gs.cfg.OffsetsCheckMs)
}

func (gs *Groups) resume(ctx Context, g *group) {
	l := &g.live
	l.phase, l.protocolType, l.leader = g.saved.phase, g.saved.protocolType, g.saved.leader
	g.saved.members.Scan(func(_ string, s *savedMember) bool {
		m := &member{info: s.info}
		gs.insert(g, m)
		gs.touch(ctx, m)
		if l.phase == phaseCompleting {
			m.unsynced = true
			l.unsynced++
		}
		return true
	})
	if l.phase == phasePreparing || l.phase == phaseCompleting {
		gs.timers.set(&l.timer, ctx.EngineMs()+g.rebalanceTimeoutMs())
	}
	if c := g.saved.consumer; c != nil {
		c.members.Scan(func(_ string, m *consumerMember) bool {
			gs.touchConsumer(ctx, g, m)
			gs.awaitRevocation(ctx, g, m, true)
			return true
		})
	}
}

// maxNameBytes bounds group, instance and protocol type names: it is what a string of the older protocol can hold.
const maxNameBytes = 32767

// open returns a group, making it if need be. A group that stays without members and without anything durable must
// be given back to forget.
func (gs *Groups) open(name string) (*group, int16) {
	if g, ok := gs.groups.Get(name); ok {
		return g, 0
	}
	if len(name) > maxNameBytes {
		return nil, kerr.InvalidGroupID.Code
	}
	if gs.groups.Len() >= gs.cfg.MaxGroups || !gs.mayGrow(overheadBytes+len(name)) {
		return nil, kerr.PolicyViolation.Code
	}
	return gs.make(name), 0
}

// forget drops a group that nothing needs.
func (gs *Groups) forget(g *group) {
	if g.saved.exists || g.live.phase != phaseEmpty || g.live.members.Len() > 0 || g.live.pending.Len() > 0 {
		return
	}
	gs.timers.stop(&g.live.timer)
	gs.groups.Delete(g.name)
	gs.sizeBytes -= int64(overheadBytes + len(g.name))
}

// maxTimersPerTick bounds one Tick, which becomes one unit of the journal.
const maxTimersPerTick = 256

// Tick does what is due at ctx.EngineMs, a bounded amount of it; NextTimer tells whether more is due.
func (gs *Groups) Tick(ctx Context) {
	gs.start(ctx)
	nowMs := ctx.EngineMs()
	for range maxTimersPerTick {
		t := gs.timers.first()
		if t == nil || t.atMs > nowMs {
			return
		}
		gs.timers.stop(t)
		switch t.kind {
		case timerSession:
			gs.expireMember(ctx, t.group, t.member)
		case timerPending:
			gs.expirePending(ctx, t.group, t.id)
		case timerPhase:
			gs.endPhase(ctx, t.group)
		case timerSweep:
			gs.sweepOffsets(ctx)
		case timerConsumer, timerRevocation, timerSync:
			gs.removeConsumers(ctx, t.group, t.id)
		}
	}
}

// NextTimer returns when Tick has something to do next, in engine milliseconds; ok is false if never. After Restore
// or replay it is 0, so that a first Tick starts the members' sessions.
func (gs *Groups) NextTimer() (engineMs int64, ok bool) {
	if !gs.started {
		return 0, gs.groups.Len() > 0
	}
	if t := gs.timers.first(); t != nil {
		return t.atMs, true
	}
	return 0, false
}

// HasPending tells whether producerID has offsets that wait for the end of its transaction.
func (gs *Groups) HasPending(producerID int64) bool { return gs.pending[producerID] != nil }

// Hash is a hash of the durable state's content: equal states have equal hashes, however they came about.
func (gs *Groups) Hash() uint64 {
	return fold(gs.sum^0x9e3779b97f4a7c15, gs.commits^0xd6e8feb86659fd93)
}
