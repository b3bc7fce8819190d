package machine

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine/txn"
)

// TxnOffsetCommit (key 28), v0 to 5. v4 knows TRANSACTION_ABORTABLE; with v5 the group joins the transaction
// implicitly (transaction version 2).

const (
	txnCommitAbortable = 4
	txnCommitImplicit  = 5
)

func (m *Machine) txnOffsetCommit(req *kmsg.TxnOffsetCommitRequest) {
	resp, exist := m.refuseUnknown(req)
	code := m.deniedTxnOffsetCommit(req)
	if code != nil {
		refuseTxnOffsets(resp, code, func(int16) bool { return true })
	} else if exist {
		if code = m.checkTxnOffsetCommit(req); code == nil {
			m.reply(m.groups.TxnOffsetCommit((*groupContext)(m), req.ProducerID, req))
			return
		}
		refuseTxnOffsets(resp, code, func(before int16) bool { return before == 0 })
	}
	m.reply(resp)
}

// refuseTxnOffsets gives code to every partition whose code so far is one of those.
func refuseTxnOffsets(resp *kmsg.TxnOffsetCommitResponse, code *kerr.Error, those func(before int16) bool) {
	for i := range resp.Topics {
		for k := range resp.Topics[i].Partitions {
			if p := &resp.Topics[i].Partitions[k]; those(p.ErrorCode) {
				p.ErrorCode = code.Code
			}
		}
	}
}

// deniedTxnOffsetCommit says what the client may not do, before it hears of anything else.
func (m *Machine) deniedTxnOffsetCommit(req *kmsg.TxnOffsetCommitRequest) *kerr.Error {
	switch {
	case !m.mayTransactional(kmsg.ACLOperationWrite, req.TransactionalID):
		return kerr.TransactionalIDAuthorizationFailed
	case !m.mayGroup(kmsg.ACLOperationRead, req.Group):
		return kerr.GroupAuthorizationFailed
	}
	return nil
}

func (m *Machine) checkTxnOffsetCommit(req *kmsg.TxnOffsetCommitRequest) *kerr.Error {
	if req.Group == "" {
		return kerr.InvalidGroupID
	}
	p := txn.Producer{ID: req.TransactionalID, ProducerID: req.ProducerID, Epoch: req.ProducerEpoch}
	implicit := req.Version >= txnCommitImplicit
	if !implicit && m.late(p, txn.Offsets) {
		return kerr.InvalidTxnState // nobody hears it
	}
	refusal := m.joinOrVerify(txn.AddRequest{Producer: p, Groups: []string{req.Group}}, implicit)
	if refusal == nil {
		return nil
	}
	return participantError(refusal.Code, req.Version >= txnCommitAbortable)
}

// refuseUnknown answers what is not there, before the transaction is asked; exist reports whether anything is.
func (m *Machine) refuseUnknown(req *kmsg.TxnOffsetCommitRequest) (resp *kmsg.TxnOffsetCommitResponse, exist bool) {
	resp = req.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
	for i := range req.Topics {
		t := kmsg.NewTxnOffsetCommitResponseTopic()
		t.Topic, t.TopicID = req.Topics[i].Topic, req.Topics[i].TopicID
		known := m.topics[t.Topic]
		for _, p := range req.Topics[i].Partitions {
			r := kmsg.TxnOffsetCommitResponseTopicPartition{Partition: p.Partition}
			switch {
			case !m.mayTopic(kmsg.ACLOperationRead, t.Topic):
				r.ErrorCode = kerr.TopicAuthorizationFailed.Code
			case known == nil || known.find(p.Partition) == nil:
				r.ErrorCode = kerr.UnknownTopicOrPartition.Code
			default:
				exist = true
			}
			t.Partitions = append(t.Partitions, r)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp, exist
}
