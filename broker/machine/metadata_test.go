package machine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (w *world) metadata(version int16, allow bool, names ...string) []kmsg.MetadataResponseTopic {
	w.t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = allow
	req.Topics = []kmsg.MetadataRequestTopic{}
	for _, n := range names {
		req.Topics = append(req.Topics, kmsg.MetadataRequestTopic{Topic: &n})
	}
	return w.ask(req, version).(*kmsg.MetadataResponse).Topics
}

// TestAutoCreation: v0 to v3 always, later versions when the client asks; a setting turns it off.
func TestAutoCreation(t *testing.T) {
	f := func(off bool, version int16, allow bool, topic string, want int16) {
		t.Helper()
		w := newWorld(t, Config{NoAutoCreate: off, DefaultPartitions: 2, MaxPartitions: 3})
		w.topic("a.b", 1)
		r := w.metadata(version, allow, topic)[0]
		if r.ErrorCode != want || *r.Topic != topic {
			t.Errorf("v%d of %q: got %s, want code %d", version, topic, errorName(r.ErrorCode), want)
		}
		created := w.m.topics[topic] != nil
		if created != (want == 0) || created && (len(r.Partitions) != 2 || r.TopicID == [16]byte{}) {
			t.Errorf("v%d of %q: created %v, answered with %d partitions", version, topic, created, len(r.Partitions))
		}
	}
	for v := int16(0); v <= 3; v++ {
		f(false, v, false, "t", 0)
		f(true, v, false, "t", 3)
	}
	for v := int16(4); v <= 13; v++ {
		f(false, v, true, "t", 0)
		f(false, v, false, "t", 3)
		f(true, v, true, "t", 3)
	}
	f(false, 9, true, "a b", kerr.InvalidTopicException.Code)
	f(false, 9, false, "a b", kerr.InvalidTopicException.Code)
	f(false, 9, true, "a_b", kerr.InvalidTopicException.Code)
	f(false, 9, true, "__consumer_offsets", 3)
	w := newWorld(t, Config{MaxPartitions: 1})
	w.topic("t", 1)
	if r := w.metadata(9, true, "u")[0]; r.ErrorCode != kerr.PolicyViolation.Code {
		t.Errorf("beyond the bound: %s", errorName(r.ErrorCode))
	}
}

func TestMetadata(t *testing.T) {
	w := newWorld(t, Config{NodeID: 4})
	for _, name := range []string{"c", "a", "b"} {
		w.topic(name, 2)
	}
	names := func(all []kmsg.MetadataResponseTopic) (s string) {
		for _, r := range all {
			s += *r.Topic
		}
		return s
	}
	// All topics: null, or nothing in v0. Nothing is nothing later.
	req := kmsg.NewPtrMetadataRequest()
	if got := names(w.ask(req, 9).(*kmsg.MetadataResponse).Topics); got != "abc" {
		t.Errorf("all topics are %s", got)
	}
	if got := names(w.metadata(0, false)); got != "abc" {
		t.Errorf("all topics of v0 are %s", got)
	}
	if got := names(w.metadata(1, false)); got != "" {
		t.Errorf("no topics are %s", got)
	}
	// Named often, answered once.
	if got := names(w.metadata(9, false, "b", "a", "b", "b")); got != "ba" {
		t.Errorf("b, a, b, b are answered as %s", got)
	}
	r := w.metadata(12, false, "a")[0]
	p := r.Partitions[1]
	if got := fmt.Sprint(p.Partition, p.Leader, p.LeaderEpoch, p.Replicas, p.ISR, p.ErrorCode, r.IsInternal); got != "1 4 1 [4] [4] 0 false" {
		t.Errorf("partition 1 is %s", got)
	}
	// By id, where names do not count: Apache Kafka's consumer sends an empty one. A null name without id is unknown.
	ask := func(topics ...kmsg.MetadataRequestTopic) (s string) {
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = topics
		for _, r := range w.ask(req, 12).(*kmsg.MetadataResponse).Topics {
			if s += errorName(r.ErrorCode); r.Topic != nil {
				s += " " + *r.Topic
			}
			s += ";"
		}
		return s
	}
	id, a, empty := w.m.topics["c"].ID, "a", ""
	for _, c := range []struct {
		want   string
		topics []kmsg.MetadataRequestTopic
	}{
		{"ok c;UNKNOWN_TOPIC_ID;", []kmsg.MetadataRequestTopic{{TopicID: id}, {TopicID: [16]byte{9}}, {}, {TopicID: id}}},
		{"ok c;", []kmsg.MetadataRequestTopic{{TopicID: id, Topic: &empty}}},
		{"ok c;", []kmsg.MetadataRequestTopic{{Topic: &a}, {TopicID: id, Topic: &a}}},
		{"UNKNOWN_TOPIC_ID;", []kmsg.MetadataRequestTopic{{}}},
	} {
		if got := ask(c.topics...); got != c.want {
			t.Errorf("by id: %+v gives %q, want %q", c.topics, got, c.want)
		}
	}
	w.m.may = func(_ *Client, a Access) bool { return a.Name != "b" }
	if got := names(w.ask(kmsg.NewPtrMetadataRequest(), 9).(*kmsg.MetadataResponse).Topics); got != "ac" {
		t.Errorf("all topics without b are %s", got)
	}
	if r := w.metadata(9, false, "b")[0]; r.ErrorCode != kerr.TopicAuthorizationFailed.Code {
		t.Errorf("b: %s", errorName(r.ErrorCode))
	}
}

func TestFindCoordinator(t *testing.T) {
	w := newWorld(t, Config{NodeID: 4})
	f := func(version int16, kind int8, want int16) {
		t.Helper()
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = kind, "k", []string{"k", "l"}
		resp := w.ask(req, version).(*kmsg.FindCoordinatorResponse)
		code, node := resp.ErrorCode, resp.NodeID
		if version >= 4 {
			if len(resp.Coordinators) != 2 || resp.Coordinators[1].Key != "l" {
				t.Fatalf("v%d: %+v", version, resp)
			}
			code, node = resp.Coordinators[0].ErrorCode, resp.Coordinators[0].NodeID
		}
		if code != want || (code == 0) != (node == 4) {
			t.Errorf("v%d of type %d: got %s at node %d, want code %d", version, kind, errorName(code), node, want)
		}
	}
	for v := int16(0); v <= 6; v++ {
		f(v, 0, 0)
		f(v, 1, 0)
		f(v, 2, kerr.InvalidRequest.Code)
	}
	w.m.may = func(*Client, Access) bool { return false }
	f(4, 0, kerr.GroupAuthorizationFailed.Code)
	f(3, 1, kerr.TransactionalIDAuthorizationFailed.Code)
}

// configText is a described setting with its synonyms and documentation.
func configText(c kmsg.DescribeConfigsResponseResourceConfig) string {
	var synonyms []string
	for _, s := range c.ConfigSynonyms {
		synonyms = append(synonyms, fmt.Sprintf("%s %s=%s", s.Source, s.Name, *s.Value))
	}
	doc := ""
	if c.Documentation != nil {
		doc = *c.Documentation
	}
	return fmt.Sprintf("%s=%s read-only %t [%s] %s", c.Name, *c.Value, c.ReadOnly, strings.Join(synonyms, " "), doc)
}

func TestDescribeConfigs(t *testing.T) {
	w := newWorld(t, Config{MessageMaxBytes: 2000, Described: []BrokerConfig{
		{Name: "num.partitions", Value: "1", Default: "1", Kind: kmsg.ConfigTypeInt, Doc: "How many."},
		{Name: "message.max.bytes", Value: "2000", Default: "1048588", Kind: kmsg.ConfigTypeInt},
		{Name: "log.dirs", Value: "there", Kind: kmsg.ConfigTypeString},
	}})
	value := "1000"
	w.create("t", kmsg.CreateTopicsRequestTopicConfig{Name: "retention.ms", Value: &value})
	f := func(kind kmsg.ConfigResourceType, name string, want int16, keys ...string) kmsg.DescribeConfigsResponseResource {
		t.Helper()
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.IncludeSynonyms, req.IncludeDocumentation = true, true
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName, r.ConfigNames = kind, name, keys
		req.Resources = append(req.Resources, r, r)
		all := w.ask(req, 4).(*kmsg.DescribeConfigsResponse).Resources
		if len(all) != 1 || all[0].ErrorCode != want || all[0].ResourceName != name {
			t.Errorf("%v %q: got %+v, want code %d", kind, name, all, want)
		}
		return all[0]
	}
	d := f(kmsg.ConfigResourceTypeTopic, "t", 0, "retention.ms", "segment.bytes", "nonsense")
	if len(d.Configs) != 2 {
		t.Fatalf("%d configurations, want the two that exist", len(d.Configs))
	}
	r, s := d.Configs[0], d.Configs[1]
	if *r.Value != "1000" || r.IsDefault || r.Source != kmsg.ConfigSourceDynamicTopicConfig || len(r.ConfigSynonyms) != 2 || r.ConfigType != kmsg.ConfigTypeLong {
		t.Errorf("retention.ms is %+v", r)
	}
	if *s.Value != "1073741824" || !s.IsDefault || s.Source != kmsg.ConfigSourceDefaultConfig || len(s.ConfigSynonyms) != 1 {
		t.Errorf("segment.bytes is %+v", s)
	}
	if n := len(f(kmsg.ConfigResourceTypeTopic, "t", 0).Configs); n != len(topicConfigs) {
		t.Errorf("%d configurations of all %d", n, len(topicConfigs))
	}
	for i, want := range []string{
		"log.dirs=there read-only true [STATIC_BROKER_CONFIG log.dirs=there] ",
		"message.max.bytes=2000 read-only true [STATIC_BROKER_CONFIG message.max.bytes=2000 DEFAULT_CONFIG message.max.bytes=1048588] ",
		"num.partitions=1 read-only true [DEFAULT_CONFIG num.partitions=1] How many.",
	} {
		if got := configText(f(kmsg.ConfigResourceTypeBroker, "1", 0).Configs[i]); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	w.create("own", kmsg.CreateTopicsRequestTopicConfig{Name: "max.message.bytes", Value: &value})
	for topic, want := range map[string]string{
		"t":   "max.message.bytes=2000 read-only false [STATIC_BROKER_CONFIG max.message.bytes=2000 DEFAULT_CONFIG max.message.bytes=1048588] ",
		"own": "max.message.bytes=1000 read-only false [DYNAMIC_TOPIC_CONFIG max.message.bytes=1000 STATIC_BROKER_CONFIG message.max.bytes=2000 DEFAULT_CONFIG max.message.bytes=1048588] ",
	} {
		got := configText(f(kmsg.ConfigResourceTypeTopic, topic, 0, "max.message.bytes").Configs[0])
		if !strings.HasPrefix(got, want) {
			t.Errorf("topic %s: got %s, want %s", topic, got, want)
		}
	}
	if d := f(kmsg.ConfigResourceTypeBroker, "", 0); len(d.Configs) > 0 {
		t.Errorf("defaults of all brokers: %+v, there are none", d.Configs)
	}
	f(kmsg.ConfigResourceTypeBroker, "2", kerr.InvalidRequest.Code)
	f(kmsg.ConfigResourceTypeTopic, "u", 3)
	f(kmsg.ConfigResourceTypeBrokerLogger, "1", kerr.InvalidRequest.Code)
	w.m.may = func(*Client, Access) bool { return false }
	f(kmsg.ConfigResourceTypeTopic, "t", kerr.TopicAuthorizationFailed.Code)
	f(kmsg.ConfigResourceTypeBroker, "1", kerr.ClusterAuthorizationFailed.Code)
}

// TestDenied: what kafka-eos.md F.3 asks for is asked, and its error given.
func TestDenied(t *testing.T) {
	w := newWorld(t, Config{})
	w.topic("t", 1)
	w.run("init")
	denied := Access{}
	w.m.may = func(_ *Client, a Access) bool { return a != denied }
	f := func(op kmsg.ACLOperation, resource kmsg.ACLResourceType, name, command, want string) {
		t.Helper()
		denied = Access{op, resource, name}
		w.expect(command, want)
	}
	const tid, topic, group, cluster = kmsg.ACLResourceTypeTransactionalId, kmsg.ACLResourceTypeTopic, kmsg.ACLResourceTypeGroup, kmsg.ACLResourceTypeCluster
	f(kmsg.ACLOperationWrite, tid, "pay", "init", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
	f(kmsg.ACLOperationWrite, tid, "pay", "add t/0", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
	f(kmsg.ACLOperationWrite, tid, "pay", "offsets g", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
	f(kmsg.ACLOperationWrite, tid, "pay", "txncommit group=g t/0=1", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
	f(kmsg.ACLOperationWrite, tid, "pay", "end commit", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
	f(kmsg.ACLOperationWrite, topic, "t", "add t/0 nope/0", "TOPIC_AUTHORIZATION_FAILED UNKNOWN_TOPIC_OR_PARTITION")
	f(kmsg.ACLOperationRead, group, "g", "offsets g", "GROUP_AUTHORIZATION_FAILED")
	f(kmsg.ACLOperationRead, group, "g", "txncommit group=g t/0=1", "GROUP_AUTHORIZATION_FAILED")
	f(kmsg.ACLOperationClusterAction, cluster, "kafka-cluster", "addverify t/0", "CLUSTER_AUTHORIZATION_FAILED")
	f(kmsg.ACLOperationDelete, topic, "t", "delete t", "TOPIC_AUTHORIZATION_FAILED")
	denied = Access{}
	w.expect("txncommit group= t/0=1", "INVALID_GROUP_ID")
	w.expect("init plain pid=4", "INVALID_REQUEST")
	w.expect("init v=2 pid=4", "pid=0 epoch=1") // before v3 there is no producer id to give
	w.m.may = func(_ *Client, a Access) bool {
		return a.Operation != kmsg.ACLOperationCreate && a.Operation != kmsg.ACLOperationAlter
	}
	if r := w.create("u"); r.ErrorCode != kerr.TopicAuthorizationFailed.Code {
		t.Errorf("CreateTopics: %s", errorName(r.ErrorCode))
	}
	if r := w.metadata(9, true, "u")[0]; r.ErrorCode != kerr.TopicAuthorizationFailed.Code {
		t.Errorf("Metadata that creates: %s", errorName(r.ErrorCode))
	}
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "t", Count: 2}}
	if r := w.ask(req, 3).(*kmsg.CreatePartitionsResponse).Topics[0]; r.ErrorCode != kerr.TopicAuthorizationFailed.Code {
		t.Errorf("CreatePartitions: %s", errorName(r.ErrorCode))
	}
}
