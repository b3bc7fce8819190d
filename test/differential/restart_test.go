//go:build peers

package differential

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/strandline-io/strandline/test/peers"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// restartSeed is where the seeds of episodes with a restart begin, counted from -seed.
const restartSeed = 1 << 40

// TestDifferentialRestart stops both brokers in the middle of episodes, starts them again over what they left, compares
// everything that an episode can see, and goes on with it. Strandline is stopped by SIGKILL and SIGTERM by turns; Apache
// Kafka by SIGTERM, as it loses log starts with SIGKILL.
func TestDifferentialRestart(t *testing.T) {
	if *kafkaFlag != "" || *episodesFlag < *workersFlag {
		t.Skip("one broker that runs already, or single episodes")
	}
	kafka := peers.StartApacheKafka(t, kafkaSettings...)
	ours := peers.StartBroker(t, t.TempDir())
	r := &run{ours: ours.Addr, kafka: kafka.Addr, first: *seedFlag + restartSeed, intended: map[string]int{}, sent: map[request]int{}, starts: 1}
	start := time.Now()
	for n := range *restartsFlag {
		all := make([]*episode, *workersFlag)
		r.each(all, func(i int) {
			all[i] = r.begin(r.first + uint64(r.episodes.Add(1)) - 1)
			all[i].walk(episodeSteps / 2)
		})
		kafka.Terminate()
		if n%2 == 0 {
			ours.Kill()
		} else if err := ours.Terminate(); err != nil {
			t.Errorf("after SIGTERM: %v", err)
		}
		kafka.Again(t)
		ours.Again(t)
		r.starts++
		r.each(all, func(i int) {
			all[i].restarted()
			all[i].walk(episodeSteps / 2)
			all[i].finish()
			all[i].close()
		})
		for _, e := range all {
			r.account(t, e)
		}
	}
	r.report(t, time.Since(start))
}

// each does the same for all episodes at once.
func (r *run) each(all []*episode, do func(i int)) {
	var workers sync.WaitGroup
	for i := range all {
		workers.Go(func() { do(i) })
	}
	workers.Wait()
}

// restarted takes an episode over a restart of both brokers and compares what came through it.
func (e *episode) restarted() {
	if e.err != nil {
		return
	}
	e.note("    both brokers are started again")
	e.close()
	clear(e.ours.conns)
	clear(e.kafka.conns)
	e.patience = loadWithin
	e.err = e.world.restarted(e.driver)
	e.patience = settleWithin
}

func (w *world) restarted(d *driver) error {
	w.starts++
	clear(w.sessions[:]) // of fetches: they end with the broker on both sides
	for _, p := range w.producers {
		// Of a producer's last five batches Apache Kafka remembers the newest over a restart.
		p.sent = slices.DeleteFunc(p.sent, func(s sent) bool {
			return s.b.epoch != p.epoch || int32((int64(s.b.sequence)+int64(s.b.records))%(1<<31)) != p.next[s.at]
		})
	}
	for _, name := range slices.Concat(w.names, w.consumerTopics()) {
		if err := d.sameTopic(name); err != nil {
			return err
		}
	}
	for _, s := range w.everything() {
		if err := d.do(s); err != nil {
			return err
		}
	}
	return nil
}

// everything are the requests that show an episode's whole state.
func (w *world) everything() []step {
	var all []step
	txns := kmsg.NewPtrDescribeTransactionsRequest()
	for _, p := range w.producers {
		if p.id != nil {
			txns.TransactionalIDs = append(txns.TransactionalIDs, *p.id)
		}
	}
	classic := kmsg.NewPtrDescribeGroupsRequest()
	classic.Version = 5
	for _, g := range w.groups {
		classic.Groups = append(classic.Groups, g.name)
		all = append(all, one(0, committedOffsets(g.name), nil))
	}
	consumers := kmsg.NewPtrConsumerGroupDescribeRequest()
	consumers.Groups = []string{w.consumerGroup()}
	producers := kmsg.NewPtrDescribeProducersRequest()
	for _, name := range w.names {
		t := kmsg.NewDescribeProducersRequestTopic()
		t.Topic = name
		for i := range w.parts[name] {
			t.Partitions = append(t.Partitions, i)
			for isolation := range int8(2) {
				all = append(all, one(0, w.fetchFrom(place{name, i}, 0, isolation), nil))
			}
		}
		producers.Topics = append(producers.Topics, t)
	}
	return append(all, one(0, txns, nil), one(0, classic, nil), one(0, committedOffsets(w.consumerGroup()), nil), one(0, consumers, nil), one(0, producers, nil))
}

// committedOffsets asks for all offsets of a group, also those of open transactions.
func committedOffsets(group string) kmsg.Request {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version = 7
	req.Group, req.Topics, req.RequireStable = group, nil, true
	return req
}

// fetchFrom is a fetch of one partition beside all sessions.
func (w *world) fetchFrom(at place, offset int64, isolation int8) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version = 12
	req.MinBytes, req.MaxBytes, req.IsolationLevel, req.SessionEpoch = 1, 1<<20, isolation, -1
	w.addPart(req, at, offset)
	return req
}
