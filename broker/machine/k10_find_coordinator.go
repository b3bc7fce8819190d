package machine

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// FindCoordinator (key 10), v0 to 6: this broker coordinates all groups (type 0) and transactional ids (type 1); share
// groups (type 2) have no coordinator here. The answer names the node; host and port are filled in by the connection
// wherever the error code is 0.

func (m *Machine) findCoordinator(req *kmsg.FindCoordinatorRequest) {
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	if req.Version >= 4 {
		for _, key := range req.CoordinatorKeys {
			c := kmsg.NewFindCoordinatorResponseCoordinator()
			c.Key, c.NodeID = key, m.cfg.NodeID
			if why := m.checkCoordinator(req.CoordinatorType, key); why != nil {
				c.NodeID, c.Port = -1, -1
				c.ErrorCode, c.ErrorMessage = why.code.Code, kmsg.StringPtr(why.message)
			}
			resp.Coordinators = append(resp.Coordinators, c)
		}
	} else {
		resp.NodeID = m.cfg.NodeID
		if why := m.checkCoordinator(req.CoordinatorType, req.CoordinatorKey); why != nil {
			resp.NodeID, resp.Port = -1, -1
			resp.ErrorCode, resp.ErrorMessage = why.code.Code, kmsg.StringPtr(why.message)
		}
	}
	m.reply(resp)
}

func (m *Machine) checkCoordinator(kind int8, key string) *refusal {
	switch kind {
	case 0:
		if !m.mayGroup(kmsg.ACLOperationDescribe, key) {
			return refuse(kerr.GroupAuthorizationFailed, "the client may not see group %q", key)
		}
	case 1:
		if !m.mayTransactional(kmsg.ACLOperationDescribe, key) {
			return refuse(kerr.TransactionalIDAuthorizationFailed, "the client may not see transactional id %q", key)
		}
	default:
		return refuse(kerr.InvalidRequest, "coordinators of type %d do not exist here: 0 is groups, 1 transactions", kind)
	}
	return nil
}
