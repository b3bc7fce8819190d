package txn

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/strandline-io/strandline/internal/scripttest"
)

func TestScripts(t *testing.T) {
	scripttest.Lines(t, 47, func(t *testing.T) func(string) string {
		w := &world{t: t, nextID: 7}
		w.c = New(w.cfg)
		return w.run
	})
}

// world decides and applies at once, as the machine does.
type world struct {
	t      *testing.T
	cfg    Config
	c      *Coordinator
	nextID int64
	now    int64
}

func (w *world) newID() int64 {
	w.nextID++
	return w.nextID - 1
}

// args are a command's words.
type args struct{ scripttest.Command }

func (a *args) id() string {
	if id, ok := a.Values["id"]; ok {
		return id
	}
	return "pay"
}

func (a *args) producer() Producer {
	return Producer{ID: a.id(), ProducerID: a.Num("pid", 7), Epoch: int16(a.Num("epoch", 0))}
}

func (a *args) add() AddRequest {
	r := AddRequest{Producer: a.producer()}
	for _, word := range a.Bare {
		if n, err := strconv.ParseUint(word, 10, 32); err == nil {
			r.Partitions = append(r.Partitions, uint32(n))
		} else {
			r.Groups = append(r.Groups, word)
		}
	}
	return r
}

func (w *world) run(command string) string {
	a := &args{scripttest.Parse(command)}
	switch a.Verb {
	case "config":
		w.cfg = Config{MaxIDs: int(a.Num("ids", 0)), MaxGroupsPerTxn: int(a.Num("groups", 0)), MaxTimeoutMs: int32(a.Num("timeout", 0)),
			MaxIDBytes: a.Num("id-bytes", 0), MaxOpenBytes: a.Num("open-bytes", 0)}
		w.c = New(w.cfg)
		return "fresh"
	case "init":
		return w.init(a)
	case "add":
		return w.add(a)
	case "verify":
		if r := w.c.Verify(a.add()); r != nil {
			return refused(r)
		}
		return "in"
	case "end":
		return w.end(a)
	case "wait":
		w.now += a.Num("ms", 0)
		return w.tick()
	case "epoch": // as if many transactions had passed
		t := w.c.byID[a.id()]
		t.Epoch = int16(a.Num("to", 0))
		return w.show(a)
	case "doubt": // as if a power cut had taken back what a run answered
		w.c.Doubt(a.Num("below", 0))
		return w.show(a)
	case "show":
		return w.show(a)
	case "restore":
		w.restore()
		return w.show(a)
	}
	panic("unknown command " + command)
}

func refused(r *Refusal) string {
	return fmt.Sprintf("%s got=%d current=%d", r.Code.Message, r.Got, r.Current)
}

func (w *world) must(_ uint64, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) init(a *args) string {
	plan, refusal := w.c.Init(InitRequest{
		Producer:  Producer{ID: a.id(), ProducerID: a.Num("pid", None), Epoch: int16(a.Num("epoch", None))},
		TimeoutMs: int32(a.Num("timeout", 60000)),
	}, w.newID)
	if refusal != nil {
		return refused(refusal)
	}
	s := ""
	for _, e := range plan.Forget {
		w.must(0, w.c.ApplyExpire(e))
		s += "forgets " + e.ID + "; "
	}
	if plan.Abort != nil {
		s += w.apply(plan.Abort) + "; "
	}
	w.must(w.c.ApplyInit(plan.Init, w.now))
	return s + fmt.Sprintf("pid=%d epoch=%d", plan.Init.ProducerID, plan.Init.Epoch)
}

func (w *world) add(a *args) string {
	add, refusal := w.c.Add(a.add())
	switch {
	case refusal != nil:
		return refused(refusal)
	case add == nil:
		return "in already"
	}
	w.must(w.c.ApplyAdd(*add, w.now))
	return fmt.Sprintf("adds %d %q", add.Partitions, add.Groups)
}

func (w *world) end(a *args) string {
	plan, refusal := w.c.End(EndRequest{Producer: a.producer(), Commit: a.Has("commit"), BumpsEpoch: a.Has("v2")}, w.newID)
	if refusal != nil {
		return refused(refusal)
	}
	s := "done before"
	if plan.Ending != nil {
		s = w.apply(plan.Ending)
	}
	return s + fmt.Sprintf("; next pid=%d epoch=%d", plan.ProducerID, plan.Epoch)
}

// apply shows what the markers of an ending say, and applies its record.
func (w *world) apply(e *Ending) string {
	kind := "abort"
	if e.Record.Commit {
		kind = "commit"
	}
	s := fmt.Sprintf("%s %d@%d in %d", kind, e.ProducerID, e.Epoch, e.Partitions)
	w.must(w.c.ApplyEnd(e.Record, w.now))
	return s
}

func (w *world) tick() string {
	s := fmt.Sprint("at ", w.now)
	for {
		ending, due := w.c.TimedOut(w.now, w.newID)
		if !due {
			break
		}
		s += fmt.Sprintf("; %s: %s", ending.Record.ID, w.apply(&ending))
	}
	for {
		e, _, due := w.c.Expired(w.now)
		if !due {
			return s
		}
		w.must(0, w.c.ApplyExpire(e))
		s += "; forgets " + e.ID
	}
}

func (w *world) show(a *args) string {
	e, ok := w.c.Get(a.id())
	if !ok {
		return "unknown"
	}
	return fmt.Sprintf("%v pid=%d epoch=%d prev=%d last=%d timeout=%d start=%d %d %q",
		e.State, e.ProducerID, e.Epoch, e.PrevProducerID, e.LastEpoch, e.TimeoutMs, e.StartMs, e.Partitions, e.Groups)
}

func (w *world) restore() {
	c := New(w.cfg)
	c.Doubt(w.c.Doubted())
	for e := range w.c.Idle() {
		w.must(0, c.Restore(e, w.now))
	}
	for e := range w.c.Open() {
		w.must(0, c.Restore(e, w.now))
	}
	if c.idBytes != w.c.idBytes || c.openBytes != w.c.openBytes {
		w.t.Errorf("restored: %d and %d bytes, were %d and %d", c.idBytes, c.openBytes, w.c.idBytes, w.c.openBytes)
	}
	w.c = c
}

// TestStates walks all pairs of states: what Kafka's table allows, and nothing else (kafka-eos.md B.2).
func TestStates(t *testing.T) {
	want := map[State][]State{
		Empty:             {Empty, CompleteCommit, CompleteAbort},
		Ongoing:           {Ongoing, Empty, CompleteCommit, CompleteAbort},
		PrepareCommit:     {Ongoing},
		PrepareAbort:      {Ongoing, PrepareEpochFence, Empty, CompleteCommit, CompleteAbort},
		CompleteCommit:    {PrepareCommit},
		CompleteAbort:     {PrepareAbort},
		Dead:              {Empty, CompleteAbort, CompleteCommit},
		PrepareEpochFence: {Ongoing},
	}
	names := "Empty Ongoing PrepareCommit PrepareAbort CompleteCommit CompleteAbort Dead PrepareEpochFence"
	for to := range numStates {
		if got := strings.Fields(names)[to]; to.String() != got {
			t.Errorf("state %d is called %v, want %s", to, to, got)
		}
		for from := range numStates {
			if got := to.CanFollow(from); got != slices.Contains(want[to], from) {
				t.Errorf("%v to %v: allowed is %v", from, to, got)
			}
		}
		if expires := to == Empty || to == CompleteCommit || to == CompleteAbort; Dead.CanFollow(to) != expires {
			t.Errorf("an id in state %v may expire: %v", to, !expires)
		}
	}
	if State(8).String() != "State(8)" {
		t.Errorf("an unknown state is called %v", State(8))
	}
}

// TestPassing asks in the states that no operation finds, because a transaction ends within one unit: a second node
// that finds them must give Kafka's answers (kafka-eos.md B.3, B.4, B.7, B.8).
func TestPassing(t *testing.T) {
	f := func(state State, commit, bumps bool, epoch int16, want *kerr.Error) {
		t.Helper()
		c := New(Config{})
		c.byID["pay"] = &transaction{Entry: Entry{ID: "pay", ProducerID: 7, Epoch: 4, PrevProducerID: None, LastEpoch: 3, State: state}}
		p := Producer{ID: "pay", ProducerID: 7, Epoch: epoch}
		_, refusal := c.End(EndRequest{Producer: p, Commit: commit, BumpsEpoch: bumps}, nil)
		if refusal == nil || refusal.Code != want {
			t.Errorf("EndTxn(commit %v, version 2 %v, epoch %d) in %v: %v, want %v", commit, bumps, epoch, state, refusal, want)
		}
		p.Epoch = 4
		if _, refusal := c.Add(AddRequest{Producer: p}); refusal == nil || refusal.Code != kerr.ConcurrentTransactions {
			t.Errorf("AddPartitionsToTxn in %v: %v", state, refusal)
		}
		if refusal := c.Verify(AddRequest{Producer: p}); refusal == nil || refusal.Code != kerr.ConcurrentTransactions {
			t.Errorf("verification in %v: %v", state, refusal)
		}
		if _, refusal := c.Init(InitRequest{Producer: p, TimeoutMs: 1}, nil); refusal == nil || refusal.Code != kerr.ConcurrentTransactions {
			t.Errorf("InitProducerId in %v: %v", state, refusal)
		}
	}
	const v1, v2 = false, true
	f(PrepareCommit, true, v1, 4, kerr.ConcurrentTransactions)
	f(PrepareCommit, false, v1, 4, kerr.InvalidTxnState)
	f(PrepareAbort, false, v1, 4, kerr.ConcurrentTransactions)
	f(PrepareAbort, true, v1, 4, kerr.InvalidTxnState)
	f(PrepareCommit, true, v1, 3, kerr.ProducerFenced)
	f(PrepareCommit, true, v2, 3, kerr.ConcurrentTransactions)
	f(PrepareCommit, false, v2, 3, kerr.InvalidTxnState)
	f(PrepareAbort, false, v2, 3, kerr.ConcurrentTransactions)
	f(PrepareAbort, true, v2, 3, kerr.InvalidTxnState)
	f(PrepareAbort, true, v2, 4, kerr.ProducerFenced)
	f(PrepareCommit, true, v2, 2, kerr.ProducerFenced)
	f(PrepareEpochFence, true, v1, 4, kerr.ConcurrentTransactions)
	f(PrepareEpochFence, true, v2, 2, kerr.ConcurrentTransactions)
	f(Dead, true, v1, 4, kerr.InvalidProducerIDMapping)
	f(Dead, true, v2, 4, kerr.InvalidProducerIDMapping)
}
