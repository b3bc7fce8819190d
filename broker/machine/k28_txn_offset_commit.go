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
	if code := m.checkTxnOffsetCommit(req); code != nil {
		m.reply(refuseOffsets(req, code.Code))
		return
	}
	m.reply(m.groups.TxnOffsetCommit((*groupContext)(m), req.ProducerID, req))
}

func (m *Machine) checkTxnOffsetCommit(req *kmsg.TxnOffsetCommitRequest) *kerr.Error {
	switch {
	case !m.mayTransactional(kmsg.ACLOperationWrite, req.TransactionalID):
		return kerr.TransactionalIDAuthorizationFailed
	case !m.mayGroup(kmsg.ACLOperationRead, req.Group):
		return kerr.GroupAuthorizationFailed
	case req.Group == "":
		return kerr.InvalidGroupID
	}
	refusal := m.joinOrVerify(txn.AddRequest{
		Producer: txn.Producer{ID: req.TransactionalID, ProducerID: req.ProducerID, Epoch: req.ProducerEpoch},
		Groups:   []string{req.Group},
	}, req.Version >= txnCommitImplicit)
	if refusal == nil {
		return nil
	}
	return participantError(refusal.Code, req.Version >= txnCommitAbortable)
}

// refuseOffsets answers every partition with one code.
func refuseOffsets(req *kmsg.TxnOffsetCommitRequest, code int16) *kmsg.TxnOffsetCommitResponse {
	resp := req.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
	for i := range req.Topics {
		t := kmsg.NewTxnOffsetCommitResponseTopic()
		t.Topic, t.TopicID = req.Topics[i].Topic, req.Topics[i].TopicID
		for _, p := range req.Topics[i].Partitions {
			t.Partitions = append(t.Partitions, kmsg.TxnOffsetCommitResponseTopicPartition{Partition: p.Partition, ErrorCode: code})
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}
