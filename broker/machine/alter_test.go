package machine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// explicit shows what clients gave a topic.
func (w *world) explicit(topic string) string {
	var all []string
	for _, e := range w.m.topics[topic].Settings.Explicit {
		all = append(all, e.Name+"="+e.Value)
	}
	return strings.Join(all, " ")
}

func TestIncrementalAlterConfigs(t *testing.T) {
	w := newWorld(t, Config{})
	w.topic("t", 1)
	validateOnly := false
	// f applies one line of NAME OP VALUE triples, each with ';' behind it, to topic t; VALUE - is null.
	f := func(ops string, want *kerr.Error, after string) {
		t.Helper()
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		req.ValidateOnly = validateOnly
		r := kmsg.NewIncrementalAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, "t"
		for _, op := range strings.Split(ops, ";") {
			c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			var value string
			if _, err := fmt.Sscan(op, &c.Name, &c.Op, &value); err != nil {
				t.Fatal(op, err)
			}
			if value != "-" {
				value = strings.TrimPrefix(value, "empty")
				c.Value = &value
			}
			r.Configs = append(r.Configs, c)
		}
		req.Resources = append(req.Resources, r)
		version := w.m.topics["t"].SettingsVersion
		before := w.explicit("t")
		got := w.ask(req, 1).(*kmsg.IncrementalAlterConfigsResponse).Resources[0]
		code := int16(0)
		if want != nil {
			code = want.Code
		}
		if got.ErrorCode != code || w.explicit("t") != after || (got.ErrorMessage == nil) != (code == 0) {
			t.Errorf("%s: %s %v, then %q", ops, errorName(got.ErrorCode), got.ErrorMessage, w.explicit("t"))
		}
		if changed := w.m.topics["t"].SettingsVersion != version; changed != (before != after) {
			t.Errorf("%s: settings version changed %t", ops, changed)
		}
	}
	const set, del, add, sub = "0", "1", "2", "3"
	f("retention.ms "+set+" 5", nil, "retention.ms=5")
	f("retention.ms "+set+" 5", nil, "retention.ms=5")
	f("cleanup.policy "+add+" compact; retention.ms "+del+" -", nil, "cleanup.policy=delete,compact")
	if s := w.m.topics["t"].Settings; !s.CleanupCompact || !s.CleanupDelete || s.RetentionMs != DefaultSettings().RetentionMs {
		t.Errorf("settings %+v", s)
	}
	f("cleanup.policy "+sub+" delete", nil, "cleanup.policy=compact")
	f("cleanup.policy "+sub+" compact", nil, "cleanup.policy=") // keeps everything
	f("cleanup.policy "+set+" compact", nil, "cleanup.policy=compact")
	f("cleanup.policy "+add+" empty", kerr.InvalidConfig, "cleanup.policy=compact")
	f("retention.ms "+add+" 5", kerr.InvalidConfig, "cleanup.policy=compact")
	f("retention.ms "+set+" -", kerr.InvalidRequest, "cleanup.policy=compact")
	f("retention.ms "+set+" five", kerr.InvalidConfig, "cleanup.policy=compact")
	f("nonsense "+set+" 5", kerr.InvalidConfig, "cleanup.policy=compact")
	f("nonsense "+set+" -", kerr.InvalidRequest, "cleanup.policy=compact")
	f("nonsense "+del+" 5", nil, "cleanup.policy=compact")
	f("retention.ms 7 5", kerr.InvalidRequest, "cleanup.policy=compact")
	f("segment.ms "+set+" 5; retention.ms "+set+" no", kerr.InvalidConfig, "cleanup.policy=compact") // all or nothing
	f("segment.ms "+set+" 5; segment.ms "+set+" 6", kerr.InvalidRequest, "cleanup.policy=compact")
	validateOnly = true
	f("segment.ms "+set+" 5", nil, "cleanup.policy=compact")
	f("segment.ms "+set+" no", kerr.InvalidConfig, "cleanup.policy=compact")
	w.restart()
	if got := w.explicit("t"); got != "cleanup.policy=compact" {
		t.Errorf("after a restart: %s", got)
	}
}

func TestAlterConfigs(t *testing.T) {
	w := newWorld(t, Config{})
	five := "5"
	w.create("t", kmsg.CreateTopicsRequestTopicConfig{Name: "retention.ms", Value: &five})
	f := func(kind kmsg.ConfigResourceType, name string, want *kerr.Error, after string, configs ...string) {
		t.Helper()
		req := kmsg.NewPtrAlterConfigsRequest()
		r := kmsg.NewAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName = kind, name
		for _, c := range configs {
			key, value, some := strings.Cut(c, "=")
			rc := kmsg.AlterConfigsRequestResourceConfig{Name: key}
			if some {
				rc.Value = &value
			}
			r.Configs = append(r.Configs, rc)
		}
		req.Resources = append(req.Resources, r)
		code := int16(0)
		if want != nil {
			code = want.Code
		}
		if got := w.ask(req, 2).(*kmsg.AlterConfigsResponse).Resources[0]; got.ErrorCode != code || w.explicit("t") != after {
			t.Errorf("%q: %s %v, then %q", configs, errorName(got.ErrorCode), got.ErrorMessage, w.explicit("t"))
		}
	}
	const topic = kmsg.ConfigResourceTypeTopic
	f(topic, "t", nil, "segment.ms=7", "segment.ms=7", "flush.ms")
	f(topic, "t", kerr.InvalidConfig, "segment.ms=7", "segment.ms=no")
	f(topic, "t", kerr.InvalidConfig, "segment.ms=7", "nonsense=1")
	f(topic, "t", kerr.InvalidRequest, "segment.ms=7", "segment.ms=1", "segment.ms=2")
	f(topic, "u", kerr.UnknownTopicOrPartition, "segment.ms=7", "segment.ms=1")
	f(kmsg.ConfigResourceTypeBroker, "1", kerr.InvalidConfig, "segment.ms=7", "num.partitions=1")
	f(kmsg.ConfigResourceTypeBrokerLogger, "1", kerr.InvalidRequest, "segment.ms=7", "root=INFO")
	f(topic, "t", nil, "")
	w.m.may = func(_ *Client, a Access) bool { return a.Operation != kmsg.ACLOperationAlterConfigs }
	f(topic, "t", kerr.TopicAuthorizationFailed, "", "segment.ms=1")
}

// A resource that a request names twice is refused both times: what was meant cannot be known.
func TestAlterConfigsOfOneResourceTwice(t *testing.T) {
	w := newWorld(t, Config{})
	w.topic("t", 1)
	w.topic("u", 1)
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	for _, name := range []string{"t", "u", "t"} {
		r := kmsg.NewIncrementalAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, name
		r.Configs = []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "segment.ms", Value: kmsg.StringPtr("5")}}
		req.Resources = append(req.Resources, r)
	}
	var codes []int16
	for _, r := range w.ask(req, 1).(*kmsg.IncrementalAlterConfigsResponse).Resources {
		codes = append(codes, r.ErrorCode)
	}
	if fmt.Sprint(codes) != "[42 0 42]" || w.explicit("t") != "" || w.explicit("u") != "segment.ms=5" {
		t.Errorf("codes %v, t %q, u %q", codes, w.explicit("t"), w.explicit("u"))
	}
}

// Every key is explained.
func TestConfigDocs(t *testing.T) {
	for _, k := range topicConfigs {
		if topicConfigDocs[k.name] == "" {
			t.Errorf("%s is not explained", k.name)
		}
	}
	if len(topicConfigDocs) != len(topicConfigs) {
		t.Errorf("%d explanations for %d keys", len(topicConfigDocs), len(topicConfigs))
	}
}

func TestDescribeTopicPartitions(t *testing.T) {
	w := newWorld(t, Config{})
	w.topic("a", 2)
	w.topic("b", 3)
	w.topic("c", 1)
	f := func(limit int32, cursor, want string, topics ...string) {
		t.Helper()
		req := kmsg.NewPtrDescribeTopicPartitionsRequest()
		req.ResponsePartitionLimit = limit
		for _, name := range topics {
			req.Topics = append(req.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: name})
		}
		if topic, n, ok := place(cursor); ok {
			req.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: topic, Partition: n}
		}
		resp := w.ask(req, 0).(*kmsg.DescribeTopicPartitionsResponse)
		var got []string
		for _, x := range resp.Topics {
			out := *x.Topic + ":"
			if x.ErrorCode != 0 {
				out += errorName(x.ErrorCode)
			}
			for _, p := range x.Partitions {
				out += fmt.Sprint(p.Partition)
			}
			got = append(got, out)
		}
		if c := resp.NextCursor; c != nil {
			got = append(got, fmt.Sprintf("next %s/%d", c.Topic, c.Partition))
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("limit %d from %q of %v:\n got %s\nwant %s", limit, cursor, topics, s, want)
		}
	}
	f(2000, "", "a:01 b:012 c:0")
	f(2000, "", "a:01 c:0 d:UNKNOWN_TOPIC_OR_PARTITION", "c", "a", "d", "a")
	f(3, "", "a:01 b:0 next b/1")
	f(3, "b/1", "b:12 c:0")
	f(2, "", "a:01 next b/0")
	f(1, "b/2", "b:2 next c/0")
	f(9, "bb/0", "c:0")
	f(9, "b/7", "b: c:0")
	f(0, "c/0", "c:0")
	w.m.may = func(_ *Client, a Access) bool { return a.Name != "b" }
	f(9, "", "a:01 c:0")
	f(9, "", "b:TOPIC_AUTHORIZATION_FAILED", "b")
}
