package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Kinds of endpoints (KIP-919); a broker's listener describes brokers only.
const (
	endpointBrokers     = 1
	endpointControllers = 2
)

// startDescribeCluster describes the cluster of one. It says nothing of decided state, so it waits for nothing.
// Authorized operations stay "not given" until there is somebody to be authorized.
func startDescribeCluster(c *conn, s *slot) error {
	req := s.req.(*kmsg.DescribeClusterRequest)
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.Version = req.Version
	s.local = resp
	if req.Version >= 1 && req.EndpointType != endpointBrokers {
		resp.ErrorCode = kerr.MismatchedEndpointType.Code
		if req.EndpointType != endpointControllers {
			resp.ErrorCode = kerr.UnsupportedEndpointType.Code
		}
		resp.ErrorMessage = kmsg.StringPtr("this listener describes brokers (endpoint type 1) only")
		return nil
	}
	resp.ClusterID = c.b.clusterID
	resp.ControllerID = c.b.cfg.NodeID
	self := kmsg.NewDescribeClusterResponseBroker()
	self.NodeID, self.Host, self.Port = c.b.cfg.NodeID, c.reach.host, c.reach.port
	resp.Brokers = []kmsg.DescribeClusterResponseBroker{self}
	return nil
}
