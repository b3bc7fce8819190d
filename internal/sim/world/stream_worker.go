package world

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/state"
	"github.com/strandline-io/strandline/stream/task/core"
	"github.com/strandline-io/strandline/stream/task/protocol"
)

// worker is one process of the job: the real decisions (core) and the real talks with the cluster (protocol), driven by
// coroutines where package task has goroutines.
type worker struct {
	s        *streams
	w        *World
	replica  int
	name     string // replica and life
	slot     string
	v2       bool
	commitMs int64
	startUs  int64
	// askedUs is when the newest JoinGroup was sent that was granted, grantedUs when its answer came.
	askedUs, grantedUs int64

	coroutines []*coroutine
	pausedUs   int64
	main       *client
	inbox      []func()
	ended      bool // nothing of it runs any more
	over       bool // its loop ends
	finished   bool
	err        error

	runtime *blobRuntime // of its sinks
	plan    *stream.Plan
	record  *core.JobRecord
	ids     map[string]string
	core    *core.Worker
	tokens  *protocol.Tokens
	stores  *protocol.Stores
	member  *groupMember
	life    *workerLife
	inputs  map[kafka.TopicPartition]*inputFetch
	batches []fetchedBatch
	writers map[core.SinkID]*sinkLine
	held    map[core.Task]bool
	revoke  *workerRevoke

	tickAtMs int64
}

// workerLife is the time from one InitProducerId to the next.
type workerLife struct {
	p          *worker
	n          int
	ctx        context.Context
	cancel     context.CancelFunc
	coroutines []*coroutine
	producer   *txnProducer
	inTxn      bool
	epoch      int64
	acks       map[kafka.TopicPartition]int64
}

const (
	workerTickMs         = 100
	workerRevokeMs       = 2_000
	workerMaxAborts      = 100_000
	workerRestoreRetryUs = 50 * msInUs
)

// spawn starts a coroutine of the process.
func (p *worker) spawn(name string, body func(c *client)) *coroutine {
	co := p.w.newCoroutine(p.name+"/"+name, func(c *coroutine) { body(&client{coroutine: c}) })
	co.client, co.pausedUs = true, p.pausedUs
	p.coroutines = append(p.coroutines, co)
	p.w.after(co.rand.Int64N(200), func() { co.wake(0) })
	return co
}

func (l *workerLife) spawn(name string, body func(c *client)) *coroutine {
	co := l.p.spawn(name, body)
	l.coroutines = append(l.coroutines, co)
	return co
}

// end unwinds everything of the life.
func (l *workerLife) end() {
	l.cancel()
	for _, c := range l.coroutines {
		c.end()
	}
	if l.producer != nil {
		l.producer.Close()
	}
}

func (p *worker) newLife() {
	n := 1
	if p.life != nil {
		n = p.life.n + 1
	}
	p.life = &workerLife{p: p, n: n}
	ctx, cancel := context.WithCancel(context.Background())
	p.life.ctx, p.life.cancel = ctx, func() {
		cancel()
		p.runtime.poke()
	}
}

// kill ends the process at once, from outside of it.
func (p *worker) kill() {
	if p.ended {
		return
	}
	p.ended, p.over, p.runtime.dead = true, true, true
	for _, c := range p.coroutines {
		c.end()
	}
}

// pause stops the process, and it goes on later as if nothing had happened.
func (p *worker) pause(us int64) {
	p.pausedUs = p.w.nowUs + us
	for _, c := range p.coroutines {
		c.pausedUs = p.pausedUs
	}
	p.w.stats.Stalled++
	p.w.tracef("%s stands still for %d ms", p.name, us/msInUs)
}

func (p *worker) post(f func()) {
	p.inbox = append(p.inbox, f)
	p.main.signal()
}

// answer reports an event of a life to the loop; of a life that has ended it says nothing.
func (p *worker) answer(l *workerLife, e core.Event) {
	p.post(func() {
		if l != p.life {
			return
		}
		if ended, ok := e.(core.TxnEnded); ok && ended.Outcome == core.Committed {
			l.inTxn = false
			p.w.stats.Commits++
		}
		p.step(e)
	})
}

// fatal ends the process with an error.
func (p *worker) fatal(err error) {
	p.post(func() { p.stop(err) })
}

func (p *worker) stop(err error) {
	if p.err == nil {
		p.err = err
	}
	p.over = true
}

func (p *worker) nowMs() int64 { return (p.w.nowUs - p.startUs) / msInUs }

// run is the process's main coroutine.
func (p *worker) run(c *client) {
	p.main = c
	p.begin(c)
	for !p.over {
		if p.nowMs() >= p.tickAtMs {
			p.tick()
			continue
		}
		if len(p.inbox) > 0 {
			f := p.inbox[0]
			p.inbox = p.inbox[1:]
			f()
			continue
		}
		if p.takeRecords() {
			continue
		}
		woken := c.await((p.nextTickMs()-p.nowMs())*msInUs, func() bool {
			return len(p.inbox) > 0 || p.core.WantsRecords() && len(p.batches) > 0
		})
		if !woken {
			p.tick()
		}
	}
	p.shutDown(c)
	p.w.after(0, func() {
		p.kill()
		p.s.over(p)
	})
}

// begin finds the job or begins it, joins the group, and takes the slot.
func (p *worker) begin(c *client) {
	for !p.over {
		err := p.start(c)
		if err == nil {
			break
		}
		if protocol.Final(err) {
			p.stop(err)
			return
		}
		c.tracef("cannot start yet: %v", err)
		c.sleep(50*msInUs + c.w.Int64N(300*msInUs))
	}
	p.newLife()
	p.tokens = protocol.NewTokens()
	p.stores = protocol.NewStores(p.plan, p.ids, func(name string) (state.Store, error) { return state.NewMemory(name, 0), nil })
	p.member = newGroupMember(p)
	p.member.c = p.spawn("member", p.member.run)
	p.spawn("follower", p.follow)
	first := p.life
	first.spawn("slot", func(c *client) {
		for !p.member.joined {
			c.sleep(5*msInUs + c.w.Int64N(10*msInUs))
		}
		p.takeSlot(c, first)
	})
}

// start is the product's start, over this process's connection.
func (p *worker) start(c *client) error {
	starter := &protocol.Starter{
		Client: (&streamLink{c: c, v2: p.v2}).client(), Plan: p.s.planFor(p.runtime), TransactionTimeout: time.Duration(p.s.txnTimeoutMs) * time.Millisecond,
		Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return time.UnixMilli(p.w.wall()) },
		OpenProducer: func(ctx context.Context, cfg kafka.ProducerConfig) (protocol.Producer, error) {
			pr, err := openProducer(ctx, c, cfg.ID, p.v2, p.s.txnTimeoutMs, p.spawn)
			if err != nil {
				return nil, err
			}
			return pr.over(c), nil
		},
		Pause: func(_ context.Context, d time.Duration) bool {
			c.sleep(d.Microseconds() + c.w.Int64N(d.Microseconds()))
			return true
		},
	}
	plan, record, err := starter.Start(context.Background())
	if err != nil {
		return err
	}
	p.plan, p.record, p.ids = plan, record, make(map[string]string)
	for _, t := range record.Topics {
		if t.ID != "" {
			p.ids[t.Name] = t.ID
		}
	}
	p.core, err = core.New(core.Config{
		Plan: plan, Job: record, CommitIntervalMs: p.commitMs, ChunkResults: p.s.chunk, MaxAborts: workerMaxAborts,
	})
	return err
}

// takeSlot opens the producer of a life, as often as it takes.
func (p *worker) takeSlot(c *client, l *workerLife) {
	for !p.over && l.ctx.Err() == nil {
		pr, err := protocol.TakeSlot(context.Background(),
			func(ctx context.Context) error { return p.member.check(ctx, c) },
			func(ctx context.Context) (*txnProducer, error) {
				return openProducer(ctx, c, p.slot, p.v2, p.s.txnTimeoutMs, l.spawn)
			})
		if err == nil && l.ctx.Err() != nil {
			pr.Close()
			return
		}
		if err == nil {
			l.producer = pr
			return
		}
		if protocol.Final(err) {
			p.fatal(err)
			return
		}
		c.sleep(50*msInUs + c.w.Int64N(200*msInUs))
	}
}

// shutDown ends what the process has, in the order of package task.
func (p *worker) shutDown(c *client) {
	if p.life == nil {
		return
	}
	p.tokens.EndAll()
	p.life.end()
	p.closeWriters(c, p.takeWriters(nil))
	p.member.c.end()
	p.member.leave(c)
}

func (p *worker) tick() {
	p.tickAtMs = p.nowMs() + workerTickMs
	p.pollSinks()
	p.step(core.Tick{})
}

func (p *worker) nextTickMs() int64 {
	if at, ok := p.core.NextTickMs(); ok {
		return max(min(at, p.tickAtMs), p.nowMs())
	}
	return p.tickAtMs
}

// step gives core one event and carries out what it decides. Time may pass between any two effects.
func (p *worker) step(e core.Event) {
	if p.over {
		return
	}
	p.core.Step(p.nowMs(), e)
	for _, effect := range slices.Clone(p.core.Effects()) {
		if p.over {
			return
		}
		if p.w.chance(10) {
			p.main.sleep(p.w.Int64N(3 * msInUs))
		}
		p.carryOut(effect)
	}
}

func (p *worker) carryOut(effect core.Effect) {
	switch e := effect.(type) {
	case core.Restore:
		p.restore(e.Ownership)
	case core.OpenSinks:
		p.openSinks(e)
	case core.StartFetch:
		p.startFetch(e)
	case core.StopFetch:
		p.stopFetch(p.partitionOf(e.Task, e.Input))
	case core.Produce:
		p.produce(e.Epoch, e.Records)
	case core.WriteSinks:
		p.writeSinks(e)
	case core.FinishSinks:
		p.finishSinks(e.Sinks)
	case core.Flush:
		p.flush(e.Epoch)
	case core.PrepareSinks:
		p.prepareSinks(e)
	case core.Commit:
		p.commit(e)
	case core.ApplyStores:
		for _, s := range e.Stores {
			if err := p.stores.Apply(s, p.life.ends(e.Epoch), p.w.wall()); err != nil {
				p.stop(fmt.Errorf("store %s: %w", s.Store, err))
			}
		}
	case core.CommitSinks:
		p.commitSinks(e)
	case core.DropEverything:
		p.drop(e)
	case core.Released:
		p.released(e.Tasks)
	case core.Done:
		p.finished, p.over = e.Finished, true
	case core.Stopped:
		p.stop(e.Err)
	default:
		panic(fmt.Sprintf("BUG: effect %T", effect))
	}
}

func (p *worker) partitionOf(t core.Task, input int) kafka.TopicPartition {
	st, _ := p.plan.Stage(t.Stage)
	return kafka.TopicPartition{Topic: st.Inputs[input].Topic, Partition: int32(t.Number)}
}

func (p *worker) restore(own core.Ownership) {
	l := p.life
	stores, ctx := p.stores.Lend(l.ctx, own.Task)
	l.spawn("restore", func(c *client) {
		for l.producer == nil {
			c.sleep(5*msInUs + c.w.Int64N(10*msInUs))
		}
		for {
			client := (&streamLink{c: c, v2: p.v2}).client()
			restored, err := protocol.Restore(ctx, client, p.plan, p.ids, own, stores, p.w.wall())
			switch {
			case ctx.Err() != nil:
				return
			case err == nil:
				p.answer(l, restored)
				return
			case protocol.Final(err):
				p.fatal(err)
				return
			}
			c.sleep(workerRestoreRetryUs + c.w.Int64N(workerRestoreRetryUs))
		}
	})
}

func (p *worker) produce(epoch int64, records []core.OutRecord) {
	l := p.life
	if len(records) == 0 {
		return
	}
	if !l.inTxn {
		_ = l.producer.Begin()
		l.inTxn = true
	}
	for _, r := range records {
		tp := kafka.TopicPartition{Topic: r.Topic, Partition: int32(r.Partition)}
		at := r.TimestampMs
		if at < 0 {
			at = p.w.wall()
		}
		l.producer.Produce(l.ctx, kafka.Record{TopicPartition: tp, Key: r.Key, Value: r.Value, TimestampMs: at}, func(offset int64, err error) {
			if err == nil {
				l.acked(epoch, tp, offset)
			}
		})
	}
}

func (l *workerLife) acked(epoch int64, tp kafka.TopicPartition, offset int64) {
	if epoch > l.epoch || l.acks == nil {
		l.epoch, l.acks = epoch, make(map[kafka.TopicPartition]int64)
	}
	if epoch == l.epoch {
		l.acks[tp] = max(l.acks[tp], offset+1)
	}
}

func (l *workerLife) ends(epoch int64) map[kafka.TopicPartition]int64 {
	if epoch != l.epoch {
		return nil
	}
	return l.acks
}

func (p *worker) flush(epoch int64) {
	l := p.life
	l.spawn("flush", func(c *client) {
		if err := l.producer.over(c).Flush(l.ctx); err != nil {
			p.failed(l, epoch, err)
			return
		}
		var ends []core.PartitionEnd
		for _, tp := range slices.SortedFunc(maps.Keys(l.ends(epoch)), kafka.TopicPartition.Compare) {
			ends = append(ends, core.PartitionEnd{Topic: tp.Topic, Partition: int(tp.Partition), EndOffset: l.acks[tp]})
		}
		p.answer(l, core.Flushed{Epoch: epoch, Ends: ends})
	})
}

// failed reports that something of an epoch failed.
func (p *worker) failed(l *workerLife, epoch int64, err error) {
	if protocol.Final(err) {
		p.fatal(err)
		return
	}
	p.answer(l, core.Failed{Epoch: epoch, Err: err})
}

// commit is steps 3 and 4 of the commit protocol.
func (p *worker) commit(e core.Commit) {
	l := p.life
	p.checkFenced(e)
	if err := p.stores.CheckRoom(e.Changelog); err != nil {
		p.stop(err)
		return
	}
	p.produce(e.Epoch, e.Changelog)
	p.produce(e.Epoch, e.Checkpoints)
	l.spawn("commit", func(c *client) {
		pr := l.producer.over(c)
		pr.stall = func() { p.stall(c) }
		pr.ending = func() {
			if b := p.s.blobs; b != nil {
				b.offer(e.Checkpoints)
			}
		}
		ended, err := protocol.Commit(l.ctx, pr, p.tokens, e)
		if err != nil {
			p.fatal(err)
			return
		}
		p.answer(l, ended)
	})
}

// checkFenced: a transaction names an input of every task whose checkpoint it holds, moved or not. That is what fences a
// worker that has lost the task.
func (p *worker) checkFenced(e core.Commit) {
	for _, own := range e.Owned {
		if !slices.ContainsFunc(e.Offsets, func(o core.GroupOffset) bool { return o.Task == own.Task }) {
			p.w.failInside("unfenced: transaction %d of %s has a checkpoint of task %s and none of its offsets", e.Epoch, p.name, own.Task.Name())
		}
	}
}

// stall stops the process now and then in the middle of a commit, long enough to lose its tasks.
func (p *worker) stall(c *client) {
	if !p.w.healed && !p.w.mode.calm && c.w.chance(p.s.stallPercent) {
		us := sessionMs*msInUs + p.w.Int64N(8*secondInUs)
		if c.w.chance(40) {
			us = p.w.Int64N(sessionMs * msInUs)
		}
		p.pause(us)
		c.sleep(1)
	}
}

// drop is the one way back: everything of the life ends, then the slot is taken again.
func (p *worker) drop(e core.DropEverything) {
	p.w.stats.Aborts++
	p.main.tracef("drops everything: %v", e.Reason)
	old := p.life
	p.newLife()
	old.end()
	for _, tp := range slices.SortedFunc(maps.Keys(p.inputs), kafka.TopicPartition.Compare) {
		p.stopFetch(tp)
	}
	p.batches = nil
	next, writers := p.life, p.takeWriters(nil)
	p.spawn("drop", func(c *client) {
		p.closeWriters(c, writers)
		c.sleep(e.AfterMs * msInUs)
		p.takeSlot(c, next)
		if next.producer != nil {
			p.answer(next, core.Dropped{Epoch: e.Epoch})
		}
	})
}

// released lets a waiting rebalance go on when it has all of its tasks.
func (p *worker) released(tasks []core.Task) {
	p.tokens.End(tasks)
	for _, t := range tasks {
		delete(p.held, t)
		st, _ := p.plan.Stage(t.Stage)
		for i := range st.Inputs {
			p.stopFetch(p.partitionOf(t, i))
		}
		if writers := p.takeWriters(&t); len(writers) > 0 {
			p.spawn("close", func(c *client) { p.closeWriters(c, writers) })
		}
		p.stores.Forget(t)
	}
	if p.revoke == nil {
		return
	}
	for _, t := range tasks {
		delete(p.revoke.waiting, t)
	}
	if len(p.revoke.waiting) == 0 {
		p.revoke.finish()
		p.revoke = nil
	}
}

func compareTask(a, b core.Task) int {
	return cmp.Or(cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Number, b.Number))
}

func sortedTasks(set map[core.Task]bool) []core.Task {
	return slices.SortedFunc(maps.Keys(set), compareTask)
}
