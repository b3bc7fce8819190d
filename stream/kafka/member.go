package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// MemberConfig describes a membership in a job's group. Zero durations have the default named with them.
type MemberConfig struct {
	Group string
	// InstanceID makes the member static (KIP-345): killed and back within the session timeout it has its tasks at
	// once, without a rebalance, and whoever else held the id is fenced. "" is a dynamic member.
	InstanceID string
	// Stages are all stages of the job, the same for all members.
	Stages []StageInputs
	// SessionTimeout is after what silence the group gives the tasks away. Default 10 s.
	SessionTimeout time.Duration
	// RebalanceTimeout is how long a rebalance waits for OnRevoked. Default 30 s.
	RebalanceTimeout time.Duration
	// HeartbeatInterval is how soon a member learns of a rebalance. Default 500 ms.
	HeartbeatInterval time.Duration

	// The callbacks are called one at a time from a goroutine of the member. The rebalance waits for each: it cannot
	// go on, and the generation cannot change, before they return. They must not call Leave.

	// OnAssigned brings everything that the member owns now, and the membership for TxnOffsetCommit, which stays
	// current until the next OnRevoked or OnLost returns.
	OnAssigned func(m Membership, owned []TopicPartition)
	// OnRevoked comes before the tasks may move: the last chance to commit. Always everything is revoked.
	OnRevoked func(owned []TopicPartition)
	// OnLost comes when the tasks may have moved already. Nothing can be committed any more.
	OnLost func(owned []TopicPartition)
	// OnError brings what ended a group session. The member joins again by itself, unless the error is final: ErrFenced,
	// because the slot has another owner, or a refusal that will not change.
	OnError func(err error, final bool)
}

const (
	defaultSessionTimeout    = 10 * time.Second
	defaultRebalanceTimeout  = 30 * time.Second
	defaultHeartbeatInterval = 500 * time.Millisecond
)

// Member is a membership in a consumer group that owns tasks. It fetches nothing: a Fetcher does, at positions that
// the tasks' checkpoints give.
type Member struct {
	kc     *kgo.Client
	of     *Client
	cfg    MemberConfig
	conns  *conns
	ousted atomic.Bool // another process has the slot
}

// Join makes a member. It returns at once; OnAssigned tells when the group has given it tasks, or none. The client must
// stay open until the member has left.
func (c *Client) Join(cfg MemberConfig) (*Member, error) {
	if cfg.SessionTimeout == 0 {
		cfg.SessionTimeout = defaultSessionTimeout
	}
	if cfg.RebalanceTimeout == 0 {
		cfg.RebalanceTimeout = defaultRebalanceTimeout
	}
	if cfg.HeartbeatInterval == 0 {
		cfg.HeartbeatInterval = defaultHeartbeatInterval
	}
	var topics []string
	for _, s := range cfg.Stages {
		topics = append(topics, s.Topics...)
	}
	slices.Sort(topics)
	kcfg := c.cfg
	m := &Member{of: c, cfg: cfg, conns: newConns(kcfg)}
	kcfg.Dial, kcfg.TLS = m.conns.Dial, nil
	opts := append(kcfg.options(),
		kgo.ConsumerGroup(cfg.Group),
		kgo.ConsumeTopics(slices.Compact(topics)...),
		kgo.Balancers(&taskBalancer{stages: cfg.Stages}),
		kgo.DisableAutoCommit(),
		kgo.SessionTimeout(cfg.SessionTimeout),
		kgo.RebalanceTimeout(cfg.RebalanceTimeout),
		kgo.HeartbeatInterval(cfg.HeartbeatInterval),
		kgo.OnPartitionsAssigned(m.assigned),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, p map[string][]int32) { cfg.OnRevoked(flat(p)) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, p map[string][]int32) { cfg.OnLost(flat(p)) }),
		// Nothing is to be fetched here: positions are the checkpoints' business.
		kgo.AdjustFetchOffsetsFn(func(context.Context, map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
			return nil, nil
		}),
		kgo.WithHooks(m),
	)
	if cfg.InstanceID != "" {
		opts = append(opts, kgo.InstanceID(cfg.InstanceID))
	}
	kc, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	m.kc = kc
	return m, nil
}

func (m *Member) assigned(_ context.Context, kc *kgo.Client, p map[string][]int32) {
	id, generation := kc.GroupMetadata()
	m.cfg.OnAssigned(Membership{Group: m.cfg.Group, MemberID: id, InstanceID: m.cfg.InstanceID, Generation: generation}, flat(p))
}

// OnGroupManageError implements kgo.HookGroupManageError.
func (m *Member) OnGroupManageError(err error) {
	if errors.Is(err, kerr.FencedInstanceID) {
		m.ousted.Store(true)
		m.cfg.OnError(m.fenced(err), true)
		return
	}
	for _, e := range finalGroupErrors {
		if errors.Is(err, e) {
			m.cfg.OnError(fmt.Errorf("kafka: group %q refuses this member: %w", m.cfg.Group, err), true)
			return
		}
	}
	_, mismatch := errors.AsType[*TopologyError](err)
	m.cfg.OnError(err, mismatch)
}

// finalGroupErrors are refusals that no repetition changes.
var finalGroupErrors = []error{
	kerr.GroupAuthorizationFailed, kerr.TopicAuthorizationFailed, kerr.InvalidSessionTimeout, kerr.InvalidGroupID,
	kerr.InconsistentGroupProtocol, kerr.GroupMaxSizeReached, kerr.UnsupportedVersion,
}

// Check asks the group whether the member's slot is still its own. The error wraps ErrFenced if another process has it;
// whoever woke up after a long pause learns it here before it takes a transactional id back from its successor. Not
// being known any more, or a rebalance, is no error: the member joins again by itself.
func (m *Member) Check(ctx context.Context) error {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group = m.cfg.Group
	if m.cfg.InstanceID != "" {
		req.InstanceID = &m.cfg.InstanceID
	}
	return retry(ctx, kgoLink{m.kc}, func() error {
		if req.MemberID, req.Generation = m.kc.GroupMetadata(); req.MemberID == "" {
			return nil
		}
		resp, err := req.RequestWith(ctx, m.kc)
		if err != nil {
			return fmt.Errorf("kafka: Heartbeat in group %q: %w", m.cfg.Group, err)
		}
		switch err := kerr.ErrorForCode(resp.ErrorCode); {
		case errors.Is(err, kerr.FencedInstanceID):
			if now, _ := m.kc.GroupMetadata(); now != req.MemberID {
				return nil // by this member itself, which has joined again meanwhile
			}
			return m.fenced(err)
		case err != nil && passing(err):
			return err
		}
		return nil
	})
}

func (m *Member) fenced(err error) error {
	return fmt.Errorf("kafka: another process has slot %q of group %q: %w: %w", m.cfg.InstanceID, m.cfg.Group, ErrFenced, err)
}

// leavePatience is how long Close lets requests that are under way end by themselves.
const leavePatience = 500 * time.Millisecond

// Leave ends the membership, so that the group gives the tasks to others at once. OnRevoked is called if something is
// owned. A slot that another process has taken over is left alone.
//
// The group is told only when the member can send nothing any more. Told earlier, it could hear of the end first and of a
// JoinGroup that is still on its way afterwards, or answer one that it holds with UNKNOWN_MEMBER_ID, upon which franz-go
// joins anew: either leaves a member that nobody is, and whose tasks nobody has until its session expires.
func (m *Member) Leave(ctx context.Context) error {
	m.Close()
	return m.tellLeaving(ctx)
}

// Close ends the membership as a crash would: a static member's tasks are kept for its return until the session timeout.
func (m *Member) Close() {
	defer time.AfterFunc(leavePatience, m.conns.Cut).Stop()
	m.kc.Close()
}

func (m *Member) tellLeaving(ctx context.Context) error {
	if m.ousted.Load() {
		return nil // without a member id, the request would put out whoever has the slot now
	}
	id, _ := m.kc.GroupMetadata()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = m.cfg.Group, id
	lm := kmsg.NewLeaveGroupRequestMember()
	lm.MemberID = id
	if m.cfg.InstanceID != "" {
		lm.InstanceID = &m.cfg.InstanceID
	} else if id == "" {
		return nil // a dynamic member that the group does not know
	}
	req.Members = append(req.Members, lm)
	resp, err := req.RequestWith(ctx, m.of.link)
	if err != nil {
		return fmt.Errorf("kafka: leaving group %q: %w", m.cfg.Group, err)
	}
	code := resp.ErrorCode
	for _, rm := range resp.Members {
		code = max(code, rm.ErrorCode)
	}
	switch err := kerr.ErrorForCode(code); err {
	case nil, kerr.UnknownMemberID, kerr.FencedInstanceID, kerr.GroupIDNotFound:
		return nil
	default:
		return fmt.Errorf("kafka: leaving group %q: %w", m.cfg.Group, err)
	}
}

func flat(p map[string][]int32) []TopicPartition {
	var out []TopicPartition
	for t, ps := range p {
		for _, n := range ps {
			out = append(out, TopicPartition{t, n})
		}
	}
	slices.SortFunc(out, TopicPartition.Compare)
	return out
}
