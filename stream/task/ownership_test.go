package task

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestRevokeRunsOutOfTime: a commit that cannot end before the group's deadline is aborted, and the tasks move.
func TestRevokeRunsOutOfTime(t *testing.T) {
	t.Parallel()
	_, cfg := cluster(t)
	file, want := input(3000)
	s := newShelf(t)
	blocked := make(chan struct{})
	s.block = func(ctx context.Context, call string, n int) {
		if call == "prepare" && n == 2 {
			close(blocked)
			<-ctx.Done()
		}
	}
	c := Config{Kafka: cfg, CommitInterval: 5 * time.Millisecond, RevokeDeadline: 200 * time.Millisecond, PrepareDeadline: 8 * time.Second}
	var group sync.WaitGroup
	start := func(replica int) {
		group.Add(1)
		go func() {
			defer group.Done()
			mine := c
			mine.Replica = replica
			if err := run(t, t.Context(), sums(t, "j", file, s), mine); err != nil {
				t.Errorf("replica %d: %v", replica, err)
			}
		}()
	}
	began := time.Now()
	start(0)
	<-blocked
	start(1)
	group.Wait()
	if passed := time.Since(began); passed > 7*time.Second {
		t.Errorf("the rebalance waited for Prepare: %v", passed)
	}
	same(t, s.rows(t), want)
	same(t, rows(t, cfg, "j-sums"), want)
}

// refuseID answers every InitProducerId of a transactional id with a code that passes, until the returned function is
// called, and counts them.
func refuseID(fake *kfake.Cluster, id string) (asked func() int, enough func()) {
	var mu sync.Mutex
	n, refuse := 0, true
	fake.ControlKey(int16(kmsg.InitProducerID), func(r kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		req := r.(*kmsg.InitProducerIDRequest)
		if req.TransactionalID == nil || *req.TransactionalID != id {
			return nil, nil, false
		}
		n++
		resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
		resp.ErrorCode = kerr.CoordinatorLoadInProgress.Code
		return resp, nil, refuse
	})
	asked = func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
	return asked, func() {
		mu.Lock()
		defer mu.Unlock()
		refuse = false
	}
}

// TestWaitingForTheIDHoldsNobodyUp: a worker that is in the group and cannot take its transactional id yet gives tasks back
// to others as any worker does. The deadlines are longer than the test may take.
func TestWaitingForTheIDHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	fake, cfg := cluster(t)
	file, want := input(2000)
	asked, enough := refuseID(fake, "j-0-0")
	asksFor := make(chan struct{})
	var once sync.Once
	fake.ControlKey(int16(kmsg.TxnOffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		if r.(*kmsg.TxnOffsetCommitRequest).TransactionalID == "j-1-0" {
			enough() // the other one has its share
		}
		return nil, nil, false
	})
	fake.ControlKey(int16(kmsg.Heartbeat), func(kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		if asked() > 0 {
			once.Do(func() { close(asksFor) })
		}
		return nil, nil, false
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var group sync.WaitGroup
	for replica := range 2 {
		group.Go(func() {
			c := Config{Kafka: cfg, Replica: replica, RebalanceTimeout: 15 * time.Minute, RevokeDeadline: 10 * time.Minute}
			if err := run(t, ctx, sums(t, "j", file), c); err != nil || ctx.Err() != nil {
				t.Errorf("replica %d: %v, %v", replica, err, ctx.Err())
			}
		})
		if replica == 0 {
			<-asksFor
		}
	}
	group.Wait()
	same(t, rows(t, cfg, "j-sums"), want)
}

// TestRefusedMemberTakesNoID: a process that the group does not let in leaves the transactional id to whoever has it.
func TestRefusedMemberTakesNoID(t *testing.T) {
	t.Parallel()
	fake, cfg := cluster(t)
	fake.ControlKey(int16(kmsg.JoinGroup), func(r kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		resp := r.ResponseKind().(*kmsg.JoinGroupResponse)
		resp.ErrorCode = kerr.GroupAuthorizationFailed.Code
		return resp, nil, true
	})
	asked, enough := refuseID(fake, "j-0-0")
	enough()
	file, _ := input(10)
	if err := run(t, t.Context(), sums(t, "j", file), Config{Kafka: cfg}); !errors.Is(err, kerr.GroupAuthorizationFailed) {
		t.Errorf("ended with %v", err)
	}
	if n := asked(); n != 0 {
		t.Errorf("the id was asked for %d times", n)
	}
}
