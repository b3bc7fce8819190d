package machine

import "testing"

// What a client of transaction version 1 has sent by a connection that it gave up may come when its next transaction is open:
// the epoch is the same, only the connection tells (KAFKA-17754; kafka-eos.md I.1). Connections are numbered as they come.

var i1 = []rule{
	{"I.1, a late EndTxn of version 1 does not end the next transaction", `
		topic t 1
		init v=2                          → pid=0 epoch=0
		add v=3 conn=1 t/0                → ok
		end v=3 conn=2 commit             → ok
		add v=3 conn=2 t/0                → ok
		end v=3 conn=1 commit             → hangup
		end v=3 conn=3 commit             → ok`},
}

func TestLateRules(t *testing.T) { checkRules(t, Config{}, i1...) }

// lateWorld has two topics and a producer of version 1, which has ended one transaction by connection 2 that it had begun by
// connection 1.
func lateWorld(t *testing.T, end string) *world {
	w := newWorld(t, Config{})
	w.topic("t", 2)
	w.topic("in", 2)
	w.expect("init v=2 conn=1", "pid=0 epoch=0")
	w.expect("add v=3 conn=1 t/0", "ok")
	w.expect("produce v=10 conn=1 t/0:0:a", "offset 0")
	w.expect("offsets v=3 conn=1 g", "ok")
	w.expect("txncommit v=3 conn=1 group=g in/0=1", "ok")
	w.expect("end v=3 conn=2 "+end, "ok") // a client may always come back by a new connection
	return w
}

// TestLateEndOfVersion1: the first attempt of an EndTxn arrives when the second has ended its transaction and the next one is
// open. It neither commits nor aborts that.
func TestLateEndOfVersion1(t *testing.T) {
	for _, end := range []string{"commit", ""} {
		w := lateWorld(t, end)
		w.expect("add v=3 conn=2 t/0", "ok")
		w.expect("produce v=10 conn=2 t/0:1:b", "offset 2")
		w.expect("end v=3 conn=1 "+end, "hangup")
		w.expect("produce v=10 conn=2 t/0:2:c", "offset 3") // still in its transaction
		w.expect("end v=3 conn=3", "ok")
		want := ""
		if end == "commit" {
			want = "a"
		}
		w.expect("read t/0", want)
	}
}

// TestLateAddOfVersion1: a partition or a group of the transaction before does not join the next one, nor does it open one.
func TestLateAddOfVersion1(t *testing.T) {
	for _, late := range []string{"add v=3 conn=1 t/1", "offsets v=3 conn=1 other"} {
		w := lateWorld(t, "commit")
		w.expect(late, "hangup")
		if e, _ := w.m.txns.Get("pay"); e.State.String() != "CompleteCommit" {
			t.Errorf("%s: the transaction is %v", late, e.State)
		}
		w.expect("add v=3 conn=2 t/0", "ok")
		w.expect(late, "hangup")
		if e, _ := w.m.txns.Get("pay"); len(e.Partitions) != 1 || len(e.Groups) != 0 {
			t.Errorf("%s: the transaction has partitions %v, groups %v", late, e.Partitions, e.Groups)
		}
	}
}

// TestLateOffsetsOfVersion1: offsets of the transaction before do not replace those of the next one.
func TestLateOffsetsOfVersion1(t *testing.T) {
	w := lateWorld(t, "commit")
	w.expect("offsets v=3 conn=2 g", "ok")
	w.expect("txncommit v=3 conn=2 group=g in/0=9", "ok")
	w.expect("txncommit v=3 conn=1 group=g in/0=1", "hangup")
	w.expect("end v=3 conn=2 commit", "ok")
	w.expect("fetch group=g stable in/0", "offset 9")
}

// TestLateBatchOfVersion1: a batch that its client has given up does not open the next transaction in a partition.
func TestLateBatchOfVersion1(t *testing.T) {
	w := lateWorld(t, "")
	w.expect("add v=3 conn=2 t/0 t/1", "ok ok")
	w.expect("produce v=10 conn=2 t/0:1:b", "offset 2")
	w.expect("produce v=10 conn=1 t/1:0:late", "hangup")
	w.expect("produce v=10 conn=2 t/1:0:c", "offset 0")
	w.expect("end v=3 conn=2 commit", "ok")
	w.expect("read t/1", "c")
}

// TestReconnectingIsNotLate: whatever a client does by newer and newer connections counts, also over a restart, where numbers
// begin again; and paths do not disturb each other, as clients have one connection for each.
func TestReconnectingIsNotLate(t *testing.T) {
	w := lateWorld(t, "commit")
	w.expect("add v=3 conn=5 t/0", "ok")
	w.expect("produce v=10 conn=4 t/0:1:b", "offset 2")
	w.expect("offsets v=3 conn=5 g", "ok")
	w.expect("txncommit v=3 conn=3 group=g in/0=2", "ok")
	w.expect("end v=3 conn=5 commit", "ok")
	w.expect("end v=3 conn=6 commit", "ok")
	w.expect("end v=3 conn=7 commit", "ok")
	w.expect("add v=3 conn=7 t/0", "ok")
	w.recover()
	w.expect("end v=3 conn=1", "ok")
	w.expect("add v=3 conn=1 t/0", "ok")
	w.restart()
	w.expect("end v=3 conn=1", "ok")
}

// TestTakingOverIsNotLate: who takes a transactional id over may have connected before who had it. The former owner hears that
// it is fenced, by whatever connection.
func TestTakingOverIsNotLate(t *testing.T) {
	w := lateWorld(t, "commit")
	w.expect("add v=3 conn=9 t/0", "ok")
	w.expect("init v=4 conn=3", "pid=0 epoch=2")
	w.expect("add v=3 epoch=2 conn=3 t/0", "ok")
	w.expect("end v=3 conn=9 commit", "PRODUCER_FENCED")
	w.expect("end v=3 conn=1 commit", "PRODUCER_FENCED")
	w.expect("end v=3 epoch=2 conn=3 commit", "ok")
}

// TestVersion2NeedsNoConnection: there the epoch rises with each transaction, and tells by itself.
func TestVersion2NeedsNoConnection(t *testing.T) {
	w := newWorld(t, Config{})
	w.topic("t", 1)
	w.run("init")
	w.expect("produce conn=2 t/0:0:a", "offset 0")
	w.expect("end conn=1 commit", "pid=0 epoch=1")
	w.expect("produce conn=3 epoch=1 t/0:0:b", "offset 2")
	w.expect("end conn=1 commit", "PRODUCER_FENCED")
	w.expect("end conn=2 epoch=1 commit", "pid=0 epoch=2")
}
