package machine

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine/txn"
)

// The rules of kafka-eos.md B, the transaction coordinator, through the whole machine: B.2 to B.7 (KIP-98, KIP-360,
// KIP-447). B.9 to B.13 are in kip98_ends_test.go, B.8 and B.17 in kip890_rules_test.go, B.15 in kip98_views_test.go, H.1 and
// H.2 in checklist_test.go.
// What else tests them:
//
//	B.1   one broker coordinates every id: TestFindCoordinator; numbers of __transaction_state: docs/compat.md
//	B.2   which state may follow which, every pair: TestStates in txn/script_test.go; states that no request meets, because
//	      they pass within a unit, and what they would answer: TestPassing there
//	B.2   a change is seen only when it is durable: TestNothingIsSaidBeforeItIsDurable in broker/sequencer
//	B.3   to B.10 and B.17 without the machine: txn/testdata/b*.txt
//	B.6   who may commit (D.5): group/testdata/d5_members.txt; what becomes of it: group/testdata/d5_txn.txt
//	B.9   TestForeignEpoch (47 does not keep a transaction open), testdata/markers.txt, testdata/deleted_topic.txt
//	B.10  testdata/timeout.txt, TestIDExpires
//	B.11, B.12  what must survive, does, in other bytes: TestCommitAfterKill, docs/formats/; docs/compat.md
//	B.13  the end is one unit: TestAtomicOverPartitionsAndOffsets
//	B.14  TestProducerIDsAreUnique, TestReservationsAreSynced
//	B.16  InitProducerId v6 is not served: broker/wire/compat_test.go

// The states that last, and how an id gets there by requests of transaction version 1: its epoch is 1.
var lasting = map[string]string{
	"Empty":          "init \n init",
	"Ongoing":        "init \n init \n add epoch=1 t/0",
	"CompleteCommit": "init \n init \n add epoch=1 t/0 \n end v=3 epoch=1 commit",
	"CompleteAbort":  "init \n init \n add epoch=1 t/0 \n end v=3 epoch=1",
}

// in runs a script in a state that an id is brought to.
func in(t *testing.T, state, script string) {
	t.Helper()
	t.Run("in "+state, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.script("topic t 2 \n topic in 1")
		w.script(lasting[state])
		w.script("sleep ms=50")
		w.script(script)
	})
}

// B.2, second table: what each trigger makes of each state, and of the fields.
func TestB2Triggers(t *testing.T) {
	ended := []string{"Empty", "CompleteCommit", "CompleteAbort"}
	for _, state := range ended {
		in(t, state, `
			init timeout=5000       → pid=0 epoch=2
			entry                   → Empty pid=0 epoch=2 prev=-1 last=-1 timeout=5000 open-for=-1 in [] []`)
		in(t, state, `
			add epoch=1 t/1         → ok
			entry                   → Ongoing pid=0 epoch=1 prev=-1 last=-1 timeout=60000 open-for=0 in [2] []`)
		in(t, state, `
			offsets epoch=1 g       → ok
			entry                   → Ongoing pid=0 epoch=1 prev=-1 last=-1 timeout=60000 open-for=0 in [] ["g"]`)
		in(t, state, `
			produce epoch=1 t/1:0:a → offset 0
			entry                   → Ongoing pid=0 epoch=1 prev=-1 last=-1 timeout=60000 open-for=0 in [2] []`)
		in(t, state, `
			txncommit epoch=1 group=g in/0=1 → ok
			entry                   → Ongoing pid=0 epoch=1 prev=-1 last=-1 timeout=60000 open-for=0 in [] ["g"]`)
		in(t, state, `
			end epoch=1             → pid=0 epoch=2
			entry                   → CompleteAbort pid=0 epoch=2 prev=-1 last=1 timeout=60000 open-for=-1 in [] []`)
		in(t, state, `
			wait ms=604800000       → 1 units
			entry                   → unknown`)
	}
	in(t, "Ongoing", `
		add epoch=1 t/1         → ok
		offsets epoch=1 g       → ok
		entry                   → Ongoing pid=0 epoch=1 prev=-1 last=-1 timeout=60000 open-for=50 in [1 2] ["g"]`)
	in(t, "Ongoing", `
		end epoch=1 commit      → pid=0 epoch=2
		entry                   → CompleteCommit pid=0 epoch=2 prev=-1 last=1 timeout=60000 open-for=-1 in [] []`)
	in(t, "Ongoing", `
		end epoch=1             → pid=0 epoch=2
		entry                   → CompleteAbort pid=0 epoch=2 prev=-1 last=1 timeout=60000 open-for=-1 in [] []`)
	in(t, "Ongoing", `
		end v=4 epoch=1 commit  → ok
		entry                   → CompleteCommit pid=0 epoch=1 prev=-1 last=-1 timeout=60000 open-for=-1 in [] []`)
	in(t, "Ongoing", `
		wait ms=59950           → 1 units
		entry                   → CompleteAbort pid=0 epoch=2 prev=-1 last=1 timeout=60000 open-for=-1 in [] []`)
	// One unit holds the fence's bump and the answer's (docs/compat.md, key 22).
	in(t, "Ongoing", `
		init timeout=5000       → pid=0 epoch=3
		entry                   → Empty pid=0 epoch=3 prev=-1 last=-1 timeout=5000 open-for=-1 in [] []`)
}

var b3 = []rule{
	{"B.3 pre-check 1, the id may not be written", `
		deny write transactional_id pay
		init                            → TRANSACTIONAL_ID_AUTHORIZATION_FAILED
		init pid=7 timeout=0            → TRANSACTIONAL_ID_AUTHORIZATION_FAILED
		describe pay                    → TRANSACTIONAL_ID_NOT_FOUND`},
	{"B.3 pre-check 2, neither IDEMPOTENT_WRITE nor WRITE on any topic", `
		deny idempotent_write cluster kafka-cluster
		init plain                      → pid=0 epoch=0
		deny write topic -
		init plain                      → CLUSTER_AUTHORIZATION_FAILED
		init plain pid=3                → CLUSTER_AUTHORIZATION_FAILED
		allow
		deny write topic -
		init plain                      → pid=1 epoch=0
		# A transactional producer needs neither.
		deny idempotent_write cluster kafka-cluster
		init                            → pid=2 epoch=0`},
	{"B.3 pre-check 3, producer id and epoch only together", `
		init pid=7                      → INVALID_REQUEST
		init epoch=0                    → INVALID_REQUEST
		init v=3 epoch=0                → INVALID_REQUEST
		init plain pid=7                → INVALID_REQUEST
		init pid=7 timeout=0            → INVALID_REQUEST
		# Before v3 there are no such fields.
		init v=2 pid=7                  → pid=0 epoch=0`},
	{"B.3 pre-check 4, no transactional id", `
		init plain                      → pid=0 epoch=0
		init plain pid=0 epoch=0        → pid=1 epoch=0
		init plain timeout=0            → pid=2 epoch=0
		list                            → ok`},
	{"B.3 pre-check 5, an empty transactional id", `
		init id=                        → INVALID_REQUEST
		init id= timeout=0              → INVALID_REQUEST`},
	{"B.3 pre-check 8, bounds of the timeout", `
		init timeout=0                  → INVALID_TRANSACTION_TIMEOUT
		init timeout=-1                 → INVALID_TRANSACTION_TIMEOUT
		init timeout=900001             → INVALID_TRANSACTION_TIMEOUT
		init timeout=900000             → pid=0 epoch=0
		init timeout=1                  → pid=0 epoch=1
		# Also for one who names an epoch that is not his: the timeout comes first.
		init pid=9 epoch=9 timeout=0    → INVALID_TRANSACTION_TIMEOUT`},
	{"B.3 unknown id", `
		init                            → pid=0 epoch=0
		init id=b pid=77 epoch=5        → pid=1 epoch=0`},
	{"B.3 row 2, given what is not the id's", `
		init                            → pid=0 epoch=0
		init pid=1 epoch=0              → PRODUCER_FENCED
		init pid=1 epoch=32766          → PRODUCER_FENCED`},
	{"B.3 row 2, given the id before the rotation", `
		init
		epoch to=32766
		init pid=0 epoch=32766          → pid=1000 epoch=0
		init pid=0 epoch=32765          → PRODUCER_FENCED
		init pid=0 epoch=32766          → pid=1000 epoch=0`},
	{"B.3 row 4, an open transaction: only its producer by name, or a new one without, takes over", `
		topic t 1
		init
		init pid=0 epoch=0              → pid=0 epoch=1
		add epoch=1 t/0                 → ok
		# A late retry is none: its answer must have come.
		init pid=0 epoch=0              → PRODUCER_FENCED
		init pid=0 epoch=2              → PRODUCER_FENCED
		init pid=9 epoch=1              → PRODUCER_FENCED
		addverify epoch=1 t/0           → ok
		init pid=0 epoch=1              → pid=0 epoch=3
		# Its answer may be lost, too.
		init pid=0 epoch=1              → pid=0 epoch=3
		end epoch=1 v=5                 → PRODUCER_FENCED
		add epoch=3 t/0                 → ok
		init                            → pid=0 epoch=5`},
	{"B.3 row 5, exhausted with nothing given", `
		init
		epoch to=32766
		init                            → pid=1000 epoch=0
		entry                           → Empty pid=1000 epoch=0 prev=0 last=-1 timeout=60000 open-for=-1 in [] []`},
	{"B.3 row 5, exhausted with the stored epoch given", `
		init
		epoch to=32766
		init pid=0 epoch=32766          → pid=1000 epoch=0
		entry                           → Empty pid=1000 epoch=0 prev=0 last=32766 timeout=60000 open-for=-1 in [] []`},
	{"B.3 row 5, not exhausted one before", `
		init
		epoch to=32765
		init                            → pid=0 epoch=32766`},
	{"B.3 exhausted, with an open transaction", `
		topic t 1
		init
		epoch to=32765
		produce epoch=32765 t/0:0:a     → offset 0
		init                            → pid=1000 epoch=0
		produce epoch=32766 t/0:0:b     → INVALID_PRODUCER_ID_MAPPING
		produce pid=1000 t/0:0:c        → offset 2`},
	{"B.3 and KAFKA-20090, epoch 32767 can end and rotates", `
		topic t 1
		init
		epoch to=32767
		produce epoch=32767 t/0:0:a     → offset 0
		end epoch=32767                 → pid=1000 epoch=0
		produce pid=1000 t/0:0:b        → offset 2
		end pid=1000 commit             → pid=1000 epoch=1
		read t/0                        → b`},
	{"B.3 and KAFKA-20090, epoch 32767 without a transaction", `
		init
		epoch to=32767
		init                            → pid=1000 epoch=0`},
	{"B.3 and KAFKA-20090, epoch 32767 times out", `
		topic t 1
		init
		epoch to=32767
		produce epoch=32767 t/0:0:a     → offset 0
		wait ms=1000                    → 1 units
		entry                           → CompleteAbort pid=1000 epoch=0 prev=0 last=32767 timeout=1000 open-for=-1 in [] []
		show t/0                        → end 2, stable 2, aborted [{0 0 1 2}], epochs [{1 0}]`},
}

func TestB3InitProducerID(t *testing.T) {
	checkRules(t, Config{}, b3...)
	checkRules(t, Config{Txn: txn.Config{MaxTimeoutMs: 5000}},
		rule{"B.3 pre-check 8, transaction.max.timeout.ms", `
			init timeout=5001 → INVALID_TRANSACTION_TIMEOUT
			init timeout=5000 → pid=0 epoch=0`})
	// Rows 6 to 9. A retry of a lost answer, also over a restart: last producer epochs are kept.
	for _, state := range []string{"Empty", "CompleteCommit", "CompleteAbort"} {
		in(t, state, `
			init                  → pid=0 epoch=2
			init pid=0 epoch=1    → PRODUCER_FENCED`)
		for _, between := range []string{"", "restart", "recover"} {
			in(t, state, `
				init pid=0 epoch=1    → pid=0 epoch=2
				`+between+`
				init pid=0 epoch=1    → pid=0 epoch=2
				init pid=0 epoch=0    → PRODUCER_FENCED
				init pid=0 epoch=3    → PRODUCER_FENCED
				init pid=0 epoch=2    → pid=0 epoch=3
				init pid=0 epoch=1    → PRODUCER_FENCED`)
		}
	}
}

// B.3, last list: PRODUCER_FENCED is INVALID_PRODUCER_EPOCH for requests from before it.
func TestB3OldVersionsOfFenced(t *testing.T) {
	for request, since := range map[string]struct{ first, fenced, last int16 }{
		"init pid=0 epoch=0": {3, 4, 5}, // before v3 nobody can name an epoch
		"add t/0":            {0, 2, 3},
		"offsets g":          {0, 2, 4},
		"end commit":         {0, 2, 5},
	} {
		for v := since.first; v <= since.last; v++ {
			w := newWorld(t, Config{})
			w.script("topic t 1 \n init \n init \n init")
			want := "PRODUCER_FENCED"
			if v < since.fenced {
				want = "INVALID_PRODUCER_EPOCH"
			}
			w.expect(fmt.Sprintf("%s v=%d", request, v), want)
		}
	}
}

var b4 = []rule{
	{"B.4 clients, WRITE on the transactional id", `
		topic t 2
		init
		deny write transactional_id pay
		add t/0 none/0 t/9  → TRANSACTIONAL_ID_AUTHORIZATION_FAILED TRANSACTIONAL_ID_AUTHORIZATION_FAILED TRANSACTIONAL_ID_AUTHORIZATION_FAILED
		entry               → Empty pid=0 epoch=0 prev=-1 last=-1 timeout=60000 open-for=-1 in [] []`},
	{"B.4 clients, one that cannot be had keeps all out", `
		topic t 2
		topic secret 1
		init
		deny write topic secret
		add t/0 secret/0    → OPERATION_NOT_ATTEMPTED TOPIC_AUTHORIZATION_FAILED
		add t/0 t/2         → OPERATION_NOT_ATTEMPTED UNKNOWN_TOPIC_OR_PARTITION
		add none/0 t/0 t/1  → UNKNOWN_TOPIC_OR_PARTITION OPERATION_NOT_ATTEMPTED OPERATION_NOT_ATTEMPTED
		entry               → Empty pid=0 epoch=0 prev=-1 last=-1 timeout=60000 open-for=-1 in [] []`},
	{"B.4 brokers need CLUSTER_ACTION, and nothing else", `
		topic t 1
		init
		deny cluster_action cluster kafka-cluster
		add v=4 t/0         → CLUSTER_AUTHORIZATION_FAILED
		addverify t/0       → CLUSTER_AUTHORIZATION_FAILED
		allow
		deny write transactional_id pay
		add v=5 t/0         → ok`},
	{"B.4 row 1, an empty id", `
		topic t 1
		add id= t/0         → INVALID_REQUEST
		add v=5 id= t/0     → INVALID_REQUEST
		addverify id= t/0   → INVALID_REQUEST`},
	{"B.4 row 3, an unknown id", `
		topic t 1
		add t/0             → INVALID_PRODUCER_ID_MAPPING
		add v=5 t/0         → INVALID_PRODUCER_ID_MAPPING
		addverify t/0       → INVALID_PRODUCER_ID_MAPPING`},
	{"B.4 row 5, another producer id, before its epoch", `
		topic t 1
		init
		add pid=1 epoch=9 t/0       → INVALID_PRODUCER_ID_MAPPING
		add v=5 pid=1 epoch=9 t/0   → INVALID_PRODUCER_ID_MAPPING
		addverify pid=1 epoch=9 t/0 → INVALID_PRODUCER_ID_MAPPING`},
	{"B.4 row 6, another epoch", `
		topic t 1
		init
		init
		add epoch=0 t/0       → PRODUCER_FENCED
		add epoch=2 t/0       → PRODUCER_FENCED
		add v=5 epoch=0 t/0   → PRODUCER_FENCED
		addverify epoch=0 t/0 → PRODUCER_FENCED`},
	{"B.4 row 8, all present: no write", `
		topic t 2
		init
		writes add t/0 t/1  → 1 units: ok ok
		writes add t/1      → 0 units: ok
		writes add t/1 t/0  → 0 units: ok ok
		offsets g           → ok
		writes offsets g    → 0 units: ok`},
	{"B.4 row 9, otherwise durable first", `
		topic t 2
		init
		writes add t/0      → 1 units: ok
		recover
		addverify t/0 t/1   → ok TRANSACTION_ABORTABLE`},
	{"B.4 verify-only, each partition for itself, nothing is added", `
		topic t 2
		init
		writes addverify t/0 → 0 units: TRANSACTION_ABORTABLE
		add v=4 t/0          → ok
		addverify t/0 t/1    → ok TRANSACTION_ABORTABLE
		end v=4 commit       → ok
		addverify t/0        → TRANSACTION_ABORTABLE`},
}

func TestB4AddPartitions(t *testing.T) { checkRules(t, Config{}, b4...) }

// B.4: a request of a broker holds many transactions, added and verified, each answered for itself.
func TestB4ManyTransactions(t *testing.T) {
	w := newWorld(t, Config{})
	w.script("topic t 2 \n init id=a \n init id=b \n add id=b pid=1 t/0")
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	for i, id := range []string{"a", "b", "nobody"} {
		tx := kmsg.NewAddPartitionsToTxnRequestTransaction()
		tx.TransactionalID, tx.ProducerID, tx.VerifyOnly = id, int64(i), id == "b"
		tx.Topics = []kmsg.AddPartitionsToTxnRequestTransactionTopic{{Topic: "t", Partitions: []int32{0, 1}}}
		req.Transactions = append(req.Transactions, tx)
	}
	want := map[string][2]int16{"a": {0, 0}, "b": {0, kerr.TransactionAbortable.Code}, "nobody": {49, 49}}
	resp := w.ask(req, 5).(*kmsg.AddPartitionsToTxnResponse)
	if resp.ErrorCode != 0 || len(resp.Transactions) != len(want) {
		t.Fatalf("answered %+v", resp)
	}
	for _, tx := range resp.Transactions {
		p := tx.Topics[0].Partitions
		if got := [2]int16{p[0].ErrorCode, p[1].ErrorCode}; got != want[tx.TransactionalID] {
			t.Errorf("%s: %v, want %v", tx.TransactionalID, got, want[tx.TransactionalID])
		}
	}
}

func TestB5AddOffsets(t *testing.T) {
	checkRules(t, Config{Txn: txn.Config{MaxGroupsPerTxn: 2}},
		rule{"B.5 WRITE on the id, then READ on the group", `
			init
			deny read group g
			offsets g             → GROUP_AUTHORIZATION_FAILED
			offsets h             → ok
			deny write transactional_id pay
			offsets g             → TRANSACTIONAL_ID_AUTHORIZATION_FAILED`},
		rule{"B.5 as B.4", `
			offsets g             → INVALID_PRODUCER_ID_MAPPING
			offsets id= g         → INVALID_REQUEST
			init
			init
			offsets pid=1 epoch=1 g → INVALID_PRODUCER_ID_MAPPING
			offsets epoch=0 g     → PRODUCER_FENCED
			writes offsets epoch=1 g → 1 units: ok
			writes offsets epoch=1 g → 0 units: ok
			entry                 → Ongoing pid=0 epoch=1 prev=-1 last=-1 timeout=60000 open-for=0 in [] ["g"]`},
		rule{"B.5 the same code is reached by TxnOffsetCommit v5", `
			topic in 1
			init
			txncommit v=4 group=g in/0=1 → TRANSACTION_ABORTABLE
			txncommit v=5 group=g in/0=1 → ok
			entry                 → Ongoing pid=0 epoch=0 prev=-1 last=-1 timeout=60000 open-for=0 in [] ["g"]
			writes offsets g      → 0 units: ok`},
		rule{"B.5 the number of groups is bounded", `
			init
			offsets a             → ok
			offsets b             → ok
			offsets c             → POLICY_VIOLATION`})
	checkRules(t, Config{Txn: txn.Config{MaxOpenBytes: 40}},
		rule{"B.5 and A.7, the bytes of open transactions are bounded", `
			topic t 2
			init id=big
			init
			offsets id=big group  → ok
			add pid=1 t/0         → COORDINATOR_NOT_AVAILABLE
			txncommit pid=1 group=g t/0=1 → COORDINATOR_NOT_AVAILABLE
			produce pid=1 t/0:0:a → NOT_ENOUGH_REPLICAS
			# What was refused comes first when there is room.
			end id=big            → pid=0 epoch=1
			produce pid=1 t/0:1:b → OUT_OF_ORDER_SEQUENCE_NUMBER
			produce pid=1 t/0:0:a → offset 0`})
}

var b6 = []rule{
	{"B.6 step 1, permissions and what does not exist, before anything else", `
		topic in 1
		topic secret 1
		init
		deny read topic secret
		txncommit group= secret/0=1        → TOPIC_AUTHORIZATION_FAILED
		txncommit group= in/1=1            → UNKNOWN_TOPIC_OR_PARTITION
		txncommit group= epoch=9 none/0=1  → UNKNOWN_TOPIC_OR_PARTITION
		deny read group g
		txncommit group=g none/0=1         → GROUP_AUTHORIZATION_FAILED
		deny write transactional_id pay
		txncommit group=g none/0=1         → TRANSACTIONAL_ID_AUTHORIZATION_FAILED
		entry                              → Empty pid=0 epoch=0 prev=-1 last=-1 timeout=60000 open-for=-1 in [] []`},
	{"B.6 step 2, an empty group, before the transaction", `
		topic in 1
		init
		txncommit epoch=9 group= in/0=1    → INVALID_GROUP_ID`},
	{"B.6 step 3 and A.7, the transaction", `
		topic in 1
		init
		init
		txncommit v=3 epoch=1 group=g in/0=1 → INVALID_TXN_STATE
		txncommit v=4 epoch=1 group=g in/0=1 → TRANSACTION_ABORTABLE
		txncommit epoch=0 group=g in/0=1   → INVALID_PRODUCER_EPOCH
		txncommit epoch=2 group=g in/0=1   → INVALID_PRODUCER_EPOCH
		txncommit pid=1 epoch=1 group=g in/0=1 → INVALID_PRODUCER_ID_MAPPING
		txncommit id=b epoch=1 group=g in/0=1 → INVALID_PRODUCER_ID_MAPPING
		txncommit id= epoch=1 group=g in/0=1 → INVALID_REQUEST
		txncommit epoch=1 group=g in/0=1   → ok
		# Refused by the group, after that.
		txncommit epoch=1 group=g member=m generation=3 in/0=1 → UNKNOWN_MEMBER_ID
		txncommit epoch=1 group=h member=m generation=3 in/0=1 → ILLEGAL_GENERATION`},
	{"B.6 step 5, metadata", `
		topic in 1
		init
		txncommit group=g metadata=4096 in/0=1 → ok
		txncommit group=g metadata=4097 in/0=1 → OFFSET_METADATA_TOO_LARGE`},
	{"B.6 step 6, pending until the marker", `
		topic in 1
		init
		txncommit group=g in/0=1           → ok
		fetch group=g in/0                 → offset -1
		fetch group=g stable in/0          → UNSTABLE_OFFSET_COMMIT
		end commit                         → pid=0 epoch=1
		fetch group=g stable in/0          → offset 1
		txncommit epoch=1 group=g in/0=2   → ok
		fetch group=g in/0                 → offset 1
		end epoch=1                        → pid=0 epoch=2
		fetch group=g stable in/0          → offset 1`},
}

func TestB6TxnOffsetCommit(t *testing.T) { checkRules(t, Config{}, b6...) }

// B.6 step 4: member and generation of who commits, of a group that has members (KIP-447). Rows: D.5.
func TestB6Members(t *testing.T) {
	w := newWorld(t, Config{})
	w.script("topic in 1 \n init")
	member := w.join("g")
	f := func(who, want string) {
		t.Helper()
		w.expect("txncommit group=g in/0=1 "+who, want)
	}
	// CompletingRebalance: the generation has no assignment yet, and transactional commits do not mind.
	f("generation=1 member="+member, "ok")
	f("generation=2 member="+member, "ILLEGAL_GENERATION")
	f("generation=0 member="+member, "ILLEGAL_GENERATION")
	f("generation=1 member=x", "UNKNOWN_MEMBER_ID")
	f("generation=1 instance=i member="+member, "UNKNOWN_MEMBER_ID")
	f("", "ok") // as before KIP-447
	w.expect("end commit", "pid=0 epoch=1")
	w.expect("fetch group=g stable in/0", "offset 1")
	// A zombie of the generation before commits nothing, under no name.
	successor := w.join("g")
	w.expect("txncommit epoch=1 group=g in/0=9 generation=1 member="+member, "UNKNOWN_MEMBER_ID")
	w.expect("txncommit epoch=1 group=g in/0=9 generation=1 member="+successor, "ILLEGAL_GENERATION")
	w.expect("end epoch=1 commit", "pid=0 epoch=2")
	w.expect("fetch group=g stable in/0", "offset 1")
}

// B.7, every state and every version: epochs that are another are PRODUCER_FENCED, and the state decides the rest.
func TestB7EndTxn(t *testing.T) {
	answers := map[string][2]string{ // abort, commit
		"Empty":          {"INVALID_TXN_STATE", "INVALID_TXN_STATE"},
		"Ongoing":        {"ok", "ok"},
		"CompleteCommit": {"INVALID_TXN_STATE", "ok"},
		"CompleteAbort":  {"ok", "INVALID_TXN_STATE"},
	}
	for state, want := range answers {
		for kind, word := range []string{"", " commit"} {
			for v := range int16(endBumpsEpoch) {
				fenced := "PRODUCER_FENCED"
				if v < endFencedSince {
					fenced = "INVALID_PRODUCER_EPOCH"
				}
				in(t, state, fmt.Sprintf(`
					end v=%[1]d epoch=0%[2]s       → %[3]s
					end v=%[1]d epoch=2%[2]s       → %[3]s
					end v=%[1]d pid=1 epoch=1%[2]s → INVALID_PRODUCER_ID_MAPPING
					end v=%[1]d epoch=1%[2]s       → %[4]s
					# Answered again as a retry, or refused again.
					end v=%[1]d epoch=1%[2]s       → %[4]s`, v, word, fenced, want[kind]))
			}
		}
	}
	checkRules(t, Config{}, b7...)
}

var b7 = []rule{
	{"B.7 row 1, WRITE on the id, and an empty one", `
		topic t 1
		init
		add t/0
		deny write transactional_id pay
		end v=4 commit         → TRANSACTIONAL_ID_AUTHORIZATION_FAILED
		end commit             → TRANSACTIONAL_ID_AUTHORIZATION_FAILED
		# The topic's permission is not asked: a topic that was taken away must not block the end.
		allow
		deny write topic t
		end v=4 commit         → ok
		end v=4 id= commit     → INVALID_REQUEST`},
	{"B.7 row 2, an unknown id", `
		end v=4 commit         → INVALID_PRODUCER_ID_MAPPING`},
	{"B.7 rows 3, 5, 6 and 8 in one walk", `
		topic t 1
		init
		init
		end v=4 epoch=1        → INVALID_TXN_STATE
		add epoch=1 t/0        → ok
		end v=4 epoch=0 commit → PRODUCER_FENCED
		writes end v=4 epoch=1 commit → 1 units: ok
		writes end v=4 epoch=1 commit → 0 units: ok
		end v=4 epoch=1        → INVALID_TXN_STATE`},
}
