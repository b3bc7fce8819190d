package group

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/strandline-io/strandline/internal/mutant"
)

// insert makes m one of the live members.
func (gs *Groups) insert(g *group, m *member) {
	m.timer = timer{kind: timerSession, group: g, member: m}
	l := &g.live
	l.members.Set(m.info.id, m)
	gs.count(g, m, 1)
	if m.info.instance != nil {
		if l.statics == nil {
			l.statics = map[string]*member{}
		}
		l.statics[*m.info.instance] = m
	}
}

// count adds m to the group's sums, or takes it out.
func (gs *Groups) count(g *group, m *member, n int) {
	l := &g.live
	if l.support == nil {
		l.support = map[string]int{}
	}
	l.sizeBytes += n * m.info.sizeBytes()
	gs.sizeBytes += int64(n * m.info.sizeBytes())
	for _, p := range m.info.protocols {
		l.support[p.name] += n
		if l.support[p.name] == 0 {
			delete(l.support, p.name)
		}
	}
}

// remove takes m out of the live members; its waiting requests are answered with code.
func (gs *Groups) remove(ctx Context, g *group, m *member, code int16) {
	l := &g.live
	gs.refuseParked(ctx, g, m, code)
	gs.timers.stop(&m.timer)
	l.synced(m)
	gs.count(g, m, -1)
	l.members.Delete(m.info.id)
	if i := m.info.instance; i != nil && l.statics[*i] == m {
		delete(l.statics, *i)
	}
}

// update replaces what m told about itself.
func (gs *Groups) update(g *group, m *member, info *memberInfo) {
	gs.count(g, m, -1)
	m.info = info
	gs.count(g, m, 1)
}

// synced notes that m owes no SyncGroup any more.
func (l *live) synced(m *member) {
	if m.unsynced {
		m.unsynced = false
		l.unsynced--
	}
}

// touch gives m a full session, unless one of its requests waits here: then we are the ones who are late.
func (gs *Groups) touch(ctx Context, m *member) {
	if m.join.op == 0 && m.sync.op == 0 {
		gs.timers.set(&m.timer, ctx.EngineMs()+int64(m.info.sessionMs))
	}
}

// parkJoin keeps the operation's JoinGroup for the end of the join phase. A new member's wait is bounded: if its
// connection is gone, nobody else would notice.
func (gs *Groups) parkJoin(ctx Context, g *group, m *member, version int16) {
	if m.join.op != 0 {
		ctx.Reply(m.join.op, joinError(m.join.version, m.info.id, kerr.RebalanceInProgress.Code))
	} else {
		g.live.joining++
		if m.isNew {
			gs.timers.set(&m.timer, ctx.EngineMs()+int64(gs.cfg.NewMemberJoinTimeoutMs))
		} else {
			gs.timers.stop(&m.timer)
		}
	}
	m.join = parked{ctx.OpID(), version}
}

// unparkJoin takes the waiting JoinGroup, for an answer.
func (l *live) unparkJoin(m *member) parked {
	p := m.join
	if p.op != 0 {
		l.joining--
		m.join = parked{}
	}
	return p
}

// refuseParked answers whatever of m waits with code.
func (gs *Groups) refuseParked(ctx Context, g *group, m *member, code int16) {
	if p := g.live.unparkJoin(m); p.op != 0 {
		ctx.Reply(p.op, joinError(p.version, m.info.id, code))
	}
	if p := m.sync; p.op != 0 {
		m.sync = parked{}
		ctx.Reply(p.op, syncError(p.version, code))
	}
}

// check finds the member that a request speaks for, or says why it may not.
func (g *group) check(memberID string, instance *string) (*member, int16) {
	if instance != nil {
		m, ok := g.live.statics[*instance]
		if !ok {
			return nil, kerr.UnknownMemberID.Code
		}
		if mutant.On("replaced member not fenced") {
			return m, 0
		}
		if m.info.id != memberID {
			return nil, kerr.FencedInstanceID.Code
		}
	}
	m, ok := g.live.members.Get(memberID)
	if !ok {
		return nil, kerr.UnknownMemberID.Code
	}
	return m, 0
}

// accepts tells whether a member with these protocols can be part of the group.
func (g *group) accepts(protocolType string, protocols []protocol) bool {
	l := &g.live
	if l.members.Len() == 0 {
		return protocolType != "" && len(protocols) > 0
	}
	return protocolType == l.protocolType && slices.ContainsFunc(protocols, func(p protocol) bool {
		return l.support[p.name] == l.members.Len()
	})
}

// vote elects the protocol: each member votes for the first of its protocols that all know. Of equals the leader's
// preference wins.
func (g *group) vote() string {
	l := &g.live
	votes := map[string]int{}
	l.members.Scan(func(_ string, m *member) bool {
		for _, p := range m.info.protocols {
			if l.support[p.name] == l.members.Len() {
				votes[p.name]++
				break
			}
		}
		return true
	})
	leader, ok := l.members.Get(l.leader)
	if !ok {
		return ""
	}
	best := ""
	for _, p := range leader.info.protocols {
		if votes[p.name] > votes[best] {
			best = p.name
		}
	}
	return best
}

// rebalanceTimeoutMs is the longest that any member asked for.
func (g *group) rebalanceTimeoutMs() int64 {
	longest := int32(0)
	g.live.members.Scan(func(_ string, m *member) bool {
		longest = max(longest, m.info.rebalanceMs)
		return true
	})
	return int64(longest)
}

// recordRemoved records that members are gone, those of them that were ever recorded.
func (gs *Groups) recordRemoved(ctx Context, g *group, ids ...string) {
	ids = slices.DeleteFunc(ids, func(id string) bool {
		_, ok := g.saved.members.Get(id)
		return !ok
	})
	if len(ids) > 0 {
		gs.record(ctx, kindRemoved, &removedRecord{group: g.name, atMs: ctx.WallMs(), members: ids})
	}
}

// expireMember ends a member that was silent for too long.
func (gs *Groups) expireMember(ctx Context, g *group, m *member) {
	gs.remove(ctx, g, m, kerr.UnknownMemberID.Code)
	gs.recordRemoved(ctx, g, m.info.id)
	gs.rebalance(ctx, g)
	gs.forget(g)
}

// expirePending forgets a member id that was handed out and never used.
func (gs *Groups) expirePending(ctx Context, g *group, id string) {
	gs.dropPending(g, id)
	gs.completeIfAllJoined(ctx, g)
	gs.forget(g)
}

func (gs *Groups) dropPending(g *group, id string) bool {
	t, ok := g.live.pending.Delete(id)
	if ok {
		gs.timers.stop(t)
		gs.sizeBytes -= int64(overheadBytes + len(id))
	}
	return ok
}
