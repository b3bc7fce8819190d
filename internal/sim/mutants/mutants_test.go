//go:build mutants

package mutants

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/strandline-io/strandline/internal/mutant"
	"github.com/strandline-io/strandline/internal/sim/cores"
	"github.com/strandline-io/strandline/internal/sim/world"
)

// defect is one rule that is removed.
type defect struct {
	name string // as mutant.On knows it
	// where runs one seed of a simulation and returns what its checks say.
	where func(seed uint64) error
	// sees begins what the check that finds it says; other errors do not count. Without it, that of every check counts.
	sees string
	// within so many seeds, from 1 on, it must be seen: at least three times what was needed when it was written down.
	within uint64
}

// defects is the one list. Keep it by place, and there in the order of the code.
var defects = []defect{
	{"reply before sync", inWorld, "V1", 60},
	{"published before durable", byReaders, "damage", 60},
	{"stable offset over an unsynced marker", byReaders, "nothing aborted", 600},
	{"reply overtakes the durable position", inWorld, "V1", 60},
	{"duplicate acknowledged before its original", inWorld, "V1", 200},
	{"producer ids not synced", inWorld, "producer id", 330},
	{"epochs of a forgetful run trusted", inWorld, "fenced", 100},
	{"moved lengths not synced", inWorld, "damage", 240},
	{"published view read in parts", byReaders, "nothing aborted", 200},
	{"first view of a group kept", byReaders, "acknowledged", 60},
	{"no epoch bump", inWorld, "producer id", 60},
	{"stale epoch may end", byReaders, "fenced", 100},
	{"timeouts stand still after a restart", byReaders, "timeouts", 60},
	{"no duplicate check", byReaders, "", 60},
	{"stable offset passes open transactions", byReaders, "nothing aborted", 60},
	{"aborted list one short", byReaders, "nothing aborted", 60},
	{"fetch session leaves out records", byReaders, "fetch session", 60},
	{"fetch session keeps a position", byReaders, "nothing skipped", 60},
	{"replay forgets the wall clock", inWorld, "V8", 60},
	{"sequences forgotten at restart", inWorld, "V8", 60},
	{"open transaction forgotten at restart", inWorld, "V8", 60},
	{"pending offsets visible before the commit", byReaders, "exactly once", 60},
	{"offsets of aborted transactions kept", byReaders, "exactly once", 60},
	{"replay skips the last unit", inWorld, "V8", 60},
	{"torn tail accepted", inWorld, "damage", 600},
	{"stale unit replayed", inWorld, "damage", 600},
	{"stale footer believed", inWorld, "damage", 600},
	{"snapshot one unit early", inWorld, "damage", 60},
	{"snapshot one unit late", inWorld, "damage", 60},
	{"rewrite at recovery not atomic", inWorld, "damage", 200},
	{"recovery answers before its rewrite is durable", inWorld, "damage", 60},

	{"stale epoch may produce", inCores, "model", 1500},
	{"duplicate found in another epoch", inCores, "model", 300},
	{"gap in the sequence accepted", inCores, "model", 300},
	{"plain batch inside a transaction", inCores, "model", 2000},
	{"refused batch overtaken", inCores, "model", 500},
	{"transaction of version 2 begins anywhere", inCores, "model", 500},
	{"new epoch need not begin at 0", inCores, "model", 800},
	{"sequences do not wrap", inCores, "model", 300},
	{"marker of an older coordinator accepted", inCores, "model", 600},
	{"marker of a coordinator to come accepted", inCores, "model", 600},
	{"marker of a lower epoch accepted", inCores, "model", 600},
	{"transaction begins at its last batch", inCores, "view", 100},
	{"abort passes open transactions", inCores, "view", 200},
	{"marker does not fence", inCores, "model", 1000},
	{"sequences outlive their epoch", inCores, "model", 100},
	{"four batches remembered", inCores, "model", 500},
	{"fenced batch asks the coordinator", inCores, "model", 1000},
	{"producers expire at half their time", inCores, "time", 300},
	{"producer ids of a begun block given again", inCores, "model", 100},
	{"batch outside of its transaction accepted", inCores, "model", 100},
	{"last partition gets no marker", inCores, "model", 100},

	{"one bump over an open transaction", inCores, "model", 100},
	{"retry of InitProducerId bumps again", inCores, "model", 200},
	{"lost answer over an open transaction not given again", inCores, "model", 3000},
	{"any producer may take over by name", inCores, "model", 300},
	{"late InitProducerId aborts", inCores, "model", 4000},
	{"another producer id may add", inCores, "model", 100},
	{"fenced id may add partitions", inCores, "model", 100},
	{"verification finds every partition", inCores, "model", 100},
	{"verification finds every group", inCores, "model", 300},
	{"fenced producer takes part in its successor's end", inCores, "model", 6000},
	{"retry over a new producer id refused", inCores, "model", 2000},
	{"EndTxn says yes to the other end", inCores, "model", 100},
	{"retry of EndTxn ends the next transaction", inCores, "model", 100},
	{"markers without the bump", inCores, "model", 100},
	{"exhausted epoch goes on", inCores, "model", 300},
	{"timed-out transaction not aborted", inCores, "time", 100},
	{"timeout does not fence", inCores, "model", 100},
	{"ids never expire", inCores, "time", 200},
	{"every partition restarts the timeout", inCores, "time", 300},
	{"timeout of the first producer kept", inCores, "time", 100},

	{"commit of an old generation accepted", inCores, "group", 600},
	{"transactional offsets of anybody accepted", inCores, "group", 400},
	{"commit before the assignment accepted", inCores, "group", 300},
	{"replaced member not fenced", inCores, "group", 1000},
	{"generation not raised", inCores, "group", 100},
	{"everybody gets the leader's assignment", inCores, "group", 100},
	{"stable fetch does not wait", inCores, "model", 1500},
	{"older transaction's offset wins", inCores, "model", 2000},
	{"group with members deleted", inCores, "group", 2000},
	{"pending offsets outlive their deletion", inCores, "model", 6000},
	{"offsets outlive their topic", inCores, "model", 2000},
	{"partitions given on before they are revoked", byReaders, "two owners", 60},
	{"instance taken before it was released", byReaders, "", 60},
	{"commit of a stale member epoch accepted", byReaders, "fenced", 60},

	{"deleted records can be read", byReaders, "log start", 60},
	{"an operator's abort commits", byReaders, "nothing aborted", 60},
	{"feature levels forgotten at restart", byReaders, "feature level", 60},

	{"another's prefix taken", inBlobs, "taken", 100},
	{"the claim of a dead start not durable", inBlobs, "error", 300},
	{"restore does not publish", inBlobs, "lost", 100},
	{"restored blocks not looked for", inBlobs, "gone", 500},
	{"a later owner's blob taken as another's", inBlobs, "fenced", 150},
	{"a continuation writes a header", inBlobs, "avro", 100},
	{"token size not checked", inBlobs, "token", 200},
	{"a crowded name is used", inBlobs, "error", 150},
	{"Prepare does not stage the rest", inBlobs, "lost", 100},
	{"new names not looked at", inBlobs, "name", 100},
	{"Prepare does not wait for uploads", inBlobs, "gone", 100},
	{"blobs published before EndTxn", inBlobs, "early", 100},
	{"a lost reply taken as published", inBlobs, "lost", 100},
	{"Finish leaves blobs open", inBlobs, "ends", 100},
	{"a continuation has a sync marker of its own", inBlobs, "avro", 100},
	{"block nonce reused", inBlobs, "avro", 100},
	{"schemas share a blob", inBlobs, "content", 100},
	{"one block too many", inBlobs, "blocks", 100},
	{"blobs never too old", inBlobs, "age", 100},
	{"token dropped early", inBlobs, "lost", 900},
	{"a failed upload forgotten", inBlobs, "gone", 200},
	{"a refusal taken as published", inBlobs, "lost", 150},
	{"expired blocks taken as published", inBlobs, "lost", 750},
	{"another's blob taken as ours", inBlobs, "lost", 150},
	{"staged names not synced", inBlobs, "gone", 100},
	{"parts not synced", inBlobs, "altered", 100},
	{"a commit replaces", inBlobs, "replaced", 100},
	{"published name not synced", inBlobs, "lost", 100},
	{"blocks dropped before the name is durable", inBlobs, "gone", 150},
	{"what a look finds not synced", inBlobs, "error", 300},
	{"trailing marker not counted in a position", inJob, "ends", 60},
	{"offsets committed outside the transaction", inJob, "job stops", 60},
	{"new run id at restart", inJob, "job stops", 60},
	{"restore not waiting for the end of checkpoint and changelog", inJob, "job stops", 60},
	{"local store reused beyond its stamp", inJob, "exactly once", 150},
	{"commit before the acknowledgements", inJob, "job stops", 60},
	{"commit after a revoke with the new generation", inJob, "exactly once", 700},
	{"offsets skipped when unmoved", inJob, "unfenced", 60},
	{"bookkeeping not restored", inJob, "book", 60},
	{"duplicates not latched", inJob, "exactly once", 130},
	{"watermark from an ended task kept", inJob, "book", 100},
	{"watermark without the minimum", inJob, "early result", 60},
	{"end of stream before the last record", inJob, "exactly once", 60},
	{"idle declared below the high watermark", inJob, "idle", 60},
	{"row sequence not restored", inBlobJob, "rows", 60},
	{"sink token dropped early", inBlobJob, "sink", 100},
	{"checkpoint before sink.Prepare", inBlobJob, "sink", 60},
	{"sinks committed before EndTxn", inBlobJob, "early", 60},
	{"zombie's token committed", inBlobJob, "job stops", 60},
}

// inWorld is the broker's world with all checks, byReaders the same with those alone that a client could make.
func inWorld(seed uint64) error { return world.Run(world.Options{Seed: seed}).Err }

func byReaders(seed uint64) error { return world.Run(world.Options{Seed: seed, ReadersOnly: true}).Err }

// inBlobs is the world of blob sinks.
func inBlobs(seed uint64) error { return world.Run(world.Options{Seed: seed, Blobs: true}).Err }

// inJob is a stream job over the broker.
func inJob(seed uint64) error { return world.Run(world.Options{Seed: seed, Job: true}).Err }

// inBlobJob is a stream job with the real blob sink.
func inBlobJob(seed uint64) error {
	return world.Run(world.Options{Seed: seed, Job: true, JobBlobs: true}).Err
}

// inCores is the machine alone, under clients and crashes, against a model of the protocol.
func inCores(seed uint64) error { return cores.Run(cores.Options{Seed: seed}).Err }

// TestEveryDefectIsSeen: each must be seen within so many seeds, by the check that is named.
func TestEveryDefectIsSeen(t *testing.T) {
	names := make(map[string]bool)
	for _, d := range defects {
		if names[d.name] {
			t.Errorf("%q is listed twice", d.name)
		}
		names[d.name] = true
		t.Run(d.name, func(t *testing.T) { d.mustBeSeen(t) })
	}
}

func (d *defect) mustBeSeen(t *testing.T) {
	mutant.Set(d.name)
	defer mutant.Set("")
	s := search{d: d, next: 1}
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(s.run)
	}
	all.Wait()
	if s.first == 0 {
		t.Fatalf("%d seeds see nothing by %q; what else they see: %q", d.within, d.sees, s.others)
	}
	t.Logf("seed %d: %s", s.first, s.seen)
}

// search runs seeds until one sees the defect.
type search struct {
	d *defect

	mu     sync.Mutex
	next   uint64
	first  uint64
	seen   string
	others string
}

func (s *search) run() {
	for {
		s.mu.Lock()
		seed := s.next
		s.next++
		over := seed > s.d.within || s.first != 0
		s.mu.Unlock()
		if over {
			return
		}
		if err := s.d.try(seed); err != nil {
			s.note(seed, err)
		}
	}
}

func (s *search) note(seed uint64, err error) {
	line, _, _ := strings.Cut(err.Error(), "\n")
	s.mu.Lock()
	defer s.mu.Unlock()
	if !strings.HasPrefix(line, s.d.sees) || strings.HasPrefix(line, panicked) {
		s.others = fmt.Sprintf("seed %d: %s", seed, line)
	} else if s.first == 0 || seed < s.first {
		s.first, s.seen = seed, line
	}
}

// panicked begins what is no check's finding.
const panicked = "panic: "

// try is where, with panics as errors: a defect may break the code around it as well.
func (d *defect) try(seed uint64) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf(panicked+"%v", p)
		}
	}()
	return d.where(seed)
}
