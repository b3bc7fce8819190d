package core

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/progress"
)

// rig drives one worker by hand. Effects are compared as text, one a line.
type rig struct {
	t   *testing.T
	w   *Worker
	now int64
}

type mapStore map[string]string

func (m mapStore) Get(key []byte) ([]byte, bool, error) {
	v, ok := m[string(key)]
	return []byte(v), ok, nil
}

func (m mapStore) Range(from, to []byte, f func(key, value []byte) bool) error {
	var keys []string
	for k := range m {
		if k >= string(from) && (to == nil || k < string(to)) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	for _, k := range keys {
		if !f([]byte(k), []byte(m[k])) {
			break
		}
	}
	return nil
}

var text = stream.Codecs[string, string]{Key: stream.String, Value: stream.String}

type fakeSink struct {
	stream.Sink
	name string
}

func (s fakeSink) Name() string { return s.name }

// echo is a job of one stage "in" with one task: topic "in" to topic "out" re-keyed through "by", counted per second.
func echo(t *testing.T, policy stream.Policy, sinks ...stream.Sink) *stream.Plan {
	t.Helper()
	j := stream.NewJob("job")
	in := stream.FromTopic(j, "in", stream.TopicSource[string, string]{
		Topic: "in", Partitions: 1, Codecs: text, IdleTimeout: 10 * time.Second, OnError: policy,
	})
	in = stream.Map(in, func(r stream.Record[string, string]) (stream.Record[string, string], error) {
		if r.Value == "bad" {
			return r, errors.New("bad word")
		}
		return r, nil
	})
	by := stream.KeyBy(in, "by", 2, func(r stream.Record[string, string]) (string, error) { return r.Value, nil }, text)
	counts := stream.Aggregate(stream.Window(by, "counts", stream.Tumbling(time.Second)), func() int64 { return 0 },
		func(n int64, _ stream.Record[string, string]) (int64, error) { return n + 1, nil },
		stream.Codecs[string, int64]{Key: stream.String, Value: stream.Int64})
	out := stream.MapValues(counts, func(p stream.Pane[int64]) (string, error) { return fmt.Sprint(p.Value), nil })
	stream.ToTopic(out, "out", stream.TopicSink[string, string]{Topic: "out", Partitions: 1, Codecs: text})
	for _, s := range sinks {
		stream.ToSink(out, stream.String, s)
	}
	p, err := j.Build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func newRig(t *testing.T, p *stream.Plan, cfg Config) *rig {
	t.Helper()
	cfg.Plan, cfg.Job = p, NewJobRecord(p, 1, nil, nil)
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t, w, 0}
}

// step takes an event and compares the effects.
func (r *rig) step(e Event, want ...string) []Effect {
	r.t.Helper()
	r.w.Step(r.now, e)
	effects := slices.Clone(r.w.Effects())
	var got []string
	for _, e := range effects {
		got = append(got, describe(e))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		r.t.Fatalf("%T at %d (-want +got):\n%s", e, r.now, diff)
	}
	return effects
}

func describe(e Effect) string {
	names := func(tasks []Task) string {
		var out []string
		for _, t := range tasks {
			out = append(out, t.Name())
		}
		return strings.Join(out, " ")
	}
	switch e := e.(type) {
	case Restore:
		return fmt.Sprintf("restore %s token %d", e.Task.Name(), e.Token)
	case OpenSinks:
		return fmt.Sprintf("open sinks %s %q", e.Task.Name(), e.Tokens[0].Token)
	case StartFetch:
		return fmt.Sprintf("fetch %s %d from %d", e.Task.Name(), e.Input, e.From.Offset)
	case Produce:
		var out []string
		for _, r := range e.Records {
			out = append(out, fmt.Sprintf("%s/%d", r.Topic, r.Partition))
		}
		return fmt.Sprintf("produce %d %s", e.Epoch, strings.Join(out, " "))
	case WriteSinks:
		return fmt.Sprintf("write sinks %d: %d", e.Epoch, len(e.Writes))
	case Flush:
		return fmt.Sprintf("flush %d", e.Epoch)
	case PrepareSinks:
		return fmt.Sprintf("prepare %d: %d", e.Epoch, len(e.Sinks))
	case FinishSinks:
		return fmt.Sprintf("finish %d: %d", e.Epoch, len(e.Sinks))
	case Commit:
		var out []string
		for _, o := range e.Offsets {
			out = append(out, fmt.Sprintf("%s/%d@%d", o.Topic, o.Partition, o.Offset))
		}
		return fmt.Sprintf("commit %d: %s; checkpoints %d changelog %d tokens %d", e.Epoch, strings.Join(out, " "), len(e.Checkpoints), len(e.Changelog), e.Owned[0].Token)
	case ApplyStores:
		return fmt.Sprintf("apply %d: %d stores", e.Epoch, len(e.Stores))
	case CommitSinks:
		return fmt.Sprintf("commit sinks %d: %q", e.Epoch, e.Tokens[0].Token)
	case DropEverything:
		return fmt.Sprintf("drop, then %d after %d ms: %v", e.Epoch, e.AfterMs, e.Reason)
	case Released:
		return "released " + names(e.Tasks)
	case Stopped:
		return "stopped: " + e.Err.Error()
	case Done:
		return fmt.Sprintf("done %v", e.Finished)
	}
	return fmt.Sprintf("%T", e)
}

var inTask, byTask = Task{"in", 0}, Task{"by", 0}

// assign brings task in-0 up from nothing.
func (r *rig) assign(token int64) {
	r.t.Helper()
	name := fmt.Sprintf("restore in-0 token %d", token)
	r.step(Assigned{[]Ownership{{inTask, token}}}, name)
	r.step(Restored{Task: inTask, Token: token, Inputs: []RestoredInput{{GroupOffset: -1, StartOffset: 5}}}, "fetch in-0 0 from 5")
}

func records(at int64, values ...string) Records {
	e := Records{Task: inTask}
	for i, v := range values {
		e.Records = append(e.Records, stream.Message{Offset: at + int64(i), Key: []byte("k"), Value: []byte(v), TimestampMs: at + int64(i)})
	}
	e.Next.Offset = at + int64(len(values))
	e.LastStableOffset, e.HighWatermark = e.Next.Offset, e.Next.Offset
	return e
}

// The five steps in order, then nothing without a change.
func TestCommitProtocol(t *testing.T) {
	r := newRig(t, echo(t, stream.Stop()), Config{CommitIntervalMs: 100})
	r.assign(7)
	r.step(records(5, "x", "y"), "produce 1 job-by/0 job-by/0")
	r.now = 99
	r.step(Tick{})
	r.now = 100
	r.step(Tick{}, "produce 1 job-by/0 job-by/1", "flush 1")
	if r.w.WantsRecords() {
		t.Fatal("records are wanted between flush and end")
	}
	r.step(Flushed{Epoch: 9})
	effects := r.step(Flushed{Epoch: 1}, "commit 1: in/0@7; checkpoints 1 changelog 0 tokens 7")
	c, err := DecodeCheckpoint(effects[0].(Commit).Checkpoints[0].Value)
	if err != nil || *c.Out.Watermark != 6 || c.Inputs[0].Position.Offset != 7 || c.Counters.Records != 2 {
		t.Fatalf("checkpoint %+v %v", c, err)
	}
	r.step(TxnEnded{Epoch: 1, Outcome: Committed})
	if due, ok := r.w.NextTickMs(); !ok || due != 100 {
		t.Fatalf("next tick %d %v, want at once", due, ok)
	}
	r.now = 1000
	r.step(Tick{})
	// A cursor that only moved over markers is no change.
	r.step(Records{Task: inTask, Next: Position{Offset: 9}, LastStableOffset: 9, HighWatermark: 9})
	r.now = 2000
	r.step(Tick{})
	if _, ok := r.w.NextTickMs(); ok {
		t.Fatal("a tick is due without anything to do")
	}
	r.now = 3000
	r.step(records(9, "z"), "produce 2 job-by/0 job-by/0 job-by/1", "flush 2")
}

// Records that come again, and records of an input that is not fetched, change nothing.
func TestRecordsTwice(t *testing.T) {
	r := newRig(t, echo(t, stream.Stop()), Config{})
	r.assign(7)
	r.step(records(5, "x", "y"), "produce 1 job-by/0 job-by/0")
	r.step(records(5, "x", "y", "z"), "produce 1 job-by/0")
	if c := r.w.Status().Tasks[0].Counters; c.Records != 3 {
		t.Fatalf("counters %+v", c)
	}
}

// A failure at any point, and an unknown outcome, take one way back.
func TestOneWayBack(t *testing.T) {
	f := func(want string, upTo int, e Event) {
		t.Helper()
		r := newRig(t, echo(t, stream.Stop()), Config{})
		r.assign(7)
		r.step(records(5, "x"), "produce 1 job-by/0")
		r.now = 100
		if upTo > 0 {
			r.step(Tick{}, "produce 1 job-by/0 job-by/1", "flush 1")
		}
		if upTo > 1 {
			r.step(Flushed{Epoch: 1}, "commit 1: in/0@6; checkpoints 1 changelog 0 tokens 7")
		}
		r.step(e, want)
		if r.w.WantsRecords() {
			t.Fatal("records are wanted during a drop")
		}
		r.step(records(6, "y"))
		r.step(TxnEnded{Epoch: 1, Outcome: Committed})
		r.step(Dropped{Epoch: 1})
		r.step(Dropped{Epoch: 2}, "restore in-0 token 7")
		r.step(Restored{Task: inTask, Token: 7, Inputs: []RestoredInput{{GroupOffset: -1, StartOffset: 5}}}, "fetch in-0 0 from 5")
		r.step(records(5, "x"), "produce 2 job-by/0")
	}
	f("drop, then 2 after 0 ms: transaction 1: broken", 0, Failed{Epoch: 1, Err: errors.New("broken")})
	f("drop, then 2 after 0 ms: transaction 1: broken", 1, Failed{Epoch: 1, Err: errors.New("broken")})
	f("drop, then 2 after 0 ms: transaction 1: fenced", 2, TxnEnded{Epoch: 1, Outcome: Aborted, Err: errors.New("fenced")})
	f("drop, then 2 after 0 ms: transaction 1: no reason given", 2, TxnEnded{Epoch: 1, Outcome: Unknown})
	f("drop, then 2 after 0 ms: ownership of the tasks was lost: the group session or the time for a revoke ended before they were given back", 2, Lost{})
}

func TestTooManyFailures(t *testing.T) {
	r := newRig(t, echo(t, stream.Stop()), Config{MaxAborts: 2})
	fail := func(epoch int64) Failed { return Failed{Epoch: epoch, Err: errors.New("broken")} }
	r.step(fail(1), "drop, then 2 after 0 ms: transaction 1: broken")
	r.step(Dropped{Epoch: 2})
	r.step(fail(1)) // of an older epoch
	r.step(fail(2), "drop, then 3 after 200 ms: transaction 2: broken")
	r.step(Dropped{Epoch: 3})
	r.step(fail(3), "stopped: 3 transactions in a row have failed, the last: transaction 3: broken")
	r.step(Assigned{[]Ownership{{inTask, 1}}})
	r = newRig(t, echo(t, stream.Stop()), Config{})
	r.step(Failed{Epoch: 0, Err: errors.New("the disk is gone"), Fatal: true}, "stopped: the disk is gone")
}

func TestRevoke(t *testing.T) {
	r := newRig(t, echo(t, stream.Stop()), Config{})
	r.assign(7)
	r.step(Revoking{[]Task{byTask}}, "released by-0") // not ours
	r.step(records(5, "x"), "produce 1 job-by/0")
	r.step(Revoking{[]Task{inTask}}, "produce 1 job-by/0 job-by/1", "flush 1")
	r.step(Flushed{Epoch: 1}, "commit 1: in/0@6; checkpoints 1 changelog 0 tokens 7")
	r.step(TxnEnded{Epoch: 1, Outcome: Committed}, "released in-0")
	r.step(records(6, "y")) // a late fetch of a task that is gone

	r.assign(8)
	r.step(records(5, "x"), "produce 2 job-by/0")
	r.step(Revoking{[]Task{inTask}}, "produce 2 job-by/0 job-by/1", "flush 2")
	r.step(RevokeExpired{}, "drop, then 3 after 0 ms: the commit before a revoke took longer than the deadline", "released in-0")
	r.step(Dropped{Epoch: 3})
	if s := r.w.Status(); len(s.Tasks) != 0 || s.Commits != 1 {
		t.Fatalf("status %+v", s)
	}
}

// A drop that is interrupted from outside, by a revoke that expires meanwhile, begins again: nobody reports its end.
func TestInterruptedDrop(t *testing.T) {
	r := newRig(t, echo(t, stream.Stop()), Config{})
	r.assign(7)
	r.step(Failed{Epoch: 1, Err: errors.New("broken")}, "drop, then 2 after 0 ms: transaction 1: broken")
	r.step(Revoking{[]Task{inTask}})
	r.step(RevokeExpired{}, "released in-0")
	r.step(Failed{Epoch: 2, Err: errors.New("interrupted")}, "drop, then 3 after 200 ms: transaction 2: interrupted")
	r.step(Assigned{[]Ownership{{inTask, 8}}})
	r.step(Dropped{Epoch: 2})
	r.step(Dropped{Epoch: 3}, "restore in-0 token 8")
}

// A task that is lost aborts what it shares a transaction with; the others are restored.
func TestLost(t *testing.T) {
	r := newRig(t, echo(t, stream.Stop()), Config{})
	r.assign(7)
	r.step(Assigned{[]Ownership{{byTask, 8}}}, "restore by-0 token 8")
	r.step(Lost{[]Task{inTask}}, "drop, then 2 after 0 ms: ownership of the tasks was lost: the group session or the time for a revoke ended before they were given back")
	r.step(Assigned{[]Ownership{{Task{"by", 1}, 9}}})
	r.step(Dropped{Epoch: 2}, "restore by-0 token 8", "restore by-1 token 9")
}

func TestRestoreRefusals(t *testing.T) {
	p := echo(t, stream.Stop())
	good := func() *Checkpoint {
		none := StateCheckpoint{}
		return &Checkpoint{Version: 1, Task: "in-0", Run: 1, Commit: 1, Inputs: []InputCheckpoint{{Stream: "in", Position: Position{Offset: 8}, Source: &none}}}
	}
	f := func(group int64, change func(*Checkpoint) *Checkpoint, want ...string) {
		t.Helper()
		r := newRig(t, p, Config{})
		r.step(Assigned{[]Ownership{{inTask, 1}}}, "restore in-0 token 1")
		e := Restored{Task: inTask, Token: 1, Inputs: []RestoredInput{{GroupOffset: group, StartOffset: 0}}}
		if c := change(good()); c != nil {
			e.Checkpoint = c.Encode()
		}
		r.w.Step(0, e)
		effects := r.w.Effects()
		if got := describe(effects[0]); !strings.Contains(got, want[0]) {
			t.Fatalf("got %q, want %q", got, want[0])
		}
	}
	asIs := func(c *Checkpoint) *Checkpoint { return c }
	f(8, asIs, "fetch in-0 0 from 8")
	f(-1, asIs, "fetch in-0 0 from 8")
	f(7, asIs, "committed offset for topic in partition 0 is 7, the checkpoint says 8")
	f(-1, func(*Checkpoint) *Checkpoint { return nil }, "fetch in-0 0 from 0")
	f(3, func(*Checkpoint) *Checkpoint { return nil }, "has no checkpoint of the task")
	f(3, func(c *Checkpoint) *Checkpoint { c.Run = 0; return c }, "fetch in-0 0 from 0")
	f(8, func(c *Checkpoint) *Checkpoint { c.Run = 2; return c }, "the job was reset while this process was running")
	f(8, func(c *Checkpoint) *Checkpoint { c.Version = 2; return c }, "version 2")
	f(8, func(c *Checkpoint) *Checkpoint { c.Task = "other-0"; return c }, "reset the job")
	f(8, func(c *Checkpoint) *Checkpoint { c.Inputs[0].Stream = "other"; return c }, "reset the job")
	f(8, func(c *Checkpoint) *Checkpoint { c.Inputs[0].Position.Offset = -1; return c }, "position -1")
}

func TestPolicies(t *testing.T) {
	f := func(policy stream.Policy, want ...string) *rig {
		t.Helper()
		r := newRig(t, echo(t, policy), Config{})
		r.assign(1)
		r.step(records(5, "x", "bad", "y"), want...)
		return r
	}
	f(stream.Stop(), "stopped: stream in partition 0 offset 6: task in-0: bad word (mend the code that refuses it, or go on with the input's policy set to skip)")
	r := f(stream.Skip(), "produce 1 job-by/0 job-by/0")
	if c := r.w.Status().Tasks[0].Counters; c.Skipped != 1 || c.Records != 3 || c.Emitted != 2 {
		t.Fatalf("counters %+v", c)
	}
	var re *stream.RecordError
	if err := r.w.Status().FirstError; !errors.As(err, &re) || re.Offset != 6 {
		t.Fatalf("first error %v", err)
	}
	f(stream.DeadLetter("dead"), "produce 1 job-by/0 dead/0 job-by/0")
}

// Records that no topic takes are under the policy too, and what the policy sends always fits.
func TestRecordsThatDoNotFit(t *testing.T) {
	big := strings.Repeat("v", stream.MaxRecordBytes-1000) // fits alone, and not with itself as its key
	f := func(m stream.Message, want ...string) Effect {
		t.Helper()
		r := newRig(t, echo(t, stream.DeadLetter("dead")), Config{})
		r.assign(1)
		e := records(5, "x")
		m.Offset, e.Next.Offset = 5, 6
		e.Records[0] = m
		return r.step(e, want...)[0]
	}
	f(stream.Message{Value: []byte("x"), TimestampMs: stream.MaxTimeMs}, "produce 1 job-by/0")
	f(stream.Message{Value: []byte("x"), TimestampMs: stream.MaxTimeMs + 1}, "produce 1 dead/0")
	f(stream.Message{Value: []byte("x"), TimestampMs: -1}, "produce 1 dead/0")

	whole := f(stream.Message{Value: []byte(big)}, "produce 1 dead/0").(Produce).Records[0]
	if len(whole.Value) != len(big) || header(whole, stream.HeaderCut) != "" {
		t.Fatalf("a dead letter of %d bytes, cut %q: it fits as it is", len(whole.Value), header(whole, stream.HeaderCut))
	}
	cut := func(m stream.Message, want string) {
		t.Helper()
		r := f(m, "produce 1 dead/0").(Produce).Records[0]
		if n := stream.RecordBytes(r.Key, r.Value, r.Headers); n > stream.MaxRecordBytes || n < stream.MaxRecordBytes/2 {
			t.Errorf("the dead letter takes %d bytes, allowed are %d", n, stream.MaxRecordBytes)
		}
		if got := header(r, stream.HeaderCut); got != want {
			t.Errorf("got header %q, want %q", got, want)
		}
	}
	long := []byte(strings.Repeat("l", stream.MaxRecordBytes+1))
	cut(stream.Message{Value: long}, "key 0, value 1048577 bytes")
	cut(stream.Message{Key: long, Value: long}, "key 1048577, value 1048577 bytes")
	cut(stream.Message{Value: long, Headers: []stream.Header{{Key: "h", Value: long}}}, "key 0, value 1048577 bytes")
}

func header(r OutRecord, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// Control messages are under no policy.
func TestCorruptControlStops(t *testing.T) {
	f := func(value, want string) {
		t.Helper()
		r := newRig(t, echo(t, stream.Skip()), Config{})
		r.step(Assigned{[]Ownership{{byTask, 1}}}, "restore by-0 token 1")
		r.step(Restored{Task: byTask, Token: 1, Inputs: []RestoredInput{{GroupOffset: -1}}, Stores: []BaseStore{mapStore{}}}, "fetch by-0 0 from 0")
		r.w.Step(0, Records{Task: byTask, Records: []stream.Message{{Value: []byte(value)}}, Next: Position{Offset: 1}})
		if got := describe(r.w.Effects()[0]); !strings.HasPrefix(got, "stopped: task by-0: stream by partition 0 offset 0: ") || !strings.Contains(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	f("\x07", "type byte is 7")
	f("", "empty")
	f("\x01null", "JSON object")
	f("\x01"+`{"version":2,"taskName":"in-0","timestamp":1}`, "update the reading program")
	f("\x01"+`{"version":1,"taskName":"in-0","taskCount":3,"timestamp":1}`, "must not change within a run")
}

// With a sink: token, transaction, Commit, and no Prepare before the Commit is confirmed.
func TestSinkSteps(t *testing.T) {
	r := newRig(t, echo(t, stream.Stop(), fakeSink{name: "s"}), Config{CommitIntervalMs: 10})
	id := SinkID{byTask, "s"}
	r.step(Assigned{[]Ownership{{byTask, 1}}}, "restore by-0 token 1")
	base := mapStore{}
	r.step(Restored{Task: byTask, Token: 1, Inputs: []RestoredInput{{GroupOffset: -1}}, Stores: []BaseStore{base}}, `open sinks by-0 ""`)
	r.step(SinksOpened{Task: byTask, Token: 1}, "fetch by-0 0 from 0")
	send := func(at int64, values ...string) Records {
		e := records(at, values...)
		e.Task = byTask
		return e
	}
	control := func(ts int64) string {
		return string(progress.Control{Kind: progress.KindWatermark, Task: "in-0", TaskCount: 1, TimestampMs: ts}.Append(nil))
	}
	r.step(send(0, "\x00x", "\x00x", control(1000)), "produce 1 out/0", "write sinks 1: 1")
	r.now = 10
	r.step(Tick{}, "flush 1", "prepare 1: 1")
	r.step(Prepared{Epoch: 1, Tokens: []SinkToken{{id, []byte("T1")}}})
	r.step(Flushed{Epoch: 1}, "commit 1: job-by/0@3; checkpoints 1 changelog 1 tokens 1")
	r.step(TxnEnded{Epoch: 1, Outcome: Committed}, "apply 1: 1 stores", `commit sinks 1: "T1"`)
	r.step(send(3, "\x00y", control(2000)))
	r.step(send(5, "\x00y"))
	r.now = 30
	r.step(Tick{}) // T1 is not confirmed
	r.step(SinksCommitted{Epoch: 7})
	r.step(SinksCommitted{Epoch: 1}, "flush 2", "prepare 2: 1")
	r.step(Prepared{Epoch: 2, Tokens: []SinkToken{{id, nil}}})
	r.step(Flushed{Epoch: 2}, "commit 2: job-by/0@6; checkpoints 1 changelog 0 tokens 1")
	r.step(TxnEnded{Epoch: 2, Outcome: Committed})
	// A sink that wants a commit gets one without any record.
	r.step(SinkWants{[]SinkID{id}}, "flush 3", "prepare 3: 1")
	r.step(Prepared{Epoch: 3, Tokens: []SinkToken{{id, []byte("T3")}}})
	r.step(Flushed{Epoch: 3}, "commit 3: job-by/0@6; checkpoints 1 changelog 0 tokens 1")
	r.step(TxnEnded{Epoch: 3, Outcome: Committed}, `commit sinks 3: "T3"`)
	r.step(SinksCommitted{Epoch: 3})
	r.step(Stopping{}, "flush 4", "finish 4: 1", "prepare 4: 1")
	r.step(Prepared{Epoch: 4, Tokens: []SinkToken{{id, nil}}})
	r.step(Flushed{Epoch: 4}, "commit 4: job-by/0@6; checkpoints 1 changelog 0 tokens 1")
	r.step(TxnEnded{Epoch: 4, Outcome: Committed}, "released by-0", "done false")
}

func TestConfig(t *testing.T) {
	p := echo(t, stream.Stop())
	f := func(cfg Config, want string) {
		t.Helper()
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("got %v, want %q", err, want)
		}
	}
	f(Config{}, "needs Plan and Job")
	f(Config{Plan: p, Job: &JobRecord{Job: "other", Run: 1}}, `is of job "other"`)
	f(Config{Plan: p, Job: NewJobRecord(p, 1, nil, nil), CommitIntervalMs: -1}, "CommitIntervalMs -1")
	f(Config{Plan: p, Job: NewJobRecord(p, 1, nil, nil), CommitIntervalMs: MaxCommitIntervalMs + 1}, "must be 1 to")
}
