package world

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing/fstest"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/record"
	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/progress"
	"github.com/strandline-io/strandline/stream/streamtest"
	"github.com/strandline-io/strandline/stream/task/core"
)

// streams is what a run with a stream job has besides the broker.
type streams struct {
	w            *World
	shape        jobShape
	plan         *stream.Plan
	files        fstest.MapFS
	rows         *streamtest.Sink
	blobs        *jobBlobs // nil if the rows are in memory
	v2           bool      // transaction version 2
	lateMarkers  bool      // as on Apache Kafka
	echoes       bool      // ends of streams are written again by somebody
	chunk        int
	stallPercent int
	txnTimeoutMs int64 // below or above the time after which the group gives tasks away
	paceUs       int64 // about how often a worker asks for more of a partition
	replicas     []*replica
	feeding      int // feeders at work
	lastID       uint64
	stopping     bool // an unbounded job is asked to end
}

// replica is one place for a process; a life after the other, and now and then two at once.
type replica struct {
	n       int
	lives   int
	current *worker // the newest
	all     []*worker
	done    bool
	// unanswered counts the JoinGroup requests of the slot of which no answer came. One that arrives late fences whoever has
	// the slot by then; KIP-345 cannot tell.
	unanswered int
}

// beginJob is begin for a run with a job.
func (w *World) beginJob() {
	w.mode.write = w.IntN(4) == 0
	w.mode.calm = w.IntN(16) == 0
	w.mode.smallTail = w.IntN(2) == 0
	s := &streams{
		w: w, shape: w.drawShape(), files: fstest.MapFS{}, v2: w.chance(60), chunk: 1 + w.IntN(8), stallPercent: w.IntN(8),
		paceUs: (50 + w.Int64N(500)) * msInUs,
	}
	if w.chance(30) {
		s.chunk = 0
	}
	s.txnTimeoutMs = []int64{9_000, 25_000}[w.IntN(2)]
	s.lateMarkers, s.echoes = w.chance(50), w.chance(40)
	w.jobs = s
	kinds := append(faultKinds[:len(faultKinds):len(faultKinds)], workerFaults...)
	if s.drawBlobs() {
		kinds = append(kinds, faultKind{4, func(w *World) { w.jobs.blobs.fault() }})
	}
	w.planFaults(kinds)
	w.tracef("mode: %s", w.mode)
	w.tracef("job: %s, transaction version 2 %t, late markers %t, echoes %t", s.shape, s.v2, s.lateMarkers, s.echoes)
	w.boot()
	w.startClient(setupClient, true, s.setUp)
	w.startClient(judgeClient, false, s.runJudge)
}

// drawBlobs decides whether the job's sink is the real one, with random numbers of its own.
func (s *streams) drawBlobs() bool {
	before := s.w.Rand
	s.w.Rand = s.w.stream("blobs")
	if s.w.opts.JobBlobs {
		s.shape.sink = true
		if s.shape.second == secondByHand {
			s.shape.second = secondNone
		}
		s.blobs = newJobBlobs(s)
	} else if s.shape.sink && s.shape.second != secondByHand && s.w.chance(60) {
		s.blobs = newJobBlobs(s)
	}
	if s.blobs != nil {
		s.shape.blobs, s.shape.schemas = true, s.blobs.m.schemas
	}
	s.w.Rand = before
	return s.blobs != nil
}

// planFor is the job's plan as a process has it: the sink runs on the process.
func (s *streams) planFor(r *blobRuntime) *stream.Plan {
	sink := stream.Sink(s.rows)
	if s.blobs != nil {
		sink = s.blobs.sink(r)
	}
	plan, err := s.shape.build(s.files, sink)
	if err != nil {
		s.w.fail("plan: %v", err)
	}
	return plan
}

// workerFaults are what can go wrong with processes of the job.
var workerFaults = []faultKind{
	{5, func(w *World) { w.jobs.killWorker() }},
	{4, func(w *World) { w.jobs.pauseWorker() }},
	{2, func(w *World) { w.jobs.stopWorker() }},
}

func (s *streams) setUp(c *client) {
	for n := range s.shape.sources {
		if !s.shape.files {
			s.createSource(c, sourceTopic(n))
		}
	}
	for n := range s.shape.partitions {
		if s.shape.files {
			s.writeFile(n)
			continue
		}
		for topic := range s.shape.sources {
			tp := kafka.TopicPartition{Topic: sourceTopic(topic), Partition: int32(n)}
			s.feeding++
			s.w.startClient("feeder-"+tp.String(), true, func(c *client) {
				s.feed(c, tp)
				s.feeding--
			})
		}
	}
	s.rows = s.shape.memorySink()
	s.plan = s.planFor(&blobRuntime{w: s.w, name: "plan"})
	if s.shape.bounded && s.w.chance(70) {
		for s.feeding > 0 {
			c.sleep(100 * msInUs)
		}
	}
	if s.echoes {
		s.w.startClient("echo", false, s.echo)
	}
	for n := range 2 + s.w.IntN(2) {
		s.replicas = append(s.replicas, &replica{n: n})
	}
	for _, r := range s.replicas {
		s.start(r, c.w.Int64N(secondInUs))
	}
}

func (s *streams) createSource(c *client, topic string) {
	c.insist(func() kmsg.Request {
		req := kmsg.NewPtrCreateTopicsRequest()
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = topic, int32(s.shape.partitions), 1
		late := kmsg.NewCreateTopicsRequestTopicConfig()
		late.Name, late.Value = "message.timestamp.after.max.ms", kmsg.StringPtr("9223372036854775807")
		t.Configs = append(t.Configs, late)
		req.Topics = append(req.Topics, t)
		return req
	}, 7)
}

// echo writes ends of streams again that it has read, as whoever copies a topic at least once does. They must change
// nothing.
func (s *streams) echo(c *client) {
	client := (&streamLink{c: c, v2: s.v2}).client()
	at := make(map[kafka.TopicPartition]int64)
	for {
		for _, st := range s.plan.Stages {
			for _, in := range st.Inputs {
				for n := range in.Partitions {
					if in.Kind == stream.InputIntermediate {
						tp := kafka.TopicPartition{Topic: in.Topic, Partition: int32(n)}
						at[tp] = s.echoOne(c, client, tp, at[tp])
					}
				}
			}
		}
		c.sleep(20*msInUs + s.w.Int64N(100*msInUs))
	}
}

func (s *streams) echoOne(c *client, client *kafka.Client, tp kafka.TopicPartition, at int64) int64 {
	b, err := client.Fetch(context.Background(), tp, at, 1<<20)
	if err != nil || b.Err != nil || s.w.healed {
		return at
	}
	for _, r := range b.Records {
		if kind, _, err := progress.Parse(r.Value); err == nil && kind == progress.KindEndOfStream && s.w.chance(80) {
			out := record.NewBuilder()
			out.Add(r.TimestampMs, nil, r.Value)
			req := produceRequest(-1, nil, &batch{topic: tp.Topic, partition: tp.Partition, raw: out.Append(nil)})
			c.ask(req, versionOf(req, s.v2))
			c.tracef("writes the end of %s at %d again", tp, r.Offset)
		}
	}
	return b.NextOffset
}

// eventClock draws the event times of one source partition.
type eventClock struct{ nowMs int64 }

func (e *eventClock) next(w *World, disorderMs int64) int64 {
	e.nowMs += w.Int64N(300)
	at := e.nowMs
	switch {
	case w.chance(6):
		at -= disorderMs + w.Int64N(3000)
	case disorderMs > 0:
		at -= w.Int64N(disorderMs + 1)
	}
	return max(0, at)
}

func (s *streams) nextID() uint64 {
	s.lastID++
	return s.lastID
}

func (s *streams) writeFile(n int) {
	clock := eventClock{1000 + s.w.Int64N(1000)}
	var b strings.Builder
	for range s.w.IntN(150) {
		fmt.Fprintf(&b, "%d %d\n", s.nextID(), clock.next(s.w, s.shape.disorderMs))
	}
	s.files[sourceFile(n)] = &fstest.MapFile{Data: []byte(b.String())}
}

// feed writes one source partition in transactions, of which some abort and some stay open for long.
func (s *streams) feed(c *client, tp kafka.TopicPartition) {
	w := s.w
	clock := eventClock{1000 + w.Int64N(1000)}
	var p *boundProducer
	spawn := func(name string, body func(*client)) *coroutine {
		co := w.newCoroutine(c.name+"/"+name, func(c *coroutine) { body(&client{coroutine: c}) })
		co.client = true
		w.after(0, func() { co.wake(0) })
		return co
	}
	for range 4 + w.IntN(20) {
		for p == nil {
			if pr, err := openProducer(context.Background(), c, "feeder-"+tp.String(), s.v2, s.txnTimeoutMs, spawn); err == nil {
				p = pr.over(c)
			} else {
				c.sleep(w.Int64N(200 * msInUs))
			}
		}
		if !s.feedOne(c, p, tp, &clock) {
			p.Close()
			p = nil
		}
	}
	if p != nil {
		p.Close()
	}
}

func (s *streams) feedOne(c *client, p *boundProducer, tp kafka.TopicPartition, clock *eventClock) bool {
	w := s.w
	_ = p.Begin()
	for range 1 + w.IntN(8) {
		id := s.nextID()
		value, _ := stream.Int64.Append(nil, int64(id))
		p.Produce(context.Background(), kafka.Record{TopicPartition: tp, Key: []byte("source"), Value: value, TimestampMs: clock.next(w, s.shape.disorderMs)}, nil)
		if w.chance(10) {
			c.sleep(w.Int64N(100 * msInUs))
		}
	}
	if p.Flush(context.Background()) != nil {
		return false
	}
	if w.chance(12) {
		c.sleep(w.Int64N(12 * secondInUs))
	}
	outcome, err := p.end(w.chance(80))
	if !s.shape.bounded || w.chance(20) {
		c.sleep(w.Int64N(secondInUs))
	}
	return err == nil && outcome == kafka.CommittedOutcome
}

// start begins a life of a replica.
func (s *streams) start(r *replica, afterUs int64) {
	s.w.after(afterUs, func() {
		w := s.w
		if s.stopping {
			r.done = true
			return
		}
		r.lives++
		p := &worker{
			s: s, w: w, replica: r.n, name: fmt.Sprintf("worker-%d.%d", r.n, r.lives), slot: fmt.Sprintf("%s-%d-0", jobName, r.n),
			v2: s.v2, commitMs: 20 + w.Int64N(600), startUs: w.nowUs, inputs: make(map[kafka.TopicPartition]*inputFetch),
			writers: make(map[core.SinkID]*sinkLine), held: make(map[core.Task]bool),
		}
		p.runtime = &blobRuntime{w: w, name: p.name, worker: p}
		r.current = p
		r.all = append(r.all, p)
		w.tracef("%s starts", p.name)
		p.spawn("main", p.run)
	})
}

// over hears that a process has ended by itself.
func (s *streams) over(p *worker) {
	w, r := s.w, s.replicas[p.replica]
	w.tracef("%s has ended: finished %t, %v", p.name, p.finished, p.err)
	switch {
	case errors.Is(p.err, kafka.ErrFenced):
		for _, other := range r.all {
			if r.current == p && !other.ended {
				r.current = other // a zombie was faster to join again: one of the two goes on
			}
		}
		if r.current == p && r.unanswered == 0 && !r.letInAfter(p) {
			w.fail("slot: %s says that another process has its slot, and there is none: %v", p.name, p.err)
		}
		w.stats.Fenced++
	case p.err != nil && s.blobs != nil && temporary(p.err):
		w.stats.Blobs.Stops++ // its store was away for too long: somebody starts it again
	case p.err != nil:
		w.fail("job stops: %s: %v", p.name, p.err)
	}
	if r.current != p {
		return
	}
	if p.finished || s.stopping {
		r.done = true
		return
	}
	s.start(r, w.Int64N(2*secondInUs))
}

// letInAfter reports whether the group has given the slot to another process since p asked for it, which may have died.
func (r *replica) letInAfter(p *worker) bool {
	return slices.ContainsFunc(r.all, func(other *worker) bool { return other != p && other.grantedUs > p.askedUs })
}

// alive lists the processes that run, zombies too.
func (s *streams) alive() []*worker {
	var out []*worker
	for _, r := range s.replicas {
		for _, p := range r.all {
			if !p.ended {
				out = append(out, p)
			}
		}
	}
	return out
}

func (s *streams) anyWorker() *worker {
	if all := s.alive(); len(all) > 0 {
		return all[s.w.IntN(len(all))]
	}
	return nil
}

func (s *streams) killWorker() {
	if p := s.anyWorker(); p != nil {
		s.kill(p)
	}
}

// kill ends a process; its replica comes back after a while.
func (s *streams) kill(p *worker) {
	if p.ended {
		return
	}
	p.kill()
	s.w.stats.Killed++
	s.w.tracef("%s is killed", p.name)
	if r := s.replicas[p.replica]; r.current == p {
		s.start(r, s.w.Int64N(5*secondInUs))
	}
}

// pauseWorker makes a zombie, with a successor in its slot or without.
func (s *streams) pauseWorker() {
	p := s.anyWorker()
	if p == nil {
		return
	}
	us := s.w.Int64N(15 * secondInUs)
	if s.w.chance(40) {
		us = s.w.Int64N(secondInUs)
	}
	p.pause(us)
	if r := s.replicas[p.replica]; r.current == p && !p.over && s.w.chance(30) {
		s.start(r, s.w.Int64N(us+1))
	}
}

// stopWorker asks a process to end.
func (s *streams) stopWorker() {
	if p := s.anyWorker(); p != nil {
		s.w.tracef("%s is asked to stop", p.name)
		p.askToStop()
	}
}

func (p *worker) askToStop() {
	if p.main == nil || p.core == nil {
		return
	}
	p.post(func() { p.step(core.Stopping{}) })
}

// heal lets all processes go on.
func (s *streams) heal() {
	if s.blobs != nil {
		s.blobs.heal()
	}
	for _, p := range s.alive() {
		p.pausedUs = min(p.pausedUs, s.w.nowUs)
	}
}

func (s *streams) allDone() bool {
	for _, r := range s.replicas {
		if !r.done {
			return false
		}
	}
	return len(s.replicas) > 0
}
