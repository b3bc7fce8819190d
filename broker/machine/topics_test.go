package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// create makes a topic of one partition with configuration.
func (w *world) create(name string, configs ...kmsg.CreateTopicsRequestTopicConfig) *kmsg.CreateTopicsResponseTopic {
	w.t.Helper()
	return w.createTopic(kmsg.CreateTopicsRequestTopic{Topic: name, NumPartitions: 1, ReplicationFactor: 1, Configs: configs})
}

func (w *world) createTopic(t kmsg.CreateTopicsRequestTopic) *kmsg.CreateTopicsResponseTopic {
	w.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Topics = append(req.Topics, t)
	resp := w.ask(req, 7).(*kmsg.CreateTopicsResponse)
	return &resp.Topics[0]
}

func TestCreateTopics(t *testing.T) {
	w := newWorld(t, Config{DefaultPartitions: 3, MaxPartitionsPerTopic: 10, MaxPartitions: 20})
	w.topic("a.b", 1)
	f := func(name string, partitions int32, factor int16, want *kerr.Error) {
		t.Helper()
		r := w.createTopic(kmsg.CreateTopicsRequestTopic{Topic: name, NumPartitions: partitions, ReplicationFactor: factor})
		code := int16(0)
		if want != nil {
			code = want.Code
		}
		if r.ErrorCode != code || (code != 0) != (r.ErrorMessage != nil) {
			t.Errorf("topic %q: got %s, want code %d", name, errorName(r.ErrorCode), code)
		}
		if r.Topic != name {
			t.Errorf("topic %q is answered as %q", name, r.Topic)
		}
	}
	f("t", 2, 1, nil)
	f("u", -1, -1, nil)
	f("A-z_0.9", 1, 1, nil)
	f(strings.Repeat("x", 249), 1, 1, nil)
	f(strings.Repeat("x", 250), 1, 1, kerr.InvalidTopicException)
	f("", 1, 1, kerr.InvalidTopicException)
	f(".", 1, 1, kerr.InvalidTopicException)
	f("..", 1, 1, kerr.InvalidTopicException)
	f("a b", 1, 1, kerr.InvalidTopicException)
	f("ä", 1, 1, kerr.InvalidTopicException)
	f("a_b", 1, 1, kerr.InvalidTopicException) // collides with a.b
	f("__consumer_offsets", 1, 1, kerr.InvalidTopicException)
	f("t", 2, 1, kerr.TopicAlreadyExists)
	f("v", 0, 1, kerr.InvalidPartitions)
	f("v", -2, 1, kerr.InvalidPartitions)
	f("v", 11, 1, kerr.InvalidPartitions)
	f("v", 1, 3, kerr.InvalidReplicationFactor)
	f("v", 1, 0, kerr.InvalidReplicationFactor)
	f("w", 10, 1, nil)
	f("v", 3, 1, kerr.PolicyViolation) // 18 of 20 partitions are there
	if n := len(w.m.topics["u"].Partitions); n != 3 {
		t.Errorf("u has %d partitions, want the default", n)
	}
}

// TestReplicationFactorClamp: more copies than there are brokers are one copy, if the operator wants that, and reported as
// one.
func TestReplicationFactorClamp(t *testing.T) {
	w := newWorld(t, Config{ClampReplicationFactor: true})
	f := func(name string, factor int16, want *kerr.Error) {
		t.Helper()
		r := w.createTopic(kmsg.CreateTopicsRequestTopic{Topic: name, NumPartitions: 1, ReplicationFactor: factor})
		switch {
		case want != nil && r.ErrorCode != want.Code:
			t.Errorf("factor %d: %s, want %v", factor, errorName(r.ErrorCode), want)
		case want == nil && (r.ErrorCode != 0 || r.ReplicationFactor != 1):
			t.Errorf("factor %d: %s, factor %d", factor, errorName(r.ErrorCode), r.ReplicationFactor)
		}
	}
	f("three", 3, nil)
	f("many", 32767, nil)
	f("one", 1, nil)
	f("default", -1, nil)
	f("none", 0, kerr.InvalidReplicationFactor)
	f("negative", -2, kerr.InvalidReplicationFactor)
	req := kmsg.NewPtrMetadataRequest()
	for _, topic := range w.ask(req, 12).(*kmsg.MetadataResponse).Topics {
		if p := topic.Partitions[0]; len(p.Replicas) != 1 || len(p.ISR) != 1 {
			t.Errorf("%s has replicas %v, in sync %v", *topic.Topic, p.Replicas, p.ISR)
		}
	}
}

func TestCreateTopicsAnswer(t *testing.T) {
	w := newWorld(t, Config{})
	value := func(s string) *string { return &s }
	r := w.create("t", kmsg.CreateTopicsRequestTopicConfig{Name: "cleanup.policy", Value: value("compact")},
		kmsg.CreateTopicsRequestTopicConfig{Name: "segment.ms", Value: value("1000")})
	topic := w.m.topics["t"]
	if r.TopicID != topic.ID || r.TopicID == [16]byte{} || r.NumPartitions != 1 || r.ReplicationFactor != 1 {
		t.Errorf("answered %+v for %+v", r, topic.Topic)
	}
	if topic.ID[6]>>4 != 4 || topic.ID[8]>>6 != 2 {
		t.Errorf("id %x is not a version 4 UUID", topic.ID)
	}
	var got []string
	for _, c := range r.Configs {
		if c.Source != int8(kmsg.ConfigSourceDefaultConfig) {
			got = append(got, c.Name+"="+*c.Value)
		}
	}
	if fmt.Sprint(got) != "[cleanup.policy=compact segment.ms=1000]" || len(r.Configs) != len(topicConfigs) {
		t.Errorf("%d configurations, explicit %v", len(r.Configs), got)
	}
	if !topic.Settings.CleanupCompact || topic.Settings.CleanupDelete {
		t.Errorf("settings %+v", topic.Settings)
	}

	// ValidateOnly checks and makes nothing; a topic that is named twice is refused once, whole.
	req := kmsg.NewPtrCreateTopicsRequest()
	req.ValidateOnly = true
	for _, name := range []string{"new", "t", "twice", "twice"} {
		rt := kmsg.NewCreateTopicsRequestTopic()
		rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, 1, 1
		req.Topics = append(req.Topics, rt)
	}
	units := len(w.journal)
	resp := w.ask(req, 6).(*kmsg.CreateTopicsResponse)
	if len(resp.Topics) != 3 || resp.Topics[0].ErrorCode != 0 || resp.Topics[1].ErrorCode != 36 || resp.Topics[2].ErrorCode != 42 {
		t.Errorf("validation answers %+v", resp.Topics)
	}
	if len(w.journal) != units || w.m.topics["new"] != nil {
		t.Error("validation wrote something")
	}
}

func TestAssignments(t *testing.T) {
	w := newWorld(t, Config{NodeID: 5})
	f := func(want int16, partitions int32, all ...kmsg.CreateTopicsRequestTopicReplicaAssignment) {
		t.Helper()
		r := w.createTopic(kmsg.CreateTopicsRequestTopic{Topic: fmt.Sprint("t", w.op), NumPartitions: partitions, ReplicationFactor: -1, ReplicaAssignment: all})
		if r.ErrorCode != want || want == 0 && int(r.NumPartitions) != len(all) {
			t.Errorf("got %s with %d partitions, want code %d", errorName(r.ErrorCode), r.NumPartitions, want)
		}
	}
	at := func(partition int32, replicas ...int32) kmsg.CreateTopicsRequestTopicReplicaAssignment {
		return kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: partition, Replicas: replicas}
	}
	f(0, -1, at(0, 5), at(1, 5))
	f(0, -1, at(1, 5), at(0, 5))
	f(39, -1, at(0, 5), at(0, 5))
	f(39, -1, at(0, 5), at(2, 5))
	f(39, -1, at(0, 4))
	f(39, -1, at(0, 5, 4))
	f(39, -1, at(0))
	f(39, -1, at(-1, 5))
	f(42, 1, at(0, 5))
}

// TestTopicConfigs: known keys are parsed, unknown keys and bad values are INVALID_CONFIG, as in Apache Kafka.
func TestTopicConfigs(t *testing.T) {
	if !slices.IsSortedFunc(topicConfigs, func(a, b configKey) int { return strings.Compare(a.name, b.name) }) {
		t.Fatal("topicConfigs is not sorted")
	}
	w := newWorld(t, Config{})
	number := 0
	f := func(name, value string, want int16) *Settings {
		t.Helper()
		number++
		topic := fmt.Sprint("t", number)
		if r := w.create(topic, kmsg.CreateTopicsRequestTopicConfig{Name: name, Value: &value}); r.ErrorCode != want {
			t.Errorf("%s=%s: got %s, want code %d", name, value, errorName(r.ErrorCode), want)
		}
		if want != 0 {
			return &Settings{}
		}
		return &w.m.topics[topic].Settings
	}
	const bad = 40
	if s := f("cleanup.policy", "compact,delete", 0); !s.CleanupCompact || !s.CleanupDelete {
		t.Error("cleanup.policy compact,delete is not both")
	}
	f("cleanup.policy", "", 0)
	f("cleanup.policy", "compact,no", bad)
	if s := f("retention.ms", "-1", 0); s.RetentionMs != -1 {
		t.Error("retention.ms -1 is not for ever")
	}
	f("retention.ms", "-2", bad)
	f("retention.ms", "soon", bad)
	f("retention.bytes", "100", 0)
	f("delete.retention.ms", "1", 0)
	if s := f("max.message.bytes", "1000", 0); s.MaxMessageBytes != 1000 {
		t.Error("max.message.bytes is not taken")
	}
	f("max.message.bytes", "2147483648", bad)
	f("compression.type", "zstd", 0)
	f("compression.type", "lzma", bad)
	f("message.timestamp.type", "LogAppendTime", 0)
	f("message.timestamp.type", "now", bad)
	f("message.timestamp.before.max.ms", "5", 0)
	f("message.timestamp.after.max.ms", "5", 0)
	f("min.insync.replicas", "2", 0) // one replica is all there is, and counts as enough
	f("min.insync.replicas", "0", bad)
	f("segment.bytes", "1048576", 0)
	f("segment.bytes", "1048575", bad)
	f("min.cleanable.dirty.ratio", "0.1", 0)
	f("min.cleanable.dirty.ratio", "NaN", bad)
	f("preallocate", "true", 0)
	f("remote.storage.enable", "true", bad)
	f("follower.replication.throttled.replicas", "*", 0)
	f("message.format.version", "2.0", bad)
	f("no.such.key", "1", bad)
	if r := w.create("null", kmsg.CreateTopicsRequestTopicConfig{Name: "retention.ms"}); r.ErrorCode != bad {
		t.Errorf("a configuration without value: %s", errorName(r.ErrorCode))
	}
	// What is written as the default means the default.
	defaults := DefaultSettings()
	for _, k := range topicConfigs {
		s := Settings{CleanupCompact: true}
		if err := k.parse(&s, k.standard); err != nil {
			t.Errorf("default of %s: %v", k.name, err)
		}
		again := DefaultSettings()
		if err := k.parse(&again, k.standard); err != nil || fmt.Sprint(again) != fmt.Sprint(defaults) {
			t.Errorf("%s=%s changes the defaults to %+v", k.name, k.standard, again)
		}
	}
}

func TestDeleteTopics(t *testing.T) {
	w := newWorld(t, Config{})
	id := w.topic("t", 2).ID
	w.run("produce plain t/0:-:a t/1:-:b")
	f := func(name *string, id [16]byte, want int16, wantName string) {
		t.Helper()
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.Topics = []kmsg.DeleteTopicsRequestTopic{{Topic: name, TopicID: id}}
		r := w.ask(req, 6).(*kmsg.DeleteTopicsResponse).Topics[0]
		if r.ErrorCode != want || wantName != "" && (r.Topic == nil || *r.Topic != wantName || r.TopicID == [16]byte{}) {
			t.Errorf("got %s, %+v; want code %d for %q", errorName(r.ErrorCode), r, want, wantName)
		}
	}
	name := "t"
	f(&name, id, kerr.InvalidRequest.Code, "")
	f(nil, [16]byte{1}, kerr.UnknownTopicID.Code, "")
	f(nil, id, 0, "t")
	f(&name, [16]byte{}, kerr.UnknownTopicOrPartition.Code, "")
	if len(w.m.Views()) != 0 || len(w.m.Topics()) != 0 || w.m.producers.Len() != 0 {
		t.Error("something is left of a deleted topic")
	}
	// Made again it has another id, and partition ids that were never used.
	again := w.topic("t", 2)
	if again.ID == id || again.Partitions[0] != 3 || again.SettingsVersion != 2 {
		t.Errorf("the second topic is %+v", again)
	}
}

func TestCreatePartitions(t *testing.T) {
	w := newWorld(t, Config{MaxPartitionsPerTopic: 6})
	w.topic("t", 2)
	f := func(topic string, count int32, validate bool, want int16, replicas ...int32) {
		t.Helper()
		req := kmsg.NewPtrCreatePartitionsRequest()
		req.ValidateOnly = validate
		rt := kmsg.CreatePartitionsRequestTopic{Topic: topic, Count: count}
		for _, r := range replicas {
			rt.Assignment = append(rt.Assignment, kmsg.CreatePartitionsRequestTopicAssignment{Replicas: []int32{r}})
		}
		req.Topics = append(req.Topics, rt)
		if r := w.ask(req, 3).(*kmsg.CreatePartitionsResponse).Topics[0]; r.ErrorCode != want || (want != 0) != (r.ErrorMessage != nil) {
			t.Errorf("topic %s to %d: got %s, want code %d", topic, count, errorName(r.ErrorCode), want)
		}
	}
	f("t", 3, true, 0)
	f("t", 2, false, 37)
	f("t", 1, false, 37)
	f("t", 7, false, 37)
	f("u", 3, false, 3)
	f("t", 3, false, 39, 1, 1)
	f("t", 3, false, 39, 2)
	f("t", 3, false, 0, 1)
	f("t", 5, false, 0)
	if got := fmt.Sprint(w.m.topics["t"].Partitions); got != "[1 2 3 4 5]" {
		t.Errorf("partitions %s", got)
	}
	w.expect("produce plain t/4:-:x", "offset 0")
}

// TestNamedTwice: what is meant by naming a topic twice in a request cannot be known; nothing is done, and one answer given.
func TestNamedTwice(t *testing.T) {
	w := newWorld(t, Config{})
	id := w.topic("t", 2).ID
	w.topic("u", 1)
	f := func(what string, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: got %s, want %s", what, got, want)
		}
	}
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Topics = []kmsg.CreateTopicsRequestTopic{
		{Topic: "n", NumPartitions: 1, ReplicationFactor: 1}, {Topic: "m", NumPartitions: 1, ReplicationFactor: 1}, {Topic: "n", NumPartitions: 2, ReplicationFactor: 1},
	}
	got := ""
	for _, r := range w.ask(create, 7).(*kmsg.CreateTopicsResponse).Topics {
		got += fmt.Sprint(r.Topic, ":", r.ErrorCode, " ")
	}
	f("CreateTopics", got, "n:42 m:0 ")

	grow := kmsg.NewPtrCreatePartitionsRequest()
	grow.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "t", Count: 3}, {Topic: "u", Count: 2}, {Topic: "t", Count: 4}}
	got = ""
	for _, r := range w.ask(grow, 3).(*kmsg.CreatePartitionsResponse).Topics {
		got += fmt.Sprint(r.Topic, ":", r.ErrorCode, " ")
	}
	f("CreatePartitions", got, "t:42 u:0 ")

	remove := kmsg.NewPtrDeleteTopicsRequest()
	name, other := "t", "u"
	ask := func(version int16) string {
		got := ""
		for _, r := range w.ask(remove, version).(*kmsg.DeleteTopicsResponse).Topics {
			got += fmt.Sprint(r.ErrorCode, " ")
		}
		return got
	}
	remove.TopicNames = []string{name, other, name}
	f("DeleteTopics by name before version 6", ask(5), "42 0 ")
	remove.Topics = []kmsg.DeleteTopicsRequestTopic{{Topic: &name}, {Topic: &name}, {TopicID: id}, {TopicID: id}, {}}
	f("DeleteTopics", ask(6), "42 42 ")
	remove.Topics = []kmsg.DeleteTopicsRequestTopic{{Topic: &name}, {TopicID: id}}
	f("DeleteTopics by name and by id", ask(6), "42 ")
	if w.m.topics["t"] == nil || len(w.m.topics["t"].Partitions) != 2 || w.m.topics["u"] != nil {
		t.Error("a topic that was named twice was changed, or one that was named once was not")
	}
}
