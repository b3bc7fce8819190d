package machine

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// One test per statement of KIP-98, "Exactly Once Delivery and Transactional Messaging", as corrected by what shipped
// (kafka-eos.md A to D).

// "The coordinator assigns a PID and epoch": producer ids are never repeated, also not by a broker that died.
func TestProducerIDsAreUnique(t *testing.T) {
	w := newWorld(t, Config{})
	seen := map[string]bool{}
	for i := range 2500 {
		if i%400 == 399 {
			w.restart()
		}
		if i%700 == 699 {
			w.recover()
		}
		w.tick(1)
		answer := w.run("init plain")
		if i%5 == 0 {
			answer = w.run(fmt.Sprintf("init id=id%d", i))
		}
		if seen[answer] {
			t.Fatalf("request %d gets %s a second time", i, answer)
		}
		seen[answer] = true
	}
}

// The reservation of producer ids is synced in every durability mode: a lost tail must not give them out again. So is
// what lets housekeeping free or remove files.
func TestReservationsAreSynced(t *testing.T) {
	w := newWorld(t, Config{})
	syncs := func() (n int) {
		for _, u := range w.journal {
			if u.MustSync {
				n++
			}
		}
		return n
	}
	if syncs() != 1 {
		t.Fatalf("%d units must be synced after the start, want the incarnation", syncs())
	}
	for range 1000 {
		w.run("init plain")
	}
	if syncs() != 2 {
		t.Fatalf("%d units must be synced after one block of ids", syncs())
	}
	w.expect("init id=x", "pid=1000 epoch=0")
	if syncs() != 3 {
		t.Fatalf("%d units must be synced after two blocks of ids", syncs())
	}
	w.run("topic t 1")
	w.run("produce plain t/0:-:a")
	moved := &Shelved{Partitions: []ShelvedLength{{Partition: 1, FileBytes: 9, EndOffset: 1}}}
	w.do(moved)
	if syncs() != 4 {
		t.Fatalf("%d units must be synced after data has moved to a file", syncs())
	}
	w.do(moved)
	w.run("delete t")
	if syncs() != 5 {
		t.Fatalf("%d units must be synced after a topic was deleted", syncs())
	}
}

// So is where batches are now: the journal segments that held them are freed behind the reply. With replies after the
// write, a power cut took the record back, and left partitions without what only their files still held.
func TestShelvedLengthsAreSynced(t *testing.T) {
	w := newWorld(t, Config{})
	t1 := w.topic("a", 1)
	w.produce(9, nil, data{topic: "a", values: []string{"x"}})
	before := len(w.journal)
	w.do(&Shelved{Partitions: []ShelvedLength{{Partition: t1.Partitions[0], FileBytes: 100, EndOffset: 1}}})
	if len(w.journal) != before+1 || !w.journal[before].MustSync {
		t.Fatal("the lengths are no unit that must be synced")
	}
}

// So is a log start that moves up: the files below go once it is published.
func TestDeletedRecordsAreSynced(t *testing.T) {
	w := newWorld(t, Config{})
	w.topic("a", 1)
	w.produce(9, nil, data{topic: "a", values: []string{"x", "y"}})
	before := len(w.journal)
	req := kmsg.NewPtrDeleteRecordsRequest()
	topic, partition := kmsg.NewDeleteRecordsRequestTopic(), kmsg.NewDeleteRecordsRequestTopicPartition()
	topic.Topic, partition.Offset = "a", 1
	topic.Partitions = append(topic.Partitions, partition)
	req.Topics = append(req.Topics, topic)
	w.ask(req, 2)
	if len(w.journal) != before+1 || !w.journal[before].MustSync {
		t.Fatal("the log start is no unit that must be synced")
	}
}

// recover replays the whole journal into a fresh machine, as after a kill.
func (w *world) recover() {
	w.t.Helper()
	m := New(w.cfg)
	for i, u := range w.journal {
		var headers [][]byte
		for _, b := range u.Batches {
			headers = append(headers, b.Bytes)
		}
		if err := m.Replay(u.Meta, headers); err != nil {
			w.t.Fatalf("unit %d: %v", i, err)
		}
	}
	w.m = m
	w.do(&Incarnation{Number: uint32(m.LeaderEpoch()) + 1})
}

// "Atomic writes across multiple partitions": all or nothing, offsets included.
func TestAtomicOverPartitionsAndOffsets(t *testing.T) {
	w := newWorld(t, Config{})
	w.topic("in", 1)
	w.topic("out", 3)
	w.run("init")
	w.expect("produce out/0:0:a out/1:0:b out/2:0:c", "offset 0, offset 0, offset 0")
	w.expect("txncommit group=g in/0=5", "ok")
	units := len(w.journal)
	w.expect("end commit", "pid=0 epoch=1")
	if n := len(w.journal) - units; n != 1 {
		t.Fatalf("the end is %d units: it could be torn", n)
	}
	if n := len(w.journal[units].Batches); n != 3 {
		t.Fatalf("the unit of the end holds %d markers, want 3", n)
	}
	w.expect("read out/0", "a")
	w.expect("read out/1", "b")
	w.expect("read out/2", "c")
	w.expect("fetch group=g stable in/0", "offset 5")
}

// "Zombie fencing": of two producers with one transactional id only the newer one can do anything.
func TestZombieIsFenced(t *testing.T) {
	w := newWorld(t, Config{})
	w.topic("t", 2)
	w.run("init v=4")
	w.run("add v=3 t/0")
	w.run("produce v=10 t/0:0:a")
	w.expect("init v=4", "pid=0 epoch=2")
	w.expect("produce v=10 t/0:1:b", "INVALID_PRODUCER_EPOCH")
	w.expect("produce v=10 t/1:0:b", "INVALID_PRODUCER_EPOCH")
	w.expect("add v=3 t/1", "PRODUCER_FENCED")
	w.expect("offsets v=3 g", "PRODUCER_FENCED")
	w.expect("end v=3 commit", "PRODUCER_FENCED")
	w.expect("init v=4 pid=0 epoch=0", "PRODUCER_FENCED")
	w.expect("read t/0", "")
}

// "Recovery across sessions": InitProducerId finishes what a former session left open before it answers.
func TestInitEndsWhatWasLeftOpen(t *testing.T) {
	w := newWorld(t, Config{})
	w.topic("t", 1)
	w.run("init")
	w.run("produce t/0:0:a")
	w.recover()
	w.expect("init", "pid=0 epoch=2")
	w.expect("show t/0", "end 2, stable 2, aborted [{0 0 1 2}], epochs [{1 0} {2 1}]")
}

// "A client may commit after the restart" (V5): epoch, partitions and offsets of an open transaction survive.
func TestCommitAfterRestart(t *testing.T) {
	for name, restart := range map[string]func(*world){"snapshot": (*world).restart, "journal": (*world).recover} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.topic("t", 1)
			w.topic("in", 1)
			w.run("init")
			w.run("produce t/0:0:a")
			w.run("txncommit group=g in/0=3")
			restart(w)
			w.expect("produce t/0:0:a", "offset 0") // the retry of what was in flight
			w.expect("produce t/0:1:b", "offset 1")
			w.expect("fetch group=g stable in/0", "UNSTABLE_OFFSET_COMMIT")
			w.expect("end commit", "pid=0 epoch=1")
			restart(w)
			w.expect("end commit", "pid=0 epoch=1") // the retry of a lost answer
			w.expect("read t/0", "a b")
			w.expect("fetch group=g stable in/0", "offset 3")
		})
	}
}

// "The log is the order of sequence numbers": duplicates are dropped, gaps refused, for every producer by itself.
func TestIdempotence(t *testing.T) {
	w := newWorld(t, Config{})
	w.topic("t", 1)
	w.run("init plain")
	w.run("init plain")
	w.expect("produce plain t/0:0:a,b", "offset 0")
	w.expect("produce plain pid=1 t/0:0:x", "offset 2")
	w.expect("produce plain t/0:0:a,b", "offset 0")
	w.expect("produce plain t/0:3:d", "OUT_OF_ORDER_SEQUENCE_NUMBER")
	w.expect("produce plain t/0:2:c", "offset 3")
	w.recover()
	w.expect("produce plain t/0:2:c", "offset 3")
	w.expect("produce plain t/0:3:d", "offset 4")
	w.expect("read t/0", "a b x c d")
}

// "If the transaction coordinator sees that the timeout has passed, it aborts": markers, a higher epoch, no offsets.
func TestTimeoutAborts(t *testing.T) {
	w := newWorld(t, Config{})
	w.topic("t", 1)
	w.run("init timeout=500")
	w.run("produce t/0:0:a")
	if due, ok := w.m.NextTimer(); !ok || due != w.now.EngineMs+500 {
		t.Fatalf("the next timer is at %d, %v; want %d", due, ok, w.now.EngineMs+500)
	}
	w.tick(500)
	w.expect("show t/0", "end 2, stable 2, aborted [{0 0 1 2}], epochs [{1 0}]")
	w.expect("produce t/0:1:b", "INVALID_PRODUCER_EPOCH")
}

// "Consumers read committed messages only up to the LSO", which the oldest open transaction of any producer holds.
func TestStableOffsetIsTheOldestOpen(t *testing.T) {
	w := newWorld(t, Config{})
	w.topic("t", 1)
	w.run("init id=a")
	w.run("init id=b")
	w.run("produce id=a pid=0 t/0:0:a1")
	w.run("produce id=b pid=1 t/0:0:b1")
	w.run("produce plain t/0:-:plain")
	w.run("end id=b pid=1 commit")
	w.expect("read t/0", "")
	w.run("end id=a pid=0")
	w.expect("read t/0", "b1 plain")
	w.expect("show t/0", "end 5, stable 5, aborted [{0 0 4 5}], epochs [{1 0}]")
}

// "TransactionalId expiration": an id that was idle for long is forgotten, its producer cannot go on (B.10).
func TestIDExpires(t *testing.T) {
	w := newWorld(t, Config{})
	w.topic("t", 1)
	w.run("init")
	w.tick(7*24*3600*1000 - 1)
	w.expect("add t/0", "ok")
	w.expect("end v=3 commit", "ok")
	w.tick(7 * 24 * 3600 * 1000)
	w.expect("add t/0", "INVALID_PRODUCER_ID_MAPPING")
	w.expect("produce t/0:0:a", "INVALID_PRODUCER_ID_MAPPING")
	w.expect("end v=3 commit", "INVALID_PRODUCER_ID_MAPPING")
	w.expect("init pid=0 epoch=0", "pid=1 epoch=0")
}

// TestForeignEpoch: a producer id that was misused outside of its transactions does not keep one from ending.
func TestForeignEpoch(t *testing.T) {
	w := newWorld(t, Config{})
	w.topic("t", 2)
	w.run("init")
	w.run("add v=3 t/0 t/1")
	w.expect("produce plain epoch=9 t/0:0:zombie", "offset 0")
	w.expect("produce v=10 t/0:0:a t/1:0:b", "INVALID_PRODUCER_EPOCH, offset 0")
	w.expect("end v=3 commit", "ok")
	w.expect("show t/0", "end 1, stable 1, aborted [], epochs [{1 0}]")
	w.expect("read t/1", "b")
	if want := (Counts{SkippedMarkers: 1}); w.counts != want {
		t.Errorf("counted %+v, want %+v", w.counts, want)
	}
}
