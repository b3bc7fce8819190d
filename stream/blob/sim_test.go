package blob_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/blob"
	"github.com/strandline-io/strandline/stream/blob/blobtest"
)

var (
	simSeed  = flag.Uint64("seed", 0, "run this seed of the simulation only")
	simSeeds = flag.Uint64("seeds", 200, "how many seeds of the simulation to run")
)

// TestSim lets owners of one task write, prepare, commit, crash between any two calls, and wake up as zombies, over a
// service that loses requests and replies and carries some out later. Each committed row must be visible exactly once
// in the end, and no other row ever. A failing seed: go test ./stream/blob -run TestSim -seed=N -v
func TestSim(t *testing.T) {
	if *simSeed != 0 {
		simulate(t, *simSeed)
		return
	}
	for seed := uint64(1); seed <= *simSeeds; seed++ {
		if !t.Run("", func(t *testing.T) { simulate(t, seed) }) {
			t.Fatalf("reproduce: go test ./stream/blob -run TestSim -seed=%d -v", seed)
		}
	}
}

const simRows = 120

// sim is the world: the service, what Kafka knows of the task, and its owners.
type sim struct {
	*testing.T
	rng       *rand.Rand
	fake      *blobtest.Fake
	config    blob.Option
	committed int64  // rows of committed transactions
	token     []byte // of the newest committed transaction
	nowMs     int64
	owner     *owner
	zombies   []*owner
	owners    int
	finishes  bool // owners end their blobs now and then
}

// owner is one process's hold on the task.
type owner struct {
	name    string
	w       stream.SinkWriter
	next    int64 // the next row to write
	token   []byte
	pending [][]byte // tokens of committed transactions whose Commit is not confirmed
}

func simulate(t *testing.T, seed uint64) {
	s := &sim{T: t, rng: rand.New(rand.NewPCG(seed, 7)), fake: blobtest.NewFake(), nowMs: 1, finishes: true}
	maxRows, blockBytes, age := s.rng.Int64N(30), 1+s.rng.IntN(200), time.Duration(1+s.rng.IntN(100))*time.Millisecond
	codec := []blob.Codec{blob.Null, blob.Snappy}[s.rng.IntN(2)]
	s.config = func(c *blob.Config) {
		c.MaxRows, c.BlockBytes, c.AvroBlockBytes, c.Codec = maxRows, blockBytes, 1+blockBytes/3, codec
		c.MaxAge, c.Tries, c.MaxOpen = age, 3, 2
	}
	s.fake.SetFaults(s.fault)
	s.start()
	for step := 0; s.committed < simRows && step < 3000; step++ {
		s.step()
		if step%64 == 0 {
			s.invariants()
		}
	}
	s.heal()
	s.invariants()
	wantRows(t, s.fake.Client("reader"), s.committed)
}

// fault gives about one call in ten a fault.
func (s *sim) fault(c blobtest.Call) blobtest.Fault {
	if c.Client == "reader" || s.rng.IntN(10) > 0 {
		return blobtest.None
	}
	return []blobtest.Fault{blobtest.Busy, blobtest.LoseRequest, blobtest.LoseReply, blobtest.Late}[s.rng.IntN(4)]
}

func (s *sim) logf(format string, args ...any) {
	if testing.Verbose() && *simSeed != 0 {
		s.Logf(format, args...)
	}
}

// start makes a new owner, which replaces the one before.
func (s *sim) start() {
	s.owners++
	name := fmt.Sprintf("owner-%d", s.owners)
	sink := blob.New("out", s.fake.Client(name), blob.WithType[row](), inline(s.rng.Uint64()), s.config)
	w := openWriter(s, sink, 0)
	s.owner = &owner{name: name, w: w, next: s.committed}
	s.logf("%s starts at row %d", name, s.committed)
	for {
		err := w.Restore(context.Background(), s.token)
		if err == nil {
			return
		}
		s.wantTemporary("Restore", err)
	}
}

// wantTemporary fails on an error that a faulty but healing store must not cause.
func (s *sim) wantTemporary(what string, err error) {
	s.Helper()
	var fenced *blob.FencedError
	var gone *blob.GoneError
	var taken *blob.NameTakenError
	if errors.As(err, &fenced) || errors.As(err, &gone) || errors.As(err, &taken) || !errors.Is(err, blob.ErrTemporary) {
		s.Fatalf("%s: %v", what, err)
	}
}

func (s *sim) step() {
	s.nowMs += s.rng.Int64N(20)
	switch n := s.rng.IntN(100); {
	case n < 50:
		s.act(s.owner, false)
	case n < 60 && len(s.zombies) > 0:
		s.act(s.zombies[s.rng.IntN(len(s.zombies))], true)
	case n < 70 && s.fake.Late() > 0:
		s.fake.Land(s.rng.IntN(s.fake.Late()))
	case n < 74: // crash
		s.logf("%s crashes", s.owner.name)
		s.fake.Kill(s.owner.name)
		s.owner.w.Close()
		s.start()
	case n < 78: // paused, thought dead, and back later
		s.logf("%s is replaced", s.owner.name)
		s.zombies = append(s.zombies, s.owner)
		s.start()
	}
}

// act lets an owner make its next call.
func (s *sim) act(o *owner, zombie bool) {
	ctx := context.Background()
	if s.finishes && s.rng.IntN(20) == 0 {
		o.w.Finish()
	}
	switch wants := o.w.WantsCommit(s.nowMs); {
	case len(o.pending) > 0 && s.rng.IntN(3) > 0:
		err := o.w.Commit(ctx, o.pending[0])
		s.logf("%s commits: %v", o.name, err)
		if err == nil {
			o.pending = o.pending[1:]
		} else {
			s.wantTemporary("Commit", err)
		}
	case o.token == nil && !wants && o.next < simRows && s.rng.IntN(4) > 0:
		for range min(1+s.rng.Int64N(5), simRows-o.next) {
			if err := o.w.Write(ctx, record(o.next)); err != nil {
				s.wantTemporary("Write", err)
				s.abort(o, zombie)
				return
			}
			o.next++
		}
		s.logf("%s wrote up to row %d", o.name, o.next)
	case o.token == nil:
		token, err := o.w.Prepare(ctx, 1)
		s.logf("%s prepared: %v", o.name, err)
		if err != nil && zombie { // its successor may have published the name
			s.abort(o, zombie)
			return
		}
		if err != nil {
			s.wantTemporary("Prepare", err)
			s.abort(o, zombie)
			return
		}
		if o.token = token; token == nil {
			o.token = []byte{}
		}
	default:
		s.transaction(o, zombie)
	}
}

// transaction is step 3 and 4: Kafka refuses a zombie's, and sometimes the owner does not learn the outcome.
func (s *sim) transaction(o *owner, zombie bool) {
	outcome := s.rng.IntN(10)
	s.logf("%s ends a transaction up to row %d: zombie %v, outcome %d", o.name, o.next, zombie, outcome)
	if zombie || outcome == 0 {
		s.abort(o, zombie)
		return
	}
	s.committed, s.token = o.next, o.token
	if outcome == 1 { // unknown to the owner: it starts afresh
		s.abort(o, zombie)
		return
	}
	if len(o.token) > 0 {
		o.pending = append(o.pending, o.token)
	}
	o.token = nil
}

// abort drops an owner's writer; the owner itself starts again from what is committed, a zombie ends.
func (s *sim) abort(o *owner, zombie bool) {
	s.logf("%s drops its memory", o.name)
	if o.w.Close(); zombie {
		s.zombies = slices.DeleteFunc(s.zombies, func(z *owner) bool { return z == o })
		return
	}
	s.start()
}

// heal ends all faults, lets the owner finish, and lands what is late.
func (s *sim) heal() {
	s.fake.SetFaults(nil)
	s.owner.w.Close()
	s.start()
	w := s.owner.w
	for ; s.committed < simRows; s.committed++ {
		if err := w.Write(context.Background(), record(s.committed)); err != nil {
			s.Fatal(err)
		}
	}
	finish(s, w)
	for s.fake.Late() > 0 {
		s.fake.Land(s.rng.IntN(s.fake.Late()))
	}
	for _, z := range s.zombies {
		for _, token := range z.pending {
			if err := z.w.Commit(context.Background(), token); err != nil {
				s.Fatal(err)
			}
		}
	}
}

// invariants: no row is visible twice, none that is not committed.
func (s *sim) invariants() {
	byName, err := visible(context.Background(), s.fake.Client("reader"))
	if err != nil {
		s.Fatal(err)
	}
	in := map[int64]string{}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		for _, n := range byName[name] {
			if other, ok := in[n]; ok {
				s.Fatalf("row %d is in %s and in %s", n, other, name)
			}
			if in[n] = name; n >= s.committed {
				s.Fatalf("row %d is visible in %s, only %d rows are committed", n, name, s.committed)
			}
		}
	}
}

// TestSimNames: cut by rows, the blobs of any run over any faults are the same.
func TestSimNames(t *testing.T) {
	names := func(seed uint64) string {
		s := &sim{T: t, rng: rand.New(rand.NewPCG(seed, 7)), fake: blobtest.NewFake(), nowMs: 1}
		s.config = func(c *blob.Config) { c.MaxRows, c.BlockBytes, c.Tries = 7, 1+int(seed%100), 3 }
		if seed > 0 {
			s.fake.SetFaults(s.fault)
		}
		s.start()
		for step := 0; s.committed < simRows && step < 3000; step++ {
			if seed > 0 && s.rng.IntN(20) == 0 {
				s.fake.Kill(s.owner.name)
				s.start()
			}
			s.act(s.owner, false)
		}
		s.heal()
		byName, err := visible(context.Background(), s.fake.Client("reader"))
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, name := range slices.Sorted(maps.Keys(byName)) {
			all = append(all, fmt.Sprintf("%s %v", name, byName[name]))
		}
		return strings.Join(all, "\n")
	}
	want := names(0)
	if n := strings.Count(want, "\n") + 1; n != (simRows+6)/7 {
		t.Fatalf("%d blobs:\n%s", n, want)
	}
	for seed := range uint64(100) {
		if got := names(seed + 1); got != want {
			t.Fatalf("seed %d:\n%s\nwant\n%s", seed+1, got, want)
		}
	}
}
