package world

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/task/core"
	"github.com/strandline-io/strandline/stream/task/protocol"
)

// groupMember is a worker's membership, as franz-go keeps it: joined, assigned, heartbeating, and asked to give back before
// it joins again. What is assigned to whom is the product's.
type groupMember struct {
	p          *worker
	c          *coroutine
	stages     []kafka.StageInputs
	id         string
	generation int32
	owned      []kafka.Task
	joined     bool // the group has answered for the first time
	out        bool // another process has the slot
}

// workerRevoke is a rebalance that waits for tasks.
type workerRevoke struct {
	waiting map[core.Task]bool
	done    bool
	m       *coroutine
}

func (r *workerRevoke) finish() {
	r.done = true
	r.m.signal()
}

const (
	workerHeartbeatUs = 300 * msInUs
	// workerLostBeats is how many heartbeats may go unanswered before the tasks count as lost.
	workerLostBeats = 12
)

func newGroupMember(p *worker) *groupMember {
	return &groupMember{p: p, stages: protocol.StageInputs(p.plan), generation: -1}
}

func (m *groupMember) run(c *client) {
	for !m.p.over && !m.out {
		assigned, ok := m.join(c)
		if !ok {
			c.sleep(20*msInUs + c.w.Int64N(200*msInUs))
			continue
		}
		m.assigned(c, assigned)
		m.keep(c)
	}
}

// refused handles the codes that all group requests share.
func (m *groupMember) refused(err error) {
	switch {
	case errors.Is(err, kerr.FencedInstanceID):
		m.out = true
		m.p.fatal(m.fenced(err))
	case errors.Is(err, kerr.UnknownMemberID):
		m.id = ""
	}
}

func (m *groupMember) fenced(err error) error {
	return fmt.Errorf("another process has slot %s: %w: %w", m.p.slot, kafka.ErrFenced, err)
}

// join goes through JoinGroup and SyncGroup.
func (m *groupMember) join(c *client) ([]kafka.TopicPartition, bool) {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.MemberID, req.InstanceID, req.ProtocolType = jobName, m.id, &m.p.slot, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = sessionMs, rebalanceMs
	proto := kmsg.NewJoinGroupRequestProtocol()
	proto.Name, proto.Metadata = kafka.ProtocolName, kafka.JoinMetadata(m.stages, m.owned)
	req.Protocols = append(req.Protocols, proto)
	r := m.p.s.replicas[m.p.replica]
	r.unanswered++
	askedUs := c.w.nowUs
	resp := c.askFor(req, versionOf(req, m.p.v2), 2*rebalanceMs*msInUs)
	if resp == nil {
		return nil, false
	}
	r.unanswered--
	j := resp.(*kmsg.JoinGroupResponse)
	if err := kerr.ErrorForCode(j.ErrorCode); err != nil {
		if errors.Is(err, kerr.MemberIDRequired) {
			m.id = j.MemberID
		}
		m.refused(err)
		return nil, false
	}
	m.id, m.generation = j.MemberID, j.Generation
	m.p.askedUs, m.p.grantedUs = askedUs, c.w.nowUs
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.MemberID, sync.InstanceID, sync.Generation = jobName, m.id, &m.p.slot, m.generation
	sync.ProtocolType, sync.Protocol = j.ProtocolType, j.Protocol
	if j.LeaderID == m.id && !j.SkipAssignment {
		var err error
		if sync.GroupAssignment, err = kafka.Balance(m.stages, j.Members); err != nil {
			c.w.fail("balance: %v", err)
		}
	}
	resp = c.askFor(sync, versionOf(sync, m.p.v2), 2*rebalanceMs*msInUs)
	if resp == nil {
		return nil, false
	}
	s := resp.(*kmsg.SyncGroupResponse)
	if err := kerr.ErrorForCode(s.ErrorCode); err != nil {
		m.refused(err)
		return nil, false
	}
	tps, err := kafka.ParseAssignment(s.MemberAssignment)
	if err != nil {
		c.w.fail("balance: the assignment %x cannot be read: %v", s.MemberAssignment, err)
	}
	return tps, true
}

// assigned tells the worker what it owns now, and waits until it has heard.
func (m *groupMember) assigned(c *client, tps []kafka.TopicPartition) {
	p := m.p
	tasks := protocol.TasksOf(p.plan, tps)
	m.owned = m.owned[:0]
	for _, t := range tasks {
		m.owned = append(m.owned, kafka.Task{Stage: t.Stage, Number: int32(t.Number)})
	}
	membership := kafka.Membership{Group: jobName, MemberID: m.id, InstanceID: p.slot, Generation: m.generation}
	c.tracef("generation %d: %v", m.generation, tasks)
	heard := false
	p.post(func() {
		if len(p.held) > 0 {
			p.lose()
		}
		given := p.tokens.Give(membership, tasks)
		for _, t := range tasks {
			p.held[t] = true
		}
		heard = true
		c.signal()
		if len(given) > 0 {
			p.step(core.Assigned{Tasks: given})
		}
	})
	m.joined = true
	for !heard && !p.over {
		c.await(secondInUs, func() bool { return heard || p.over })
	}
}

// keep heartbeats until the membership is to be renewed.
func (m *groupMember) keep(c *client) {
	silent := 0
	for !m.p.over {
		c.sleep(workerHeartbeatUs)
		switch err, answered := m.beat(c); {
		case !answered:
			if silent++; silent < workerLostBeats {
				continue
			}
			m.lost(c)
			return
		case err == nil:
			silent = 0
		case errors.Is(err, kerr.RebalanceInProgress):
			m.revoked(c)
			return
		default:
			m.lost(c)
			m.refused(err)
			return
		}
	}
}

func (m *groupMember) beat(c *client) (err error, answered bool) {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.InstanceID, req.Generation = jobName, m.id, &m.p.slot, m.generation
	resp := c.ask(req, versionOf(req, m.p.v2))
	if resp == nil {
		return nil, false
	}
	return kerr.ErrorForCode(resp.(*kmsg.HeartbeatResponse).ErrorCode), true
}

// check asks the group whether the slot is still this process's.
func (m *groupMember) check(ctx context.Context, c *client) error {
	if m.id == "" {
		return nil
	}
	id := m.id
	err, answered := m.beat(c)
	switch {
	case !answered:
		return errUnanswered
	case errors.Is(err, kerr.FencedInstanceID) && m.id == id:
		return m.fenced(err)
	}
	return ctx.Err()
}

// revoked lets the worker commit, within its deadline, before the rebalance takes the tasks.
func (m *groupMember) revoked(c *client) {
	p := m.p
	r := &workerRevoke{m: c.coroutine}
	c.tracef("is asked to give back")
	p.post(func() {
		if len(p.held) == 0 {
			r.finish()
			return
		}
		r.waiting = maps.Clone(p.held)
		p.revoke = r
		p.step(core.Revoking{Tasks: sortedTasks(p.held)})
	})
	for deadline := c.w.nowUs + workerRevokeMs*msInUs; !r.done && c.w.nowUs < deadline; {
		if !c.await(min(workerHeartbeatUs, deadline-c.w.nowUs), func() bool { return r.done }) {
			m.beat(c)
		}
	}
	if r.done || p.over {
		return
	}
	p.tokens.EndAll()
	p.post(func() {
		if p.revoke == r {
			p.interrupt()
			p.step(core.RevokeExpired{})
		}
		p.afterInterrupt()
	})
	for !r.done && !p.over {
		c.await(secondInUs, func() bool { return r.done || p.over })
	}
}

// lost tells the worker that its tasks may be others' already.
func (m *groupMember) lost(c *client) {
	p := m.p
	p.tokens.EndAll()
	c.tracef("has lost its membership")
	heard := false
	p.post(func() {
		p.lose()
		heard = true
		c.signal()
	})
	for !heard && !p.over {
		c.await(secondInUs, func() bool { return heard || p.over })
	}
}

// interrupt ends what a life waits for; whoever calls it makes core drop everything.
func (p *worker) interrupt() {
	p.life.cancel()
	for _, c := range p.life.coroutines {
		c.end()
	}
}

func (p *worker) afterInterrupt() {
	if p.life.ctx.Err() != nil {
		p.step(core.Failed{Epoch: p.core.Status().Epoch, Err: errors.New("the group's deadline passed")})
	}
}

// lose gives up what the worker still holds.
func (p *worker) lose() {
	tasks := sortedTasks(p.held)
	if len(tasks) > 0 {
		p.step(core.Lost{Tasks: tasks})
	}
	p.released(tasks)
	p.afterInterrupt()
}

// leave takes the worker out of the group, so that its tasks move at once.
func (m *groupMember) leave(c *client) {
	if m.id == "" {
		return
	}
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = jobName
	lm := kmsg.NewLeaveGroupRequestMember()
	lm.MemberID, lm.InstanceID = m.id, &m.p.slot
	req.Members = append(req.Members, lm)
	for range linkTries {
		if c.ask(req, versionOf(req, m.p.v2)) != nil {
			return
		}
	}
}
