package machine

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine/txn"
)

// InitProducerId (key 22), v0 to 5. v3 names the producer id and epoch that the client had (KIP-360); v4 knows
// PRODUCER_FENCED; v5 is v4. Before v3 there is none to name: kmsg's default is -1, and what an old version carries
// there does not count.

const initFencedSince = 4

func (m *Machine) initProducerID(req *kmsg.InitProducerIDRequest) {
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch = txn.None, txn.None
	defer m.reply(resp)

	r := txn.InitRequest{Producer: txn.Producer{ProducerID: txn.None, Epoch: txn.None}, TimeoutMs: req.TransactionTimeoutMillis}
	if req.Version >= 3 {
		r.ProducerID, r.Epoch = req.ProducerID, req.ProducerEpoch
	}
	if req.TransactionalID == nil {
		resp.ErrorCode = m.initIdempotent(r, resp)
		return
	}
	r.ID = *req.TransactionalID
	if !m.mayTransactional(kmsg.ACLOperationWrite, r.ID) {
		resp.ErrorCode = kerr.TransactionalIDAuthorizationFailed.Code
		return
	}
	plan, refusal := m.txns.Init(r, m.newProducerID)
	if refusal != nil {
		resp.ErrorCode = coordinatorError(refusal, req.Version, initFencedSince)
		return
	}
	for _, e := range plan.Forget {
		m.forgetTransactionalID(e.ID, true)
	}
	if plan.Abort != nil {
		m.endTransaction(plan.Abort)
	}
	m.record(kindTxnInit, appendInit(m.beginRecord(), &plan.Init))
	resp.ProducerID, resp.ProducerEpoch = plan.Init.ProducerID, plan.Init.Epoch
}

// initIdempotent gives a producer without transactions a fresh id; nothing is remembered of it. Who may write to any topic
// at all needs no permission of the cluster for that (KIP-679).
func (m *Machine) initIdempotent(r txn.InitRequest, resp *kmsg.InitProducerIDResponse) int16 {
	switch {
	case !m.mayCluster(kmsg.ACLOperationIdempotentWrite) && !m.mayTopic(kmsg.ACLOperationWrite, anyTopic):
		return kerr.ClusterAuthorizationFailed.Code
	case (r.ProducerID == txn.None) != (r.Epoch == txn.None):
		return kerr.InvalidRequest.Code
	}
	resp.ProducerID, resp.ProducerEpoch = m.newProducerID(), 0
	return 0
}
