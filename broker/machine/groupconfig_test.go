package machine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine/group"
)

// groupSettings asks about settings of groups.
type groupSettings struct{ *world }

func (w groupSettings) alter(name string, validateOnly bool, want *kerr.Error, configs ...string) {
	w.t.Helper()
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
		w.t.Errorf("%q %v: %s %v", name, configs, errorName(got.ErrorCode), got.ErrorMessage)
	}
}

func (w groupSettings) describe(name, want string) {
	w.t.Helper()
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeSynonyms, req.IncludeDocumentation = true, true
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, name
	req.Resources = append(req.Resources, r)
	d := w.ask(req, 4).(*kmsg.DescribeConfigsResponse).Resources[0]
	var got []string
	for _, c := range d.Configs {
		if c.Documentation == nil {
			w.t.Errorf("%s has no documentation", c.Name)
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
		w.t.Errorf("group %q has\n%s, want\n%s", name, got, want)
	}
}

func (w groupSettings) list(want string) {
	w.t.Helper()
	var got []string
	for _, r := range w.ask(kmsg.NewPtrListConfigResourcesRequest(), 1).(*kmsg.ListConfigResourcesResponse).ConfigResources {
		got = append(got, fmt.Sprintf("%d:%s", r.Type, r.Name))
	}
	if got := strings.Join(got, " "); got != want {
		w.t.Errorf("resources are %s, want %s", got, want)
	}
}

func (w groupSettings) beat(epoch int32) *kmsg.ConsumerGroupHeartbeatResponse {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch, req.RebalanceTimeoutMillis = "g", "m", epoch, 5000
	req.SubscribedTopicNames, req.Topics = []string{"t"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	return w.ask(req, 1).(*kmsg.ConsumerGroupHeartbeatResponse)
}

// TestGroupSettings: groups have settings whether they exist or not, within the broker's bounds, and heartbeats follow them.
func TestGroupSettings(t *testing.T) {
	w := groupSettings{newWorld(t, Config{Group: group.Config{ConsumerHeartbeatMs: 6000}})}
	w.topic("t", 1)
	const standard = "consumer.assignment.interval.ms=1000/5 [group.consumer.assignment.interval.ms=1000/5], " +
		"consumer.heartbeat.interval.ms=6000/4 [group.consumer.heartbeat.interval.ms=6000/4], " +
		"consumer.session.timeout.ms=45000/5 [group.consumer.session.timeout.ms=45000/5]"
	w.describe("g", standard)
	w.describe("", "")
	w.alter("g", true, nil, "consumer.session.timeout.ms=50000")
	w.alter("", false, kerr.InvalidRequest, "consumer.session.timeout.ms=50000")
	for _, bad := range []string{"consumer.session.timeout.ms=44999", "consumer.session.timeout.ms=60001", "consumer.session.timeout.ms=x",
		"consumer.heartbeat.interval.ms=4999", "consumer.heartbeat.interval.ms=15001", "consumer.assignment.interval.ms=15001",
		"retention.ms=5", "share.isolation.level=x", "share.auto.offset.reset=x", "streams.num.standby.replicas=3"} {
		w.alter("g", false, kerr.InvalidConfig, bad)
	}
	w.describe("g", standard)
	w.list("2:t 4:1")
	w.alter("g", false, nil, "consumer.session.timeout.ms= 50000", "consumer.heartbeat.interval.ms=7000", "share.isolation.level=read_committed", "nobody.knows")
	w.alter("other", false, nil, "consumer.assignment.interval.ms=0")
	w.list("32:g 32:other 2:t 4:1")
	w.restart()
	w.describe("g", "consumer.assignment.interval.ms=1000/5 [group.consumer.assignment.interval.ms=1000/5], "+
		"consumer.heartbeat.interval.ms=7000/8 [consumer.heartbeat.interval.ms=7000/8 group.consumer.heartbeat.interval.ms=6000/4], "+
		"consumer.session.timeout.ms=50000/8 [consumer.session.timeout.ms=50000/8 group.consumer.session.timeout.ms=45000/5], "+
		"share.isolation.level=read_committed/8 [share.isolation.level=read_committed/8 share.isolation.level=read_uncommitted/5]")
	first := w.beat(0)
	if first.HeartbeatIntervalMillis != 7000 {
		t.Errorf("members are told to send heartbeats every %d ms", first.HeartbeatIntervalMillis)
	}
	w.tick(49_999)
	if again := w.beat(first.MemberEpoch); again.ErrorCode != 0 {
		t.Errorf("a member that was silent for less than its session is refused: %s", errorName(again.ErrorCode))
	}
	w.tick(50_000)
	if again := w.beat(first.MemberEpoch); again.ErrorCode != kerr.UnknownMemberID.Code {
		t.Errorf("a member that was silent for its session is answered %s", errorName(again.ErrorCode))
	}
	w.alter("g", false, nil, "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms", "share.isolation.level")
	w.describe("g", standard)
	w.list("32:other 2:t 4:1")
}
