package cores

import (
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"slices"

	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/machine/group"
	"github.com/strandline-io/strandline/broker/machine/producer"
	"github.com/strandline-io/strandline/broker/machine/txn"
	"github.com/strandline-io/strandline/broker/record"
)

// violation is a check that failed.
type violation struct{ error }

// World is one run over the machine.
type World struct {
	*rand.Rand
	trace   io.Writer
	hash    uint64
	stats   Stats
	nowMs   int64
	skewMs  int64 // the wall clock is so much ahead of nowMs
	mode    mode
	bounds  bounds
	config  machine.Config
	builder *record.Builder
	scratch []byte

	server  *server
	clients []*client
	conns   []*conn // with something to deliver, or alive
	members []*member
	known   map[string][]credential // what InitProducerId answered, by transactional id, oldest first
	plain   []credential            // of producers without one
	newest  map[string]*transactor  // the last instance that took over, by transactional id
	history history
	readers map[machine.PartitionID]*reader
	commits int64 // offsets that clients committed so far: each is another number
	steps   int   // random steps so far
	healed  bool
}

// mode is drawn once per run.
type mode struct {
	// forgetful: bounds and expiries so small that producers and ids are forgotten while they work. A duplicate may go
	// in twice then; what model and readers say still holds.
	forgetful bool
	// hostile: somebody speaks with the clients' producer ids. What the clients expect does not hold then.
	hostile bool
	// exhausted: transactional ids begin with an epoch near the last one.
	exhausted bool
	calm      bool // no crash, no loss
	groups    bool
}

type credential struct {
	pid   int64
	epoch int16
}

const (
	sessionMs      = 6000
	transactionMs  = 10_000
	startWallMs    = 1_700_000_000_000
	leastOps       = 150
	mostOps        = 450
	maxHealedSteps = 20_000
)

func (w *World) wallMs() int64 { return startWallMs + w.nowMs + w.skewMs }

// mix folds a number into the hash of the run's content.
func (w *World) mix(v uint64) {
	w.hash = (w.hash ^ v) * 0x9E3779B97F4A7C15
	w.hash ^= w.hash >> 29
}

func (w *World) tracef(format string, args ...any) {
	fmt.Fprintf(w.trace, "%9.3f ", float64(w.nowMs)/1000)
	fmt.Fprintf(w.trace, format, args...)
	fmt.Fprintln(w.trace)
}

// fail ends the run.
func (w *World) fail(format string, args ...any) {
	panic(violation{fmt.Errorf(format, args...)})
}

func pick[T any](w *World, all ...T) T { return all[w.IntN(len(all))] }

// runMachine is one seed of the machine's world. ops bounds its random steps, 0 is as many as the seed wants.
func runMachine(seed uint64, ops int, trace io.Writer) (r Result) {
	w := &World{
		Rand: rand.New(rand.NewPCG(seed, 7)), trace: trace, builder: record.NewBuilder(),
		known: map[string][]credential{}, newest: map[string]*transactor{}, readers: map[machine.PartitionID]*reader{},
	}
	defer func() {
		if p := recover(); p != nil {
			if v, ok := p.(violation); ok {
				r.Err = v.error
			} else {
				r.Err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
		}
		r.Hash, r.Operations, r.Stats = w.hash, w.steps, w.stats
	}()
	w.begin()
	wanted := leastOps + w.IntN(mostOps-leastOps)
	if ops > 0 {
		wanted = min(wanted, ops)
	}
	for ; w.steps < wanted; w.steps++ {
		w.random()
	}
	w.heal()
	w.check()
	return r
}

func (w *World) begin() {
	w.mode = mode{forgetful: w.IntN(4) == 0, hostile: w.IntN(4) == 0, exhausted: w.IntN(4) == 0, calm: w.IntN(16) == 0, groups: w.IntN(3) > 0}
	w.bounds = bounds{
		maxEntries: 100_000, maxRefused: 10_000, maxIDs: 100_000, maxGroups: 1000,
		producerMs: 86_400_000, idMs: 7 * 86_400_000, maxTimeoutMs: 60_000,
	}
	if w.mode.forgetful {
		w.bounds = bounds{
			maxEntries: 3 + w.IntN(6), maxRefused: 1 + w.IntN(4), maxIDs: 1 + w.IntN(3), maxGroups: 1 + w.IntN(2),
			producerMs: 5000 + w.Int64N(60_000), idMs: 15_000 + w.Int64N(90_000), maxTimeoutMs: 60_000,
		}
	}
	b := w.bounds
	w.config = machine.Config{
		Producer: producer.Config{MaxEntries: b.maxEntries, ExpirationMs: b.producerMs, MaxRefused: b.maxRefused},
		Txn:      txn.Config{MaxIDs: b.maxIDs, IDExpirationMs: b.idMs, MaxTimeoutMs: b.maxTimeoutMs, MaxGroupsPerTxn: b.maxGroups},
		Group:    group.Config{InitialRebalanceDelayMs: -1},
	}
	if w.trace != nil {
		w.tracef("mode %+v", w.mode)
	}
	w.server = newServer(w)
	w.create("a", 2)
	w.create("b", 1)
	w.startClients()
	w.server.sync(len(w.server.units))
}

func (w *World) create(topic string, partitions int32) {
	w.server.step(&request{kind: kindCreateTopic, version: 7, parts: []place{{topic: topic}}, count: partitions})
}

func (w *World) startClients() {
	for range 1 + w.IntN(2) {
		w.add(newIdempotent(w))
	}
	for i := range 1 + w.IntN(3) {
		t := newTransactor(w, fmt.Sprintf("t%d", i))
		if w.mode.exhausted {
			w.age(t.id)
		}
		w.add(t)
		if w.IntN(2) == 0 {
			w.add(newTransactor(w, t.id)) // another instance, which takes over some time
		}
	}
	if w.mode.groups {
		for i := range 1 + w.IntN(3) {
			w.add(newMember(w, i))
		}
	}
	w.add(&administrator{w: w})
	if w.mode.hostile {
		w.add(&hostile{w: w})
	}
}

// random takes one random step.
func (w *World) random() {
	switch n := w.IntN(100); {
	case n < 34:
		w.act()
	case n < 66:
		w.deliver()
	case n < 76:
		w.server.sync(w.server.durable + w.IntN(len(w.server.units)-w.server.durable+1))
	case n < 90:
		w.hear()
	case n < 93:
		w.read()
	case n < 96:
		w.pass(w.IntN(3))
	case n < 98 && !w.mode.calm:
		w.breakConn()
	case n == 98 && w.IntN(2) == 0 && !w.mode.calm:
		w.server.crash()
	default:
		w.server.snapshot()
	}
}

// pass lets time go by: a moment, some seconds, or long enough for timeouts. Now and then the wall clock jumps.
func (w *World) pass(much int) {
	switch much {
	case 0:
		w.nowMs += w.Int64N(100)
	case 1:
		w.nowMs += w.Int64N(3000)
	default:
		w.nowMs += w.Int64N(20_000)
		if w.IntN(4) == 0 {
			w.skewMs += w.Int64N(4*3_600_000) - 2*3_600_000
		}
	}
	w.server.tick()
}

// downtime passes while no process runs.
func (w *World) downtime() {
	w.nowMs += w.Int64N(5000)
	if w.IntN(4) == 0 {
		w.skewMs += w.Int64N(120_000) - 60_000
	}
}

// heal ends all faults and runs until every client has done its work.
func (w *World) heal() {
	w.healed = true
	if w.trace != nil {
		w.tracef("HEALED")
	}
	for n := 0; ; n++ {
		if n > maxHealedSteps {
			w.fail("live: no end after the last fault: %s", w.pending())
		}
		busy := w.act()
		busy = w.deliver() || busy
		w.server.sync(len(w.server.units))
		busy = w.hear() || busy
		if busy {
			continue
		}
		if w.done() {
			break
		}
		w.nowMs += 50
		w.server.tick()
	}
	// What nobody ends ends by its time.
	w.nowMs += int64(w.bounds.maxTimeoutMs) + 2*sessionMs
	w.server.tick()
	w.server.sync(len(w.server.units))
}

func (w *World) done() bool {
	for _, c := range w.clients {
		if !c.over() {
			return false
		}
	}
	return true
}

func (w *World) pending() string {
	text := w.server.describe()
	for _, c := range w.clients {
		if !c.over() {
			text += fmt.Sprintf("; %T %+v", c.brain, c.brain)
		}
	}
	return text
}

// age lets a transactional id have an epoch near the last one, as years of transactions would: its record is journaled
// by hand, as a machine of that age would have written it (docs/formats/machine.md).
func (w *World) age(id string) {
	s := w.server
	if s.model.ids[id] != nil || len(s.model.ids) >= w.bounds.maxIDs {
		return
	}
	q := &request{kind: kindInit, version: 5, id: id, pid: -1, epoch: -1, timeoutMs: transactionMs}
	s.step(q)
	t := s.model.ids[id]
	epoch := int16(maxEpoch - w.IntN(6))
	s.step(&request{kind: kindAge, id: id, pid: t.pid, epoch: epoch, timeoutMs: transactionMs})
}

func slicesRemove[T comparable](all []T, v T) []T {
	if i := slices.Index(all, v); i >= 0 {
		return slices.Delete(all, i, i+1)
	}
	return all
}
