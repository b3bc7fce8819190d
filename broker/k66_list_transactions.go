package broker

import (
	"regexp"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListTransactions (key 66): the pattern of v2 (KIP-1152, RE2, matched against the whole id) is applied here, so that
// nobody's regular expression runs in the loop.

const listPatternSince = 2

func startListTransactions(c *conn, s *slot) error {
	req := s.req.(*kmsg.ListTransactionsRequest)
	pattern, err := transactionPattern(req)
	if err != nil {
		resp := req.ResponseKind().(*kmsg.ListTransactionsResponse)
		resp.ErrorCode = kerr.InvalidRegularExpression.Code
		s.local = resp
		return nil
	}
	s.pattern = pattern
	return startLoop(c, s)
}

func finishListTransactions(c *conn, s *slot) (kmsg.Response, error) {
	r, err := finishLoop(c, s)
	if err != nil {
		return nil, err
	}
	resp := r.(*kmsg.ListTransactionsResponse)
	if s.pattern != nil {
		resp.TransactionStates = slices.DeleteFunc(resp.TransactionStates, func(t kmsg.ListTransactionsResponseTransactionState) bool {
			return !s.pattern.MatchString(t.TransactionalID)
		})
	}
	return resp, nil
}

// transactionPattern returns nil if every id will do.
func transactionPattern(req *kmsg.ListTransactionsRequest) (*regexp.Regexp, error) {
	if req.Version < listPatternSince || req.TransactionalIDPattern == nil || *req.TransactionalIDPattern == "" {
		return nil, nil
	}
	return regexp.Compile(`^(?:` + *req.TransactionalIDPattern + `)$`)
}
