package machine

import (
	"cmp"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine/txn"
)

// DescribeTransactions (key 65), v0: the coordinator's view of transactional ids (KIP-664).

func (m *Machine) describeTransactions(req *kmsg.DescribeTransactionsRequest) {
	resp := req.ResponseKind().(*kmsg.DescribeTransactionsResponse)
	// An id that is named a thousand times is described once: its partitions take much more room than its name.
	for i, times := range timesNamed(len(req.TransactionalIDs), func(i int) string { return req.TransactionalIDs[i] }) {
		if times == 0 {
			continue
		}
		id := req.TransactionalIDs[i]
		resp.TransactionStates = append(resp.TransactionStates, m.describeTransaction(id))
	}
	m.reply(resp)
}

func (m *Machine) describeTransaction(id string) kmsg.DescribeTransactionsResponseTransactionState {
	r := kmsg.NewDescribeTransactionsResponseTransactionState()
	r.TransactionalID = id
	e, known := m.txns.Get(id)
	switch {
	case !m.mayTransactional(kmsg.ACLOperationDescribe, id):
		r.ErrorCode = kerr.TransactionalIDAuthorizationFailed.Code
		return r
	case id == "":
		r.ErrorCode = kerr.InvalidRequest.Code
		return r
	case !known:
		r.ErrorCode = kerr.TransactionalIDNotFound.Code
		return r
	}
	r.State, r.ProducerID, r.ProducerEpoch, r.TimeoutMillis = e.State.String(), e.ProducerID, e.Epoch, e.TimeoutMs
	r.StartTimestamp = -1
	if e.State == txn.Ongoing {
		r.StartTimestamp = m.step.op.Now.WallMs - m.openForMs(e)
	}
	r.Topics = m.topicsOf(e.Partitions)
	return r
}

// openForMs is for how long a transaction has been open, in engine time, which its timeout counts in.
func (m *Machine) openForMs(e txn.Entry) int64 { return max(0, m.step.op.Now.EngineMs-e.StartMs) }

// topicsOf groups partitions by topic, both ascending. Partitions that are gone are left out, and topics that the client may
// not describe.
func (m *Machine) topicsOf(ids []uint32) []kmsg.DescribeTransactionsResponseTransactionStateTopic {
	type place struct {
		topic  string
		number int32
	}
	var all []place
	for _, id := range ids {
		if p := m.partitions[PartitionID(id)]; p != nil {
			all = append(all, place{p.topic, p.number})
		}
	}
	slices.SortFunc(all, func(a, b place) int { return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.number, b.number)) })
	var out []kmsg.DescribeTransactionsResponseTransactionStateTopic
	for _, p := range all {
		if !m.mayTopic(kmsg.ACLOperationDescribe, p.topic) {
			continue
		}
		if n := len(out); n == 0 || out[n-1].Topic != p.topic {
			t := kmsg.NewDescribeTransactionsResponseTransactionStateTopic()
			t.Topic = p.topic
			out = append(out, t)
		}
		last := &out[len(out)-1]
		last.Partitions = append(last.Partitions, p.number)
	}
	return out
}
