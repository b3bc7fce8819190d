package world

import (
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/strandline-io/strandline/broker/edge"
	"github.com/strandline-io/strandline/broker/journal"
	"github.com/strandline-io/strandline/broker/keeper"
	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/machine/group"
	"github.com/strandline-io/strandline/broker/record"
	"github.com/strandline-io/strandline/broker/segment"
	"github.com/strandline-io/strandline/broker/sequencer"
	"github.com/strandline-io/strandline/broker/wire"
)

// process is one life of the broker: the real machine, sequencer core, journal and store, without goroutines.
type process struct {
	w        *World
	fs       *slowDisk
	journal  *journal.Stepped
	store    *segment.Store
	board    *sequencer.Board
	edge     *edge.Edge
	pool     wire.Pool
	parked   []*conn // with a Fetch that waits for data
	accepted uint64  // connections so far
	machine  *machine.Machine
	verify   *machine.Machine // replays every unit as it is appended (V8)
	core     *sequencer.Core
	keeper   *housekeeper
	dead     bool
	rand     *rand.Rand
	// pausedUs is until when the process stands still; its clocks go on.
	pausedUs int64
	held     []func() // what came meanwhile

	decided  uint64            // newest unit that was appended
	durable  uint64            // newest unit that may be spoken of
	asked    map[uint64]uint64 // what was decided before an operation came, by operation
	releases journal.EventKind

	ops        []*sequencer.Operation
	events     []journal.Event
	slow       bool
	waking     bool
	timer      int64 // engine time of the planned wake-up
	lastID     uint64
	startUs    int64
	startMs    int64                 // engine time at the start
	lanes      map[journal.Lane]bool // at work
	workers    map[journal.Lane]*coroutine
	ticking    bool
	coroutines []*coroutine
	conns      []*conn
	veil       *veil // nil: markers come with the decision
}

// shown is what readers may have seen of a partition: nothing of it may go back, over restarts neither.
type shown struct {
	logStart, highWatermark, lastStable int64
	aborted                             int
}

const segmentBytes = 32 << 10

// machineConfig has an assignment made outside of the loop as soon as a group has three members.
var machineConfig = machine.Config{Group: group.Config{InitialRebalanceDelayMs: 100, ConsumerSessionTimeoutMs: modernSessionMs, AssignmentIntervalMs: 300, InlineAssignment: 7}}

// boot starts a process on what is on the disk, and crashes it again if the disk fails meanwhile.
func (w *World) boot() {
	p := &process{w: w, releases: journal.Synced, asked: make(map[uint64]uint64), lanes: make(map[journal.Lane]bool), workers: make(map[journal.Lane]*coroutine), startUs: w.nowUs, rand: w.stream("process")}
	w.Rand = p.rand
	p.fs = &slowDisk{Mem: w.disk, w: w, p: p}
	r := keeper.NewRecovery(machineConfig)
	if w.jobs != nil && w.jobs.lateMarkers {
		p.veil = newVeil()
	}
	err := p.open(r)
	if err == nil {
		w.process = p
		w.checkRecovered(r)
		p.start(r)
		return
	}
	p.dead = true
	if errors.Is(err, journal.ErrCorrupt) || errors.Is(err, segment.ErrCorrupt) || errors.Is(err, machine.ErrCorrupt) {
		w.fail("damage: recovery finds damage where there is none: %v", err)
	}
	w.tracef("recovery: %v", err)
	w.crash("failed start", w.chance(30))
}

func (p *process) open(r *keeper.Recovery) (err error) {
	durability := journal.DurabilityFsync
	if p.w.mode.write {
		durability, p.releases = journal.DurabilityWrite, journal.Written
	}
	if err := p.fs.MkdirAll("."); err != nil {
		return err
	}
	p.journal, err = journal.OpenStepped(journal.FileConfig{
		FS: p.fs, Dir: "journal", Durability: durability, SegmentBytes: segmentBytes, SyncBytes: 64 << 10,
		ZeroFillBytesPerTick: 256 << 10, Rand: worldRand{p.w}, Restore: r.Restore, Extents: r.Place,
	}, r.Replay, p.journalEvent)
	if err != nil {
		return err
	}
	p.store, err = segment.Open(p.fs, segment.Config{SegmentBytes: 64 << 10, IndexIntervalBytes: 1024, IndexSyncBytes: 16 << 10, MemoryIntervalBytes: 4 << 10, MaxOpenFiles: 4, WindowBytes: 64 << 10}, r.Lengths())
	return err
}

// worldRand is the source of the journal's secret.
type worldRand struct{ w *World }

func (r worldRand) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(r.w.Uint32())
	}
	return len(b), nil
}

// start runs the loop, whose first operation is the new incarnation.
func (p *process) start(r *keeper.Recovery) {
	w := p.w
	w.stats.Recoveries++
	w.tracef("recovered up to unit %d, snapshot %d, incarnation %d", r.LastSeq, r.SnapshotSeq, p.journal.Incarnation())
	p.machine = r.Machine
	verify, err := machine.Restore(machineConfig, p.machine.AppendSnapshot(nil))
	if err != nil || verify.Hash() != p.machine.Hash() {
		w.failInside("V8: a snapshot of the recovered machine does not restore: %v", err)
	}
	p.verify = verify
	p.decided, p.durable = r.LastSeq, r.LastSeq
	p.board = r.Board(p.journal, p.store)
	p.edge = p.newEdge()
	p.newHousekeeper(r)
	durability := journal.DurabilityFsync
	if w.mode.write {
		durability = journal.DurabilityWrite
	}
	p.core = sequencer.NewCore(p.machine, appender{p}, durability, r.LastSeq, sequencer.Limits{GroupOps: 8})
	p.startMs = sequencer.EngineStart(p.machine.LastNow(), w.wall())
	p.submit(&sequencer.Operation{Op: machine.Op{Body: &machine.Incarnation{Number: p.journal.Incarnation(), Forgets: w.mode.write}}})
	p.keeper.start()
	p.pump()
}

// checkRecovered compares what recovery found with what was there: a prefix of the units (V3), in the very state that
// the machine had (V8), with everything that anybody may have seen (V1, V11).
func (w *World) checkRecovered(r *keeper.Recovery) {
	want, known := w.hashes[r.LastSeq]
	if !known || r.Machine.Hash() != want {
		w.failInside("V8: recovery up to unit %d has hash %x, the machine had %x (known: %t)", r.LastSeq, r.Machine.Hash(), want, known)
	}
	for seq := r.LastSeq + 1; ; seq++ {
		if _, ok := w.hashes[seq]; !ok {
			break
		}
		delete(w.hashes, seq)
	}
	views := make(map[machine.PartitionID]machine.View)
	for _, v := range r.Machine.Views() {
		views[v.Partition] = v
	}
	var ids []uint32
	for id := range w.seen {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		v, there := views[machine.PartitionID(id)]
		if !there && w.volatile[id] {
			delete(w.seen, id) // deleted, and nobody was told yet
			continue
		}
		w.checkShown(v, w.seen[id], "after recovery")
	}
}

func (w *World) checkShown(v machine.View, before shown, when string) {
	if v.LogStart < before.logStart || v.HighWatermark < before.highWatermark || v.LastStable < before.lastStable ||
		len(v.Aborted) < before.aborted && v.LogStart == before.logStart {
		w.failInside("V1, V11: partition %d shows %d to %d, stable %d, %d aborted %s; it showed %+v", v.Partition, v.LogStart, v.HighWatermark,
			v.LastStable, len(v.Aborted), when, before)
	}
	if v.LastStable > v.HighWatermark {
		w.failInside("V11: partition %d is stable up to %d of %d", v.Partition, v.LastStable, v.HighWatermark)
	}
}

// after plans do for the process: it does not happen once the process is dead, and waits while it is paused.
func (p *process) after(us int64, do func()) {
	p.w.after(us, func() { p.run(do) })
}

func (p *process) run(do func()) {
	switch {
	case p.dead:
	case len(p.held) > 0 || p.pausedUs > p.w.nowUs:
		if p.held = append(p.held, do); len(p.held) == 1 {
			p.w.after(p.pausedUs-p.w.nowUs, p.goOn)
		}
	default:
		p.w.Rand = p.rand
		do()
	}
}

// goOn does, in its order, what came while the process was paused.
func (p *process) goOn() {
	if wait := p.pausedUs - p.w.nowUs; wait > 0 && !p.dead {
		p.w.after(wait, p.goOn)
		return
	}
	held := p.held
	p.held = nil
	for _, do := range held {
		p.run(do)
	}
}

// die ends the process: nothing of it runs again.
func (p *process) die() {
	p.dead = true
	p.w.upUs += p.w.nowUs - p.startUs
	p.w.disk.CrashAfter(0)
	for _, c := range p.conns {
		c.reset()
	}
}

// appender replays what the loop appends.
type appender struct{ p *process }

func (a appender) Room() bool                   { return a.p.journal.Room() }
func (a appender) Space() (int64, bool)         { return a.p.journal.Space() }
func (a appender) Reserve(sizeBytes int64) bool { return a.p.journal.Reserve(sizeBytes) }
func (a appender) Sync()                        { a.p.journal.Sync() }

func (a appender) Append(units []journal.Unit) []journal.Placed {
	placed := a.p.journal.Append(units)
	for i := range placed {
		headers := make([][]byte, len(units[i].Batches))
		for k, b := range units[i].Batches {
			headers[k] = b[:record.HeaderSize]
		}
		if err := a.p.verify.Replay(units[i].Meta, headers); err != nil {
			a.p.w.failInside("V8: unit %d does not replay: %v", placed[i].Seq, err)
		}
		a.p.w.hashes[placed[i].Seq] = a.p.verify.Hash()
		a.p.decided = placed[i].Seq
	}
	return placed
}

// submit queues an operation, as the sequencer's Submit does.
func (p *process) submit(op *sequencer.Operation) {
	p.lastID++
	op.ID = p.lastID
	_, _ = worldRand{p.w}.Read(op.Rand[:])
	p.asked[op.ID] = p.decided
	p.ops = append(p.ops, op)
	p.wakeLoop()
}

func (p *process) journalEvent(e journal.Event) {
	p.events = append(p.events, e)
	if e.Kind == p.releases || e.Kind == journal.Synced {
		p.durable = max(p.durable, e.Seq)
	}
	p.wakeLoop()
}

func (p *process) wakeLoop() {
	if p.waking || p.dead {
		return
	}
	p.waking = true
	p.after(10+p.rand.Int64N(200), func() {
		p.waking = false
		p.loop()
	})
}

func (p *process) now() machine.Now {
	return machine.Now{WallMs: p.w.wall(), EngineMs: p.startMs + (p.w.nowUs-p.startUs)/msInUs}
}

// loop is one turn of the sequencer's loop.
func (p *process) loop() {
	if p.dead || p.core == nil {
		return
	}
	now := p.now()
	ev := sequencer.Event{Ops: p.ops, Journal: p.events, Slow: p.slow}
	p.ops, p.events = nil, nil
	var a sequencer.Actions
	p.core.Handle(now, ev, &a)
	if got, want := p.verify.Hash(), p.machine.Hash(); got != want && a.Err == nil {
		p.w.failInside("V8: replay of the units has hash %x, the machine %x", got, want)
	}
	for i := range a.Publish {
		p.show(&a.Publish[i])
	}
	p.wakeParked()
	for _, d := range a.Deliver {
		p.checkReplies(d.Replies)
		d.Box.Deliver(d.Replies)
	}
	for _, release := range a.Release {
		release()
	}
	p.keeper.Marked(a.Marks)
	if len(a.Sealed) > 0 {
		p.w.tracef("sealed %v", a.Sealed)
		p.keeper.Sealed(a.Sealed)
	}
	if a.Err != nil {
		p.stop(a.Err)
		return
	}
	p.planTimer(now, a.WakeAtEngineMs)
	p.pump()
}

// stop is the end that a broker makes of itself.
func (p *process) stop(err error) {
	p.w.tracef("the broker stops: %v", err)
	p.w.after(0, func() {
		if p.w.process == p {
			p.w.crash("kill", p.w.chance(30))
		}
	})
}

// checkReplies: what was decided before an operation came is durable when it is answered (V1, V4).
func (p *process) checkReplies(replies []machine.Reply) {
	for _, r := range replies {
		if before := p.asked[r.ID]; before > p.durable {
			p.w.failInside("V1: %T is answered when units up to %d are durable; unit %d was decided before it", r.Body, p.durable, before)
		}
		delete(p.asked, r.ID)
	}
}

func (p *process) planTimer(now machine.Now, at int64) {
	if at == 0 || p.timer > now.EngineMs && p.timer <= at {
		return
	}
	p.timer = at
	p.after(max(at-now.EngineMs, 0)*msInUs, p.wakeLoop)
}

func (p *process) show(pub *sequencer.Publication) {
	updates := pub.Updates
	if p.veil != nil {
		updates = p.cover(updates)
	}
	if pub.Features != nil {
		p.board.SetFeatures(pub.Features)
	}
	p.keeper.Trimmed(p.board.Publish(pub.Topics, updates))
	for _, t := range pub.Topics {
		for _, id := range t.Topic.Partitions {
			p.w.volatile[uint32(id)] = t.Topic.Name == volatileTopic
		}
		if t.Deleted {
			p.keeper.Deleted(t.Topic.Partitions)
		}
	}
	for i := range pub.Updates {
		v := pub.Updates[i].View
		p.w.checkShown(v, p.w.seen[uint32(v.Partition)], "now")
		p.w.seen[uint32(v.Partition)] = shown{v.LogStart, v.HighWatermark, v.LastStable, len(v.Aborted)}
		p.w.tracef("partition %d shows %d, stable %d, %d aborted", v.Partition, v.HighWatermark, v.LastStable, len(v.Aborted))
	}
}

// pump gives the journal's lanes their turns.
func (p *process) pump() {
	if p.dead || p.journal == nil {
		return
	}
	for _, lane := range p.journal.Ready() {
		if p.lanes[lane] {
			continue
		}
		p.lanes[lane] = true
		p.after(10+p.rand.Int64N(300), func() { p.step(lane) })
	}
	if !p.ticking && p.journal.WantsTick() {
		p.ticking = true
		p.after(100*msInUs, func() {
			p.ticking = false
			p.journal.Tick()
			p.pump()
		})
	}
}

// step does one action of a lane, in as many events as it has calls of the disk.
func (p *process) step(lane journal.Lane) {
	c := p.workers[lane]
	if c == nil {
		c = p.w.newCoroutine(laneNames[lane], func(c *coroutine) {
			for more := true; more && !p.dead; more = c.pause() {
				p.journal.Step(lane)
				p.lanes[lane] = false
				p.after(0, p.afterStep)
			}
		})
		c.onDisk = true
		p.workers[lane] = c
	}
	c.resume()
}

var laneNames = []string{"write lane", "sync lane", "background lane"}

// afterStep goes on, or notices that the process has died within a call.
func (p *process) afterStep() {
	if p.dead {
		return
	}
	if p.w.diskIsDead() {
		p.w.crash("death within a call", p.w.chance(50))
		return
	}
	p.pump()
}
