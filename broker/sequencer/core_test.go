package sequencer

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/journal"
	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/record"
)

// world drives a Core over a journal that does only what the test says.
type world struct {
	t       *testing.T
	core    *Core
	journal scriptedJournal
	now     machine.Now
	lastID  uint64
	actions Actions
	box     collected
}

// scriptedJournal takes groups and never finishes one by itself.
type scriptedJournal struct {
	seq    uint64
	groups int
	room   int
	free   int64
	low    bool
	asked  int64
	syncs  int
}

func (j *scriptedJournal) Append(units []journal.Unit) []journal.Placed {
	placed := make([]journal.Placed, len(units))
	for i := range units {
		j.seq++
		placed[i] = journal.Placed{Seq: j.seq, Segment: 1, BatchPos: int64(j.seq) * 1000}
	}
	j.groups++
	j.room--
	return placed
}

func (j *scriptedJournal) Room() bool           { return j.room > 0 }
func (j *scriptedJournal) Space() (int64, bool) { return j.free, j.low }
func (j *scriptedJournal) Sync()                { j.syncs++ }
func (j *scriptedJournal) Reserve(n int64) bool { j.asked = n; return n <= j.free }

// collected is a mailbox that keeps what it gets.
type collected struct{ replies []machine.Reply }

func (c *collected) Deliver(r []machine.Reply) { c.replies = append(c.replies, r...) }

func newWorld(t *testing.T, d journal.Durability) *world {
	w := &world{t: t, journal: scriptedJournal{room: 2, free: 64 << 20}}
	w.core = NewCore(machine.New(machine.Config{}), &w.journal, d, 0, Limits{})
	return w
}

func (w *world) handle(ev Event) {
	w.t.Helper()
	w.now.EngineMs++
	w.now.WallMs++
	w.actions.reset()
	w.core.Handle(w.now, ev, &w.actions)
	for _, d := range w.actions.Deliver {
		d.Box.Deliver(d.Replies)
	}
}

func (w *world) op(body any) *Operation {
	w.lastID++
	return &Operation{Op: machine.Op{ID: w.lastID, Rand: [16]byte{byte(w.lastID)}, Body: body}, Box: &w.box}
}

// done reports a journal event that frees one group's place.
func (w *world) done(kind journal.EventKind, seq uint64) {
	w.t.Helper()
	w.journal.room++
	w.handle(Event{Journal: []journal.Event{{Kind: kind, Seq: seq}}})
}

func (w *world) replies(want int) []machine.Reply {
	w.t.Helper()
	if got := len(w.box.replies); got != want {
		w.t.Fatalf("%d replies, want %d", got, want)
	}
	return w.box.replies
}

func createTopic(name string) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = 7
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, 1, 1
	req.Topics = append(req.Topics, topic)
	return req
}

func produce(topic, value string) *machine.Produce {
	b := record.NewBuilder()
	b.Add(1, nil, []byte(value))
	batch := b.Append(nil)
	h, err := record.ParseHeader(batch)
	if err != nil {
		panic(err)
	}
	return &machine.Produce{Version: 9, Acks: -1, Partitions: []machine.ProducePartition{{
		Topic: topic, Batch: batch, Header: h, SettingsVersion: 1,
	}}}
}

func TestNothingIsSaidBeforeItIsDurable(t *testing.T) {
	w := newWorld(t, journal.DurabilityFsync)
	w.handle(Event{Ops: []*Operation{w.op(createTopic("a")), w.op(produce("a", "x"))}})
	w.handle(Event{Journal: []journal.Event{{Kind: journal.Written, Seq: w.journal.seq}}})
	w.replies(0)
	if len(w.actions.Publish) != 0 {
		t.Fatal("published before the sync")
	}
	w.done(journal.Synced, w.journal.seq)
	w.replies(2)
	if len(w.actions.Publish) != 1 || len(w.actions.Publish[0].Updates) != 1 || w.actions.Publish[0].Updates[0].View.HighWatermark != 1 {
		t.Fatalf("published %+v", w.actions.Publish)
	}
}

func TestWriteDurabilityRepliesAtTheWrite(t *testing.T) {
	w := newWorld(t, journal.DurabilityWrite)
	w.handle(Event{Ops: []*Operation{w.op(createTopic("a"))}})
	w.replies(0)
	w.done(journal.Written, w.journal.seq)
	w.replies(1)
}

// TestSomeUnitsAreSyncedWhateverTheDurability: else the producer id could be given out again after a power cut.
func TestSomeUnitsAreSyncedWhateverTheDurability(t *testing.T) {
	w := newWorld(t, journal.DurabilityWrite)
	init := kmsg.NewPtrInitProducerIDRequest()
	init.Version = 4
	init.ProducerID, init.ProducerEpoch = -1, -1
	w.handle(Event{Ops: []*Operation{w.op(init)}})
	w.done(journal.Written, w.journal.seq)
	w.handle(Event{Ops: []*Operation{w.op(createTopic("behind"))}})
	w.done(journal.Written, w.journal.seq)
	w.replies(0)
	if w.journal.syncs == 0 {
		t.Fatal("nobody asked for a sync")
	}
	w.handle(Event{Journal: []journal.Event{{Kind: journal.Synced, Seq: 1}}})
	w.replies(2)
}

// TestARefusalWaitsForWhatItSaw: a read and a refusal are decided behind a unit that is not durable yet, so a power cut
// could make them a lie.
func TestARefusalWaitsForWhatItSaw(t *testing.T) {
	w := newWorld(t, journal.DurabilityFsync)
	w.handle(Event{Ops: []*Operation{w.op(createTopic("a"))}})
	metadata := kmsg.NewPtrMetadataRequest()
	metadata.Version = 9
	w.handle(Event{Ops: []*Operation{w.op(createTopic("a")), w.op(metadata)}})
	w.replies(0)
	w.done(journal.Synced, 1)
	for i, r := range w.replies(3) {
		if r.ID != uint64(i+1) {
			t.Fatalf("reply %d answers operation %d", i, r.ID)
		}
	}
	again := w.box.replies[1].Body.(*kmsg.CreateTopicsResponse)
	if again.Topics[0].ErrorCode != kerr.TopicAlreadyExists.Code {
		t.Fatalf("second creation answered %d", again.Topics[0].ErrorCode)
	}
}

func TestReadsOverDurableStateAnswerAtOnce(t *testing.T) {
	w := newWorld(t, journal.DurabilityFsync)
	metadata := kmsg.NewPtrMetadataRequest()
	metadata.Version = 9
	w.handle(Event{Ops: []*Operation{w.op(metadata)}})
	w.replies(1)
}

func TestTwoGroupsAreInFlightAndOperationsGatherMeanwhile(t *testing.T) {
	w := newWorld(t, journal.DurabilityFsync)
	w.handle(Event{Ops: []*Operation{w.op(createTopic("a"))}})
	w.handle(Event{Ops: []*Operation{w.op(produce("a", "1"))}})
	for range 5 {
		w.handle(Event{Ops: []*Operation{w.op(produce("a", "n"))}})
	}
	if w.journal.groups != 2 {
		t.Fatalf("%d groups submitted without room for more than two", w.journal.groups)
	}
	w.done(journal.Synced, 1)
	if w.journal.groups != 3 || w.journal.seq != 7 {
		t.Fatalf("%d groups, %d units: what gathered must go out as one group", w.journal.groups, w.journal.seq)
	}
}

func TestAfterAFailureNothingIsAnswered(t *testing.T) {
	w := newWorld(t, journal.DurabilityFsync)
	w.handle(Event{Ops: []*Operation{w.op(createTopic("a"))}})
	w.handle(Event{Journal: []journal.Event{{Kind: journal.Failed, Err: errors.New("input/output error")}}})
	if w.actions.Err == nil {
		t.Fatal("the loop goes on after a failed write")
	}
	w.handle(Event{Ops: []*Operation{w.op(createTopic("b"))}, Journal: []journal.Event{{Kind: journal.Synced, Seq: 1}}})
	w.replies(0)
	if w.actions.Err == nil {
		t.Fatal("the loop came back to life")
	}
}

func TestSlowHoldsProduceAndWhatIsBehindIt(t *testing.T) {
	w := newWorld(t, journal.DurabilityFsync)
	w.handle(Event{Ops: []*Operation{w.op(createTopic("a"))}})
	w.done(journal.Synced, 1)
	w.handle(Event{Slow: true, Ops: []*Operation{w.op(produce("a", "x")), w.op(createTopic("b"))}})
	if w.journal.groups != 1 {
		t.Fatal("produce went on while the journal is over its bound")
	}
	w.handle(Event{Slow: true, Ops: []*Operation{w.op(&machine.Shelved{})}})
	w.handle(Event{Slow: false})
	w.done(journal.Synced, w.journal.seq)
	w.replies(4)
}

// TestSlowHoldsOnlyItsConnection: at the bound other connections go on, each connection's order stays, and so does that
// of all Produce, whatever connections they came on; ops holds connection and kind (p: Produce), in the order of arrival,
// want the order in which they must be decided.
func TestSlowHoldsOnlyItsConnection(t *testing.T) {
	f := func(ops, atBound, later string) {
		t.Run(ops, func(t *testing.T) {
			w := newWorld(t, journal.DurabilityFsync)
			w.handle(Event{Ops: []*Operation{w.op(createTopic("t"))}})
			w.done(journal.Synced, 1)
			var decided []string
			boxes := map[byte]*collected{}
			event := Event{Slow: true}
			for i, name := range strings.Fields(ops) {
				op := w.op(createTopic(fmt.Sprint("x", i)))
				if name[1] == 'p' {
					op.Body = produce("t", name)
				}
				if boxes[name[0]] == nil {
					boxes[name[0]] = &collected{}
				}
				op.Box = boxes[name[0]]
				op.Written = func() { decided = append(decided, name) }
				event.Ops = append(event.Ops, op)
			}
			round := func(ev Event, want string) {
				t.Helper()
				for range 2 { // decide, then write and sync
					w.handle(ev)
					for _, release := range w.actions.Release {
						release()
					}
					ev = Event{Slow: ev.Slow, Journal: []journal.Event{{Kind: journal.Synced, Seq: w.journal.seq}}}
				}
				if got := strings.Join(decided, " "); got != want {
					t.Errorf("slow %t: %q were decided, want %q", ev.Slow, got, want)
				}
				decided = nil
			}
			round(event, atBound)
			round(Event{}, later)
			if !w.core.Idle() || len(w.core.heldOf) > 0 {
				t.Error("something is left")
			}
		})
	}
	f("ap bx", "bx", "ap")
	f("ap ax bx", "bx", "ap ax")
	f("ax ap bp bx cx ay", "ax cx", "ap bp bx ay")
	f("ap bp ap by cx bp", "cx", "ap bp ap by bp")
	f("ax bx", "ax bx", "")
}

// TestWhatIsNoLongerHeldGoesOnAtTheBound: the bound comes back when a connection's Produce is through, and what was
// behind it is not.
func TestWhatIsNoLongerHeldGoesOnAtTheBound(t *testing.T) {
	w := newWorld(t, journal.DurabilityFsync)
	w.core.limits.GroupOps = 1
	w.handle(Event{Ops: []*Operation{w.op(createTopic("t"))}})
	w.done(journal.Synced, 1)
	w.handle(Event{Slow: true, Ops: []*Operation{w.op(produce("t", "x")), w.op(createTopic("u")), w.op(produce("t", "y"))}})
	w.journal.room = 1
	w.handle(Event{})
	w.journal.room = 5
	w.handle(Event{Slow: true})
	w.done(journal.Synced, w.journal.seq)
	w.replies(3)
	w.handle(Event{})
	w.done(journal.Synced, w.journal.seq)
	w.replies(4)
}

func TestWithoutSpaceOnlyProduceIsRefused(t *testing.T) {
	w := newWorld(t, journal.DurabilityFsync)
	w.handle(Event{Ops: []*Operation{w.op(createTopic("a"))}})
	w.done(journal.Synced, 1)
	w.journal.low = true
	w.handle(Event{Ops: []*Operation{w.op(produce("a", "x")), w.op(createTopic("b"))}})
	w.done(journal.Synced, w.journal.seq)
	r := w.replies(3)
	if code := r[1].Body.(*machine.ProduceReply).Partitions[0].Code; code != kerr.KafkaStorageError.Code {
		t.Fatalf("produce without space answered %d", code)
	}
	if code := r[2].Body.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode; code != 0 {
		t.Fatalf("create topic in the reserve answered %d", code)
	}
}

func TestALargeOperationWaitsForItsSpace(t *testing.T) {
	w := newWorld(t, journal.DurabilityFsync)
	w.handle(Event{Ops: []*Operation{w.op(createTopic("a"))}})
	w.done(journal.Synced, 1)
	op := w.op(produce("a", "x"))
	op.SizeBytes = w.journal.free + 1
	w.handle(Event{Ops: []*Operation{op}})
	if w.journal.groups != 1 || w.journal.asked == 0 {
		t.Fatalf("appended without reserving space, asked for %d", w.journal.asked)
	}
	w.journal.free *= 2
	w.handle(Event{Journal: []journal.Event{{Kind: journal.SpaceChanged}}})
	if w.journal.groups != 2 {
		t.Fatal("the operation does not go on once there is space")
	}
}

func TestBuffersAreReleasedOnce(t *testing.T) {
	w := newWorld(t, journal.DurabilityFsync)
	w.handle(Event{Ops: []*Operation{w.op(createTopic("a"))}})
	w.done(journal.Synced, 1)
	released := 0
	op := w.op(produce("a", "x"))
	op.Written = func() { released++ }
	count := func() {
		for _, f := range w.actions.Release {
			f()
		}
	}
	w.handle(Event{Ops: []*Operation{op}})
	count()
	if released != 0 {
		t.Fatal("released before the write")
	}
	w.handle(Event{Journal: []journal.Event{{Kind: journal.Written, Seq: 2}}})
	count()
	w.done(journal.Synced, 2)
	count()
	if released != 1 {
		t.Fatalf("released %d times", released)
	}
}
