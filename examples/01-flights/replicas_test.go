package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/strandline-io/strandline/broker/brokertest"
	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/blob"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/task"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestReplicasComeAndGo lets two processes join and leave a job again and again while a third does its work, so that
// rebalances meet rebalances and members leave while they join. It needs a broker whose groups forget a member that is no
// more: kfake keeps one for ever if its connection is gone when its JoinGroup is answered, because only an answer that
// was delivered starts the member's session.
func TestReplicasComeAndGo(t *testing.T) {
	store, err := blob.OpenStore("file:" + t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	plan, err := topology(bundled, "flights.ndjson", stream.Stop(), store)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		<-time.After(2 * 366 * day) // a bubble begins in 2000, and a broker takes no records from the future
		network := brokertest.NewNetwork()
		b := brokertest.Start(t, brokertest.On(network, "broker:9092"))
		b.Delay(int16(kmsg.Produce), 20*time.Millisecond) // else the job takes no time
		cfg := task.Config{
			Kafka:          kafka.Config{Brokers: []string{b.Addr()}, Dial: network.DialContext},
			CommitInterval: 2 * time.Millisecond, ProgressInterval: time.Millisecond,
		}
		guests := guests{t: t, plan: plan, cfg: cfg}
		rng := rand.New(rand.NewPCG(3, 4))
		var group sync.WaitGroup
		for replica := 1; replica <= 2; replica++ {
			commits := int64(rng.IntN(5))
			group.Go(func() { guests.comeAndGo(replica, commits) })
		}
		if err := task.Run(t.Context(), plan, cfg); err != nil {
			t.Error(err)
		}
		group.Wait()
		rows, err := readRows(t.Context(), cfg.Kafka)
		if err != nil {
			t.Error(err)
		}
		if len(rows) != 6901 || guests.stays == 0 {
			t.Errorf("%d rows, %d stays of guests", len(rows), guests.stays)
		}
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// guests are replicas that stay for some commits only.
type guests struct {
	t     *testing.T
	plan  *stream.Plan
	cfg   task.Config
	mu    sync.Mutex
	stays int // that ended before the job did
}

func (g *guests) comeAndGo(replica int, commits int64) {
	for stay := int64(0); stay < 8; stay++ {
		ctx, stop := context.WithCancel(g.t.Context())
		cfg, from, finished := g.cfg, int64(-1), false
		cfg.Replica = replica
		cfg.Progress = func(p task.Progress) {
			if from < 0 {
				from = p.Commits
			}
			if finished = p.Finished; p.Commits-from > commits*stay {
				stop()
			}
		}
		err := task.Run(ctx, g.plan, cfg)
		stop()
		if err != nil {
			g.t.Errorf("replica %d: %v", replica, err)
			return
		}
		if finished {
			return
		}
		g.gone(replica)
	}
}

// gone checks that nothing is left in the group of a replica that has ended: it would keep tasks that nobody works on.
func (g *guests) gone(replica int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stays++
	c, err := kafka.Open(g.t.Context(), g.cfg.Kafka)
	if err != nil {
		g.t.Error(err)
		return
	}
	defer c.Close()
	members, err := c.StaticMembers(g.t.Context(), g.plan.Job)
	if err != nil {
		g.t.Error(err)
	}
	if slot := fmt.Sprintf("%s-%d-0", g.plan.Job, replica); slices.Contains(members, slot) {
		g.t.Errorf("%s is still a member of the group", slot)
	}
}
