package machine

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine/txn"
)

// EndTxn (key 26), v0 to 5. v2 knows PRODUCER_FENCED; v5 is transaction version 2: the markers carry the next epoch,
// and the response the producer id and epoch of the next transaction. The answer leaves when markers, offsets and
// state are durable, so nothing that follows meets a transaction that is still completing. Before v5 the epoch does not tell
// a transaction from the one before it, but the connection does (see txn.Coordinator.Late).

const (
	endFencedSince = 2
	endBumpsEpoch  = 5
)

func (m *Machine) endTxn(req *kmsg.EndTxnRequest) {
	resp := req.ResponseKind().(*kmsg.EndTxnResponse)
	resp.ProducerID, resp.ProducerEpoch = txn.None, txn.None
	defer m.reply(resp)

	if !m.mayTransactional(kmsg.ACLOperationWrite, req.TransactionalID) {
		resp.ErrorCode = kerr.TransactionalIDAuthorizationFailed.Code
		return
	}
	p := txn.Producer{ID: req.TransactionalID, ProducerID: req.ProducerID, Epoch: req.ProducerEpoch}
	bumps := req.Version >= endBumpsEpoch
	if !bumps && m.late(p, txn.Coordination) {
		return
	}
	plan, refusal := m.txns.End(txn.EndRequest{Producer: p, Commit: req.Commit, BumpsEpoch: bumps}, m.newProducerID)
	if refusal != nil {
		resp.ErrorCode = coordinatorError(refusal, req.Version, endFencedSince)
		return
	}
	if plan.Ending != nil {
		m.endTransaction(plan.Ending)
	}
	resp.ProducerID, resp.ProducerEpoch = plan.ProducerID, plan.Epoch
}
