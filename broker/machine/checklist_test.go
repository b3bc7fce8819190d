package machine

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine/producer"
	"github.com/strandline-io/strandline/broker/machine/txn"
	"github.com/strandline-io/strandline/broker/record"
)

// The checklist of kafka-eos.md H.1 and H.2, what Apache Kafka's own tests assert of transactions and their coordinator. Here
// is what the machine alone decides and no rule of A to D says; the line numbers are those of the page's lists.
//
//	H.1.1   aborted and committed on two topics: TestH1TwoTopics in broker/brokertest
//	H.1.2   an undecided transaction before a decided one: TestH1Undecided there; TestListOffsetsBeyondTheLastStable in broker
//	H.1.3   a parked fetch tells of aborted transactions: TestParkedFetchTellsOfAborted in broker
//	H.1.4   500 records moved, every other transaction aborted: TestGroupAndTransactions in broker/brokertest
//	H.1.5   a second producer: TestZombieIsFenced; TestReplacedProducer in test/broker
//	H.1.7   the broker is dead: TestH1BrokerDead in broker/brokertest
//	H.1.8   timeout: testdata/timeout.txt; TestTimeout in test/broker
//	H.1.9   20 partitions in one end: TestH1ManyPartitions in broker/brokertest
//	H.1.11  a failed batch: TestH1FailedBatch in broker/brokertest
//	H.1.12  the fencing write fails: docs/compat.md
//	H.1.13  B.8 and H.1; TestH1OneInFlight in broker/brokertest
//	H.1.14  bounce: TestKillStorm in test/broker, TestTransactionalMessageCopier in test/clients
//	H.1.16  idle past expiry: TestForgottenProducerGoesOn, H.1.16 below
//	H.1.17  1,001 producer ids: TestProducerIDsInParallel in broker
//	H.2.1   TestB3…, TestB4…, TestB7…, TestB8…; 14 and 16: docs/compat.md
//	H.2.2   B.3 row 2, rows 6 to 9     H.2.3  TestPassing in txn/script_test.go; docs/compat.md, key 22
//	H.2.5   TestAfterAFailureNothingIsAnswered in broker/sequencer; docs/compat.md
//	H.2.6   B.12; TestCommitAfterKill; snapshots that lie: TestRestoreRefuses in txn/restore_test.go
//	H.2.8   B.9; sender side: docs/compat.md
//	H.2.9   TestB15Views; a bad pattern: TestListTransactionsByPattern in broker
var checklist = []rule{
	{"H.1.6 offset, leader epoch and metadata of an offset", `
		topic in 1
		init
		txncommit group=g leader=7 metadata=3 in/0=5 → ok
		end commit                → pid=0 epoch=1
		recover
		fetch group=g stable in/0 → offset 5 of leader epoch 7, metadata "mmm"`},
	{"H.1.11 a batch that failed makes the transaction abortable, and its producer goes on", `
		topic t 1
		init
		produce t/0:0:a           → offset 0
		produce t/0:2:gap         → OUT_OF_ORDER_SEQUENCE_NUMBER
		end                       → pid=0 epoch=1
		produce epoch=1 t/0:0:b   → offset 2
		end epoch=1 commit        → pid=0 epoch=2
		read t/0                  → b`},
	{"H.1.11 with version 1 by InitProducerId", `
		topic t 1
		init v=4
		add t/0
		produce v=11 t/0:0:a      → offset 0
		produce v=11 t/0:2:gap    → OUT_OF_ORDER_SEQUENCE_NUMBER
		end v=4                   → ok
		init v=4 pid=0 epoch=0    → pid=0 epoch=1
		add epoch=1 t/0           → ok
		produce v=11 epoch=1 t/0:0:b → offset 2
		end v=4 epoch=1 commit    → ok
		read t/0                  → b`},
	{"H.1.15 a transactional id that expired", `
		topic t 1
		init v=4
		wait ms=604800000
		produce v=11 t/0:0:a      → INVALID_PRODUCER_ID_MAPPING
		produce v=12 t/0:0:a      → INVALID_PRODUCER_ID_MAPPING
		add t/0                   → INVALID_PRODUCER_ID_MAPPING
		init v=4                  → pid=1 epoch=0
		add pid=1 t/0             → ok`},
	{"H.2.4 a transaction that ended in time is not aborted", `
		topic t 1
		init timeout=1000
		add t/0                   → ok
		wait ms=999
		end v=4 commit            → ok
		wait ms=100000            → 0 units
		entry                     → CompleteCommit pid=0 epoch=0 prev=-1 last=-1 timeout=1000 open-for=-1 in [] []`},
	{"H.2.4 a timeout lowers no epoch", `
		topic t 1
		init timeout=1000
		produce t/0:0:a           → offset 0
		init timeout=1000         → pid=0 epoch=2
		wait ms=1000              → 0 units
		add epoch=2 t/0           → ok
		wait ms=1000              → 1 units
		entry                     → CompleteAbort pid=0 epoch=3 prev=-1 last=2 timeout=1000 open-for=-1 in [] []`},
	{"H.2.9 a clock that runs backwards", `
		topic t 1
		topic in 1
		init timeout=1000
		wait ms=10000
		produce t/0:0:a           → offset 0
		sleep ms=-5000
		produce t/0:1:b           → offset 1
		txncommit group=g in/0=1  → ok
		end commit                → pid=0 epoch=1
		init pid=0 epoch=1 timeout=1000 → pid=0 epoch=2
		add epoch=2 t/0           → ok
		recover
		wait ms=5999              → 0 units
		wait ms=1                 → 1 units
		read t/0                  → a b`},
	{"H.2.9 an id that is expiring is not found", `
		init
		wait ms=604799999         → 0 units
		describe pay              → pay Empty pid=0 epoch=0 timeout=60000 open-for=-1
		wait ms=1                 → 1 units
		describe pay              → TRANSACTIONAL_ID_NOT_FOUND
		list                      → ok`},
}

func TestChecklist(t *testing.T) { checkRules(t, Config{}, checklist...) }

// H.1.10: timeouts push the epoch to its end; the producer recovers, its id rotates, and no epoch is ever negative.
func TestH1EpochsAtTheEnd(t *testing.T) {
	for _, start := range []int16{32764, 32765, 32766} {
		pushEpoch(t, start, "end")
		pushEpoch(t, start, "init")
	}
	pushEpoch(t, 32767, "init") // no client is given this one: who has it learns nothing by EndTxn
}

func pushEpoch(t *testing.T, start int16, recovers string) {
	t.Helper()
	w := newWorld(t, Config{})
	w.script("topic t 1 \n init timeout=1000")
	raiseEpoch(w, start)
	pid, epoch := int64(0), start
	for round := range 6 {
		w.expect(fmt.Sprintf("produce pid=%d epoch=%d t/0:0:x", pid, epoch), fmt.Sprint("offset ", 2*round))
		w.tick(1000)
		answer := w.run(fmt.Sprintf("%s pid=%d epoch=%d timeout=1000", recovers, pid, epoch))
		if _, err := fmt.Sscanf(answer, "pid=%d epoch=%d", &pid, &epoch); err != nil || epoch < 0 || epoch > txn.MaxEpoch {
			t.Fatalf("from %d, round %d: %s is answered %s", start, round, recovers, answer)
		}
	}
	if pid == 0 {
		t.Errorf("from %d by %s: the producer id never rotated", start, recovers)
	}
	w.expect(fmt.Sprintf("produce pid=%d epoch=%d t/0:0:last", pid, epoch), "offset 12")
	w.run(fmt.Sprintf("end pid=%d epoch=%d commit", pid, epoch))
	w.expect("read t/0", "last")
}

// H.1.15, H.1.16: the partition forgot a producer whose transactional id lives, or who has none.
func TestH1ForgottenByThePartition(t *testing.T) {
	checkRules(t, Config{Producer: producer.Config{ExpirationMs: 1000}},
		rule{"H.1.15 version 1: one epoch on", `
			topic t 1
			init v=4
			add t/0
			produce v=10 t/0:0:a            → offset 0
			end v=4 commit                  → ok
			wait ms=1000                    → 1 units
			producers t/0                   →
			init v=4 pid=0 epoch=0          → pid=0 epoch=1
			add epoch=1 t/0                 → ok
			produce v=10 epoch=1 t/0:0:b    → offset 2`},
		rule{"H.1.15 version 2: two epochs on", `
			topic t 1
			init
			produce t/0:0:a                 → offset 0
			end commit                      → pid=0 epoch=1
			wait ms=1000                    → 1 units
			init pid=0 epoch=1              → pid=0 epoch=2
			produce epoch=2 t/0:0:b         → offset 2`},
		rule{"H.1.16 an idempotent producer, also over a restart", `
			topic t 1
			init plain
			produce plain t/0:0:a           → offset 0
			recover
			wait ms=1000                    → 1 units
			recover
			produce plain t/0:1:b           → offset 1
			produce plain t/0:1:b           → offset 1
			produce plain t/0:3:d           → OUT_OF_ORDER_SEQUENCE_NUMBER`})
}

// H.2.7: what expires goes in bounded portions, the ids that are idle for the longest first, and open ones stay.
func TestH2ExpiryIsBounded(t *testing.T) {
	w := newWorld(t, Config{Txn: txn.Config{IDExpirationMs: 1000}})
	w.quiet = true
	w.topic("t", 1)
	for i := range maxExpiriesPerTick + 2 {
		w.run(fmt.Sprintf("init id=id%d timeout=900000", i))
	}
	w.run("add id=id0 pid=0 t/0")
	w.now.WallMs, w.now.EngineMs = w.now.WallMs+1000, w.now.EngineMs+1000
	left := func() int {
		return len(w.ask(kmsg.NewPtrListTransactionsRequest(), 0).(*kmsg.ListTransactionsResponse).TransactionStates)
	}
	for _, want := range []int{2, 1, 1} {
		w.do(&Tick{})
		if got := left(); got != want {
			t.Errorf("%d ids are left, want %d", got, want)
		}
	}
	w.expect("describe id0", "id0 Ongoing pid=0 epoch=0 timeout=900000 open-for=1000 t[0]")
	w.compare()
}

// kafka-eos.md J, the design's text and what shipped: there is no request that begins a transaction; markers carry COMMIT
// as true. Codes: TestB3OldVersionsOfFenced, B.3 to B.8; permissions: B.3 pre-check 2, TestDenied; AddPartitionsToTxn answers by
// partition: B.4; 46 is never sent: TestIdempotence. Batches: broker/record.
func TestJDesignText(t *testing.T) {
	checkRules(t, Config{},
		rule{"J a transaction begins with its first partition", `
			topic t 1
			init timeout=1000
			wait ms=5000            → 0 units
			end v=4 commit          → INVALID_TXN_STATE
			add t/0                 → ok
			end v=4 commit          → ok`},
		rule{"J a duplicate that is too old is out of order, not 46", `
			topic t 1
			init plain
			produce plain t/0:0:a t/0:1:b t/0:2:c t/0:3:d t/0:4:e t/0:5:f → offset 0, offset 1, offset 2, offset 3, offset 4, offset 5
			produce plain t/0:0:a   → OUT_OF_ORDER_SEQUENCE_NUMBER
			produce plain t/0:1:b   → offset 1`})
	for commit, want := range map[string]byte{"": 0, "commit": 1} {
		w := newWorld(t, Config{})
		topic := w.topic("t", 1)
		w.run("init")
		w.run("produce t/0:0:a")
		w.run("end " + commit)
		log := w.logs[topic.Partitions[0]]
		marker := log[len(log)-1]
		h, err := record.ParseHeader(marker)
		if err != nil || !h.Control() || !h.Transactional() {
			t.Fatalf("the marker is %+v, %v", h, err)
		}
		var r record.Record
		it := record.Records(marker[record.HeaderSize:], h.RecordCount)
		if !it.Next(&r) || len(r.Key) != 4 || r.Key[1] != 0 || r.Key[3] != want {
			t.Errorf("the marker of %q has key %x, want type %d", commit, r.Key, want)
		}
	}
}
