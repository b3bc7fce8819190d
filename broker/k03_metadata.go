package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// finishMetadata adds what only the connection knows: how this client reaches the broker.
func finishMetadata(c *conn, s *slot) (kmsg.Response, error) {
	r, err := finishLoop(c, s)
	if err != nil {
		return nil, err
	}
	resp := r.(*kmsg.MetadataResponse)
	self := kmsg.NewMetadataResponseBroker()
	self.NodeID, self.Host, self.Port = c.b.cfg.NodeID, c.reach.host, c.reach.port
	resp.Brokers = []kmsg.MetadataResponseBroker{self}
	resp.ControllerID = c.b.cfg.NodeID
	resp.ClusterID = kmsg.StringPtr(c.b.clusterID)
	return resp, nil
}
