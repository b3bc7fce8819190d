package broker_test

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/brokertest"
)

// The pattern of ListTransactions v2 is an RE2 expression for the whole id (kafka-eos.md B.15).
func TestListTransactionsByPattern(t *testing.T) {
	c := dial(t, brokertest.Start(t))
	for _, id := range []string{"pay-1", "pay-22", "audit"} {
		initProducer(c, id)
	}
	f := func(version int16, pattern *string, wantCode int16, want string) {
		t.Helper()
		req := kmsg.NewPtrListTransactionsRequest()
		req.Version, req.TransactionalIDPattern = version, pattern
		got := ask[*kmsg.ListTransactionsResponse](c, req)
		var ids []string
		for _, s := range got.TransactionStates {
			ids = append(ids, s.TransactionalID)
		}
		if got.ErrorCode != wantCode || strings.Join(ids, " ") != want {
			t.Errorf("version %d: code %d, %q, want %d, %q", version, got.ErrorCode, ids, wantCode, want)
		}
	}
	f(2, nil, 0, "audit pay-1 pay-22")
	f(2, kmsg.StringPtr(""), 0, "audit pay-1 pay-22")
	f(2, kmsg.StringPtr(`pay-\d`), 0, "pay-1")
	f(2, kmsg.StringPtr(`audit|pay`), 0, "audit")
	f(2, kmsg.StringPtr(`pay-(`), 128, "")
	f(1, kmsg.StringPtr(`audit`), 0, "audit pay-1 pay-22")
}
