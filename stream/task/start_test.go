package task

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/task/core"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// admin is a client for what only tests do.
func admin(t *testing.T, cfg kafka.Config) *kadm.Client {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(cfg.Brokers...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return kadm.NewClient(cl)
}

// records reads the job records that were committed.
func records(t *testing.T, cfg kafka.Config, topic string) (all []*core.JobRecord) {
	t.Helper()
	c, err := kafka.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.ReadAll(t.Context(), kafka.TopicPartition{Topic: topic}, kafka.Uncommitted, func(r kafka.Record) error {
		if string(r.Key) == core.JobRecordKey {
			record, err := core.DecodeJobRecord(r.Value)
			all = append(all, record)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestManyFirstStartsWriteOneRecord(t *testing.T) {
	t.Parallel()
	_, cfg := cluster(t)
	file, _ := input(100)
	plan := sums(t, "j", file)
	var group sync.WaitGroup
	got := make([]*core.JobRecord, 8)
	for i := range got {
		group.Add(1)
		go func() {
			defer group.Done()
			c, err := kafka.Open(t.Context(), cfg)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			s := newStarter(c, plan, Config{Kafka: cfg}.withDefaults(plan))
			if _, got[i], err = s.Start(t.Context()); err != nil {
				t.Error(err)
			}
		}()
	}
	group.Wait()
	all := records(t, cfg, "j-checkpoint")
	if len(all) != 1 {
		t.Fatalf("%d job records", len(all))
	}
	for i, r := range got {
		if r == nil || r.Run != all[0].Run {
			t.Errorf("starter %d has run %+v, the record says %d", i, r, all[0].Run)
		}
	}
}

// began runs a job to its end.
func began(t *testing.T, cfg kafka.Config) {
	t.Helper()
	file, _ := input(100)
	if err := run(t, t.Context(), sums(t, "j", file), Config{Kafka: cfg}); err != nil {
		t.Fatal(err)
	}
}

func again(t *testing.T, cfg kafka.Config) error {
	t.Helper()
	file, _ := input(100)
	return run(t, t.Context(), sums(t, "j", file), Config{Kafka: cfg})
}

func TestTopicsThatAreNotTheJobsAreRefused(t *testing.T) {
	t.Parallel()
	f := func(change func(ctx context.Context, a *kadm.Client) error, is func(error) bool) {
		t.Helper()
		_, cfg := cluster(t)
		began(t, cfg)
		if err := change(t.Context(), admin(t, cfg)); err != nil {
			t.Fatal(err)
		}
		if err := again(t, cfg); !is(err) {
			t.Errorf("got %v", err)
		}
	}
	deleteTopic := func(name string) func(context.Context, *kadm.Client) error {
		return func(ctx context.Context, a *kadm.Client) error {
			_, err := a.DeleteTopic(ctx, name)
			return err
		}
	}
	f(deleteTopic("j-by-key"), func(err error) bool {
		e, ok := errors.AsType[*MissingTopicError](err)
		return ok && e.Began && e.Topic == "j-by-key"
	})
	f(func(ctx context.Context, a *kadm.Client) error {
		if _, err := a.DeleteTopic(ctx, "j-events"); err != nil {
			return err
		}
		_, err := a.CreateTopic(ctx, 3, -1, nil, "j-events")
		return err
	}, func(err error) bool {
		e, ok := errors.AsType[*ChangedTopicError](err)
		return ok && e.What == "id" && e.Topic == "j-events"
	})
	f(func(ctx context.Context, a *kadm.Client) error {
		_, err := a.CreatePartitions(ctx, 1, "j-sums")
		return err
	}, func(err error) bool {
		e, ok := errors.AsType[*ChangedTopicError](err)
		return ok && e.What == "partition count" && e.Began == "2" && e.Now == "3"
	})
	f(deleteTopic("j-checkpoint"), func(err error) bool {
		_, ok := errors.AsType[*OrphanOffsetsError](err)
		return ok
	})
}

func TestAnotherTopologyIsRefused(t *testing.T) {
	t.Parallel()
	_, cfg := cluster(t)
	began(t, cfg)
	file, _ := input(100)
	err := run(t, t.Context(), sums(t, "j", file, newShelf(t)), Config{Kafka: cfg})
	if _, ok := errors.AsType[*DifferentPlanError](err); !ok {
		t.Errorf("got %v", err)
	}
}

func TestEndedJobSaysSo(t *testing.T) {
	t.Parallel()
	_, cfg := cluster(t)
	file, _ := input(100)
	f := func(want bool) {
		t.Helper()
		var log logged
		var last Progress
		err := run(t, t.Context(), sums(t, "j", file), Config{Kafka: cfg, Logger: log.logger(), Progress: func(p Progress) { last = p }})
		if err != nil {
			t.Fatal(err)
		}
		if said := log.count("everything is done") == 1; said != want || last.EndedBefore != want || !last.Finished {
			t.Errorf("said so: %v, progress %+v, want %v:\n%s", said, last, want, log.b.String())
		}
	}
	f(false)
	f(true)
}

func TestBoundednessIsFixed(t *testing.T) {
	t.Parallel()
	_, cfg := cluster(t)
	if _, err := admin(t, cfg).CreateTopic(t.Context(), 1, -1, nil, "events"); err != nil {
		t.Fatal(err)
	}
	text := stream.Codecs[string, string]{Key: stream.String, Value: stream.String}
	start := func(bounded bool) error {
		j := stream.NewJob("j")
		in := stream.FromTopic(j, "in", stream.TopicSource[string, string]{Topic: "events", Bounded: bounded, Codecs: text})
		stream.ToTopic(in, "out", stream.TopicSink[string, string]{Topic: "out", Partitions: 1, Codecs: text})
		plan, err := j.Build()
		if err != nil {
			t.Fatal(err)
		}
		return run(t, t.Context(), plan, Config{Kafka: cfg})
	}
	if err := start(true); err != nil {
		t.Fatal(err)
	}
	e, ok := errors.AsType[*DifferentPlanError](start(false))
	if !ok || e.What != `input "in"` || e.Began != "bounded" {
		t.Errorf("got %v", e)
	}
}

// lateLink lets something happen before the first OffsetFetch.
type lateLink struct {
	*kgo.Client
	once   sync.Once
	before func()
}

func (l *lateLink) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	if _, ok := req.(*kmsg.OffsetFetchRequest); ok {
		l.once.Do(l.before)
	}
	return l.Client.Request(ctx, req)
}

func (l *lateLink) Broker(id int32) kmsg.Requestor { return l.Client.Broker(int(id)) }

func (l *lateLink) Pause(ctx context.Context, _ time.Duration) error { return ctx.Err() }

// A starter that is overtaken by another, which also runs the job, takes the offsets that it finds for that one's.
func TestOvertakenStarterFindsTheRecord(t *testing.T) {
	t.Parallel()
	_, cfg := cluster(t)
	if _, err := admin(t, cfg).CreateTopic(t.Context(), 1, -1, nil, "events"); err != nil {
		t.Fatal(err)
	}
	plan := func() *stream.Plan {
		text := stream.Codecs[string, string]{Key: stream.String, Value: stream.String}
		j := stream.NewJob("j")
		in := stream.FromTopic(j, "in", stream.TopicSource[string, string]{Topic: "events", Bounded: true, Codecs: text})
		stream.ToTopic(in, "out", stream.TopicSink[string, string]{Topic: "out", Partitions: 1, Codecs: text})
		p, err := j.Build()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	c, err := kafka.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	kc, err := kgo.NewClient(kgo.SeedBrokers(cfg.Brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer kc.Close()
	s := newStarter(c, plan(), Config{Kafka: cfg}.withDefaults(plan()))
	overtaken := false
	s.Client = kafka.Over(&lateLink{Client: kc, before: func() {
		overtaken = true
		if err := run(t, t.Context(), plan(), Config{Kafka: cfg}); err != nil {
			t.Error(err)
		}
	}}, 2)
	_, record, err := s.Start(t.Context())
	if all := records(t, cfg, "j-checkpoint"); err != nil || !overtaken || len(all) != 1 || record.Run != all[0].Run {
		t.Fatalf("record %+v, %v, overtaken %t, in the topic %d", record, err, overtaken, len(all))
	}
}

// Checkpoints without a record are no first start, even when the group's offsets have expired.
func TestCheckpointsWithoutARecordAreRefused(t *testing.T) {
	t.Parallel()
	_, cfg := cluster(t)
	if _, err := admin(t, cfg).CreateTopic(t.Context(), 4, -1, nil, "j-checkpoint"); err != nil {
		t.Fatal(err)
	}
	kc, err := kgo.NewClient(kgo.SeedBrokers(cfg.Brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer kc.Close()
	left := &core.Checkpoint{Version: 1, Task: "events-0", Run: 1}
	r := &kgo.Record{Topic: "j-checkpoint", Key: []byte(left.Task), Value: left.Encode()}
	if err := kc.ProduceSync(t.Context(), r).FirstErr(); err != nil {
		t.Fatal(err)
	}
	e, ok := errors.AsType[*OrphanCheckpointError](again(t, cfg))
	if !ok || e.Task != left.Task {
		t.Errorf("got %v", e)
	}
}

// picky is a shelf that knows no run.
type picky struct {
	*shelf
	rows int64
}

func (p *picky) CheckRun(_ context.Context, job stream.JobIdentity, rows int64) error {
	p.shelf.t.Logf("asked for run %s of job %s", job.Run, job.Job)
	p.rows = rows
	return errors.New("another place")
}

func TestSinkIsAskedForTheRun(t *testing.T) {
	t.Parallel()
	_, cfg := cluster(t)
	file, want := input(300)
	p := &picky{shelf: newShelf(t)}
	if err := run(t, t.Context(), sums(t, "j", file, p), Config{Kafka: cfg}); err != nil {
		t.Fatal(err)
	}
	err := run(t, t.Context(), sums(t, "j", file, p), Config{Kafka: cfg})
	if err == nil || !strings.Contains(err.Error(), `sink "shelf": another place`) || p.rows != int64(len(want)) {
		t.Errorf("got %v, rows %d, want %d", err, p.rows, len(want))
	}
}

func TestOutputThatDoesNotFitIsRefused(t *testing.T) {
	t.Parallel()
	_, cfg := cluster(t)
	if _, err := admin(t, cfg).CreateTopic(t.Context(), 7, -1, nil, "j-sums"); err != nil {
		t.Fatal(err)
	}
	err := again(t, cfg)
	if e, ok := errors.AsType[*kafka.DifferentTopicError](err); !ok || e.Topic != "j-sums" {
		t.Errorf("got %v", err)
	}
}

func TestEvictEndsWhatTheDeadLeft(t *testing.T) {
	t.Parallel()
	_, cfg := cluster(t)
	file, want := input(600)
	c := Config{Kafka: cfg, Workers: 2}
	crash(t, sums(t, "j", file), c, func(p Progress) bool { return p.Commits >= 3 })
	plan := sums(t, "j", file)
	if err := Evict(t.Context(), plan, cfg); err != nil {
		t.Fatal(err)
	}
	groups, err := admin(t, cfg).DescribeGroups(t.Context(), "j")
	if err != nil || len(groups["j"].Members) != 0 {
		t.Errorf("members are left: %+v, %v", groups["j"].Members, err)
	}
	if err := run(t, t.Context(), plan, Config{Kafka: cfg}); err != nil {
		t.Fatal(err)
	}
	same(t, rows(t, cfg, "j-sums"), want)
}
