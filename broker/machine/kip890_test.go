package machine

import (
	"encoding/binary"
	"testing"

	"github.com/strandline-io/strandline/broker/machine/txn"
)

// One test per statement of KIP-890, "Transactions Server-Side Defense", and of KIP-360 and KIP-1228 that go with it.

// Part 1: a transactional batch goes in only while its partition is in the producer's open transaction.
func TestNothingHangs(t *testing.T) {
	w := newWorld(t, Config{})
	w.topic("t", 2)
	w.run("init v=4")
	w.run("add v=3 t/0")
	w.run("produce v=10 t/0:0:a")
	w.run("end v=3")
	// Late, after the end: same epoch, so only the verification can tell.
	w.expect("produce v=10 t/0:1:late", "INVALID_TXN_STATE")
	w.expect("produce v=11 t/1:0:late", "TRANSACTION_ABORTABLE")
	w.expect("show t/0", "end 2, stable 2, aborted [{0 0 1 2}], epochs [{1 0}]")
	w.expect("show t/1", "end 0, stable 0, aborted [], epochs []")
}

// Part 1, for offsets.
func TestNoOffsetsOutsideOfTransactions(t *testing.T) {
	w := newWorld(t, Config{})
	w.topic("in", 1)
	w.run("init v=4")
	w.expect("txncommit v=3 group=g in/0=1", "INVALID_TXN_STATE")
	w.run("offsets v=3 other")
	w.expect("txncommit v=3 group=g in/0=1", "INVALID_TXN_STATE")
	w.run("offsets v=3 g")
	w.expect("txncommit v=3 group=g in/0=1", "ok")
	w.run("end v=3")
	w.expect("txncommit v=4 group=g in/0=2", "TRANSACTION_ABORTABLE")
	w.expect("fetch group=g stable in/0", "offset -1")
}

// Part 2: the epoch rises with every transaction, so nothing late can reach the next one.
func TestEpochRisesWithEveryEnd(t *testing.T) {
	w := newWorld(t, Config{})
	w.topic("t", 1)
	w.run("init")
	for _, end := range []string{"commit", "", "commit"} {
		epoch := w.m.txnEpoch("pay")
		w.run("produce epoch=" + epoch + " t/0:0:v" + epoch)
		w.run("end epoch=" + epoch + " " + end)
		w.expect("produce epoch="+epoch+" t/0:1:late", "INVALID_PRODUCER_EPOCH")
		next := w.m.txnEpoch("pay")
		w.expect("produce epoch="+next+" t/0:1:early", "OUT_OF_ORDER_SEQUENCE_NUMBER")
		w.expect("end epoch="+epoch+" "+end, "PRODUCER_FENCED") // the early batch opened the next one
		w.run("end epoch=" + next)
	}
	w.expect("read t/0", "v0 v4")
}

func (m *Machine) txnEpoch(id string) string {
	e, _ := m.txns.Get(id)
	return formatInt(int32(e.Epoch))
}

// KAFKA-17754: a late EndTxn must not end the next transaction.
func TestLateEndDoesNothing(t *testing.T) {
	w := newWorld(t, Config{})
	w.topic("t", 1)
	w.run("init")
	w.run("produce t/0:0:a")
	w.run("end commit")
	w.run("produce epoch=1 t/0:0:b")
	w.expect("end commit", "PRODUCER_FENCED")
	w.expect("end", "PRODUCER_FENCED")
	w.expect("show t/0", "end 3, stable 2, aborted [], epochs [{1 0}]")
}

// Bumping over the last epoch gives the client a new producer id with its answer (kafka-eos.md B.17).
func TestExhaustedEpochRotates(t *testing.T) {
	f := func(end, want, show string) {
		t.Helper()
		w := newWorld(t, Config{})
		w.topic("t", 1)
		w.run("init timeout=1000")
		raiseEpoch(w, 32766)
		w.expect("produce epoch=32766 t/0:0:a", "offset 0")
		if end == "wait" {
			w.tick(1000)
		} else {
			w.expect(end, want)
		}
		w.expect("show t/0", show)
		w.recover()
		w.expect("produce epoch=32766 t/0:1:late", "INVALID_PRODUCER_EPOCH")
		e, _ := w.m.txns.Get("pay")
		if e.ProducerID != 1000 || e.PrevProducerID != 0 || e.Epoch > 1 {
			t.Errorf("after %s the id is %+v, want another producer id", end, e)
		}
	}
	const committed, aborted = "end 2, stable 2, aborted [], epochs [{1 0}]", "end 2, stable 2, aborted [{0 0 1 2}], epochs [{1 0}]"
	f("end epoch=32766 commit", "pid=1000 epoch=0", committed)
	f("end epoch=32766", "pid=1000 epoch=0", aborted)
	f("wait", "", aborted)
	f("init", "pid=1000 epoch=1", aborted)
}

// raiseEpoch journals what many transactions would have left.
func raiseEpoch(w *world, epoch int16) {
	w.t.Helper()
	i := txn.Init{ID: "pay", ProducerID: 0, PrevProducerID: txn.None, Epoch: epoch, LastEpoch: txn.None, TimeoutMs: 1000}
	payload := appendInit(nil, &i)
	meta := []byte{metaVersion}
	meta = binary.AppendVarint(meta, w.now.WallMs)
	meta = binary.AppendVarint(meta, w.now.EngineMs)
	meta = append(meta, kindTxnInit, byte(len(payload)))
	meta = append(meta, payload...)
	for _, m := range []*Machine{w.m, w.shadow} {
		if err := m.Replay(meta, nil); err != nil {
			w.t.Fatal(err)
		}
	}
	w.journal = append(w.journal, Unit{Meta: meta})
}

// KIP-360: a producer whose state here expired goes on, with any sequence, unless it says that a transaction begins.
func TestForgottenProducerGoesOn(t *testing.T) {
	w := newWorld(t, Config{})
	w.topic("t", 1)
	w.run("init plain")
	w.run("produce plain t/0:0:a")
	w.tick(24 * 3600 * 1000)
	w.expect("produce plain t/0:1:b", "offset 1")
	w.expect("produce plain t/0:0:a", "OUT_OF_ORDER_SEQUENCE_NUMBER")
	w.run("init")
	w.expect("produce pid=1 t/0:5:c", "OUT_OF_ORDER_SEQUENCE_NUMBER")
}

// A batch of a pipeline that must be judged again is not overtaken by the next one.
func TestStaleBatchIsNotOvertaken(t *testing.T) {
	w := newWorld(t, Config{})
	w.topic("t", 1)
	w.run("init plain")
	first, second := plain("t", 0, "a"), plain("t", 0, "b")
	first.producerID, first.epoch, first.seq = 0, 0, 0
	second.producerID, second.epoch, second.seq = 0, 0, 1
	p := &Produce{Version: 9, Acks: -1, Partitions: []ProducePartition{first.build(w)}}
	p.Partitions[0].SettingsVersion = 0
	if r := w.do(p).(*ProduceReply).Partitions[0]; !r.Stale || r.Code != 0 || r.BaseOffset != -1 {
		t.Fatalf("a verdict of older settings is answered %+v", r)
	}
	if r := w.produce(9, nil, second)[0]; r.Code != 45 {
		t.Fatalf("the batch behind a stale one is answered %+v", r)
	}
	w.expect("produce plain t/0:0:a", "offset 0")
	w.expect("produce plain t/0:1:b", "offset 1")
}

// A producer of version 2 was fenced by InitProducerId, whose owner ends transactions without a bump: the fenced one's
// EndTxn is one epoch behind, as a retry is, but it is none, and must not learn the owner's epoch.
func TestFencedProducerIsNoRetry(t *testing.T) {
	w := newWorld(t, Config{})
	w.expect("topic t 1", "partitions [1]")
	w.expect("init", "pid=0 epoch=0")
	w.expect("produce t/0:0:a", "offset 0")
	w.expect("end commit", "pid=0 epoch=1")
	w.expect("init v=2", "pid=0 epoch=2")
	w.expect("add v=3 epoch=2 t/0", "ok")
	w.expect("produce v=10 epoch=2 t/0:0:b", "offset 2")
	w.expect("end v=3 epoch=2", "ok")
	w.expect("end epoch=1", "PRODUCER_FENCED")
	w.expect("end v=3 epoch=2", "ok")
}
