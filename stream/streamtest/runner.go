// Package streamtest runs a topology under virtual time without a broker, reads script files, and holds the contract
// suite that every sink passes. It runs the same decisions (package task/core) as production, over a cluster in memory
// that knows transactions, fencing and pending offsets, and it can kill, fault and rebalance at every step.
package streamtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/task/core"
)

// Options describes a run. The zero value is one worker without accidents. The same plan, options, input and calls give
// the same run.
type Options struct {
	// Workers is the number of worker processes; default 1.
	Workers int
	// Seed decides the order of everything that has no order, and all accidents.
	Seed uint64
	// CommitInterval: default 100 ms, 1 s with a sink.
	CommitInterval time.Duration
	// ChunkResults bounds the results of one transaction, as core.Config does.
	ChunkResults int
	// FetchRecords is the most records that one fetch returns; default 16.
	FetchRecords int
	// CrashEvery, FaultEvery and RebalanceEvery: one step in so many, on average, is the death of a process, a failing
	// call or a lost answer, a task that moves (half of the moves without telling the old owner first). 0 is never.
	CrashEvery, FaultEvery, RebalanceEvery int
	// LateMarkers lets EndTxn answer before the end of the transaction is seen everywhere, as Apache Kafka does: every
	// partition's marker and the group's offsets come as steps of their own, in any order.
	LateMarkers bool
	// MaxAccidents bounds them all together, so that a run ends; default 100.
	MaxAccidents int
	// CrashAt kills the acting process at the crash point with that number, from 1. CrashPoints tells how many a run had.
	CrashAt int
}

// Runner runs a plan in virtual time over a cluster in memory. It is used by one goroutine.
type Runner struct {
	t    T
	plan *stream.Plan
	opts Options
	job  *core.JobRecord

	rng       *rand.Rand
	nowMs     int64
	cluster   *cluster
	processes []*process
	owners    map[core.Task]*owner
	tasks     []core.Task
	nextToken int64
	points    int
	accidents int
	committal map[string]*core.Checkpoint // newest per task
	err       error
}

// owner is who has a task according to the group.
type owner struct {
	p     *process
	token int64
	// to is where the task goes once its owner has released it; nil if it stays.
	to *process
}

// maxSteps bounds one Run or Advance.
const maxSteps = 5_000_000

// T is what a Runner needs of a testing.TB.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
}

// New returns a runner. The plan must be bound; its topics are created empty. Nothing runs before Run.
func New(t T, plan *stream.Plan, opts Options) *Runner {
	t.Helper()
	opts.Workers = max(1, opts.Workers)
	if opts.FetchRecords == 0 {
		opts.FetchRecords = 16
	}
	if opts.MaxAccidents == 0 {
		opts.MaxAccidents = 100
	}
	r := &Runner{
		t: t, plan: plan, opts: opts, rng: rand.New(rand.NewPCG(opts.Seed, 1)), cluster: newCluster(),
		owners: map[core.Task]*owner{}, committal: map[string]*core.Checkpoint{},
	}
	r.cluster.lateMarkers = opts.LateMarkers
	for _, topic := range plan.Topics {
		r.cluster.create(topic.Name, topic.Partitions)
	}
	for _, s := range plan.Stages {
		for n := range s.Tasks {
			r.tasks = append(r.tasks, core.Task{Stage: s.Name, Number: n})
		}
	}
	return r
}

// Write appends a record to a topic, in the partition of its key (0 without one). A nil value is a tombstone.
func (r *Runner) Write(topic string, key, value []byte, timeMs int64) {
	n := 0
	if key != nil {
		n = stream.PartitionFor(key, len(r.cluster.topics[topic]))
	}
	r.WriteTo(topic, n, key, value, timeMs)
}

// WriteTo appends a record to a partition.
func (r *Runner) WriteTo(topic string, partition int, key, value []byte, timeMs int64) {
	p := r.cluster.partition(topic, partition)
	p.log = append(p.log, entry{record: core.OutRecord{Topic: topic, Partition: partition, Key: key, Value: value, TimestampMs: timeMs}})
}

// Run runs until nothing is left to do but to wait for new input or for silence to become idleness. Commit intervals
// pass by themselves. The first Run is the job's first start: the ends of bounded topics are where they are then.
func (r *Runner) Run() {
	r.t.Helper()
	r.begin()
	r.quiesce()
}

// Advance lets virtual time pass, with a look at every input every 100 ms.
func (r *Runner) Advance(d time.Duration) {
	r.t.Helper()
	r.begin()
	for end := r.nowMs + d.Milliseconds(); r.nowMs < end; {
		r.nowMs = min(end, r.nowMs+100)
		r.quiesce()
	}
}

// Stop asks every worker to stop gracefully and runs until they have.
func (r *Runner) Stop() {
	r.t.Helper()
	for _, p := range r.processes {
		p.group = append(p.group, core.Stopping{})
	}
	r.quiesce()
}

// Crash kills worker n: nothing that it had in memory is seen again. It is started again by the next Run.
func (r *Runner) Crash(n int) { r.processes[n].crash() }

// Finished reports whether all workers have left because the whole job has ended.
func (r *Runner) Finished() bool {
	return len(r.processes) > 0 && !slices.ContainsFunc(r.processes, func(p *process) bool { return !p.finished })
}

// Err is the error that stopped the job, or nil.
func (r *Runner) Err() error { return r.err }

// CrashPoints is the number of places so far at which a process could have died.
func (r *Runner) CrashPoints() int { return r.points }

// Topic returns the committed records of a topic, by partition and offset.
func (r *Runner) Topic(name string) []stream.Message {
	var out []stream.Message
	for n, p := range r.cluster.topics[name] {
		records, _ := p.read(0, 1<<30)
		for i := range records {
			records[i].Partition = n
		}
		out = append(out, records...)
	}
	return out
}

// Checkpoint returns the newest committed checkpoint of a task; nil if there is none.
func (r *Runner) Checkpoint(stage string, number int) *core.Checkpoint {
	return r.committal[stream.TaskName(stage, number)]
}

// Late is the number of records that came after their window had closed, over all tasks, as their checkpoints count them.
func (r *Runner) Late() (records int64) {
	for _, c := range r.committal { // any order: a sum
		records += c.Counters.Late
	}
	return records
}

// begin is the starter: it writes the job record and assigns the tasks.
func (r *Runner) begin() {
	if r.job != nil {
		return
	}
	var topics []core.TopicRecord
	for _, t := range r.plan.Topics {
		topics = append(topics, core.TopicRecord{Name: t.Name, ID: t.Name, Partitions: t.Partitions})
	}
	var ends []core.PartitionEnd
	for _, t := range core.NeedsEnds(r.plan) {
		for n, p := range r.cluster.topics[t.Name] {
			ends = append(ends, core.PartitionEnd{Topic: t.Name, Partition: n, EndOffset: p.lastStableOffset()})
		}
	}
	r.job = core.NewJobRecord(r.plan, 1, topics, ends)
	r.WriteTo(r.plan.CheckpointTopic, 0, []byte(core.JobRecordKey), r.job.Encode(), 0)
	for n := range r.opts.Workers {
		r.processes = append(r.processes, &process{r: r, n: n, id: fmt.Sprintf("%s-%d", r.plan.Job, n)})
	}
	for i, task := range r.tasks {
		r.owners[task] = &owner{p: r.processes[i%r.opts.Workers]}
	}
	for _, p := range r.processes {
		r.restart(p)
	}
}

// restart starts a process and gives it the tasks that are its own.
func (r *Runner) restart(p *process) {
	if err := p.start(); err != nil {
		r.fail(err)
		return
	}
	for _, task := range r.tasks {
		if o := r.owners[task]; o.p == p {
			o.to = nil
			r.assign(task, p)
		}
	}
}

func (r *Runner) assign(task core.Task, p *process) {
	r.nextToken++
	o := r.owners[task]
	o.p, o.token, o.to = p, r.nextToken, nil
	if !p.down {
		p.group = append(p.group, core.Assigned{Tasks: []core.Ownership{{Task: task, Token: o.token}}})
	}
}

func (r *Runner) owns(p *process, o core.Ownership) bool {
	have := r.owners[o.Task]
	return have.p == p && have.token == o.Token
}

// released hands tasks on.
func (r *Runner) released(p *process, tasks []core.Task) {
	for _, task := range tasks {
		if o := r.owners[task]; o.p == p && o.to != nil {
			r.assign(task, o.to)
		}
	}
}

func (r *Runner) done(p *process, e core.Done) {
	if e.Finished && len(r.committal) < len(r.tasks) {
		r.fail(fmt.Errorf("worker %d says that the job has finished after %d of %d tasks committed", p.n, len(r.committal), len(r.tasks)))
	}
}

// quiesce takes steps until there is none.
func (r *Runner) quiesce() {
	r.t.Helper()
	for range maxSteps {
		if r.err != nil {
			return
		}
		if !r.oneStep() {
			return
		}
	}
	r.t.Fatalf("seed %d: no end after %d steps: %s", r.opts.Seed, maxSteps, r.describe())
}

func (r *Runner) oneStep() bool {
	acts := r.acts()
	if n := len(r.cluster.ending); n > 0 && (len(acts) == 0 || r.random(4) == 0) {
		r.cluster.mark(r.cluster.ending[r.random(n)], r.random)
		return true
	}
	if len(acts) == 0 {
		return r.wait()
	}
	r.rebalance()
	a := acts[r.random(len(acts))]
	if a.p != nil && r.mayCrash(a.p) {
		return true
	}
	a.do()
	return true
}

type processAct struct {
	act
	p *process
}

func (r *Runner) acts() []processAct {
	var out, restarts []processAct
	for _, p := range r.processes {
		if p.down {
			restarts = append(restarts, processAct{act{"restart", func() { r.restart(p) }}, nil})
			continue
		}
		if p.over {
			continue
		}
		for _, a := range p.acts() {
			out = append(out, processAct{a, p})
		}
	}
	// The others go on for a while with what a dead process has left open.
	if len(restarts) > 0 && (len(out) == 0 || r.random(8) == 0) {
		out = append(out, restarts...)
	}
	return out
}

// wait lets time pass to the next commit interval that somebody waits for.
func (r *Runner) wait() bool {
	next := int64(-1)
	for _, p := range r.processes {
		if p.down || p.over {
			continue
		}
		if due, ok := p.core.NextTickMs(); ok && due > r.nowMs && (next < 0 || due < next) {
			next = due
		}
	}
	if next < 0 {
		return false
	}
	r.nowMs = next
	return true
}

func (r *Runner) random(n int) int { return r.rng.IntN(n) }

func (r *Runner) accident(every int) bool {
	if every == 0 || r.accidents >= r.opts.MaxAccidents || r.random(every) != 0 {
		return false
	}
	r.accidents++
	return true
}

func (r *Runner) faulty() bool { return r.accident(r.opts.FaultEvery) }

// mayCrash is a crash point: it kills the process or lets it go on.
func (r *Runner) mayCrash(p *process) bool {
	r.points++
	if r.points == r.opts.CrashAt || r.accident(r.opts.CrashEvery) {
		p.crash()
		return true
	}
	return false
}

// crash ends a process. Half of the time, its tasks go to others at once.
func (p *process) crash() {
	if p.down || p.over {
		return
	}
	p.down = true
	p.forget()
	p.group = nil
	p.core = nil
	others := p.r.running()
	if len(others) == 0 || p.r.random(2) == 0 {
		return
	}
	for _, task := range p.r.tasks {
		if o := p.r.owners[task]; o.p == p {
			p.r.assign(task, others[p.r.random(len(others))])
		}
	}
}

func (r *Runner) running() []*process {
	var out []*process
	for _, p := range r.processes {
		if !p.down && !p.over {
			out = append(out, p)
		}
	}
	return out
}

// rebalance moves one task now and then: by the book, or behind the owner's back.
func (r *Runner) rebalance() {
	if r.opts.RebalanceEvery == 0 || !r.accident(r.opts.RebalanceEvery) {
		return
	}
	task := r.tasks[r.random(len(r.tasks))]
	o, live := r.owners[task], r.running()
	if o.p.down || o.p.over || o.to != nil || len(live) < 2 {
		return
	}
	to := live[r.random(len(live))]
	if to == o.p {
		return
	}
	if r.random(2) == 0 {
		o.to = to
		o.p.group = append(o.p.group, core.Revoking{Tasks: []core.Task{task}})
		return
	}
	o.p.group = append(o.p.group, core.Lost{Tasks: []core.Task{task}})
	r.assign(task, to)
}

// committed checks every commit: nothing of a task ever goes back.
func (r *Runner) committed(p *process, e core.Commit) {
	for _, record := range e.Checkpoints {
		c, err := core.DecodeCheckpoint(record.Value)
		if err != nil {
			r.fail(err)
			return
		}
		if old := r.committal[c.Task]; old != nil {
			if err := follows(old, c); err != nil {
				r.fail(fmt.Errorf("seed %d: worker %d: task %s: %w", r.opts.Seed, p.n, c.Task, err))
				return
			}
		}
		r.committal[c.Task] = c
	}
}

func follows(old, c *core.Checkpoint) error {
	if c.Commit != old.Commit+1 {
		return fmt.Errorf("commit %d follows commit %d", c.Commit, old.Commit)
	}
	for i := range c.Inputs {
		if c.Inputs[i].Position.Offset < old.Inputs[i].Position.Offset {
			return fmt.Errorf("the position of %s goes back from %d to %d", c.Inputs[i].Stream, old.Inputs[i].Position.Offset, c.Inputs[i].Position.Offset)
		}
	}
	if old.Out.Watermark != nil && (c.Out.Watermark == nil || *c.Out.Watermark < *old.Out.Watermark) {
		return fmt.Errorf("the watermark falls from %d", *old.Out.Watermark)
	}
	if old.Ended && !c.Ended {
		return fmt.Errorf("the end was taken back")
	}
	return nil
}

func (r *Runner) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// describe says where everybody stands.
func (r *Runner) describe() string {
	var b strings.Builder
	for _, p := range r.processes {
		fmt.Fprintf(&b, "\nworker %d: down=%v over=%v", p.n, p.down, p.over)
		if p.core != nil {
			fmt.Fprintf(&b, " wants records=%v effects=%d answers=%d restores=%d %+v", p.core.WantsRecords(), len(p.effects), len(p.answers), len(p.restores), p.core.Status())
		}
	}
	return b.String()
}
