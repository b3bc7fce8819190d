package machine

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Metadata (key 3), v0 to 13: the topics. Brokers, cluster id and controller are filled in by the connection, which
// knows the address that its client can reach. Up to v3 a topic that is asked for is created (unless the
// configuration forbids it); from v4 on only if the client allows it; by id (v12) never.

func (m *Machine) metadata(req *kmsg.MetadataRequest) {
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	if req.Topics == nil || (req.Version == 0 && len(req.Topics) == 0) {
		for _, t := range m.sorted {
			if m.mayTopic(kmsg.ACLOperationDescribe, t.Name) {
				resp.Topics = append(resp.Topics, m.describeTopic(t))
			}
		}
		m.reply(resp)
		return
	}
	create := !m.cfg.NoAutoCreate && (req.Version < 4 || req.AllowAutoTopicCreation)
	// Apache Kafka's consumer gives an empty name with an id, and the broker there looks at no name if there is an id.
	byID := req.Version >= 12 &&
		slices.ContainsFunc(req.Topics, func(t kmsg.MetadataRequestTopic) bool { return t.TopicID != [16]byte{} })
	// A topic that is named a thousand times is answered once: the answer may be much larger than its name.
	seen := make(map[string]bool, len(req.Topics))
	for i := range req.Topics {
		t := &req.Topics[i]
		named := t.Topic != nil && !byID
		key := string(t.TopicID[:])
		if named {
			key = *t.Topic
		}
		if seen[key] || byID && t.TopicID == [16]byte{} {
			continue
		}
		seen[key] = true
		if named {
			resp.Topics = append(resp.Topics, m.metadataByName(*t.Topic, create))
		} else {
			resp.Topics = append(resp.Topics, m.metadataByID(t.TopicID))
		}
	}
	m.reply(resp)
}

func failMetadata(code *kerr.Error) kmsg.MetadataResponseTopic {
	r := kmsg.NewMetadataResponseTopic()
	r.ErrorCode = code.Code
	return r
}

func (m *Machine) metadataByName(name string, create bool) kmsg.MetadataResponseTopic {
	t := m.topics[name]
	code := kerr.UnknownTopicOrPartition
	if !m.mayTopic(kmsg.ACLOperationDescribe, name) {
		t, code = nil, kerr.TopicAuthorizationFailed
	} else if t == nil {
		t, code = m.autoCreate(name, create)
	}
	if t == nil {
		r := failMetadata(code)
		r.Topic = kmsg.StringPtr(name)
		return r
	}
	return m.describeTopic(t)
}

// autoCreate makes a topic because somebody asked about it, or says why not.
func (m *Machine) autoCreate(name string, create bool) (*topic, *kerr.Error) {
	why := m.checkTopicName(name)
	switch {
	case internalTopic(name):
		return nil, kerr.UnknownTopicOrPartition
	case why != nil:
		return nil, why.code
	case !create:
		return nil, kerr.UnknownTopicOrPartition
	case !m.mayCluster(kmsg.ACLOperationCreate) && !m.mayTopic(kmsg.ACLOperationCreate, name):
		return nil, kerr.TopicAuthorizationFailed
	}
	n := m.cfg.DefaultPartitions
	if why := m.checkPartitionCount(n, n); why != nil {
		return nil, why.code
	}
	return m.createTopic(name, n, DefaultSettings()), nil
}

func (m *Machine) metadataByID(id [16]byte) kmsg.MetadataResponseTopic {
	t := m.topicsByID[id]
	if t == nil || !m.mayTopic(kmsg.ACLOperationDescribe, t.Name) {
		r := failMetadata(kerr.UnknownTopicID)
		r.TopicID = id
		return r
	}
	return m.describeTopic(t)
}

func (m *Machine) describeTopic(t *topic) kmsg.MetadataResponseTopic {
	r := kmsg.NewMetadataResponseTopic()
	r.Topic, r.TopicID = kmsg.StringPtr(t.Name), t.ID
	r.Partitions = make([]kmsg.MetadataResponseTopicPartition, len(t.partitions))
	alone := []int32{m.cfg.NodeID}
	for i := range r.Partitions {
		p := kmsg.NewMetadataResponseTopicPartition()
		p.Partition, p.Leader, p.LeaderEpoch = int32(i), m.cfg.NodeID, m.LeaderEpoch()
		p.Replicas, p.ISR = alone, alone
		r.Partitions[i] = p
	}
	return r
}
