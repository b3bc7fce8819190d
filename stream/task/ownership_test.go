package task

import (
	"context"
	"sync"
	"testing"
	"time"
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
