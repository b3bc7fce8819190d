package machine

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListConfigResources (key 74, KIP-1142), v0 and 1: topics, this broker, and groups that have settings. v0 asked for client
// metrics only, of which there are none.

func (m *Machine) listConfigResources(req *kmsg.ListConfigResourcesRequest) {
	resp := req.ResponseKind().(*kmsg.ListConfigResourcesResponse)
	if !m.mayCluster(kmsg.ACLOperationDescribeConfigs) {
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		m.reply(resp)
		return
	}
	const topic, broker, brokerLogger, clientMetrics, group = 2, 4, 8, 16, 32
	for _, t := range req.ResourceTypes {
		if !slices.Contains([]int8{topic, broker, brokerLogger, clientMetrics, group}, t) {
			resp.ErrorCode = kerr.UnsupportedVersion.Code
			m.reply(resp)
			return
		}
	}
	list := func(kind int8, names ...string) {
		if req.Version < 1 || len(req.ResourceTypes) > 0 && !slices.Contains(req.ResourceTypes, kind) {
			return
		}
		for _, name := range names {
			r := kmsg.NewListConfigResourcesResponseConfigResource()
			r.Type, r.Name = kind, name
			resp.ConfigResources = append(resp.ConfigResources, r)
		}
	}
	list(group, m.groups.Configured()...)
	for _, t := range m.sorted {
		list(topic, t.Name)
	}
	list(broker, formatInt(m.cfg.NodeID))
	m.reply(resp)
}
