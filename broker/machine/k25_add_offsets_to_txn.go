package machine

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine/txn"
)

// AddOffsetsToTxn (key 25), v0 to 4: a group's offsets join the transaction, by name where Apache Kafka adds the
// partition of __consumer_offsets that holds them. Only clients of transaction version 1 send it.

const addOffsetsFencedSince = 2

func (m *Machine) addOffsetsToTxn(req *kmsg.AddOffsetsToTxnRequest) {
	resp := req.ResponseKind().(*kmsg.AddOffsetsToTxnResponse)
	switch {
	case !m.mayTransactional(kmsg.ACLOperationWrite, req.TransactionalID):
		resp.ErrorCode = kerr.TransactionalIDAuthorizationFailed.Code
	case !m.mayGroup(kmsg.ACLOperationRead, req.Group):
		resp.ErrorCode = kerr.GroupAuthorizationFailed.Code
	default:
		r := txn.AddRequest{
			Producer: txn.Producer{ID: req.TransactionalID, ProducerID: req.ProducerID, Epoch: req.ProducerEpoch},
			Groups:   []string{req.Group},
		}
		if m.late(r.Producer, txn.Coordination) {
			break
		}
		if refusal := m.joinOrVerify(r, true); refusal != nil {
			resp.ErrorCode = coordinatorError(refusal, req.Version, addOffsetsFencedSince)
		}
	}
	m.reply(resp)
}
