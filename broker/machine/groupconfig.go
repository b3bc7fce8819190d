package machine

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine/group"
)

// groupConfigDocs say what each key does here, for DescribeConfigs.
var groupConfigDocs = map[string]string{
	group.SettingAssignmentInterval:      "How long lies at least between two assignments of the group, in milliseconds.",
	group.SettingHeartbeatInterval:       "How often members of the consumer protocol send heartbeats, in milliseconds.",
	group.SettingSessionTimeout:          "For how long a member of the consumer protocol may be silent, in milliseconds.",
	"share.assignment.interval.ms":       shareDoc,
	"share.auto.offset.reset":            shareDoc,
	"share.delivery.count.limit":         shareDoc,
	"share.heartbeat.interval.ms":        shareDoc,
	"share.isolation.level":              shareDoc,
	"share.partition.max.record.locks":   shareDoc,
	"share.record.lock.duration.ms":      shareDoc,
	"share.renew.acknowledge.enable":     shareDoc,
	"share.session.timeout.ms":           shareDoc,
	"streams.assignment.interval.ms":     streamsDoc,
	"streams.heartbeat.interval.ms":      streamsDoc,
	"streams.initial.rebalance.delay.ms": streamsDoc,
	"streams.num.standby.replicas":       streamsDoc,
	"streams.session.timeout.ms":         streamsDoc,
}

const (
	shareDoc   = "Kept, not used: share groups are not served."
	streamsDoc = "Kept, not used: streams groups are not served."
)

// groupConfigs are Apache Kafka's keys, ascending by name. Those of consumer groups have the broker's bounds and defaults.
var groupConfigs = []configKey{
	{group.SettingAssignmentInterval, kmsg.ConfigTypeInt, "1000", number(0, math.MaxInt32, nil)},
	{group.SettingHeartbeatInterval, kmsg.ConfigTypeInt, "5000", number(1, math.MaxInt32, nil)},
	{group.SettingSessionTimeout, kmsg.ConfigTypeInt, "45000", number(1, math.MaxInt32, nil)},
	{"share.assignment.interval.ms", kmsg.ConfigTypeInt, "1000", number(0, 15_000, nil)},
	{"share.auto.offset.reset", kmsg.ConfigTypeString, "latest", parseShareReset},
	{"share.delivery.count.limit", kmsg.ConfigTypeInt, "5", number(2, 10, nil)},
	{"share.heartbeat.interval.ms", kmsg.ConfigTypeInt, "5000", number(5000, 15_000, nil)},
	{"share.isolation.level", kmsg.ConfigTypeString, "read_uncommitted", oneOf(nil, "read_committed", "read_uncommitted")},
	{"share.partition.max.record.locks", kmsg.ConfigTypeInt, "2000", number(100, 10_000, nil)},
	{"share.record.lock.duration.ms", kmsg.ConfigTypeInt, "30000", number(15_000, 60_000, nil)},
	{"share.renew.acknowledge.enable", kmsg.ConfigTypeBoolean, "true", oneOf(nil, "true", "false")},
	{"share.session.timeout.ms", kmsg.ConfigTypeInt, "45000", number(45_000, 60_000, nil)},
	{"streams.assignment.interval.ms", kmsg.ConfigTypeInt, "1000", number(0, 15_000, nil)},
	{"streams.heartbeat.interval.ms", kmsg.ConfigTypeInt, "5000", number(5000, 15_000, nil)},
	{"streams.initial.rebalance.delay.ms", kmsg.ConfigTypeInt, "3000", number(0, math.MaxInt32, nil)},
	{"streams.num.standby.replicas", kmsg.ConfigTypeInt, "0", number(0, 2, nil)},
	{"streams.session.timeout.ms", kmsg.ConfigTypeInt, "45000", number(45_000, 60_000, nil)},
}

func parseShareReset(_ *Settings, v string) error {
	if v != "latest" && v != "earliest" && !strings.HasPrefix(v, "by_duration:P") {
		return fmt.Errorf("%q is not latest, earliest or by_duration: and a duration of ISO 8601", v)
	}
	return nil
}

// consumerSetting is what the broker has for a key of consumer groups, and its bounds.
type consumerSetting struct {
	standard, low, high int32
}

func (m *Machine) consumerSettings() map[string]consumerSetting {
	c := m.groups.Config()
	return map[string]consumerSetting{
		group.SettingAssignmentInterval: {max(c.AssignmentIntervalMs, 0), c.ConsumerMinAssignmentIntervalMs, c.ConsumerMaxAssignmentIntervalMs},
		group.SettingHeartbeatInterval:  {c.ConsumerHeartbeatMs, c.ConsumerMinHeartbeatMs, c.ConsumerMaxHeartbeatMs},
		group.SettingSessionTimeout:     {c.ConsumerSessionTimeoutMs, c.ConsumerMinSessionTimeoutMs, c.ConsumerMaxSessionTimeoutMs},
	}
}

// groupConfigEntries describes a group's settings, whether it exists or not.
func (m *Machine) groupConfigEntries(name string) []kmsg.DescribeConfigsResponseResourceConfig {
	explicit := m.groups.Settings(name)
	brokers := m.consumerSettings()
	all := make([]kmsg.DescribeConfigsResponseResourceConfig, len(groupConfigs))
	for i := range groupConfigs {
		k := &groupConfigs[i]
		source, standard, under := kmsg.ConfigSourceDefaultConfig, k.standard, k.name
		if b, ok := brokers[k.name]; ok {
			if standard, under = formatInt(b.standard), "group."+k.name; standard != k.standard {
				source = kmsg.ConfigSourceStaticBrokerConfig
			}
		}
		all[i] = configEntry(k.name, standard, source, k.kind)
		all[i].ConfigSynonyms[0].Name = under
		if at := slices.IndexFunc(explicit, func(s Setting) bool { return s.Name == k.name }); at >= 0 {
			below := all[i].ConfigSynonyms
			all[i] = configEntry(k.name, explicit[at].Value, kmsg.ConfigSourceGroupConfig, k.kind)
			all[i].ConfigSynonyms = append(all[i].ConfigSynonyms, below...)
		}
	}
	return all
}

// alterGroup gives a group, which need not exist, the values that change makes of its present ones.
func (m *Machine) alterGroup(name string, validateOnly bool, change configChange) *refusal {
	if name == "" {
		return refuse(kerr.InvalidRequest, "default group resources are not allowed")
	}
	if !m.mayGroup(kmsg.ACLOperationAlterConfigs, name) {
		return refuse(kerr.GroupAuthorizationFailed, "the client may not change the configuration of group %q", name)
	}
	values, why := change(&groupKeys, m.groups.Settings(name))
	if why != nil {
		return why
	}
	entries, err := m.checkGroupConfig(values)
	if err != nil {
		return refuse(kerr.InvalidConfig, "%v", err)
	}
	if validateOnly {
		return nil
	}
	switch code := m.groups.SetSettings((*groupContext)(m), name, entries); code {
	case 0:
		return nil
	case kerr.InvalidGroupID.Code:
		return refuse(kerr.InvalidGroupID, "the group's name is too long")
	default:
		return refuse(kerr.PolicyViolation, "settings of so many groups are more than the broker may keep")
	}
}

func (m *Machine) checkGroupConfig(values map[string]string) ([]Setting, error) {
	brokers := m.consumerSettings()
	var entries []Setting
	for i := range groupConfigs {
		k := &groupConfigs[i]
		v, named := values[k.name]
		if !named {
			continue
		}
		if err := k.parse(nil, v); err != nil {
			return nil, fmt.Errorf("group configuration %s: %w", k.name, err)
		}
		v = strings.TrimSpace(v)
		if b, ok := brokers[k.name]; ok {
			n, _ := strconv.ParseInt(v, 10, 32)
			if n < int64(b.low) || n > int64(b.high) {
				return nil, fmt.Errorf("group configuration %s: %d is not from %d to %d, as this broker allows", k.name, n, b.low, b.high)
			}
			b.standard = int32(n)
			brokers[k.name] = b
		}
		entries = append(entries, Setting{Name: k.name, Value: strings.Clone(v)})
	}
	if s, h := brokers[group.SettingSessionTimeout].standard, brokers[group.SettingHeartbeatInterval].standard; s <= h {
		return nil, fmt.Errorf("%s %d is not above %s %d", group.SettingSessionTimeout, s, group.SettingHeartbeatInterval, h)
	}
	return entries, nil
}
