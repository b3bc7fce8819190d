package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine/producer"
	"github.com/strandline-io/strandline/broker/record"
)

// The rules of kafka-eos.md A, an idempotent producer at its partition, through the whole machine, and with them H.3, what Apache
// Kafka's own tests assert of that. What else tests them:
//
//	A.1   five batches, another epoch empties them: producer/testdata/a4_sequences.txt; a bound of its own: TestProducerBound
//	A.2   control batches of clients: TestProduceOrder, TestCheckBatch in broker/record; replay asks nothing: FuzzReplay
//	A.3   TestProduceOrder, TestProduceRefusals; with real bytes: TestA3Order in broker
//	A.4   without the machine: producer/testdata/a4_*.txt; every history of four events, and of nine with three disturbances,
//	      against a model: TestEveryShortHistory, TestEveryDisturbance; arithmetic: TestSequences in broker/record
//	A.5   without the machine: producer/testdata/a5_markers.txt, by requests: testdata/markers.txt; an empty control batch, and a
//	      marker that names no transaction version: docs/compat.md
//	A.6   two producers in one Produce: TestProduceRefusals; timed out: testdata/timeout.txt; the other lines are rows of A.4, A.5
//	A.7   verified and appended in one step: TestNothingHangs, testdata/transaction_v1.txt; what must come first:
//	      TestStaleBatchIsNotOvertaken, TestBoundOfRefusals; guards, 19 and 51: docs/compat.md
//	A.8   producer/testdata/a8_expiry.txt, TestForgottenProducerGoesOn, H.1.16 in checklist_test.go
//	A.9   other bytes: docs/compat.md, docs/formats/snapshot.md
//	A.10  every unit of every test here replays into the same state (world_test.go); kills: TestKillStorm in test/broker
//
//	H.3   late transactions, snapshots by segment, compacted data: docs/compat.md; the others have their number below, or in A

// again marks the place of a script at which the broker may start anew: what is behind it must hold whether it did, out of a
// snapshot or out of its journal, or not.
const again = "---"

// checkAgain runs rules with every kind of start.
func checkAgain(t *testing.T, cfg Config, rules ...rule) {
	t.Helper()
	for _, r := range rules {
		for _, how := range []string{"", "restart", "recover"} {
			t.Run(strings.TrimSpace(r.name+" "+how), func(t *testing.T) {
				if !strings.Contains(r.script, again) {
					t.Fatal("the script does not say where to start anew")
				}
				newWorld(t, cfg).script(strings.ReplaceAll(r.script, again, how))
			})
		}
	}
}

var a4 = []rule{
	{"A.4 row 1, one of the last five batches", `
		topic t 1
		init plain
		produce plain t/0:0:a,b     → offset 0
		produce plain t/0:2:c       → offset 2
		produce plain t/0:3:d,e     → offset 3
		produce plain t/0:5:f       → offset 5
		produce plain t/0:6:g       → offset 6
		---
		writes produce plain t/0:0:a,b → 0 units: offset 0
		produce plain t/0:2:c       → offset 2
		produce plain t/0:3:d,e     → offset 3
		produce plain t/0:5:f       → offset 5
		produce plain t/0:6:g       → offset 6
		produce plain t/0:7:h       → offset 7
		# Now it is the sixth.
		writes produce plain t/0:0:a,b → 0 units: OUT_OF_ORDER_SEQUENCE_NUMBER
		produce plain t/0:2:c       → offset 2`},
	{"A.4 row 1, of a transaction that is over", `
		topic t 1
		init v=4
		add t/0
		produce v=10 t/0:0:a        → offset 0
		end v=4 commit
		add t/0
		---
		produce v=10 t/0:0:a        → offset 0
		produce v=10 t/0:1:b        → offset 2`},
	{"A.4 row 2, behind the epoch: before it is asked whether it is in the transaction", `
		topic t 2
		init v=4
		init v=4
		add epoch=1 t/0
		produce v=10 epoch=1 t/0:0:a → offset 0
		---
		writes produce v=10 t/0:0:b → 0 units: INVALID_PRODUCER_EPOCH
		writes produce v=11 t/0:0:b → 0 units: INVALID_PRODUCER_EPOCH
		writes produce v=12 t/0:0:b → 0 units: INVALID_PRODUCER_EPOCH
		# The coordinator, which is asked where the partition knows nothing, calls it by its own name.
		writes produce v=10 t/1:0:b → 0 units: INVALID_PRODUCER_EPOCH
		writes produce v=12 t/1:0:b → 0 units: INVALID_PRODUCER_EPOCH`},
	{"A.4 row 2, H.3 behind the epoch of a marker, and not in the transaction", `
		topic t 1
		init v=4
		markers epoch=5 t/0         → ok
		---
		writes produce v=10 t/0:0:a → 0 units: INVALID_PRODUCER_EPOCH
		writes produce v=12 t/0:0:a → 0 units: INVALID_PRODUCER_EPOCH`},
	{"A.4 row 3, not in the transaction", `
		topic t 2
		init v=4
		add t/0
		produce v=10 t/0:0:a        → offset 0
		end v=4 commit
		---
		writes produce v=3 t/0:1:b  → 0 units: INVALID_TXN_STATE
		writes produce v=10 t/1:0:b → 0 units: INVALID_TXN_STATE
		writes produce v=11 t/0:1:b → 0 units: TRANSACTION_ABORTABLE
		writes produce v=12 t/1:0:b → 1 units: offset 0`},
	{"A.4 row 4, behind the epoch outside of transactions", `
		topic t 1
		init plain
		produce plain epoch=3 t/0:0:a → offset 0
		---
		writes produce plain epoch=2 t/0:0:a → 0 units: INVALID_PRODUCER_EPOCH
		writes produce plain epoch=0 t/0:1:b → 0 units: INVALID_PRODUCER_EPOCH`},
	{"A.4 row 6, a transaction of version 2 begins at 0, also where nobody knows the producer", `
		topic t 1
		init
		---
		produce t/0:1:b             → OUT_OF_ORDER_SEQUENCE_NUMBER
		produce t/0:0:a             → offset 0
		produce t/0:1:b             → offset 1`},
	{"A.4 row 6, the next transaction of version 2", `
		topic t 1
		init
		produce t/0:0:a             → offset 0
		end commit                  → pid=0 epoch=1
		---
		produce epoch=1 t/0:1:b     → OUT_OF_ORDER_SEQUENCE_NUMBER
		produce epoch=1 t/0:0:b     → offset 2`},
	{"A.4 row 6 is not for version 1", `
		topic t 1
		init v=4
		add t/0
		---
		produce v=11 t/0:7:a        → offset 0
		produce v=11 t/0:8:b        → offset 1`},
	{"A.4 row 7, a new epoch begins at 0", `
		topic t 1
		init plain
		produce plain t/0:0:a       → offset 0
		---
		writes produce plain epoch=1 t/0:1:b → 0 units: OUT_OF_ORDER_SEQUENCE_NUMBER
		produce plain t/0:1:b       → offset 1`},
	{"A.4 row 8, and what was remembered of the old one is gone", `
		topic t 1
		init plain
		produce plain t/0:0:a       → offset 0
		produce plain t/0:1:b       → offset 1
		produce plain epoch=4 t/0:0:c → offset 2
		---
		produce plain t/0:1:b       → INVALID_PRODUCER_EPOCH
		produce plain epoch=4 t/0:1:b → offset 3
		produce plain epoch=4 t/0:0:c → offset 2`},
	{"A.4 row 9, an unknown producer begins anywhere", `
		topic t 1
		init plain
		---
		produce plain epoch=5 t/0:100:a → offset 0
		produce plain epoch=5 t/0:99:z  → OUT_OF_ORDER_SEQUENCE_NUMBER
		produce plain epoch=5 t/0:101:b → offset 1`},
	{"A.4 row 10, only a marker is known of this epoch", `
		topic t 1
		init plain
		produce plain t/0:0:a       → offset 0
		markers epoch=3 t/0         → ok
		---
		writes produce plain epoch=3 t/0:1:b → 0 units: OUT_OF_ORDER_SEQUENCE_NUMBER
		produce plain epoch=3 t/0:0:b → offset 2`},
	{"A.4 row 11, what comes next, from the last sequence on to 0", `
		topic t 1
		init plain
		produce plain t/0:2147483646:a,b → offset 0
		---
		produce plain t/0:1:z       → OUT_OF_ORDER_SEQUENCE_NUMBER
		produce plain t/0:2147483647:z → OUT_OF_ORDER_SEQUENCE_NUMBER
		produce plain t/0:0:c       → offset 2
		produce plain t/0:2147483646:a,b → offset 0`},
	{"A.4 row 11, a batch that wraps inside", `
		topic t 1
		init plain
		produce plain t/0:2147483642:a,b,c,d,e,f,g,h,i,j → offset 0
		---
		produce plain t/0:2147483642:a,b,c,d,e,f,g,h,i,j → offset 0
		produce plain t/0:3:z       → OUT_OF_ORDER_SEQUENCE_NUMBER
		produce plain t/0:5:z       → OUT_OF_ORDER_SEQUENCE_NUMBER
		produce plain t/0:4:k       → offset 10`},
	{"A.4 row 12, a gap, an overlap, another cut of the same records", `
		topic t 1
		init plain
		produce plain t/0:0:a,b,c   → offset 0
		produce plain t/0:3:d       → offset 3
		---
		writes produce plain t/0:5:f     → 0 units: OUT_OF_ORDER_SEQUENCE_NUMBER
		writes produce plain t/0:2:c,d   → 0 units: OUT_OF_ORDER_SEQUENCE_NUMBER
		writes produce plain t/0:0:a,b   → 0 units: OUT_OF_ORDER_SEQUENCE_NUMBER
		writes produce plain t/0:1:b,c   → 0 units: OUT_OF_ORDER_SEQUENCE_NUMBER
		writes produce plain t/0:0:a,b,c,d → 0 units: OUT_OF_ORDER_SEQUENCE_NUMBER
		writes produce plain t/0:3:d,e   → 0 units: OUT_OF_ORDER_SEQUENCE_NUMBER
		produce plain t/0:4:e       → offset 4`},
	{"A.4 row 13, a plain batch in an open transaction", `
		topic t 2
		init
		produce t/0:0:a             → offset 0
		---
		writes produce plain t/0:1:b → 0 units: INVALID_TXN_STATE
		# In another partition nothing is open.
		produce plain t/1:0:b       → offset 0
		produce t/0:1:b             → offset 1`},
	{"A.4 row 14, the first batch opens the transaction where it lies", `
		topic t 1
		produce plain t/0:-:x,y,z   → offset 0
		init
		produce t/0:0:a             → offset 3
		produce t/0:1:b             → offset 4
		---
		producers t/0               → [pid=0 epoch=0 seq=1 coordinator=-1 open=3]
		read t/0                    → x y z
		produce t/0:2:c             → offset 5
		producers t/0               → [pid=0 epoch=0 seq=2 coordinator=-1 open=3]
		end commit                  → pid=0 epoch=1
		read t/0                    → x y z a b c`},
	{"A.4, A.5 with version 1 sequences go on across transactions", `
		topic t 1
		init v=4
		add t/0
		produce v=10 t/0:0:a        → offset 0
		end v=4
		add t/0
		---
		produce v=10 t/0:2:c        → OUT_OF_ORDER_SEQUENCE_NUMBER
		produce v=10 t/0:1:b        → offset 2
		end v=4 commit              → ok
		read t/0                    → b`},
}

func TestA4DecisionTable(t *testing.T) {
	checkAgain(t, Config{}, a4...)
	// What waits for an earlier batch is volatile: the client that was refused sends again, whatever has started anew.
	checkRules(t, Config{}, rule{"A.4 row 5, the batch that was refused first comes first", `
		topic t 1
		init v=4
		produce v=10 t/0:4:e        → INVALID_TXN_STATE
		produce v=10 t/0:2:c,d      → INVALID_TXN_STATE
		add t/0                     → ok
		writes produce v=10 t/0:4:e → 0 units: OUT_OF_ORDER_SEQUENCE_NUMBER
		produce v=10 t/0:2:c,d      → offset 0
		produce v=10 t/0:4:e        → offset 2`})
}

// A.4 row 1: a duplicate is told where its original lies, when that was appended, and where the log starts now.
func TestA4DuplicateInFull(t *testing.T) {
	w := newWorld(t, Config{})
	w.create("t", kmsg.CreateTopicsRequestTopicConfig{Name: "message.timestamp.type", Value: kmsg.StringPtr("LogAppendTime")})
	w.run("init plain")
	first := w.now.WallMs
	w.run("produce plain t/0:0:a,b")
	w.now.WallMs += 50
	w.run("produce plain t/0:2:c")
	w.run("delete-records t/0=2")
	w.restart()
	w.now.WallMs += 50
	d := plain("t", 0, "a", "b")
	d.producerID, d.epoch, d.seq = 0, 0, 0
	r := w.produce(9, nil, d)[0]
	if r.Code != 0 || r.BaseOffset != 0 || r.LogAppendTimeMs != first || r.LogStartOffset != 2 {
		t.Errorf("the duplicate of a batch at offset 0, appended at %d, is answered %+v", first, r)
	}
}

// A.5: may a marker go in? By its epoch, and whether a transaction of epoch 5 is open or over.
func TestA5Markers(t *testing.T) {
	const fenced = "INVALID_PRODUCER_EPOCH"
	for _, c := range []struct {
		epoch, version    int
		whenOpen, whenEnd string
	}{
		{4, 0, fenced, fenced}, {4, 2, fenced, fenced},
		{5, 0, "ok", "ok"}, {5, 1, "ok", "ok"},
		{5, 2, fenced, "ok"}, // too late for the open one; else the retry of what was answered in vain
		{6, 0, "ok", "ok"}, {6, 2, "ok", "ok"},
	} {
		ask := func(want string) string {
			units := map[string]int{"ok": 1}[want]
			return fmt.Sprintf("writes markers epoch=%d tv=%d cepoch=1 t/0 → %d units: %s", c.epoch, c.version, units, want)
		}
		begin := "topic t 1\n init\n epoch to=5\n produce epoch=5 t/0:0:a → offset 0\n"
		end := "markers epoch=5 cepoch=1 t/0 → ok\n"
		name := fmt.Sprintf("A.5 epoch %d of version %d", c.epoch, c.version)
		checkAgain(t, Config{},
			rule{name + " while one is open", begin + again + "\n" + ask(c.whenOpen)},
			rule{name + " when it is over", begin + end + again + "\n" + ask(c.whenEnd)})
	}
	// An older coordinator, H.3 also of an empty transaction and after a start.
	checkAgain(t, Config{},
		rule{"A.5 an older coordinator", `
			topic t 1
			init
			produce t/0:0:a                 → offset 0
			markers cepoch=1 t/0            → ok
			---
			writes markers cepoch=0 t/0     → 0 units: TRANSACTION_COORDINATOR_FENCED
			writes markers epoch=9 cepoch=0 t/0 → 0 units: TRANSACTION_COORDINATOR_FENCED
			# The epoch is looked at first.
			markers epoch=9 cepoch=1 t/0    → ok
			markers epoch=8 cepoch=0 t/0    → INVALID_PRODUCER_EPOCH`})
}

// A.5, the effects of a marker that went in.
func TestA5Effects(t *testing.T) {
	checkRules(t, Config{},
		rule{"A.5 an abort of something has an entry, one of nothing has none and moves nothing else", `
			topic t 1
			init id=other
			produce id=other t/0:0:x    → offset 0
			init
			produce pid=1 t/0:0:a       → offset 1
			markers pid=1 t/0           → ok
			show t/0                    → end 3, stable 0, aborted [{1 1 2 0}], epochs [{1 0}]
			markers pid=1 cepoch=1 t/0  → ok
			show t/0                    → end 4, stable 0, aborted [{1 1 2 0}], epochs [{1 0}]
			end id=other commit         → pid=0 epoch=1
			show t/0                    → end 5, stable 5, aborted [{1 1 2 0}], epochs [{1 0}]`},
		rule{"A.5 a commit has no entry", `
			topic t 1
			init
			produce t/0:0:a             → offset 0
			markers commit t/0          → ok
			show t/0                    → end 2, stable 2, aborted [], epochs [{1 0}]`},
		rule{"A.5 the epoch and the coordinator of the marker stay, batches of another epoch do not", `
			topic t 1
			init
			produce t/0:0:a             → offset 0
			markers epoch=0 t/0         → ok
			producers t/0               → [pid=0 epoch=0 seq=0 coordinator=1 open=-1]
			markers epoch=7 cepoch=1 t/0 → ok
			producers t/0               → [pid=0 epoch=7 seq=-1 coordinator=1 open=-1]`},
		rule{"A.5, A.1 a marker for an unknown producer makes it known", `
			topic t 1
			markers pid=9 epoch=3 t/0   → ok
			producers t/0               → [pid=9 epoch=3 seq=-1 coordinator=1 open=-1]
			produce plain pid=9 epoch=2 t/0:0:a → INVALID_PRODUCER_EPOCH`},
		rule{"A.5, A.7 a marker ends the wait for a batch that was refused", `
			topic t 1
			init v=4
			produce v=10 t/0:0:a        → INVALID_TXN_STATE
			markers t/0                 → ok
			add t/0                     → ok
			produce v=10 t/0:0:b        → offset 1`})
}

// A.5, C.3: the bytes of a marker. With version 2 it carries the epoch behind that of the data. It takes one offset.
func TestC3MarkerInTheLog(t *testing.T) {
	for version, want := range map[int16]int16{4: 0, 5: 1} {
		w := newWorld(t, Config{})
		id := w.topic("t", 1).Partitions[0]
		w.run("init")
		w.run("produce t/0:0:a,b")
		w.now.WallMs += 77
		w.run(fmt.Sprintf("end v=%d commit", version))
		log := w.logs[id]
		raw := log[len(log)-1]
		h, err := record.ParseHeader(raw)
		if err != nil || !record.CheckCRC(raw) || len(raw) != 78 || h.Attributes != 0x30 || h.BaseSequence != -1 || h.RecordCount != 1 ||
			h.BaseOffset != 2 || h.LastOffset() != 2 || h.BaseTimestamp != w.now.WallMs || h.MaxTimestamp != w.now.WallMs || h.ProducerEpoch != want {
			t.Errorf("EndTxn v%d at %d wrote %d bytes, %+v, %v", version, w.now.WallMs, len(raw), h, err)
		}
		m, err := record.ParseMarker(raw)
		if err != nil || m.CoordinatorEpoch != w.m.LeaderEpoch() || !m.Commit || m.ProducerID != 0 {
			t.Errorf("EndTxn v%d wrote %+v, %v", version, m, err)
		}
	}
}

// A.1, H.3: the time that is told of a producer is the largest of its last batch's records, then the marker's. It is not what
// a producer expires by (A.8): records may be of any time.
func TestA1LastTimestamp(t *testing.T) {
	w := newWorld(t, Config{Producer: producer.Config{ExpirationMs: 1000}})
	w.topic("t", 1)
	w.run("init")
	last := func() int64 {
		req := kmsg.NewPtrDescribeProducersRequest()
		req.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: "t", Partitions: []int32{0}}}
		all := w.ask(req, 0).(*kmsg.DescribeProducersResponse).Topics[0].Partitions[0].ActiveProducers
		if len(all) != 1 {
			t.Fatalf("the partition knows %+v", all)
		}
		return all[0].LastTimestamp
	}
	now := w.now.WallMs
	b := record.NewBuilder()
	b.ProducerID, b.ProducerEpoch, b.BaseSequence, b.Transactional = 0, 0, 0, true
	for _, ms := range []int64{5, 9, 7} { // of 1970
		b.Add(ms, nil, nil)
	}
	p := w.request(12, data{topic: "t", values: []string{"a"}, transactional: true})
	p.Partitions[0].Batch = b.Append(nil)
	p.Partitions[0].Header, _ = record.ParseHeader(p.Partitions[0].Batch)
	if r := w.do(p).(*ProduceReply).Partitions[0]; r.Code != 0 {
		t.Fatal(errorName(r.Code))
	}
	if got := last(); got != 9 {
		t.Errorf("the last timestamp is %d, want the largest of the batch, 9", got)
	}
	w.run("end commit")
	if got := last(); got != now {
		t.Errorf("the last timestamp is %d, want the marker's, %d", got, now)
	}
	w.tick(999)
	if got := last(); got != now {
		t.Errorf("the last timestamp is %d, want still %d", got, now)
	}
}

// A.8, H.3: who expires, and when, through every kind of start.
func TestA8Expiration(t *testing.T) {
	checkAgain(t, Config{Producer: producer.Config{ExpirationMs: 1000}},
		rule{"A.8 an idle producer", `
			topic t 1
			init plain
			produce plain t/0:0:a       → offset 0
			wait ms=999                 → 0 units
			---
			producers t/0               → [pid=0 epoch=0 seq=0 coordinator=-1 open=-1]
			wait ms=1                   → 1 units
			producers t/0               →`},
		rule{"A.8 one that expires while the broker is down is not there when it is back", `
			topic t 1
			init plain
			produce plain t/0:0:a       → offset 0
			sleep ms=1000
			---
			wait ms=0
			producers t/0               →`},
		rule{"A.8 not with an open transaction, however long", `
			topic t 1
			init timeout=900000
			produce t/0:0:a             → offset 0
			wait ms=5000                → 0 units
			---
			wait ms=5000                → 0 units
			producers t/0               → [pid=0 epoch=0 seq=0 coordinator=-1 open=0]
			end commit                  → pid=0 epoch=1
			read t/0                    → a`},
		rule{"A.8 a batch and a marker refresh it, a duplicate and a refusal do not", `
			topic t 1
			init plain
			produce plain t/0:0:a       → offset 0
			sleep ms=600
			produce plain t/0:1:b       → offset 1
			sleep ms=600
			produce plain t/0:1:b       → offset 1
			produce plain t/0:7:z       → OUT_OF_ORDER_SEQUENCE_NUMBER
			markers t/0                 → ok
			---
			wait ms=999                 → 0 units
			wait ms=1                   → 1 units
			producers t/0               →`},
		rule{"A.8, H.3 a fence without data stays as long", `
			topic t 1
			markers pid=9 epoch=3 t/0   → ok
			wait ms=999                 → 0 units
			---
			produce plain pid=9 epoch=2 t/0:0:a → INVALID_PRODUCER_EPOCH
			wait ms=1                   → 1 units
			produce plain pid=9 epoch=2 t/0:0:a → offset 1`},
		rule{"A.8, C.9 deleted records take no producer along", `
			topic t 1
			init plain
			init
			produce plain t/0:0:a       → offset 0
			produce pid=1 t/0:0:b       → offset 1
			delete-records t/0=-1       → ok from 2
			---
			producers t/0               → [pid=0 epoch=0 seq=0 coordinator=-1 open=-1] [pid=1 epoch=0 seq=0 coordinator=-1 open=1]
			produce plain t/0:0:a       → offset 0
			produce plain t/0:2:c       → OUT_OF_ORDER_SEQUENCE_NUMBER
			produce plain t/0:1:b       → offset 2
			end pid=1                   → pid=1 epoch=1`})
}

// A.10: what a journal holds up to any of its units is a state of the past: a transaction whose marker is missing is open again,
// one whose first batch is missing never was, and the next sequence is that behind the last batch.
func TestA10EveryEndOfTheJournal(t *testing.T) {
	w := newWorld(t, Config{})
	w.topic("t", 1)
	w.script(`
		init
		produce plain t/0:-:x       → offset 0
		produce t/0:0:a             → offset 1
		produce t/0:1:b,c           → offset 2
		end                         → pid=0 epoch=1
		produce epoch=1 t/0:0:d     → offset 5
		end epoch=1 commit          → pid=0 epoch=2`)
	// Each unit's state, from the one behind which something lies in the partition.
	want := []string{
		"end 1, stable 1, aborted [], epochs [{1 0}] ",
		"end 2, stable 1, aborted [], epochs [{1 0}] [pid=0 epoch=0 seq=0 coordinator=-1 open=1]",
		"end 4, stable 1, aborted [], epochs [{1 0}] [pid=0 epoch=0 seq=2 coordinator=-1 open=1]",
		"end 5, stable 5, aborted [{0 1 4 5}], epochs [{1 0}] [pid=0 epoch=1 seq=-1 coordinator=1 open=-1]",
		"end 6, stable 5, aborted [{0 1 4 5}], epochs [{1 0}] [pid=0 epoch=1 seq=0 coordinator=1 open=5]",
		"end 7, stable 7, aborted [{0 1 4 5}], epochs [{1 0}] [pid=0 epoch=2 seq=-1 coordinator=1 open=-1]",
	}
	next := []string{
		"produce t/0:0:a", "produce t/0:1:b,c", "produce t/0:3:z", "produce epoch=1 t/0:0:d", "produce epoch=1 t/0:1:z", "produce epoch=2 t/0:0:z",
	}
	var got []string
	for n := range w.journal {
		cut := newWorld(t, Config{})
		cut.journal = slices.Clone(w.journal[:n+1])
		cut.logs, cut.views = map[PartitionID][][]byte{}, map[PartitionID]View{}
		end := 0
		for _, u := range cut.journal {
			end += len(u.Batches)
		}
		if end == 0 {
			continue
		}
		for id, log := range w.logs {
			cut.logs[id] = slices.Clone(log[:end])
		}
		cut.reopen()
		got = append(got, cut.run("show t/0")+" "+cut.run("producers t/0"))
		if i := len(got) - 1; i < len(next) {
			if answer := cut.run(next[i]); !strings.HasPrefix(answer, "offset ") {
				t.Errorf("behind %d units %s is answered %s", n+1, next[i], answer)
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the states are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// reopen makes both machines what the journal says, and starts the next incarnation.
func (w *world) reopen() {
	w.t.Helper()
	w.shadow = New(w.cfg)
	for _, u := range w.journal {
		var headers [][]byte
		for _, b := range u.Batches {
			headers = append(headers, b.Bytes)
		}
		if err := w.shadow.Replay(u.Meta, headers); err != nil {
			w.t.Fatal(err)
		}
	}
	for _, v := range w.shadow.Views() {
		w.views[v.Partition] = v
	}
	w.recover()
}

// H.3 that several producers come in one unit changes nothing, nor that a unit has several partitions.
func TestH3SeveralInOneUnit(t *testing.T) {
	checkAgain(t, Config{}, rule{"H.3 several producers and partitions", `
		topic t 3
		init plain
		init
		produce t/0:0:a t/1:0:b t/2:0:c → INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_ID_MAPPING
		writes produce pid=1 t/0:0:a t/1:0:b t/0:1:c → 1 units: offset 0, offset 0, offset 1
		writes produce plain t/0:0:x t/1:0:y t/0:2:gap → 1 units: offset 2, offset 1, OUT_OF_ORDER_SEQUENCE_NUMBER
			---
		producers t/0 t/1               → [pid=0 epoch=0 seq=0 coordinator=-1 open=-1] [pid=1 epoch=0 seq=1 coordinator=-1 open=0] [pid=0 epoch=0 seq=0 coordinator=-1 open=-1] [pid=1 epoch=0 seq=0 coordinator=-1 open=0]
		writes end pid=1 commit         → 1 units: pid=1 epoch=1
		read t/0                        → a c x
		read t/1                        → b y`})
}

// H.3 the first unstable offset is that of the oldest transaction, through every start; an empty one moves nothing.
func TestH3FirstUnstable(t *testing.T) {
	checkAgain(t, Config{}, rule{"H.3 first unstable offset", `
		topic t 1
		init id=a
		init id=b
		init id=empty
		produce id=a t/0:0:a1           → offset 0
		produce id=b pid=1 t/0:0:b1     → offset 1
		add id=empty pid=2 t/0          → ok
		produce plain t/0:-:x           → offset 2
			---
		read t/0                        →
		end id=b pid=1 commit           → pid=1 epoch=1
		read t/0                        →
		end id=a                        → pid=0 epoch=1
		# The empty one is still open.
		read t/0                        → b1 x
		end id=empty pid=2              → pid=2 epoch=1
		read t/0                        → b1 x
		produce plain t/0:-:y           → offset 6
		read t/0                        → b1 x y`})
}

// C.9: DELETE on the topic, told before anything else.
func TestC9Permission(t *testing.T) {
	checkRules(t, Config{}, rule{"C.9 permission", `
		topic t 1
		produce plain t/0:-:a           → offset 0
		deny delete topic t
		delete-records t/0=1            → TOPIC_AUTHORIZATION_FAILED from -1
		delete-records t/0=9            → TOPIC_AUTHORIZATION_FAILED from -1
		allow
		delete-records t/0=1            → ok from 1`})
}
