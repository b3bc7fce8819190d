package machine

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine/producer"
	"github.com/strandline-io/strandline/broker/machine/txn"
)

// The rules of kafka-eos.md B.9 to B.13: how transactions end, by their markers, by time, and over a restart. See
// kip98_coordinator_test.go.

var b9 = []rule{
	{"B.9 sender, a partition that is deleted is done", `
		topic t 1
		topic u 1
		init
		produce t/0:0:a u/0:0:b   → offset 0, offset 0
		delete t
		end commit                → pid=0 epoch=1
		read u/0                  → b`},
	{"B.9 sender, 47: decided in that partition already, the others end", `
		topic t 2
		init
		produce t/0:0:a t/1:0:b   → offset 0, offset 0
		markers epoch=7 t/0       → ok
		end commit                → pid=0 epoch=1
		entry                     → CompleteCommit pid=0 epoch=1 prev=-1 last=0 timeout=60000 open-for=-1 in [] []
		read t/0                  →
		read t/1                  → b`},
	{"B.9 receiver, ALTER or CLUSTER_ACTION on the cluster", `
		topic t 2
		init
		produce t/0:0:a t/1:0:b   → offset 0, offset 0
		deny alter cluster kafka-cluster
		markers t/0               → ok
		allow
		deny cluster_action cluster kafka-cluster
		markers t/1               → ok
		deny alter cluster kafka-cluster
		markers t/0 none/0        → CLUSTER_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED`},
	{"B.9 receiver, unknown partitions, which __consumer_offsets is", `
		topic t 1
		markers t/1 none/0 __consumer_offsets/0 t/0 → UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_OR_PARTITION ok`},
	{"B.9 order, the answer of EndTxn comes after everything is visible", `
		topic t 1
		topic in 1
		init v=4
		add v=3 t/0
		offsets v=3 g
		produce v=10 t/0:0:a      → offset 0
		txncommit v=3 group=g in/0=4 → ok
		writes end v=4 commit     → 1 units: ok
		read t/0                  → a
		fetch group=g stable in/0 → offset 4
		# So what follows at once meets no CONCURRENT_TRANSACTIONS.
		add v=3 t/0               → ok
		produce v=10 t/0:1:b      → offset 2`},
}

func TestB9Markers(t *testing.T) { checkRules(t, Config{}, b9...) }

// B.9: the response of WriteTxnMarkers has one entry for each producer id.
func TestB9MarkersOfOneProducerMerge(t *testing.T) {
	w := newWorld(t, Config{})
	w.script("topic t 2 \n topic u 1")
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	for i, topic := range []string{"t", "t", "none"} {
		m := kmsg.NewWriteTxnMarkersRequestMarker()
		m.ProducerID, m.ProducerEpoch = int64(5+i%2), 1
		m.Topics = []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: topic, Partitions: []int32{int32(i % 2)}}}
		req.Markers = append(req.Markers, m)
	}
	got := ""
	for _, m := range w.ask(req, 1).(*kmsg.WriteTxnMarkersResponse).Markers {
		got += fmt.Sprintf("%d:", m.ProducerID)
		for _, x := range m.Topics {
			got += fmt.Sprintf(" %s/%d %s", x.Topic, x.Partitions[0].Partition, errorName(x.Partitions[0].ErrorCode))
		}
		got += "; "
	}
	if want := "5: t/0 ok none/0 UNKNOWN_TOPIC_OR_PARTITION; 6: t/1 ok; "; got != want {
		t.Errorf("answered %s, want %s", got, want)
	}
}

var b10 = []rule{
	{"B.10 row 1, the clock starts at the first partition or group", `
		topic t 1
		init timeout=1000
		wait ms=5000              → 0 units
		offsets g                 → ok
		wait ms=600               → 0 units
		add t/0                   → ok
		wait ms=399               → 0 units
		wait ms=1                 → 1 units
		entry                     → CompleteAbort pid=0 epoch=1 prev=-1 last=0 timeout=1000 open-for=-1 in [] []`},
	{"B.10 row 1, fence and abort, with one bump", `
		topic t 1
		topic in 1
		init timeout=1000
		produce t/0:0:a           → offset 0
		txncommit group=g in/0=3  → ok
		wait ms=1000              → 1 units
		producers t/0             → [pid=0 epoch=1 seq=-1 coordinator=1 open=-1]
		read t/0                  →
		fetch group=g stable in/0 → offset -1
		wait ms=100000            → 0 units
		produce t/0:1:b           → INVALID_PRODUCER_EPOCH
		init pid=0 epoch=1        → pid=0 epoch=2`},
	{"B.10 row 1, the timeout of the newest InitProducerId counts", `
		topic t 1
		init timeout=1000
		init timeout=3000
		add epoch=1 t/0           → ok
		wait ms=2999              → 0 units
		wait ms=1                 → 1 units`},
	{"B.10 row 1, over a restart from a snapshot", `
		topic t 1
		init timeout=1000
		produce t/0:0:a           → offset 0
		wait ms=700               → 0 units
		restart
		wait ms=299               → 0 units
		wait ms=1                 → 1 units
		show t/0                  → end 2, stable 2, aborted [{0 0 1 2}], epochs [{1 0} {2 1}]`},
	{"B.10 row 1, over a restart from the journal, the broker down at the deadline", `
		topic t 1
		init timeout=1000
		produce t/0:0:a           → offset 0
		sleep ms=1500
		recover
		wait ms=0                 → 1 units
		entry                     → CompleteAbort pid=0 epoch=1 prev=-1 last=0 timeout=1000 open-for=-1 in [] []`},
	{"B.10 row 2, an id that was used lately stays, one that is open too", `
		topic t 1
		init id=empty
		init id=open timeout=900000
		add id=open pid=1 t/0     → ok
		wait ms=900000            → 1 units
		entry id=open             → CompleteAbort pid=1 epoch=1 prev=-1 last=0 timeout=900000 open-for=-1 in [] []
		wait ms=603899999
		entry id=empty            → Empty pid=0 epoch=0 prev=-1 last=-1 timeout=60000 open-for=-1 in [] []
		wait ms=1                 → 1 units
		entry id=empty            → unknown
		wait ms=899999            → 0 units
		wait ms=1                 → 1 units
		entry id=open             → unknown`},
	{"B.10, last paragraph: what the producer of an expired id hears", `
		topic t 1
		init
		produce t/0:0:a           → offset 0
		end commit                → pid=0 epoch=1
		wait ms=604800000
		add epoch=1 t/0           → INVALID_PRODUCER_ID_MAPPING
		offsets epoch=1 g         → INVALID_PRODUCER_ID_MAPPING
		produce epoch=1 t/0:0:b   → INVALID_PRODUCER_ID_MAPPING
		produce v=11 epoch=1 t/0:0:b → INVALID_PRODUCER_ID_MAPPING
		txncommit epoch=1 group=g t/0=1 → INVALID_PRODUCER_ID_MAPPING
		end epoch=1 commit        → INVALID_PRODUCER_ID_MAPPING
		describe pay              → TRANSACTIONAL_ID_NOT_FOUND
		init pid=0 epoch=1        → pid=1 epoch=0
		produce pid=1 t/0:0:c     → offset 2`},
}

func TestB10TimeoutsAndExpiry(t *testing.T) { checkRules(t, Config{}, b10...) }

// B.10: partition-level state may outlive the id, and the id it.
func TestB10WhatOutlivesWhat(t *testing.T) {
	const script = `
		topic t 1
		init
		produce t/0:0:a           → offset 0
		end commit                → pid=0 epoch=1
		wait ms=1000              → 1 units
		`
	checkRules(t, Config{Txn: txn.Config{IDExpirationMs: 1000}},
		rule{"B.10 the partition's state outlives the id", script + `
			entry                 → unknown
			producers t/0         → [pid=0 epoch=1 seq=-1 coordinator=1 open=-1]`})
	checkRules(t, Config{Producer: producer.Config{ExpirationMs: 1000}},
		rule{"B.10 the id outlives the partition's state", script + `
			entry                 → CompleteCommit pid=0 epoch=1 prev=-1 last=0 timeout=60000 open-for=-1 in [] []
			producers t/0         →
			produce epoch=1 t/0:0:b → offset 2
			end epoch=1 commit    → pid=0 epoch=2
			read t/0              → a b`},
		rule{"B.10 an open transaction keeps the partition's state", `
			topic t 1
			init
			produce t/0:0:a       → offset 0
			wait ms=5000          → 0 units
			produce t/0:1:b       → offset 1`})
}

// B.12 and B.13: what a broker finds after it died anywhere around an end. There is nothing between before and after: the
// end is one unit.
func TestB13PartialFailures(t *testing.T) {
	for _, down := range []string{"restart", "recover"} {
		checkRules(t, Config{},
			rule{"B.13 row 1, before the end is durable: the client asks again, " + down, `
				topic t 1
				init
				produce t/0:0:a         → offset 0
				` + down + `
				end commit              → pid=0 epoch=1
				read t/0                → a`},
			rule{"B.13 row 1, before the end is durable: the time is up, " + down, `
				topic t 1
				init timeout=1000
				produce t/0:0:a         → offset 0
				` + down + `
				wait ms=1000            → 1 units
				end commit              → INVALID_TXN_STATE`},
			rule{"B.13 row 5, the answer of version 1 is lost, " + down, `
				topic t 1
				init
				add t/0                 → ok
				end v=4 commit          → ok
				` + down + `
				writes end v=4 commit   → 0 units: ok
				end v=4                 → INVALID_TXN_STATE`},
			rule{"B.13 row 5, the answer of version 2 is lost, " + down, `
				topic t 1
				init
				add t/0                 → ok
				end commit              → pid=0 epoch=1
				` + down + `
				writes end commit       → 0 units: pid=0 epoch=1
				end                     → INVALID_TXN_STATE`},
			rule{"B.13 row 5 and KAFKA-20310, it told of another producer id, " + down, `
				topic t 1
				init
				epoch to=32766
				add epoch=32766 t/0     → ok
				end epoch=32766         → pid=1000 epoch=0
				` + down + `
				writes end epoch=32766  → 0 units: pid=1000 epoch=0
				init pid=0 epoch=32766  → pid=1000 epoch=0`},
			rule{"B.12 an open transaction goes on with its clock, " + down, `
				topic t 1
				init timeout=1000
				add t/0                 → ok
				wait ms=400             → 0 units
				` + down + `
				entry                   → Ongoing pid=0 epoch=0 prev=-1 last=-1 timeout=1000 open-for=400 in [1] []
				wait ms=599             → 0 units
				wait ms=1               → 1 units`},
			rule{"B.12 an id that expired stays gone, " + down, `
				init
				wait ms=604800000       → 1 units
				` + down + `
				describe pay            → TRANSACTIONAL_ID_NOT_FOUND`})
	}
}

// B.13, last but one row: a topic that is made again within a transaction is another topic, and gets no marker.
func TestB13TopicMadeAgain(t *testing.T) {
	checkRules(t, Config{}, rule{"B.13 row 8", `
		topic t 1
		init
		produce t/0:0:a → offset 0
		delete t
		topic t 1
		end commit      → pid=0 epoch=1
		show t/0        → end 0, stable 0, aborted [], epochs []`})
}
