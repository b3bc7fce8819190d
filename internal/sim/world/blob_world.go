package world

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/blob"
)

// BlobStats says what a run of blob sinks has crossed.
type BlobStats struct {
	Kills, PowerLosses, Takeovers, Freezes, Days, Stops int
	Commits, Aborts, Restores, Published, Rows          int
}

// Add sums up.
func (s *BlobStats) Add(o BlobStats) {
	s.Kills += o.Kills
	s.PowerLosses += o.PowerLosses
	s.Takeovers += o.Takeovers
	s.Freezes += o.Freezes
	s.Days += o.Days
	s.Stops += o.Stops
	s.Commits += o.Commits
	s.Aborts += o.Aborts
	s.Restores += o.Restores
	s.Published += o.Published
	s.Rows += o.Rows
}

// runBlobs runs one seed of a world of blob sinks alone: the real sink over a service with Azure's rules, or over a
// folder, with owners of tasks that crash at any call, stand still, are replaced and go on as zombies. The transaction
// log is a model that keeps the newest committed token of each task.
func runBlobs(o Options) Result {
	b := &blobWorld{
		seen: map[string]*blobSeen{}, foreign: map[string]string{}, widths: map[string]bool{}, intruded: map[string]bool{},
	}
	b.blobPlace = newBlobPlace(newWorld(o), b)
	return b.play(b.begin)
}

// blobWorld is one run.
type blobWorld struct {
	*blobPlace
	m             blobMode
	jobs          []*blobJob
	processes     []*blobProcess
	seen          map[string]*blobSeen // published blobs
	foreign       map[string]string    // content of blobs that others have put, by name
	intruded      map[string]bool      // names that others have had at some time
	widths        map[string]bool      // names under which another program has staged blocks
	killIn        int                  // how many calls later a process dies within one
	killAtLink    bool                 // a process dies right after it has published, and the power is lost soon
	powerIn       int                  // likewise the machine
	logBadPercent int
}

// blobMode is drawn once per run.
type blobMode struct {
	folder    bool
	tasks     int
	schemas   int
	rows      int64 // of each task
	maxRows   int64
	byRows    bool // blobs end by rows alone, so that their cuts are a function of the data
	finishes  bool // owners end their blobs now and then
	codec     blob.Codec
	block     int
	avroBlock int
	maxBytes  int64
	maxBlocks int
	maxAge    time.Duration
	uploads   int
	tries     int
	token     int   // TokenBytes
	batch     int64 // less rows than that are written at a time
	longDown  bool
	trouble   string
}

// What others do to a job.
const (
	leftover = "leftover" // a name is taken from the start
	intruder = "intruder" // a name is taken after the transaction
	strange  = "strange"  // somebody has staged blocks with ids of another length
	rival    = "rival"    // another job wants the prefix
)

func (b *blobWorld) draw() {
	m := &b.m
	*m = blobMode{
		folder: b.chance(35), tasks: 1 + b.IntN(2), schemas: 1 + max(0, b.IntN(4)-1), rows: 10 + b.Int64N(60),
		maxRows: b.Int64N(15), finishes: b.chance(40), codec: blob.Null, block: 1 + b.IntN(200), maxBytes: 1 << 20,
		maxBlocks: 3 + b.IntN(20), maxAge: time.Duration(20+b.IntN(4000)) * time.Millisecond, uploads: 1 + b.IntN(4),
		tries: 1 + b.IntN(5), token: blob.DefaultTokenBytes,
	}
	m.avroBlock = 1 + m.block/3
	switch n := b.IntN(100); {
	case n < 15:
		m.codec = blob.Snappy
	case n < 17: // these two need much memory to begin with
		m.codec = []blob.Codec{blob.Deflate, blob.Zstandard}[b.IntN(2)]
	}
	if b.chance(20) {
		m.maxBytes = 100 + b.Int64N(1000)
	}
	if b.chance(15) {
		m.byRows, m.schemas, m.finishes, m.maxBytes, m.maxBlocks, m.maxAge = true, 1, false, 1<<20, 49_000, blob.MaxMaxAge
		m.maxRows = 1 + b.Int64N(15)
	}
	if m.batch = 6; b.chance(5) {
		m.token, m.maxRows, m.batch = 1<<10, 1+b.Int64N(2), 40
	}
	m.longDown = !m.folder && !m.byRows && b.chance(15)
	if b.chance(30) {
		m.trouble = []string{leftover, intruder, strange, rival}[b.IntN(4)]
	}
	b.calm = b.chance(5)
	if b.badPercent, b.logBadPercent = b.IntN(15), b.IntN(15); b.chance(15) {
		b.badPercent = 30 + b.IntN(15)
	}
	b.killAtLink = m.folder && b.chance(15)
	b.tracef("blob mode %+v, %d %% and %d %% bad, calm %t", *m, b.badPercent, b.logBadPercent, b.calm)
}

const blobFaultsForUs = 8 * secondInUs

func (b *blobWorld) begin() {
	b.draw()
	if !b.m.folder {
		b.service = newBlobService(b.blobPlace)
	}
	names := []string{"job"}
	if b.m.trouble == rival {
		names = append(names, "rival")
	}
	for _, name := range names {
		j := &blobJob{b: b, name: name}
		for n := range b.m.tasks {
			j.tasks = append(j.tasks, &blobTask{job: j, number: n})
		}
		b.jobs = append(b.jobs, j)
		b.after(b.Int64N(5*msInUs), j.start)
	}
	switch b.m.trouble {
	case leftover:
		b.intrude(b.nameOf(b.IntN(b.m.tasks), 0))
	case strange:
		b.stageStrange()
	}
	end := int64(blobFaultsForUs)
	if b.opts.FaultsMs > 0 {
		end = min(end, b.opts.FaultsMs*msInUs)
	}
	b.after(end, b.heal)
	if !b.calm {
		b.schedule(end, 20*msInUs, 900*msInUs, b.fault)
	}
}

// fault lets one thing go wrong.
func (b *blobWorld) fault() {
	j := b.jobs[b.IntN(len(b.jobs))]
	switch n := b.IntN(20); {
	case n < 7:
		if j.current != nil {
			b.stats.Blobs.Kills++
			j.current.kill(b.down())
		}
	case n < 8 && len(b.processes) > 0:
		b.processes[b.IntN(len(b.processes))].kill(b.down())
	case n < 12:
		if j.current != nil && j.stopped == nil {
			b.stats.Blobs.Takeovers++
			j.start()
		}
	case n < 15 && len(b.processes) > 0:
		p := b.processes[b.IntN(len(b.processes))]
		d := b.Int64N(3 * secondInUs)
		if b.chance(10) {
			d = b.Int64N(60 * secondInUs)
		}
		b.stats.Blobs.Freezes++
		b.tracef("%s stands still for %d ms", p.r.name, d/msInUs)
		p.r.freeze(d)
	case n < 16:
		jump := b.Int64N(20_000) - 10_000
		b.wallMs += jump
		b.tracef("the wall clock jumps by %d ms", jump)
	case n < 17:
		b.killIn = 1 + b.IntN(40)
	case b.m.folder && n < 18:
		b.killAtLink = true
	case b.m.folder && n < 19:
		b.losePower()
	case b.m.folder:
		b.failDisk()
	}
}

// inCall lets a process die within a call that it makes.
func (b *blobWorld) inCall(r *blobRuntime) {
	if b.healed {
		return
	}
	if b.powerIn > 0 {
		if b.powerIn--; b.powerIn == 0 {
			b.after(0, b.losePower)
			r.sleep(forever)
		}
	}
	if b.killIn > 0 {
		if b.killIn--; b.killIn == 0 {
			b.dieHere(r)
		}
	}
}

// linked may be the last that a process and its machine do.
func (b *blobWorld) linked(r *blobRuntime) {
	if b.killAtLink && !b.healed {
		b.killAtLink, b.powerIn = false, 1+b.IntN(40)
		b.dieHere(r)
	}
}

// dieHere ends a process within the call that it makes.
func (b *blobWorld) dieHere(r *blobRuntime) {
	b.stats.Blobs.Kills++
	r.process.exit(b.down())
	r.sleep(forever)
}

// down is how long a process that was killed is away.
func (b *blobWorld) down() int64 {
	if b.m.longDown && b.chance(20) {
		return b.daysDown()
	}
	return b.Int64N(secondInUs)
}

func (b *blobWorld) daysDown() int64 {
	b.stats.Blobs.Days++
	return 3*dayInUs + b.Int64N(8*dayInUs)
}

// heal ends all faults. From now on everything must come to its end.
func (b *blobWorld) heal() {
	for _, j := range b.jobs {
		if b.m.longDown && j.current != nil && b.chance(50) {
			j.current.kill(b.daysDown())
		}
	}
	b.healed, b.calm = true, true
	b.tracef("healed")
	if b.m.folder {
		b.losePower() // what was planned to fail is forgotten with the machine
	}
	b.after(secondInUs, b.settle)
	b.after(21*dayInUs, func() { b.fail("ends: not everything has ended: %s", b.waiting()) })
}

// settle judges the whole once nothing is on its way any more.
func (b *blobWorld) settle() {
	for _, j := range b.jobs {
		if !j.over() {
			return
		}
	}
	if len(b.processes) > 0 || b.service != nil && b.service.inFlight > 0 {
		b.after(10*secondInUs, b.settle)
		return
	}
	if !b.ended {
		b.checkEnd()
		b.tracef("all is as it should be")
		b.ended = true
	}
}

// blobJob is one job as its cluster knows it.
type blobJob struct {
	b       *blobWorld
	name    string
	tasks   []*blobTask
	current *blobProcess
	started int
	stopped error // it needs a person
	claimed bool  // the prefix was found to be its own
	final   bool  // what stopped it cannot be mended
}

// over reports whether nothing more is to be expected of the job.
func (j *blobJob) over() bool {
	return j.final || !slices.ContainsFunc(j.tasks, func(t *blobTask) bool { return !t.ended })
}

// start begins a process, which replaces the one before.
func (j *blobJob) start() {
	b := j.b
	if j.over() || j.stopped != nil {
		return
	}
	if old := j.current; old != nil {
		old.replaced = true
		b.tracef("%s is replaced", old.r.name)
	}
	j.started++
	p := &blobProcess{b: b, job: j, r: &blobRuntime{w: b.World, name: fmt.Sprintf("%s-%d", j.name, j.started)}}
	p.r.process = p
	p.sink = blob.New("out", b.storeOf(p.r), b.m.options(p.r, b.randomBytes))
	j.current = p
	b.processes = append(b.processes, p)
	b.tracef("%s starts", p.r.name)
	p.r.start("main", p.main)
}

// stop is what an error does that needs a person, who comes and mends it.
func (j *blobJob) stop(p *blobProcess, err error, name string, final bool) {
	b := j.b
	if j.stopped == nil {
		b.stats.Blobs.Stops++
		b.tracef("job %s stops: %v", j.name, err)
		j.stopped, j.final = err, final
		b.after(b.Int64N(10*secondInUs), func() {
			if _, ok := b.foreign[name]; ok {
				b.moveAway(name)
			}
			if !final {
				j.stopped = nil
				j.start()
			}
			b.settle()
		})
	}
	p.exit(0)
}

// blobProcess is one process of a job: it runs all its tasks until it is told that it has lost them.
type blobProcess struct {
	b        *blobWorld
	job      *blobJob
	r        *blobRuntime
	sink     *blob.Sink
	replaced bool
	running  int // tasks
}

func (m *blobMode) options(r *blobRuntime, random func([]byte)) blob.Option {
	return func(c *blob.Config) {
		c.MaxRows, c.MaxBytes, c.MaxBlocks, c.MaxAge, c.Codec = m.maxRows, m.maxBytes, m.maxBlocks, m.maxAge, m.codec
		c.BlockBytes, c.AvroBlockBytes, c.Uploads, c.TokenBytes = m.block, m.avroBlock, m.uploads, m.token
		c.MaxOpen, c.Tries, c.CallTimeout, c.PrepareTimeout = 2, m.tries, 2*time.Second, 20*time.Second
		c.Runtime, c.Random = r, random
	}
}

// main claims the prefix and starts the tasks.
func (p *blobProcess) main() {
	rows := int64(0)
	for _, t := range p.job.tasks {
		for !p.r.rpc(p.b, func() { rows += t.rows }) {
		}
	}
	id := stream.JobIdentity{Job: p.job.name, Run: "1"}
	ctx, err := context.Background(), error(nil)
	if rows > 0 {
		err = p.sink.CheckRun(ctx, id, rows)
	} else {
		err = p.sink.Check(ctx, id)
	}
	if err != nil {
		p.judgeStart(err)
		return
	}
	p.job.claimed = true
	p.running = len(p.job.tasks)
	for _, t := range p.job.tasks {
		o := &blobOwner{b: p.b, p: p, t: t}
		p.r.start(fmt.Sprintf("task %d", t.number), o.run)
	}
}

// exit ends the process from within; it comes back after a while, unless somebody has replaced it.
func (p *blobProcess) exit(us int64) { p.b.after(0, func() { p.kill(us) }) }

// kill ends the process within whatever it does.
func (p *blobProcess) kill(us int64) {
	if p.r.dead {
		return
	}
	p.b.tracef("%s dies, next start in %d ms", p.r.name, us/msInUs)
	p.r.kill()
	p.b.processes = slices.DeleteFunc(p.b.processes, func(other *blobProcess) bool { return other == p })
	j := p.job
	if j.current != p {
		return
	}
	j.current = nil
	p.b.after(us, func() {
		if j.current == nil {
			j.start()
		}
	})
}

// taskOver is called by a task that this process has nothing more to do for.
func (p *blobProcess) taskOver() {
	if p.running--; p.running == 0 {
		p.exit(p.b.Int64N(secondInUs))
		p.b.after(secondInUs, p.b.settle)
	}
}
