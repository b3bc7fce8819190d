package machine

import (
	"fmt"
	"testing"
)

// The rules of kafka-eos.md that KIP-890 gives, row by row: B.8, B.17 and, of I, what a broker can do about known defects.
// A.7, the verification, is in kip890_test.go and with the partitions' rules.

// B.8, every state: the id got there by EndTxn v5, so that one epoch behind is a retry where something ended. Its epoch is e.
func TestB8EndTxn(t *testing.T) {
	const e = 2
	states := map[string]string{
		"Empty":          "init \n init \n init pid=0 epoch=1",
		"Ongoing":        "init \n end \n end epoch=1 \n add epoch=2 t/0",
		"CompleteCommit": "init \n end \n add epoch=1 t/0 \n end epoch=1 commit",
		"CompleteAbort":  "init \n end \n add epoch=1 t/0 \n end epoch=1",
	}
	const (
		fenced  = "PRODUCER_FENCED"
		invalid = "INVALID_TXN_STATE"
		bump    = "pid=0 epoch=3" // ended, with the next transaction's epoch
		retry   = "pid=0 epoch=2" // success: the stored epoch
	)
	rows := map[string][4]string{ // abort and commit: a retry, then at the current epoch
		"Empty":          {fenced, bump, fenced, invalid},
		"Ongoing":        {fenced, bump, fenced, bump},
		"CompleteCommit": {invalid, bump, retry, invalid},
		"CompleteAbort":  {retry, bump, invalid, invalid},
	}
	for state, row := range rows {
		for kind, word := range []string{"", " commit"} {
			for behind := -1; behind <= 2; behind++ {
				want := fenced
				if behind == 0 || behind == 1 {
					want = row[2*kind+1-behind]
				}
				name := fmt.Sprintf("B.8 %s,%s at epoch %+d", state, word, -behind)
				checkRules(t, Config{}, rule{name, fmt.Sprintf("topic t 1\n%s\nend epoch=%d%s → %s", states[state], e-behind, word, want)})
			}
			checkRules(t, Config{}, rule{"B.8 step 2, " + state + word, fmt.Sprintf(
				"topic t 1\n%s\nend pid=1 epoch=%d%s → INVALID_PRODUCER_ID_MAPPING", states[state], e, word)})
		}
	}
}

var b8 = []rule{
	{"B.8 row 1, WRITE on the id, an empty one, an unknown one", `
		end commit              → INVALID_PRODUCER_ID_MAPPING
		end id= commit          → INVALID_REQUEST
		init
		deny write transactional_id pay
		end                     → TRANSACTIONAL_ID_AUTHORIZATION_FAILED`},
	{"B.8 an empty abort is an abort, with an epoch of its own", `
		init
		writes end              → 1 units: pid=0 epoch=1
		writes end              → 0 units: pid=0 epoch=1
		writes end epoch=1      → 1 units: pid=0 epoch=2`},
	{"B.8 after an abort by timeout the producer learns its epoch by an abort only", `
		topic t 1
		init timeout=1000
		produce t/0:0:a         → offset 0
		wait ms=1000            → 1 units
		produce t/0:1:b         → INVALID_PRODUCER_EPOCH
		end commit              → INVALID_TXN_STATE
		end                     → pid=0 epoch=1
		produce epoch=1 t/0:0:c → offset 2`},
	{"B.8 KAFKA-17754, late ends do nothing to the next transaction", `
		topic t 1
		init
		produce t/0:0:a         → offset 0
		end commit              → pid=0 epoch=1
		produce epoch=1 t/0:0:b → offset 2
		writes end commit       → 0 units: PRODUCER_FENCED
		writes end              → 0 units: PRODUCER_FENCED
		end epoch=1             → pid=0 epoch=2
		writes end commit       → 0 units: PRODUCER_FENCED
		read t/0                → a`},
	{"B.8 and H.1, a commit and at once an empty abort do not fence", `
		topic t 1
		init
		produce t/0:0:a         → offset 0
		end commit              → pid=0 epoch=1
		end epoch=1             → pid=0 epoch=2
		produce epoch=2 t/0:0:b → offset 2
		end epoch=2 commit      → pid=0 epoch=3
		read t/0                → a b`},
}

func TestB8Walks(t *testing.T) { checkRules(t, Config{}, b8...) }

var b17 = []rule{
	{"B.17 the walk: markers at 32767, another producer id at 0", `
		topic t 1
		init
		epoch to=32766
		produce epoch=32766 t/0:0:a → offset 0
		end epoch=32766 commit      → pid=1000 epoch=0
		producers t/0               → [pid=0 epoch=32767 seq=-1 coordinator=1 open=-1]
		entry                       → CompleteCommit pid=1000 epoch=0 prev=0 last=32766 timeout=1000 open-for=-1 in [] []
		# The client goes on at once: there is no pending transition to meet.
		produce pid=1000 t/0:0:b    → offset 2
		end pid=1000 commit         → pid=1000 epoch=1
		read t/0                    → a b`},
	{"B.17 the overflow retry, and what is none", `
		topic t 1
		init
		epoch to=32766
		produce epoch=32766 t/0:0:a → offset 0
		end epoch=32766 commit      → pid=1000 epoch=0
		writes end epoch=32766 commit → 0 units: pid=1000 epoch=0
		end epoch=32766             → INVALID_TXN_STATE
		end epoch=32765 commit      → INVALID_PRODUCER_ID_MAPPING
		end v=4 epoch=32766 commit  → INVALID_PRODUCER_ID_MAPPING
		add pid=1000 t/0            → ok
		# Late: the next transaction is open.
		end epoch=32766 commit      → PRODUCER_FENCED
		end pid=1000 commit         → pid=1000 epoch=1
		end epoch=32766 commit      → INVALID_PRODUCER_ID_MAPPING`},
	{"B.17 by an empty abort", `
		init
		epoch to=32766
		end epoch=32766             → pid=1000 epoch=0
		end epoch=32766             → pid=1000 epoch=0
		end epoch=32766 commit      → INVALID_TXN_STATE`},
	{"B.17 by a timeout", `
		topic t 1
		init
		epoch to=32766
		produce epoch=32766 t/0:0:a → offset 0
		wait ms=1000                → 1 units
		producers t/0               → [pid=0 epoch=32767 seq=-1 coordinator=1 open=-1]
		end epoch=32766 commit      → INVALID_TXN_STATE
		end epoch=32766             → pid=1000 epoch=0`},
	{"B.17 by InitProducerId", `
		topic t 1
		init
		epoch to=32766
		produce epoch=32766 t/0:0:a → offset 0
		init                        → pid=1000 epoch=1
		producers t/0               → [pid=0 epoch=32767 seq=-1 coordinator=1 open=-1]
		end epoch=32766             → INVALID_PRODUCER_ID_MAPPING
		end pid=1000 epoch=0        → PRODUCER_FENCED`},
	{"B.17 version 1 does not bump, and stays", `
		topic t 1
		init
		epoch to=32766
		add epoch=32766 t/0         → ok
		end v=4 epoch=32766 commit  → ok
		add epoch=32766 t/0         → ok`},
}

func TestB17ExhaustedEpochs(t *testing.T) { checkRules(t, Config{}, b17...) }

// What of kafka-eos.md I.1, defects of the protocol, and I.2, defects of implementations, is the coordinator's. The others:
//
//	I.1  late Produce after the end: TestNothingHangs; late requests of version 1: late_test.go; what remains: docs/compat.md
//	I.1  hanging transactions: checkOpen in random_test.go looks for some after every step; views: TestB15Views
//	I.1  lost producer state, never error 59: TestForgottenProducerGoesOn
//	I.1  a batch that overtakes a refused one: TestStaleBatchIsNotOvertaken
//	I.2  17507, answered after offsets are there: B.9 order; 18202: TestEpochRisesWithEveryEnd; 18401, 18464: TestB8EndTxn
//	I.2  18660, 20310: TestB17ExhaustedEpochs, B.13 row 5; 19163: group/testdata/d4_delete.txt, d6_retention.txt
//	I.2  18137, 18575, 18654, 18662, 20031, 20058, 20114, 19990: there is nothing here that could have them (docs/compat.md)
//	I.3  TestKillStorm in test/broker, internal/sim, and TestNothingIsSaidBeforeItIsDurable in broker/sequencer
var known = []rule{
	{"I.1 row 2, a late Produce of the transaction before: version 2", `
		topic t 1
		init
		produce t/0:0:a             → offset 0
		end                         → pid=0 epoch=1
		produce epoch=1 t/0:0:b     → offset 2
		produce t/0:1:late          → INVALID_PRODUCER_EPOCH
		end epoch=1 commit          → pid=0 epoch=2
		read t/0                    → b`},
	{"I.1 row 2, a late Produce of the transaction before: version 1, until the partition is added again", `
		topic t 1
		init v=4
		add t/0
		produce v=10 t/0:0:a        → offset 0
		end v=3                     → ok
		produce v=10 t/0:1:late     → INVALID_TXN_STATE
		add t/0                     → ok
		# Its successor has its sequence: what was refused must come first, and the duplicate is one.
		produce v=10 t/0:1:b        → offset 2
		produce v=10 t/0:1:late     → offset 2
		end v=3 commit              → ok
		read t/0                    → b`},
	{"I.1 row 4, a late AddPartitions adds to the next transaction: version 2 has no such request, and an old epoch is refused", `
		topic t 2
		init
		produce t/0:0:a             → offset 0
		end commit                  → pid=0 epoch=1
		add v=4 t/1                 → PRODUCER_FENCED
		add v=3 t/1                 → PRODUCER_FENCED
		offsets g                   → PRODUCER_FENCED`},
	{"I.1 row 7, a zombie in partitions that its successor did not touch", `
		topic t 2
		init
		produce t/0:0:a             → offset 0
		init                        → pid=0 epoch=2
		produce t/1:0:z             → INVALID_PRODUCER_EPOCH
		produce v=11 t/1:0:z        → INVALID_PRODUCER_EPOCH
		# Outside of transactions only the partition's epoch fences.
		produce plain t/0:1:z       → INVALID_PRODUCER_EPOCH
		produce plain t/1:0:z       → offset 0`},
	{"I.1 row 11, no CONCURRENT_TRANSACTIONS after a commit", `
		topic t 1
		init
		produce t/0:0:a             → offset 0
		end commit                  → pid=0 epoch=1
		produce epoch=1 t/0:0:b     → offset 2`},
	{"I.2 18227, an upgrade to version 2 in mid-session, between transactions", `
		topic t 1
		init v=4
		add t/0
		produce v=10 t/0:0:a        → offset 0
		end v=4 commit              → ok
		init pid=0 epoch=0          → pid=0 epoch=1
		produce epoch=1 t/0:0:b     → offset 2
		end epoch=1 commit          → pid=0 epoch=2
		read t/0                    → a b`},
	{"I.2 18227, an upgrade to version 2 in mid-session, within a transaction", `
		topic t 1
		init v=4
		add t/0
		produce v=10 t/0:0:a        → offset 0
		init pid=0 epoch=0          → pid=0 epoch=2
		produce epoch=2 t/0:0:b     → offset 2
		end epoch=2 commit          → pid=0 epoch=3
		read t/0                    → b`},
	{"I.2 19367, one bump for a fence", `
		topic t 1
		init timeout=1000
		produce t/0:0:a             → offset 0
		wait ms=1000                → 1 units
		producers t/0               → [pid=0 epoch=1 seq=-1 coordinator=1 open=-1]
		entry                       → CompleteAbort pid=0 epoch=1 prev=-1 last=0 timeout=1000 open-for=-1 in [] []
		produce epoch=1 t/0:0:b     → offset 2
		# The markers of one that is replaced carry one, too; its successor's answer is the next.
		init                        → pid=0 epoch=3
		producers t/0               → [pid=0 epoch=2 seq=-1 coordinator=1 open=-1]`},
	{"I.2 19446, KIP-1228: a late marker of version 2 with the open transaction's epoch", `
		topic t 1
		init
		produce t/0:0:a             → offset 0
		end                         → pid=0 epoch=1
		produce epoch=1 t/0:0:b     → offset 2
		markers tv=2 epoch=1 cepoch=1 commit t/0 → INVALID_PRODUCER_EPOCH
		show t/0                    → end 3, stable 2, aborted [{0 0 1 2}], epochs [{1 0}]`},
	{"I.2 19999, a marker again, with nothing open", `
		topic t 1
		init
		produce t/0:0:a             → offset 0
		end                         → pid=0 epoch=1
		markers tv=2 epoch=1 cepoch=1 t/0 → ok
		show t/0                    → end 3, stable 3, aborted [{0 0 1 2}], epochs [{1 0}]`},
}

func TestIKnownDefects(t *testing.T) { checkRules(t, Config{}, known...) }
