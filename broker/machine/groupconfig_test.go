package machine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine/group"
)

// TestGroupSettings: groups have settings whether they exist or not, within the broker's bounds, and heartbeats follow them.
func TestGroupSettings(t *testing.T) {
	w := newWorld(t, Config{Group: group.Config{ConsumerHeartbeatMs: 6000}})
	w.topic("t", 1)
	alter := func(name string, validateOnly bool, want *kerr.Error, configs ...string) {
		t.Helper()
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		req.ValidateOnly = validateOnly
		r := kmsg.NewIncrementalAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, name
		for _, c := range configs {
			config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			var value string
			var named bool
			if config.Name, value, named = strings.Cut(c, "="); named {
				config.Value = &value
			} else {
				config.Op = kmsg.IncrementalAlterConfigOpDelete
			}
			r.Configs = append(r.Configs, config)
		}
		req.Resources = append(req.Resources, r)
		code := int16(0)
		if want != nil {
			code = want.Code
		}
		if got := w.ask(req, 1).(*kmsg.IncrementalAlterConfigsResponse).Resources[0]; got.ErrorCode != code {
			t.Errorf("%q %v: %s %v", name, configs, errorName(got.ErrorCode), got.ErrorMessage)
		}
	}
	describe := func(name, want string) {
		t.Helper()
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.IncludeSynonyms, req.IncludeDocumentation = true, true
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, name
		req.Resources = append(req.Resources, r)
		d := w.ask(req, 4).(*kmsg.DescribeConfigsResponse).Resources[0]
		var got []string
		for _, c := range d.Configs {
			if c.Documentation == nil {
				t.Errorf("%s has no documentation", c.Name)
			}
			if strings.HasPrefix(c.Name, "consumer.") || c.Source != kmsg.ConfigSourceDefaultConfig {
				var under []string
				for _, s := range c.ConfigSynonyms {
					under = append(under, fmt.Sprintf("%s=%s/%d", s.Name, *s.Value, s.Source))
				}
				got = append(got, fmt.Sprintf("%s=%s/%d %v", c.Name, *c.Value, c.Source, under))
			}
		}
		if got := strings.Join(got, ", "); got != want {
			t.Errorf("group %q has\n%s, want\n%s", name, got, want)
		}
	}
	list := func(want string) {
		t.Helper()
		var got []string
		for _, r := range w.ask(kmsg.NewPtrListConfigResourcesRequest(), 1).(*kmsg.ListConfigResourcesResponse).ConfigResources {
			got = append(got, fmt.Sprintf("%d:%s", r.Type, r.Name))
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("resources are %s, want %s", got, want)
		}
	}
	beat := func(epoch int32) *kmsg.ConsumerGroupHeartbeatResponse {
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.Group, req.MemberID, req.MemberEpoch, req.RebalanceTimeoutMillis = "g", "m", epoch, 5000
		req.SubscribedTopicNames, req.Topics = []string{"t"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		return w.ask(req, 1).(*kmsg.ConsumerGroupHeartbeatResponse)
	}
	const standard = "consumer.assignment.interval.ms=1000/5 [group.consumer.assignment.interval.ms=1000/5], " +
		"consumer.heartbeat.interval.ms=6000/4 [group.consumer.heartbeat.interval.ms=6000/4], " +
		"consumer.session.timeout.ms=45000/5 [group.consumer.session.timeout.ms=45000/5]"
	describe("g", standard)
	describe("", "")
	alter("g", true, nil, "consumer.session.timeout.ms=50000")
	alter("", false, kerr.InvalidRequest, "consumer.session.timeout.ms=50000")
	for _, bad := range []string{"consumer.session.timeout.ms=44999", "consumer.session.timeout.ms=60001", "consumer.session.timeout.ms=x",
		"consumer.heartbeat.interval.ms=4999", "consumer.heartbeat.interval.ms=15001", "consumer.assignment.interval.ms=15001",
		"retention.ms=5", "share.isolation.level=x", "share.auto.offset.reset=x", "streams.num.standby.replicas=3"} {
		alter("g", false, kerr.InvalidConfig, bad)
	}
	describe("g", standard)
	list("2:t 4:1")
	alter("g", false, nil, "consumer.session.timeout.ms= 50000", "consumer.heartbeat.interval.ms=7000", "share.isolation.level=read_committed", "nobody.knows")
	alter("other", false, nil, "consumer.assignment.interval.ms=0")
	list("32:g 32:other 2:t 4:1")
	w.restart()
	describe("g", "consumer.assignment.interval.ms=1000/5 [group.consumer.assignment.interval.ms=1000/5], "+
		"consumer.heartbeat.interval.ms=7000/8 [consumer.heartbeat.interval.ms=7000/8 group.consumer.heartbeat.interval.ms=6000/4], "+
		"consumer.session.timeout.ms=50000/8 [consumer.session.timeout.ms=50000/8 group.consumer.session.timeout.ms=45000/5], "+
		"share.isolation.level=read_committed/8 [share.isolation.level=read_committed/8 share.isolation.level=read_uncommitted/5]")
	first := beat(0)
	if first.HeartbeatIntervalMillis != 7000 {
		t.Errorf("members are told to send heartbeats every %d ms", first.HeartbeatIntervalMillis)
	}
	w.tick(49_999)
	if again := beat(first.MemberEpoch); again.ErrorCode != 0 {
		t.Errorf("a member that was silent for less than its session is refused: %s", errorName(again.ErrorCode))
	}
	w.tick(50_000)
	if again := beat(first.MemberEpoch); again.ErrorCode != kerr.UnknownMemberID.Code {
		t.Errorf("a member that was silent for its session is answered %s", errorName(again.ErrorCode))
	}
	alter("g", false, nil, "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms", "share.isolation.level")
	describe("g", standard)
	list("32:other 2:t 4:1")
}
