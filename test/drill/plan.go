//go:build unix

package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/strandline-io/strandline/internal/failpoint"
)

// faultKind is what is done to running processes from outside.
type faultKind int

const (
	killWorker faultKind = iota
	killBroker
	killTwoWorkers
	killBoth // the broker and a worker at once
	killAll
	pauseWorker // and let it go on
	replace     // a worker stands still, another process takes its place, then it goes on
	pauseBroker
)

func (k faultKind) String() string {
	return [...]string{"worker killed", "broker killed", "two workers killed", "broker and worker killed", "all killed",
		"worker paused", "worker paused and replaced", "broker paused"}[k]
}

// fault is one entry of a round's plan.
type fault struct {
	at     float64       // the share of the rows that must have been made; 0 while processes still start
	wait   time.Duration // after that and the fault before it
	kind   faultKind
	victim int           // of the workers
	back   time.Duration // until the victim returns, or goes on
	again  time.Duration // killed again so long after its return; 0: not
	arm    *failure      // what the victim is started with when it returns
}

// roundPlan is all that a seed decides.
type roundPlan struct {
	seed    uint64
	workers int
	files   int
	lines   int
	pace    time.Duration
	commit  time.Duration
	write   bool // durability write
	flights bool // the job of examples/01-flights
	first   []*failure
	faults  []fault
	subject subject
}

// subject is the failpoint that a round is about. It is armed at each start of its processes until one has hit it: what
// happens to them from outside must not be in its way.
type subject struct {
	failure
	slot int  // the broker is 0
	all  bool // any worker will do: which of them passes the point is not known
}

// at says what a slot's start with that number, from 0, is armed with. A count that was not reached is halved.
func (s subject) at(slot, start int) *failure {
	if slot != s.slot && !(s.all && slot > 0) || start == 0 && strings.HasPrefix(s.point, "recovery.") {
		return nil
	}
	f := s.failure
	f.count = max(1, f.count>>start)
	return &f
}

// setting is what the command line decides about all rounds.
type setting struct {
	kafka, azurite, power bool
	job                   string
}

// points lists the failpoints that processes of a kind pass in this setting.
func (s setting) points(in string) []string {
	var out []string
	for _, p := range failpoint.Points {
		if p.In == in && s.has(p.Name) {
			out = append(out, p.Name)
		}
	}
	return out
}

func (s setting) has(point string) bool {
	switch group, _, _ := strings.Cut(point, "."); group {
	case "folder":
		return !s.azurite
	case "azure":
		return s.azurite
	}
	return true
}

// newPlan draws a round. Each round has one failpoint as its subject, in turn, so that every one has its share.
func newPlan(seed uint64, s setting) roundPlan {
	rng := rand.New(rand.NewPCG(seed, 4))
	p := roundPlan{
		seed: seed, workers: 2 + rng.IntN(3), files: 1 + rng.IntN(3), lines: 2000 + rng.IntN(4000),
		commit: []time.Duration{20, 60, 150}[rng.IntN(3)] * time.Millisecond,
		write:  rng.IntN(3) == 0 && !s.power,
	}
	subjects := s.points(failpoint.Worker)
	if !s.kafka {
		subjects = append(subjects, s.points(failpoint.Broker)...)
	}
	about := subjects[seed%uint64(len(subjects))]
	p.flights = s.job == "flights" || s.job == "" && seed%8 == 7 && !s.kafka && !s.azurite && !losesTasks(about)
	if p.flights {
		p.files = 1
	}
	p.pace = time.Duration(1000+rng.IntN(1500)) * time.Millisecond * paceLines * time.Duration(p.files) / time.Duration(p.lines)
	p.first = make([]*failure, 1+p.workers)
	for i := range p.first {
		if rng.IntN(3) == 0 {
			p.first[i] = s.draw(rng, i == 0)
		}
	}
	for range 3 + rng.IntN(6) {
		p.faults = append(p.faults, s.drawFault(rng, p.workers))
	}
	for i := range p.faults {
		if p.flights {
			p.faults[i].at = 0 // it does not tell how far it is
		}
	}
	slices.SortStableFunc(p.faults, func(a, b fault) int { return cmp.Compare(a.at, b.at) })
	if losesTasks(about) {
		p.outlastSession(rng)
	}
	p.place(rng, about)
	if s.kafka {
		p.spareKafka(seed)
	}
	return p
}

// losesTasks reports whether a point is passed when a worker has been away for longer than its session.
func losesTasks(point string) bool { return point == "drop.ended" || point == "revoke.begun" }

// outlastSession lets the last fault, which no other can cut short, be a pause longer than a session.
func (p *roundPlan) outlastSession(rng *rand.Rand) {
	for i := range p.faults {
		p.faults[i].at /= 2 // the work must not be over before
	}
	p.faults = append(p.faults, fault{
		at: 0.5 * rng.Float64(), wait: 300 * time.Millisecond, kind: pauseWorker, victim: rng.IntN(p.workers), back: sessionTimeout + time.Second,
	})
}

// maxSubjectCount is what the shortest lives reach too.
const maxSubjectCount = 16

// place chooses the processes that the subject is armed in.
func (p *roundPlan) place(rng *rand.Rand, point string) {
	p.subject.failure = failure{point: point, count: min(drawCount(rng, point), maxSubjectCount)}
	isBroker := slices.ContainsFunc(failpoint.Points, func(x failpoint.Point) bool { return x.Name == point && x.In == failpoint.Broker })
	switch {
	case strings.HasPrefix(point, "recovery."):
		n := rng.IntN(len(p.faults))
		p.faults[n].kind, p.faults[n].again = killBroker, 0
	case isBroker:
	default:
		p.subject.slot = 1 + rng.IntN(p.workers)
		p.subject.all = strings.HasPrefix(point, "start.") || losesTasks(point)
	}
}

// kafkaDies is how many rounds on Apache Kafka have one in which it is killed: it needs 12 s to return.
const kafkaDies = 25

// spareKafka takes the faults of the broker out of a plan, or all but one.
func (p *roundPlan) spareKafka(seed uint64) {
	p.first[0] = nil
	one := seed%kafkaDies == kafkaDies-1
	for i := range p.faults {
		f := &p.faults[i]
		switch f.kind {
		case killBroker, killBoth, killAll:
			if one {
				f.again, one = 0, false
				continue
			}
			f.kind, f.arm = killTwoWorkers, nil
		case pauseBroker:
			f.kind, f.arm = pauseWorker, nil
		}
	}
}

// often are points that a process passes many times a second, and sometimes those of blobs: a worker stages a few blocks
// a second and publishes a few blobs in its life.
var (
	often     = []string{"sequencer.", "journal.written", "journal.unsynced", "journal.synced", "commit."}
	sometimes = []string{"folder.part", "folder.staged", "azure.staged"}
)

// drawCount says at which hit a failpoint fires.
func drawCount(rng *rand.Rand, point string) int {
	among := func(prefixes ...string) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(point, prefix) })
	}
	switch {
	case among(often...):
		return 1 + rng.IntN(1<<rng.IntN(7))
	case among(sometimes...):
		return 1 + rng.IntN(1<<rng.IntN(3))
	case among("journal.", "restore."):
		return 1 + rng.IntN(4)
	case among("folder.", "azure."):
		return 1 + rng.IntN(2)
	}
	return 1
}

// draw chooses any failpoint for a process.
func (s setting) draw(rng *rand.Rand, broker bool) *failure {
	in := failpoint.Worker
	if broker {
		in = failpoint.Broker
	}
	points := s.points(in)
	point := points[rng.IntN(len(points))]
	return &failure{point: point, count: drawCount(rng, point), stop: rng.IntN(5) == 0}
}

func (s setting) drawFault(rng *rand.Rand, workers int) fault {
	f := fault{
		wait: time.Duration(rng.IntN(1+rng.IntN(400))) * time.Millisecond, victim: rng.IntN(workers), back: drawBack(rng),
		kind: []faultKind{
			killWorker, killWorker, killWorker, killWorker, killBroker, killBroker, killBroker, killBroker,
			killTwoWorkers, killTwoWorkers, killBoth, killBoth, killAll, pauseWorker, pauseWorker, replace, replace, pauseBroker,
		}[rng.IntN(18)],
	}
	if rng.IntN(4) > 0 {
		f.at = 0.9 * rng.Float64()
	}
	if rng.IntN(3) == 0 {
		f.again = time.Duration(1+rng.IntN(1+rng.IntN(150))) * time.Millisecond
	}
	if rng.IntN(2) == 0 {
		f.arm = s.draw(rng, f.kind == killBroker || f.kind == killBoth || f.kind == killAll)
	}
	return f
}

// drawBack is how long something stays away: mostly short, at most five seconds.
func drawBack(rng *rand.Rand) time.Duration {
	switch n := rng.IntN(20); {
	case n < 8:
		return 0
	case n < 15:
		return time.Duration(rng.IntN(100)) * time.Millisecond
	case n < 19:
		return time.Duration(rng.IntN(1000)) * time.Millisecond
	}
	return time.Duration(rng.IntN(5000)) * time.Millisecond
}

func (p roundPlan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d workers, %d files, %d lines, pace %v, commits every %v", p.seed, p.workers, p.files, p.lines, p.pace, p.commit)
	if p.write {
		b.WriteString(", durability write")
	}
	if p.flights {
		b.WriteString(", job 01-flights")
	}
	fmt.Fprintf(&b, "\n  its subject is %s in %s", p.subject.env(), slotName(p.subject.slot))
	if p.subject.all {
		b.WriteString(" and all other workers")
	}
	for i, f := range p.first {
		if f != nil {
			fmt.Fprintf(&b, "\n  %s starts with %s", slotName(i), f.env())
		}
	}
	for _, f := range p.faults {
		fmt.Fprintf(&b, "\n  at %.0f %% +%v %v (%d), back after %v", 100*f.at, f.wait, f.kind, f.victim, f.back)
		if f.arm != nil {
			fmt.Fprintf(&b, " with %s", f.arm.env())
		}
		if f.again > 0 {
			fmt.Fprintf(&b, ", killed again %v later", f.again)
		}
	}
	return b.String()
}

func slotName(i int) string {
	if i == 0 {
		return "broker"
	}
	return fmt.Sprintf("worker %d", i-1)
}
