package machine

import (
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// CreateTopics (key 19), v2 to 7. v4 allows -1 for the broker's defaults; v5 answers with counts and configuration; v7
// with the topic's id.

func (m *Machine) createTopics(req *kmsg.CreateTopicsRequest) {
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	for i, times := range timesNamed(len(req.Topics), func(i int) string { return req.Topics[i].Topic }) {
		t := &req.Topics[i]
		switch times {
		case 0: // answered already
		case 1:
			resp.Topics = append(resp.Topics, m.createOne(t, req.ValidateOnly))
		default:
			r := kmsg.NewCreateTopicsResponseTopic()
			r.Topic = t.Topic
			failCreate(&r, refuseTwice(t.Topic, times))
			resp.Topics = append(resp.Topics, r)
		}
	}
	m.reply(resp)
}

func failCreate(r *kmsg.CreateTopicsResponseTopic, why *refusal) {
	r.ErrorCode, r.ErrorMessage = why.code.Code, kmsg.StringPtr(why.message)
	r.NumPartitions, r.ReplicationFactor = -1, -1
}

func (m *Machine) createOne(t *kmsg.CreateTopicsRequestTopic, validateOnly bool) kmsg.CreateTopicsResponseTopic {
	r := kmsg.NewCreateTopicsResponseTopic()
	r.Topic = t.Topic
	partitions, settings, why := m.checkCreate(t)
	if why != nil {
		failCreate(&r, why)
		return r
	}
	if m.mayTopic(kmsg.ACLOperationDescribeConfigs, t.Topic) {
		r.NumPartitions, r.ReplicationFactor, r.Configs = partitions, 1, m.createdConfigs(&settings)
	} else {
		r.ConfigErrorCode = kerr.TopicAuthorizationFailed.Code
	}
	if !validateOnly {
		r.TopicID = m.createTopic(t.Topic, partitions, settings).ID
	}
	return r
}

func (m *Machine) checkCreate(t *kmsg.CreateTopicsRequestTopic) (partitions int32, s Settings, why *refusal) {
	if !m.mayCluster(kmsg.ACLOperationCreate) && !m.mayTopic(kmsg.ACLOperationCreate, t.Topic) {
		return 0, s, refuse(kerr.TopicAuthorizationFailed, "the client may not create topic %q", t.Topic)
	}
	if why = m.checkTopicName(t.Topic); why != nil {
		return 0, s, why
	}
	if partitions, why = m.checkLayout(t); why != nil {
		return 0, s, why
	}
	if why = m.checkPartitionCount(partitions, partitions); why != nil {
		return 0, s, why
	}
	s, err := parseSettings(t.Configs)
	if err != nil {
		return 0, s, refuse(kerr.InvalidConfig, "%v", err)
	}
	return partitions, s, nil
}

// checkLayout finds the number of partitions, named or given by an assignment.
func (m *Machine) checkLayout(t *kmsg.CreateTopicsRequestTopic) (int32, *refusal) {
	if len(t.ReplicaAssignment) > 0 {
		return m.checkAssignment(t)
	}
	clamped := m.cfg.ClampReplicationFactor && t.ReplicationFactor > 1
	if t.ReplicationFactor != -1 && t.ReplicationFactor != 1 && !clamped {
		return 0, refuse(kerr.InvalidReplicationFactor, "replication factor %d cannot be had, this broker is alone: use 1, or -1 for the default", t.ReplicationFactor)
	}
	if t.NumPartitions == -1 {
		return m.cfg.DefaultPartitions, nil
	}
	return t.NumPartitions, nil
}

func (m *Machine) checkAssignment(t *kmsg.CreateTopicsRequestTopic) (int32, *refusal) {
	if t.NumPartitions != -1 || t.ReplicationFactor != -1 {
		return 0, refuse(kerr.InvalidRequest, "a manual assignment goes with -1 for partitions and replication factor, not %d and %d", t.NumPartitions, t.ReplicationFactor)
	}
	seen := make([]bool, len(t.ReplicaAssignment))
	for _, a := range t.ReplicaAssignment {
		if a.Partition < 0 || int(a.Partition) >= len(seen) || seen[a.Partition] {
			return 0, refuse(kerr.InvalidReplicaAssignment, "partition %d is not one of 0 to %d, each named once", a.Partition, len(seen)-1)
		}
		seen[a.Partition] = true
		if why := m.checkReplicas(a.Replicas); why != nil {
			return 0, why
		}
	}
	return int32(len(seen)), nil
}

func (m *Machine) checkReplicas(replicas []int32) *refusal {
	if len(replicas) != 1 || replicas[0] != m.cfg.NodeID {
		return refuse(kerr.InvalidReplicaAssignment, "replicas must be [%d], this broker alone, not %d", m.cfg.NodeID, replicas)
	}
	return nil
}

// createdConfigs describes the configuration of a new topic.
func (m *Machine) createdConfigs(s *Settings) []kmsg.CreateTopicsResponseTopicConfig {
	all := make([]kmsg.CreateTopicsResponseTopicConfig, len(topicConfigs))
	for i := range topicConfigs {
		value, source := m.effective(s, &topicConfigs[i])
		c := kmsg.NewCreateTopicsResponseTopicConfig()
		c.Name, c.Value, c.Source = topicConfigs[i].name, &value, int8(source)
		all[i] = c
	}
	return all
}

// effective is the value that counts for a key, and where it comes from.
func (m *Machine) effective(s *Settings, k *configKey) (string, kmsg.ConfigSource) {
	if v, ok := s.named(k.name); ok {
		return v, kmsg.ConfigSourceDynamicTopicConfig
	}
	return m.unnamed(k)
}

// unnamed is the value of a key that a topic does not name, and where it comes from.
func (m *Machine) unnamed(k *configKey) (string, kmsg.ConfigSource) {
	if k.name == maxMessageBytes && m.cfg.MessageMaxBytes != DefaultMessageMaxBytes {
		return formatInt(m.cfg.MessageMaxBytes), kmsg.ConfigSourceStaticBrokerConfig
	}
	return k.standard, kmsg.ConfigSourceDefaultConfig
}

func formatInt[T int32 | int64](v T) string { return strconv.FormatInt(int64(v), 10) }
