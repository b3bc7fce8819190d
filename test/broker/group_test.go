//go:build peers

package broker

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// member is a consumer group's only member, by single requests.
type member struct {
	t          testing.TB
	s          *server
	id         string
	generation int32
}

const (
	sessionTimeout = 6 * time.Second // Apache Kafka's minimum
	memberMetadata = "subscription"
	assignment     = "assignment"
)

func (m *member) ask(req kmsg.Request) kmsg.Response {
	m.t.Helper()
	c := dial(m.t, m.s.Addr)
	defer c.conn.Close()
	return c.ask(req)
}

// join joins and syncs, or fails the test.
func (m *member) join() {
	m.t.Helper()
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.ProtocolType = 7, "g", "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = int32(sessionTimeout.Milliseconds()), int32(sessionTimeout.Milliseconds())
	protocol := kmsg.NewJoinGroupRequestProtocol()
	protocol.Name, protocol.Metadata = "range", []byte(memberMetadata)
	req.Protocols = append(req.Protocols, protocol)
	resp := m.ask(req).(*kmsg.JoinGroupResponse)
	if resp.ErrorCode == kerr.MemberIDRequired.Code {
		req.MemberID = resp.MemberID
		resp = m.ask(req).(*kmsg.JoinGroupResponse)
	}
	if resp.ErrorCode != 0 {
		m.t.Fatalf("JoinGroup: %v", kerr.ErrorForCode(resp.ErrorCode))
	}
	m.id, m.generation = resp.MemberID, resp.Generation
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Version, sync.Group, sync.Generation, sync.MemberID = 3, "g", m.generation, m.id
	own := kmsg.NewSyncGroupRequestGroupAssignment()
	own.MemberID, own.MemberAssignment = m.id, []byte(assignment)
	sync.GroupAssignment = append(sync.GroupAssignment, own)
	if resp := m.ask(sync).(*kmsg.SyncGroupResponse); resp.ErrorCode != 0 || string(resp.MemberAssignment) != assignment {
		m.t.Fatalf("SyncGroup: %v, %q", kerr.ErrorForCode(resp.ErrorCode), resp.MemberAssignment)
	}
}

func (m *member) heartbeat(generation int32) int16 {
	m.t.Helper()
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version, req.Group, req.Generation, req.MemberID = 3, "g", generation, m.id
	return m.ask(req).(*kmsg.HeartbeatResponse).ErrorCode
}

func (m *member) commit(offset int64, generation int32, id string) int16 {
	m.t.Helper()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.Generation, req.MemberID = 7, "g", generation, id
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic = "t"
	rp := kmsg.NewOffsetCommitRequestTopicPartition()
	rp.Offset = offset
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return m.ask(req).(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode
}

// TestGroupSurvivesKill: member id, generation, assignment and offsets are as before; the session begins afresh, and
// ends if nobody comes.
func TestGroupSurvivesKill(t *testing.T) {
	t.Parallel()
	s, ctx := newTopic(t)
	m := &member{t: t, s: s}
	m.join()
	for round := range 3 {
		if code := m.commit(int64(round), m.generation, m.id); code != 0 {
			t.Fatalf("round %d: OffsetCommit: %v", round, kerr.ErrorForCode(code))
		}
		s.restart()
		expectGroup(t, s, fmt.Sprint("round ", round), int64(round), 0)
		expectCode(t, "another generation commits", m.commit(99, m.generation+1, m.id), kerr.IllegalGeneration)
		expectCode(t, "another member commits", m.commit(99, m.generation, "nobody"), kerr.UnknownMemberID)
		expectCode(t, "another generation's heartbeat", m.heartbeat(m.generation+1), kerr.IllegalGeneration)
		if code := m.heartbeat(m.generation); code != 0 {
			t.Errorf("round %d: Heartbeat: %v", round, kerr.ErrorForCode(code))
		}
		group := describe(t, ctx, s)
		if group.State != "Stable" || len(group.Members) != 1 || group.Members[0].MemberID != m.id {
			t.Fatalf("round %d: %+v", round, group)
		}
	}
	s.restart()
	begin := time.Now()
	eventually(t, ctx, "the end of the session", func() (bool, error) {
		group := describe(t, ctx, s)
		return group.State == "Empty", fmt.Errorf("%+v", group)
	})
	if took := time.Since(begin); took < sessionTimeout-time.Second {
		t.Errorf("the session ended %v after the restart, its timeout is %v", took, sessionTimeout)
	} else {
		t.Logf("the session ended %v after the restart", took)
	}
	expectGroup(t, s, "after the session", 2, 0)
	expectCode(t, "the old member commits", m.commit(99, m.generation, m.id), kerr.UnknownMemberID)
	m.join()
	if code := m.commit(3, m.generation, m.id); code != 0 {
		t.Errorf("the next session: %v", kerr.ErrorForCode(code))
	}
}

func describe(t testing.TB, ctx context.Context, s *server) kadm.DescribedGroup {
	t.Helper()
	groups, err := kadm.NewClient(client(t, s.Addr)).DescribeGroups(ctx, "g")
	if err != nil || groups["g"].Err != nil {
		t.Fatal(err, groups["g"].Err)
	}
	return groups["g"]
}

// TestConsumerGoesOnAfterKill: a group's consumer reads on where it was, without seeing a record again.
func TestConsumerGoesOnAfterKill(t *testing.T) {
	t.Parallel()
	s, ctx := newTopic(t)
	p := client(t, s.Addr)
	c := client(t, s.Addr, kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.DisableAutoCommit(), kgo.FetchMaxWait(50*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(100*time.Millisecond))
	next := 0
	for round := range 4 {
		for n := range 20 {
			if err := p.ProduceSync(ctx, recordOf("t", 0, fmt.Sprint(round*20+n))).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		for next < (round+1)*20 {
			fetches := c.PollRecords(ctx, 7)
			if ctx.Err() != nil {
				t.Fatalf("round %d: no record after %d", round, next-1)
			}
			fetches.EachRecord(func(r *kgo.Record) {
				if string(r.Value) != fmt.Sprint(next) {
					t.Fatalf("round %d: %q at offset %d, want %d", round, r.Value, r.Offset, next)
				}
				next++
			})
			if err := c.CommitUncommittedOffsets(ctx); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		s.restart()
	}
}
