package machine

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The rules of kafka-eos.md B.15: what operators see of transactions (KIP-664, KIP-994), and who may. The fields and filters
// together are in testdata/views.txt; the pattern of ListTransactions v2 is the connection's:
// TestListTransactionsByPattern in broker/transactions_test.go.

var b15 = []rule{
	{"B.15 describe, DESCRIBE on the id", `
		init
		deny describe transactional_id pay
		describe pay    → TRANSACTIONAL_ID_AUTHORIZATION_FAILED
		# Nor does it tell whether there is one.
		deny describe transactional_id nobody
		describe nobody → TRANSACTIONAL_ID_AUTHORIZATION_FAILED`},
	{"B.15 describe, unknown, and one that expired", `
		init
		describe nobody pay → TRANSACTIONAL_ID_NOT_FOUND; pay Empty pid=0 epoch=0 timeout=60000 open-for=-1
		wait ms=604800000
		describe pay    → TRANSACTIONAL_ID_NOT_FOUND`},
	{"B.15 describe, fields in every state that lasts", `
		topic t 2
		init timeout=5000
		describe pay    → pay Empty pid=0 epoch=0 timeout=5000 open-for=-1
		add t/1 t/0     → ok ok
		wait ms=70
		describe pay    → pay Ongoing pid=0 epoch=0 timeout=5000 open-for=70 t[0 1]
		end commit      → pid=0 epoch=1
		describe pay    → pay CompleteCommit pid=0 epoch=1 timeout=5000 open-for=-1
		end epoch=1     → pid=0 epoch=2
		describe pay    → pay CompleteAbort pid=0 epoch=2 timeout=5000 open-for=-1`},
	{"B.15 describe, topics filtered by DESCRIBE", `
		topic t 1
		topic secret 1
		init
		add t/0 secret/0 → ok ok
		deny describe topic secret
		describe pay    → pay Ongoing pid=0 epoch=0 timeout=60000 open-for=0 t[0]`},
	{"B.15 list, only ids that may be described", `
		init id=a
		init id=b
		deny describe transactional_id a
		list            → ok [b pid=1 Empty]`},
	{"B.15 list, by producer ids", `
		init id=a
		init id=b
		init id=c
		list pids=2,0   → ok [a pid=0 Empty] [c pid=2 Empty]
		list pids=9     → ok`},
	{"B.15 list, by states; unknown ones are echoed", `
		topic t 1
		init id=a
		init id=b
		add id=b pid=1 t/0
		list states=Ongoing         → ok [b pid=1 Ongoing]
		list states=ongoing         → ok unknown:ongoing
		list states=Nonsense,Empty  → ok unknown:Nonsense [a pid=0 Empty]
		# Known, though no id is ever found in them.
		list states=PrepareCommit,PrepareAbort,PrepareEpochFence,Dead → ok`},
	{"B.15 list, by duration: off below 0, else strictly longer, from v1 on", `
		topic t 1
		init id=a
		init id=b
		add id=b pid=1 t/0
		wait ms=100
		list longer=-1      → ok [a pid=0 Empty] [b pid=1 Ongoing]
		list longer=0       → ok [b pid=1 Ongoing]
		list longer=99      → ok [b pid=1 Ongoing]
		list v=1 longer=100 → ok
		list v=0 longer=100 → ok [a pid=0 Empty] [b pid=1 Ongoing]`},
	{"B.15 list, filters together", `
		topic t 1
		init id=a
		init id=b
		add id=b pid=1 t/0
		wait ms=100
		list states=Ongoing pids=0  → ok
		list states=Empty longer=5  → ok
		list states=Ongoing pids=1 longer=5 → ok [b pid=1 Ongoing]`},
	{"B.15 producers, READ on the topic", `
		topic t 1
		produce plain pid=4 t/0:0:a → offset 0
		deny read topic t
		producers t/0 t/9  → TOPIC_AUTHORIZATION_FAILED TOPIC_AUTHORIZATION_FAILED`},
	{"B.15 producers, unknown partitions", `
		topic t 1
		producers t/1 u/0  → UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_OR_PARTITION`},
	{"B.15 producers, -1 for what there is not", `
		topic t 1
		init
		produce plain pid=7 epoch=3 t/0:0:x,y → offset 0
		produce t/0:0:a    → offset 2
		producers t/0      → [pid=0 epoch=0 seq=0 coordinator=-1 open=2] [pid=7 epoch=3 seq=1 coordinator=-1 open=-1]
		end commit         → pid=0 epoch=1
		producers t/0      → [pid=0 epoch=1 seq=-1 coordinator=1 open=-1] [pid=7 epoch=3 seq=1 coordinator=-1 open=-1]`},
}

func TestB15Views(t *testing.T) { checkRules(t, Config{}, b15...) }

// B.15: an empty id cannot be described, and times are those of the wall.
func TestB15DescribeInFull(t *testing.T) {
	w := newWorld(t, Config{})
	w.script("topic t 1 \n init \n produce t/0:0:a")
	begun := w.now.WallMs
	w.tick(500)
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{"", "pay"}
	all := w.ask(req, 0).(*kmsg.DescribeTransactionsResponse).TransactionStates
	if len(all) != 2 || all[0].ErrorCode != 42 || all[1].ErrorCode != 0 || all[1].StartTimestamp != begun {
		t.Errorf("described as %+v, begun at %d", all, begun)
	}
	producers := kmsg.NewPtrDescribeProducersRequest()
	producers.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: "t", Partitions: []int32{0}}}
	describe := func() kmsg.DescribeProducersResponseTopicPartitionActiveProducer {
		return w.ask(producers, 0).(*kmsg.DescribeProducersResponse).Topics[0].Partitions[0].ActiveProducers[0]
	}
	if p := describe(); p.LastTimestamp != begun {
		t.Errorf("after a batch of %d: %+v", begun, p)
	}
	w.run("end commit")
	if p := describe(); p.LastTimestamp != w.now.WallMs {
		t.Errorf("after a marker of %d: %+v", w.now.WallMs, p)
	}
}

// An id that is named a thousand times is described once: its partitions take much more room than its name.
func TestDescribedOnce(t *testing.T) {
	w := newWorld(t, Config{})
	w.script("topic t 1 \n init \n produce t/0:0:a")
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{"pay", "none", "pay", "none", "pay"}
	got := ""
	for _, s := range w.ask(req, 0).(*kmsg.DescribeTransactionsResponse).TransactionStates {
		got += fmt.Sprint(s.TransactionalID, ":", s.ErrorCode, " ")
	}
	if want := "pay:0 none:105 "; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
