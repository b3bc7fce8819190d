package machine

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine/txn"
)

// AddPartitionsToTxn (key 24), v0 to 5. v0 to v3 come from clients of transaction version 1, one transaction each; v4
// and v5 from brokers, many, and may only ask. v2 knows PRODUCER_FENCED.

const addFencedSince = 2

func (m *Machine) addPartitionsToTxn(req *kmsg.AddPartitionsToTxnRequest) {
	resp := req.ResponseKind().(*kmsg.AddPartitionsToTxnResponse)
	if req.Version >= 4 {
		m.addForBrokers(req, resp)
	} else {
		m.addForClient(req, resp)
	}
	m.reply(resp)
}

// added is one partition of a request on its way to a response. code is 0 as long as nothing is wrong with it.
type added struct {
	topic     string
	partition int32
	id        uint32
	code      int16
}

// resolve looks up what a request names. If anything cannot be had, nothing is added: the rest hears
// OPERATION_NOT_ATTEMPTED (kafka-eos.md B.4).
func (m *Machine) resolve(topics []kmsg.AddPartitionsToTxnRequestTopic) (all []added, ok bool) {
	ok = true
	for i := range topics {
		t := m.topics[topics[i].Topic]
		may := m.mayTopic(kmsg.ACLOperationWrite, topics[i].Topic)
		for _, number := range topics[i].Partitions {
			a := added{topic: topics[i].Topic, partition: number}
			var p *partition
			if t != nil {
				p = t.find(number)
			}
			switch {
			case !may:
				a.code = kerr.TopicAuthorizationFailed.Code
			case p == nil:
				a.code = kerr.UnknownTopicOrPartition.Code
			default:
				a.id = uint32(p.id)
			}
			ok = ok && a.code == 0
			all = append(all, a)
		}
	}
	if !ok {
		setAll(all, kerr.OperationNotAttempted.Code)
	}
	return all, ok
}

// setAll gives code to whatever has none yet.
func setAll(all []added, code int16) {
	for i := range all {
		if all[i].code == 0 {
			all[i].code = code
		}
	}
}

func partitionIDs(all []added) []uint32 {
	ids := make([]uint32, len(all))
	for i := range all {
		ids[i] = all[i].id
	}
	return ids
}

func (m *Machine) addForClient(req *kmsg.AddPartitionsToTxnRequest, resp *kmsg.AddPartitionsToTxnResponse) {
	all, ok := m.resolve(req.Topics)
	switch {
	case !m.mayTransactional(kmsg.ACLOperationWrite, req.TransactionalID):
		for i := range all {
			all[i].code = kerr.TransactionalIDAuthorizationFailed.Code
		}
	case ok:
		r := txn.AddRequest{
			Producer:   txn.Producer{ID: req.TransactionalID, ProducerID: req.ProducerID, Epoch: req.ProducerEpoch},
			Partitions: partitionIDs(all),
		}
		if m.late(r.Producer, txn.Coordination) {
			break
		}
		if refusal := m.joinOrVerify(r, true); refusal != nil {
			setAll(all, coordinatorError(refusal, req.Version, addFencedSince))
		}
	}
	for len(all) > 0 {
		t := kmsg.NewAddPartitionsToTxnResponseTopic()
		t.Topic = all[0].topic
		for len(all) > 0 && all[0].topic == t.Topic {
			t.Partitions = append(t.Partitions, kmsg.AddPartitionsToTxnResponseTopicPartition{Partition: all[0].partition, ErrorCode: all[0].code})
			all = all[1:]
		}
		resp.Topics = append(resp.Topics, t)
	}
}

func (m *Machine) addForBrokers(req *kmsg.AddPartitionsToTxnRequest, resp *kmsg.AddPartitionsToTxnResponse) {
	if !m.mayCluster(kmsg.ACLOperationClusterAction) {
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		return
	}
	for i := range req.Transactions {
		t := &req.Transactions[i]
		topics := make([]kmsg.AddPartitionsToTxnRequestTopic, len(t.Topics))
		for k := range t.Topics {
			topics[k].Topic, topics[k].Partitions = t.Topics[k].Topic, t.Topics[k].Partitions
		}
		all, ok := m.resolve(topics)
		if ok {
			r := txn.AddRequest{
				Producer:   txn.Producer{ID: t.TransactionalID, ProducerID: t.ProducerID, Epoch: t.ProducerEpoch},
				Partitions: partitionIDs(all),
			}
			m.addOrVerify(r, t.VerifyOnly, all)
		}
		resp.Transactions = append(resp.Transactions, transactionResult(t.TransactionalID, all))
	}
}

// addOrVerify answers for one transaction; a verification answers for each partition on its own.
func (m *Machine) addOrVerify(r txn.AddRequest, verifyOnly bool, all []added) {
	if !verifyOnly {
		if refusal := m.joinOrVerify(r, true); refusal != nil {
			setAll(all, refusal.Code.Code)
		}
		return
	}
	for i := range all {
		r.Partitions = []uint32{all[i].id}
		if refusal := m.txns.Verify(r); refusal != nil {
			all[i].code = refusal.Code.Code
		}
	}
}

func transactionResult(id string, all []added) kmsg.AddPartitionsToTxnResponseTransaction {
	result := kmsg.NewAddPartitionsToTxnResponseTransaction()
	result.TransactionalID = id
	for len(all) > 0 {
		t := kmsg.NewAddPartitionsToTxnResponseTransactionTopic()
		t.Topic = all[0].topic
		for len(all) > 0 && all[0].topic == t.Topic {
			t.Partitions = append(t.Partitions, kmsg.AddPartitionsToTxnResponseTransactionTopicPartition{Partition: all[0].partition, ErrorCode: all[0].code})
			all = all[1:]
		}
		result.Topics = append(result.Topics, t)
	}
	return result
}
