package group

import (
	"math"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/internal/mutant"
)

// rebalance starts a join phase, or ends the one under way if nobody is missing any more.
func (gs *Groups) rebalance(ctx Context, g *group) {
	l := &g.live
	if l.phase == phasePreparing {
		gs.completeIfAllJoined(ctx, g)
		return
	}
	l.initial = l.phase == phaseEmpty && gs.cfg.InitialRebalanceDelayMs > 0
	l.phase = phasePreparing
	l.members.Scan(func(_ string, m *member) bool {
		l.synced(m)
		if m.sync.op != 0 {
			gs.refuseSync(ctx, m)
			gs.touch(ctx, m)
		}
		return true
	})
	if g.saved.phase == phaseStable || g.saved.phase == phaseCompleting {
		gs.record(ctx, kindRebalance, &groupRecord{g.name})
	}
	if l.initial {
		delayMs := int64(gs.cfg.InitialRebalanceDelayMs)
		l.newcomer = false
		l.leftMs = max(g.rebalanceTimeoutMs()-delayMs, 0)
		gs.timers.set(&l.timer, ctx.EngineMs()+delayMs)
		return
	}
	gs.timers.set(&l.timer, ctx.EngineMs()+g.rebalanceTimeoutMs())
	gs.completeIfAllJoined(ctx, g)
}

func (gs *Groups) completeIfAllJoined(ctx Context, g *group) {
	l := &g.live
	if l.phase == phasePreparing && !l.initial && l.joining == l.members.Len() && l.pending.Len() == 0 {
		gs.completeJoin(ctx, g)
	}
}

// endPhase is due when the group's timer is.
func (gs *Groups) endPhase(ctx Context, g *group) {
	l := &g.live
	switch {
	case l.phase == phasePreparing && l.initial && l.newcomer && l.leftMs > 0:
		// Somebody came within the last delay: more may be coming.
		delayMs := int64(gs.cfg.InitialRebalanceDelayMs)
		gs.timers.set(&l.timer, ctx.EngineMs()+min(delayMs, l.leftMs))
		l.newcomer, l.leftMs = false, max(l.leftMs-delayMs, 0)
	case l.phase == phasePreparing:
		gs.completeJoin(ctx, g)
	case l.unsynced > 0:
		gs.dropUnsynced(ctx, g)
	}
	gs.forget(g)
}

// dropUnsynced removes the members that took their place in this generation and never fetched their assignment.
func (gs *Groups) dropUnsynced(ctx Context, g *group) {
	var ids []string
	for _, m := range g.live.members.Values() {
		if m.unsynced {
			gs.remove(ctx, g, m, kerr.UnknownMemberID.Code)
			ids = append(ids, m.info.id)
		}
	}
	gs.recordRemoved(ctx, g, ids...)
	gs.rebalance(ctx, g)
}

// retryJoinMinMs keeps a join phase that nobody answers from being tried again and again with a timeout of 0.
const retryJoinMinMs = 1000

// completeJoin ends the join phase: who has joined makes the next generation, together with the static members whose
// session still runs.
func (gs *Groups) completeJoin(ctx Context, g *group) {
	l := &g.live
	gs.timers.stop(&l.timer)
	var gone []string
	for _, m := range l.members.Values() {
		if m.join.op == 0 && m.info.instance == nil {
			gs.remove(ctx, g, m, kerr.UnknownMemberID.Code)
			gone = append(gone, m.info.id)
		}
	}
	l.initial = false
	if l.joining == 0 {
		gs.recordRemoved(ctx, g, gone...)
		if l.members.Len() > 0 {
			gs.timers.set(&l.timer, ctx.EngineMs()+max(g.rebalanceTimeoutMs(), retryJoinMinMs))
			return
		}
		l.phase, l.leader = phaseEmpty, ""
		return
	}
	gs.beginGeneration(ctx, g)
}

func (gs *Groups) beginGeneration(ctx Context, g *group) {
	l := &g.live
	if m, ok := l.members.Get(l.leader); !ok || m.join.op == 0 {
		l.members.Scan(func(id string, m *member) bool {
			l.leader = id
			return m.join.op == 0
		})
	}
	rec := &generationRecord{group: g.name, protocolType: l.protocolType, generation: 1, protocol: g.vote(),
		leader: l.leader, atMs: ctx.WallMs()}
	if g.saved.generation < math.MaxInt32 && !(mutant.On("generation not raised") && g.saved.generation > 0) {
		rec.generation = g.saved.generation + 1
	} else if mutant.On("generation not raised") {
		rec.generation = g.saved.generation
	}
	l.members.Scan(func(_ string, m *member) bool {
		rec.members = append(rec.members, m.info)
		return true
	})
	gs.record(ctx, kindGeneration, rec)
	l.phase, l.subscribed, l.subscribedOK = phaseCompleting, nil, false
	all := g.joinMembers()
	l.members.Scan(func(id string, m *member) bool {
		s, _ := g.saved.members.Get(id)
		m.info = s.info
		m.isNew = false
		if p := l.unparkJoin(m); p.op != 0 {
			m.unsynced = true
			l.unsynced++
			gs.touch(ctx, m)
			ctx.Reply(p.op, g.joined(p.version, m, all))
		}
		return true
	})
	gs.timers.set(&l.timer, ctx.EngineMs()+g.rebalanceTimeoutMs())
}

// joinMembers lists the members as the leader gets them.
func (g *group) joinMembers() []kmsg.JoinGroupResponseMember {
	list := make([]kmsg.JoinGroupResponseMember, 0, g.live.members.Len())
	g.live.members.Scan(func(id string, m *member) bool {
		list = append(list, kmsg.JoinGroupResponseMember{MemberID: id, InstanceID: m.info.instance,
			ProtocolMetadata: m.info.metadata(g.saved.protocol)})
		return true
	})
	return list
}

// joined is the answer that makes m part of the current generation. The leader gets the list of all.
func (g *group) joined(version int16, m *member, all []kmsg.JoinGroupResponseMember) *kmsg.JoinGroupResponse {
	resp := newJoinResponse(version)
	resp.Generation = g.saved.generation
	resp.ProtocolType, resp.Protocol = kmsg.StringPtr(g.saved.protocolType), kmsg.StringPtr(g.saved.protocol)
	resp.LeaderID, resp.MemberID = g.live.leader, m.info.id
	if m.info.id == g.live.leader {
		resp.Members = all
	}
	return resp
}
