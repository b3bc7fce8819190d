package machine

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/internal/scripttest"
)

func TestScripts(t *testing.T) {
	scripttest.Lines(t, 63, func(t *testing.T) func(string) string { return newWorld(t, Config{}).run })
}

// expect runs a script line inside a Go test.
func (w *world) expect(command, want string) {
	w.t.Helper()
	if got := w.run(command); got != want {
		w.t.Errorf("%s\n got %s\nwant %s", command, got, want)
	}
}

// args are a command's words.
type args struct{ scripttest.Command }

func (a *args) id() string {
	if id, ok := a.Values["id"]; ok {
		return id
	}
	return "pay"
}

func (a *args) pid() int64   { return a.Num("pid", 0) }
func (a *args) epoch() int16 { return int16(a.Num("epoch", 0)) }

// place reads t/0.
func place(word string) (topic string, partition int32, ok bool) {
	name, number, ok := strings.Cut(word, "/")
	n, err := strconv.ParseInt(number, 10, 32)
	return name, int32(n), ok && err == nil
}

func errorName(code int16) string {
	if code == 0 {
		return "ok"
	}
	return kerr.ErrorForCode(code).(*kerr.Error).Message
}

// run carries out one command:
//
//	topic NAME PARTITIONS | delete NAME
//	init [v=] [id=] [pid=] [epoch=] [timeout=] | init plain
//	add [v=] t/0 …  | addverify t/0 … (AddPartitionsToTxn v5, VerifyOnly)
//	offsets [v=] GROUP (AddOffsetsToTxn) | txncommit [v=] group= [member= generation= instance= leader= metadata=SIZE] t/0=OFFSET … | fetch group= t/0
//	produce [v=] [plain] t/0:SEQ:a,b … (SEQ is - for no producer)
//	end [v=] [commit] | wait ms= | restart | read t/0 | show t/0
//
// and those of runView and runRule. With conn= a request comes by that connection; "hangup" means that it is closed.
func (w *world) run(command string) (answer string) {
	w.t.Helper()
	a := &args{scripttest.Parse(command)}
	w.client.Connection = uint64(a.Num("conn", 0))
	defer func() {
		if w.client.Connection = 0; w.hungUp {
			w.hungUp, answer = false, "hangup"
			recover()
		}
	}()
	switch a.Verb {
	case "topic":
		n, _ := strconv.Atoi(a.Bare[1])
		return fmt.Sprintf("partitions %v", w.topic(a.Bare[0], int32(n)).Partitions)
	case "delete":
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.TopicNames = a.Bare
		return errorName(w.ask(req, 1).(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode)
	case "init":
		return w.runInit(a)
	case "add", "addverify":
		return w.runAdd(a, a.Verb == "addverify")
	case "offsets":
		req := kmsg.NewPtrAddOffsetsToTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = a.id(), a.pid(), a.epoch(), a.Bare[0]
		return errorName(w.ask(req, int16(a.Num("v", 3))).(*kmsg.AddOffsetsToTxnResponse).ErrorCode)
	case "txncommit":
		return w.runTxnCommit(a)
	case "fetch":
		return w.runFetch(a)
	case "produce":
		return w.runProduce(a)
	case "end":
		return w.runEnd(a)
	case "wait":
		units := len(w.journal)
		w.tick(a.Num("ms", 0))
		return fmt.Sprintf("%d units", len(w.journal)-units)
	case "restart":
		w.restart()
		return fmt.Sprint("incarnation ", w.m.LeaderEpoch())
	case "read":
		t, n, _ := place(a.Bare[0])
		return w.read(t, n)
	case "show":
		t, n, _ := place(a.Bare[0])
		v := w.m.topics[t].partitions[n].view()
		return fmt.Sprintf("end %d, stable %d, aborted %v, epochs %v", v.HighWatermark, v.LastStable, v.Aborted, v.Epochs)
	}
	if answer, known := w.runView(a.Verb, a); known {
		return answer
	}
	if answer, known := w.runRule(a.Verb, command, a); known {
		return answer
	}
	panic("unknown command " + command)
}

func (w *world) runInit(a *args) string {
	w.t.Helper()
	req := kmsg.NewPtrInitProducerIDRequest()
	if !a.Has("plain") {
		req.TransactionalID = kmsg.StringPtr(a.id())
	}
	req.TransactionTimeoutMillis = int32(a.Num("timeout", 60000))
	req.ProducerID, req.ProducerEpoch = a.Num("pid", -1), int16(a.Num("epoch", -1))
	resp := w.ask(req, int16(a.Num("v", 5))).(*kmsg.InitProducerIDResponse)
	if resp.ErrorCode != 0 {
		return errorName(resp.ErrorCode)
	}
	return fmt.Sprintf("pid=%d epoch=%d", resp.ProducerID, resp.ProducerEpoch)
}

func (w *world) runAdd(a *args, verify bool) string {
	w.t.Helper()
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	version := int16(a.Num("v", 3))
	if version >= 4 || verify {
		version = max(version, 5)
		tx := kmsg.NewAddPartitionsToTxnRequestTransaction()
		tx.TransactionalID, tx.ProducerID, tx.ProducerEpoch, tx.VerifyOnly = a.id(), a.pid(), a.epoch(), verify
		for _, word := range a.Bare {
			t, n, _ := place(word)
			tx.Topics = append(tx.Topics, kmsg.AddPartitionsToTxnRequestTransactionTopic{Topic: t, Partitions: []int32{n}})
		}
		req.Transactions = append(req.Transactions, tx)
		resp := w.ask(req, version).(*kmsg.AddPartitionsToTxnResponse)
		if resp.ErrorCode != 0 {
			return errorName(resp.ErrorCode)
		}
		var all []string
		for _, t := range resp.Transactions[0].Topics {
			for _, p := range t.Partitions {
				all = append(all, errorName(p.ErrorCode))
			}
		}
		return strings.Join(all, " ")
	}
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = a.id(), a.pid(), a.epoch()
	for _, word := range a.Bare {
		t, n, _ := place(word)
		req.Topics = append(req.Topics, kmsg.AddPartitionsToTxnRequestTopic{Topic: t, Partitions: []int32{n}})
	}
	var all []string
	for _, t := range w.ask(req, version).(*kmsg.AddPartitionsToTxnResponse).Topics {
		for _, p := range t.Partitions {
			all = append(all, errorName(p.ErrorCode))
		}
	}
	return strings.Join(all, " ")
}

func (w *world) runTxnCommit(a *args) string {
	w.t.Helper()
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = a.id(), a.pid(), a.epoch(), a.Values["group"]
	req.Generation, req.MemberID = int32(a.Num("generation", -1)), a.Values["member"]
	if i, ok := a.Values["instance"]; ok {
		req.InstanceID = &i
	}
	for k := range a.Values {
		if t, n, ok := place(k); ok {
			rt := kmsg.NewTxnOffsetCommitRequestTopic()
			rt.Topic = t
			rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
			rp.Partition, rp.Offset, rp.LeaderEpoch = n, a.Num(k, 0), int32(a.Num("leader", -1))
			if size := a.Num("metadata", -1); size >= 0 {
				rp.Metadata = kmsg.StringPtr(strings.Repeat("m", int(size)))
			}
			rt.Partitions = append(rt.Partitions, rp)
			req.Topics = append(req.Topics, rt)
		}
	}
	resp := w.ask(req, int16(a.Num("v", 5))).(*kmsg.TxnOffsetCommitResponse)
	return errorName(resp.Topics[0].Partitions[0].ErrorCode)
}

func (w *world) runFetch(a *args) string {
	w.t.Helper()
	t, n, _ := place(a.Bare[len(a.Bare)-1])
	req := kmsg.NewPtrOffsetFetchRequest()
	req.RequireStable = a.Has("stable")
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = a.Values["group"]
	gt := kmsg.NewOffsetFetchRequestGroupTopic()
	gt.Topic, gt.Partitions = t, []int32{n}
	g.Topics = append(g.Topics, gt)
	req.Groups = append(req.Groups, g)
	p := w.ask(req, 9).(*kmsg.OffsetFetchResponse).Groups[0].Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		return errorName(p.ErrorCode)
	}
	if p.LeaderEpoch >= 0 || p.Metadata != nil && *p.Metadata != "" {
		return fmt.Sprintf("offset %d of leader epoch %d, metadata %q", p.Offset, p.LeaderEpoch, *p.Metadata)
	}
	return fmt.Sprint("offset ", p.Offset)
}

func (w *world) runProduce(a *args) string {
	w.t.Helper()
	version := int16(a.Num("v", 12))
	var id *string
	if !a.Has("plain") {
		id = kmsg.StringPtr(a.id())
	}
	var all []data
	for _, word := range a.Bare {
		parts := strings.Split(word, ":")
		t, n, ok := place(parts[0])
		if !ok {
			continue
		}
		d := plain(t, n, strings.Split(parts[2], ",")...)
		if parts[1] != "-" {
			seq, err := strconv.ParseInt(parts[1], 10, 32)
			if err != nil {
				panic(err)
			}
			d.producerID, d.epoch, d.seq, d.transactional = a.pid(), a.epoch(), int32(seq), id != nil
		}
		all = append(all, d)
	}
	var answers []string
	for _, r := range w.produce(version, id, all...) {
		if r.Code != 0 {
			answers = append(answers, errorName(r.Code))
		} else {
			answers = append(answers, fmt.Sprint("offset ", r.BaseOffset))
		}
	}
	return strings.Join(answers, ", ")
}

func (w *world) runEnd(a *args) string {
	w.t.Helper()
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = a.id(), a.pid(), a.epoch(), a.Has("commit")
	version := int16(a.Num("v", 5))
	resp := w.ask(req, version).(*kmsg.EndTxnResponse)
	switch {
	case resp.ErrorCode != 0 && (resp.ProducerID != -1 || resp.ProducerEpoch != -1):
		return fmt.Sprintf("%s with a producer", errorName(resp.ErrorCode))
	case resp.ErrorCode != 0 || version < 5:
		return errorName(resp.ErrorCode)
	}
	return fmt.Sprintf("pid=%d epoch=%d", resp.ProducerID, resp.ProducerEpoch)
}
