// Package world runs the real broker, below its sockets, in a virtual world: one seeded scheduler with a virtual clock,
// a network that loses and delays, a disk that forgets, processes that crash and return, and clients that check what
// they read. A seed decides everything, so it replays to the byte.
package world

import (
	"container/heap"
	"fmt"
	"hash"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"strings"

	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/internal/vfs"
)

// Options of one run.
type Options struct {
	Seed uint64
	// Trace, when not nil, gets one line for each event.
	Trace io.Writer
	// ReadersOnly leaves the judgement to the clients: the checks that look into the broker (V1, V8, V11) are off.
	ReadersOnly bool
	// WithoutClients are not started, WithoutFaults (by number in the plan) do not happen. What is left draws the same
	// random numbers as before. FaultsMs is when faults end; 0 is 20,000, more is not possible.
	WithoutClients []string
	WithoutFaults  []int
	FaultsMs       int64
	// Blobs runs the world of blob sinks instead of the broker's.
	Blobs bool
	// Job runs a stream job over the broker, instead of producers and consumers.
	Job bool
	// JobBlobs gives the job of a seed the real blob sink for sure. Without it the seed decides.
	JobBlobs bool
}

// Result is what a run came to.
type Result struct {
	// Err is the first violated check; nil if all held.
	Err error
	// Hash sums up the content of every event; equal seeds have equal hashes.
	Hash   uint64
	Events int
	Stats  Stats
	// Clients were started; Faults were planned and not left out.
	Clients []string
	Faults  []int
}

// Stats says what a run has crossed.
type Stats struct {
	Crashes, PowerLosses, Recoveries, Snapshots, Shelvings int
	Commits, Aborts, Fenced, Read                          int
	Moved                                                  int // partitions that a member of the group that migrates was given
	Killed, Stalled, Late                                  int // processes of a job; records that came too late
	VirtualMs                                              int64
	Blobs                                                  BlobStats
}

// violation is a check that failed.
type violation struct{ error }

// event is something that happens at a time.
type event struct {
	atUs int64
	n    uint64 // insertion number
	do   func()
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].atUs < h[j].atUs || h[i].atUs == h[j].atUs && h[i].n < h[j].n
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*h = old[:len(old)-1]
	return e
}

// World is one run.
type World struct {
	*rand.Rand // of whose turn it is
	base       *rand.Rand
	named      map[string]int // streams so far, by name

	opts    Options
	nowUs   int64
	heap    eventHeap
	pushed  uint64
	hash    hash.Hash64
	current *coroutine
	stats   Stats

	disk         *vfs.Mem
	process      *process        // nil while it is down
	wallMs       int64           // the wall clock at virtual time 0; jumps move it
	wallJumpedMs int64           // forward, in all
	jumpsBack    int             // of the wall clock
	upUs         int64           // how long the broker was up in earlier lives
	volatile     map[uint32]bool // partitions that may be deleted
	mode         mode
	net          network
	nets         int               // networks so far
	seen         map[uint32]shown  // newest published state of each partition
	hashes       map[uint64]uint64 // the machine's hash after each unit
	history      *history

	jobs   *streams     // nil without a job
	modern *modernGroup // nil without such members

	coroutines    []*coroutine
	clients       []string
	faults        []int
	writers       int // clients whose work is not done
	readers       int
	producers     int   // clients that write inputs and are not done
	processed     bool  // every input has its output
	processing    bool  // somebody sees to that
	consumed      bool  // every value of "plain" was read by the group of consumers
	alteredUs     int64 // when the settings of a topic that is written to were changed last; 0 is never
	volatileLives int   // of the topic that is deleted, still to come
	healed        bool  // no more faults
	ended         bool
}

// mode is drawn once per run.
type mode struct {
	write      bool   // DurabilityWrite; replies leave before the sync
	lossy      bool   // with it, power is lost as well: then only the broker's own state is checked
	calm       bool   // no faults
	smallTail  bool   // the journal is moved as early as possible
	codec      string // compression.type of "plain"
	appendTime bool   // of "out"
	faults     []int  // kinds of faults, each as often as its weight
}

const (
	faultsForUs   = 20_000_000
	healedForUs   = 240_000_000 // after the last fault everything must end within this
	maxEvents     = 300_000
	startWallMs   = 1_700_000_000_000
	msInUs        = 1000
	secondInUs    = 1000 * msInUs
	transactionMs = 5000
)

// Clients that every run needs.
const (
	setupClient = "setup"
	judgeClient = "judge"
)

// Run runs one seed.
func Run(o Options) Result {
	if o.Blobs {
		return runBlobs(o)
	}
	w := newWorld(o)
	w.seen, w.history = make(map[uint32]shown), newHistory()
	w.volatile = make(map[uint32]bool)
	w.hashes = map[uint64]uint64{0: machine.New(machineConfig).Hash()}
	if o.Job {
		return w.play(w.beginJob)
	}
	return w.play(w.begin)
}

// newWorld returns a world in which nothing happens yet.
func newWorld(o Options) *World {
	w := &World{named: make(map[string]int), opts: o, hash: fnv.New64a(), wallMs: startWallMs, disk: vfs.NewMem()}
	w.base = w.stream("world")
	w.Rand = w.base
	return w
}

// play runs the events, from those that begin plans to the end.
func (w *World) play(begin func()) (r Result) {
	defer func() {
		if p := recover(); p != nil {
			switch v := p.(type) {
			case violation:
				r.Err = v.error
			case *crashedCoroutine:
				r.Err = fmt.Errorf("panic: %v\n%s", v.value, v.stack)
			default:
				r.Err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
			w.tracef("FAILED %v", r.Err)
		}
		w.quit()
		r.Hash, r.Events, r.Stats = w.hash.Sum64(), int(w.pushed), w.stats
		r.Clients, r.Faults = w.clients, w.faults
		r.Stats.VirtualMs = w.nowUs / msInUs
	}()
	begin()
	for len(w.heap) > 0 && !w.ended {
		e := heap.Pop(&w.heap).(event)
		w.nowUs = max(w.nowUs, e.atUs)
		w.Rand = w.base
		e.do()
		if w.pushed > maxEvents {
			w.fail("ends: no end after %d events: %s", w.pushed, w.waiting())
		}
	}
	return r
}

func (w *World) begin() {
	w.mode.write = w.IntN(4) == 0
	w.mode.lossy = w.mode.write && w.IntN(2) == 0
	w.mode.calm = w.IntN(16) == 0
	w.mode.smallTail = w.IntN(2) == 0
	w.mode.codec = []string{"producer", "producer", "producer", "uncompressed", "snappy", "lz4", "zstd", "gzip"}[w.IntN(8)]
	w.mode.appendTime = w.IntN(2) == 0
	w.planFaults(faultKinds)
	w.tracef("mode: %s", w.mode)
	w.boot()
	w.startClients()
	w.startClient(judgeClient, false, (*client).runJudge)
}

// quit ends all coroutines.
func (w *World) quit() {
	if p := w.process; p != nil {
		p.dead = true
		w.disk.ProcessCrash()
	}
	for _, c := range w.coroutines {
		c.end()
	}
}

// stream returns a source of random numbers of its own. What one source gives does not depend on how much others have
// drawn, so that a client or a fault can be left out without changing what else is drawn.
func (w *World) stream(name string) *rand.Rand {
	w.named[name]++
	h := fnv.New64a()
	fmt.Fprintf(h, "%s#%d", name, w.named[name])
	return rand.New(rand.NewPCG(w.opts.Seed, h.Sum64()))
}

// after plans do.
func (w *World) after(us int64, do func()) {
	w.pushed++
	heap.Push(&w.heap, event{w.nowUs + us, w.pushed, do})
}

// tracef notes what happens; the notes make up the run's hash.
func (w *World) tracef(format string, args ...any) {
	line := fmt.Appendf(nil, "%10.3f ", float64(w.nowUs)/msInUs)
	line = fmt.Appendf(line, format, args...)
	line = append(line, '\n')
	w.hash.Write(line)
	if w.opts.Trace != nil {
		w.opts.Trace.Write(line)
	}
}

// fail ends the run. The text begins with the name of the check, and a colon.
func (w *World) fail(format string, args ...any) {
	panic(violation{fmt.Errorf(format, args...)})
}

// failInside is fail for the checks that look into the broker.
func (w *World) failInside(format string, args ...any) {
	if !w.opts.ReadersOnly {
		w.fail(format, args...)
	}
}

// Check is the name of the check that a run's error comes from.
func Check(err error) string {
	name, _, _ := strings.Cut(err.Error(), ":")
	return name
}

// wall is the wall clock.
func (w *World) wall() int64 { return w.wallMs + w.nowUs/msInUs }

// chance is true in n of 100.
func (w *World) chance(n int) bool { return w.IntN(100) < n }

// waiting names the clients that have not ended.
func (w *World) waiting() string {
	names := ""
	for _, c := range w.coroutines {
		if !c.done && c.client {
			names += " " + c.name
		}
	}
	return names
}

// Add sums up.
func (s *Stats) Add(o Stats) {
	s.Crashes += o.Crashes
	s.PowerLosses += o.PowerLosses
	s.Recoveries += o.Recoveries
	s.Snapshots += o.Snapshots
	s.Shelvings += o.Shelvings
	s.Commits += o.Commits
	s.Aborts += o.Aborts
	s.Fenced += o.Fenced
	s.Read += o.Read
	s.Moved += o.Moved
	s.Killed += o.Killed
	s.Stalled += o.Stalled
	s.Late += o.Late
	s.VirtualMs += o.VirtualMs
	s.Blobs.Add(o.Blobs)
}
