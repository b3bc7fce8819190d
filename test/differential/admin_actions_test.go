//go:build peers

package differential

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var adminActions = []action{
	{5, (*world).createTopics},
	{4, (*world).deleteTopic},
	{4, (*world).createPartitions},
	{5, (*world).describeConfigs},
	{5, (*world).alterConfigs},
	{12, (*world).metadataOf},
	{2, (*world).describeTopicPartitions},
}

func (w *world) createTopics() step {
	req := kmsg.NewPtrCreateTopicsRequest()
	w.anyVersion(req)
	req.TimeoutMillis = 10000
	req.ValidateOnly = w.chance(20)
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = fmt.Sprintf("%sn%d", w.prefix, w.IntN(8)), int32(1+w.IntN(3)), 1
	switch w.IntN(14) {
	case 0:
		t.Topic = pick(w, "", ".", "..", "with space", w.prefix+"ü", strings.Repeat("x", 250))
	case 1:
		t.NumPartitions = pick(w, int32(0), -1, -2)
	case 2:
		t.ReplicationFactor = pick(w, int16(0), 2, -1, -2)
	case 3:
		t.Topic = w.names[0]
	case 4:
		t.Configs = append(t.Configs, topicConfig("no.such.setting", "1"))
	case 5:
		t.Configs = append(t.Configs, topicConfig("retention.ms", pick(w, "-2", "x", "", "1000", "-1")))
	case 6:
		t.Configs = append(t.Configs, topicConfig("cleanup.policy", pick(w, "compact", "delete,compact", "delete", "none", "")))
	case 7:
		t.Configs = append(t.Configs, topicConfig("compression.type", pick(w, "snappy", "producer", "uncompressed", "rar")))
	case 8:
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = pick(w, int32(0), 1), []int32{pick(w, int32(1), 1, 2)}
		t.ReplicaAssignment = append(t.ReplicaAssignment, a)
		if w.chance(70) {
			t.NumPartitions, t.ReplicationFactor = -1, -1
		}
	}
	req.Topics = append(req.Topics, t)
	if w.chance(5) {
		req.Topics = append(req.Topics, t)
	}
	return one(0, req, func(r kmsg.Response) {
		if !req.ValidateOnly {
			w.created(r)
		}
	})
}

func (w *world) deleteTopic() step {
	req := kmsg.NewPtrDeleteTopicsRequest()
	w.anyVersion(req)
	req.TimeoutMillis = 10000
	name := w.prefix + "none"
	if len(w.names) > 3 && w.chance(80) {
		name = w.names[3+w.IntN(len(w.names)-3)]
	}
	req.TopicNames = []string{name}
	t := kmsg.NewDeleteTopicsRequestTopic()
	t.Topic = &name
	if w.chance(30) {
		if id := w.topics[name]; id != ([16]byte{}) {
			t.Topic, t.TopicID = nil, id
		}
	}
	req.Topics = append(req.Topics, t)
	return one(0, req, func(r kmsg.Response) {
		if ts := r.(*kmsg.DeleteTopicsResponse).Topics; len(ts) != 1 || ts[0].ErrorCode != 0 {
			return
		}
		w.names = slices.DeleteFunc(w.names, func(n string) bool { return n == name })
		delete(w.topics, name)
		for _, p := range w.producers {
			for at := range p.next {
				if at.topic == name {
					delete(p.next, at)
				}
			}
		}
	})
}

func (w *world) createPartitions() step {
	req := kmsg.NewPtrCreatePartitionsRequest()
	w.anyVersion(req)
	req.TimeoutMillis = 10000
	req.ValidateOnly = w.chance(20)
	name := w.names[w.IntN(len(w.names))]
	t := kmsg.NewCreatePartitionsRequestTopic()
	t.Topic = name
	t.Count = w.parts[name] + pick(w, int32(1), 1, 0, -1)
	if w.chance(20) {
		a := kmsg.NewCreatePartitionsRequestTopicAssignment()
		a.Replicas = []int32{pick(w, int32(1), 1, 2)}
		t.Assignment = append(t.Assignment, a)
	}
	if w.chance(10) {
		t.Topic = w.prefix + "none"
	}
	if w.parts[name] > 5 {
		t.Count = 3
	}
	req.Topics = append(req.Topics, t)
	return one(0, req, func(r kmsg.Response) {
		if ts := r.(*kmsg.CreatePartitionsResponse).Topics; len(ts) == 1 && ts[0].ErrorCode == 0 && !req.ValidateOnly {
			w.parts[name] = t.Count
		}
	})
}

func (w *world) describeConfigs() step {
	req := kmsg.NewPtrDescribeConfigsRequest()
	w.anyVersion(req)
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, w.place().topic
	if w.chance(50) {
		r.ConfigNames = []string{pick(w, "retention.ms", "cleanup.policy"), pick(w, "max.message.bytes", "no.such.setting")}
	}
	req.IncludeSynonyms = w.chance(50)
	req.Resources = append(req.Resources, r)
	return one(0, req, nil)
}

func (w *world) alterConfigs() step {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	w.anyVersion(req)
	req.ValidateOnly = w.chance(20)
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, w.place().topic
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Op = pick(w, "retention.ms", "file.delete.delay.ms", "cleanup.policy", "no.such.setting", "delete.retention.ms"), kmsg.IncrementalAlterConfigOp(w.IntN(4))
	value := pick(w, "100000", "100001", "-1", "delete", "compact", "nonsense", "")
	c.Value = &value
	if w.chance(10) || c.Op == kmsg.IncrementalAlterConfigOpDelete {
		c.Value = nil
	}
	r.Configs = append(r.Configs, c)
	if w.chance(5) {
		r.Configs = append(r.Configs, c)
	}
	req.Resources = append(req.Resources, r)
	return one(0, req, nil)
}

func (w *world) metadataOf() step {
	req := kmsg.NewPtrMetadataRequest()
	w.anyVersion(req)
	req.AllowAutoTopicCreation = w.chance(10)
	for _, at := range w.places(2) {
		t := kmsg.NewMetadataRequestTopic()
		name := at.topic
		if w.topics[name] == ([16]byte{}) && (req.Version < 4 || req.AllowAutoTopicCreation) {
			name = w.autoTopic()
		}
		t.Topic = &name
		if id := w.topics[name]; req.Version >= 12 && w.chance(30) {
			t.Topic, t.TopicID = nil, id
			if id == ([16]byte{}) {
				t.TopicID = [16]byte{1, 2, 3}
			}
		}
		req.Topics = append(req.Topics, t)
	}
	return one(0, req, nil)
}

func (w *world) describeTopicPartitions() step {
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	for _, at := range w.places(3) {
		t := kmsg.NewDescribeTopicPartitionsRequestTopic()
		t.Topic = at.topic
		req.Topics = append(req.Topics, t)
	}
	req.ResponsePartitionLimit = pick(w, int32(2000), 2, 1)
	return one(0, req, nil)
}
