package machine

import (
	"cmp"
	"iter"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine/txn"
)

// ListTransactions (key 66), v0 to 2: transactional ids by producer id, by state and, from v1 on, by how long their
// transaction has been open (KIP-994). The pattern of v2 is the connection's to apply: a regular expression has no place in
// the loop.

func (m *Machine) listTransactions(req *kmsg.ListTransactionsRequest) {
	resp := req.ResponseKind().(*kmsg.ListTransactionsResponse)
	for _, s := range req.StateFilters {
		if !txn.KnownState(s) && !slices.Contains(resp.UnknownStateFilters, s) {
			resp.UnknownStateFilters = append(resp.UnknownStateFilters, s)
		}
	}
	for _, all := range []iter.Seq[txn.Entry]{m.txns.Idle(), m.txns.Open()} {
		for e := range all {
			if m.listed(req, e) {
				s := kmsg.NewListTransactionsResponseTransactionState()
				s.TransactionalID, s.ProducerID, s.TransactionState = e.ID, e.ProducerID, e.State.String()
				resp.TransactionStates = append(resp.TransactionStates, s)
			}
		}
	}
	slices.SortFunc(resp.TransactionStates, func(a, b kmsg.ListTransactionsResponseTransactionState) int {
		return cmp.Compare(a.TransactionalID, b.TransactionalID)
	})
	m.reply(resp)
}

func (m *Machine) listed(req *kmsg.ListTransactionsRequest, e txn.Entry) bool {
	switch {
	case len(req.StateFilters) > 0 && !slices.Contains(req.StateFilters, e.State.String()),
		len(req.ProducerIDFilters) > 0 && !slices.Contains(req.ProducerIDFilters, e.ProducerID):
		return false
	case req.Version >= 1 && req.DurationFilterMillis >= 0 && (e.State != txn.Ongoing || m.openForMs(e) <= req.DurationFilterMillis):
		return false
	}
	return m.mayTransactional(kmsg.ACLOperationDescribe, e.ID)
}
