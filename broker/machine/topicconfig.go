package machine

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// configKey is one topic configuration key: what it may be, and what it means for Settings. Keys without a meaning
// here are checked and kept, so that tools which set them go on working.
type configKey struct {
	name     string
	kind     kmsg.ConfigType
	standard string // the default
	// parse returns an error if the value is not allowed, and else sets what it means.
	parse func(s *Settings, v string) error
}

// topicConfigs are Apache Kafka's keys (kafka-eos.md G), ascending by name.
var topicConfigs = []configKey{
	{"cleanup.policy", kmsg.ConfigTypeList, "delete", parseCleanup},
	{"compression.gzip.level", kmsg.ConfigTypeInt, "-1", number(-1, 9, nil)},
	{"compression.lz4.level", kmsg.ConfigTypeInt, "9", number(1, 17, nil)},
	{"compression.type", kmsg.ConfigTypeString, "producer",
		oneOf(func(s *Settings, v string) { s.CompressionType = v }, "producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")},
	{"compression.zstd.level", kmsg.ConfigTypeInt, "3", number(-131072, 22, nil)},
	{"delete.retention.ms", kmsg.ConfigTypeLong, "86400000", number(0, math.MaxInt64, func(s *Settings, v int64) { s.DeleteRetentionMs = v })},
	{"file.delete.delay.ms", kmsg.ConfigTypeLong, "60000", number(0, math.MaxInt64, nil)},
	{"flush.messages", kmsg.ConfigTypeLong, "9223372036854775807", number(1, math.MaxInt64, nil)},
	{"flush.ms", kmsg.ConfigTypeLong, "9223372036854775807", number(0, math.MaxInt64, nil)},
	{"follower.replication.throttled.replicas", kmsg.ConfigTypeList, "", anything},
	{"index.interval.bytes", kmsg.ConfigTypeInt, "4096", number(0, math.MaxInt32, nil)},
	{"leader.replication.throttled.replicas", kmsg.ConfigTypeList, "", anything},
	{"local.retention.bytes", kmsg.ConfigTypeLong, "-2", number(-2, math.MaxInt64, nil)},
	{"local.retention.ms", kmsg.ConfigTypeLong, "-2", number(-2, math.MaxInt64, nil)},
	{"max.compaction.lag.ms", kmsg.ConfigTypeLong, "9223372036854775807", number(1, math.MaxInt64, nil)},
	{"max.message.bytes", kmsg.ConfigTypeInt, "1048588", number(0, math.MaxInt32, func(s *Settings, v int64) { s.MaxMessageBytes = int32(v) })},
	{"message.timestamp.after.max.ms", kmsg.ConfigTypeLong, "3600000", number(0, math.MaxInt64, func(s *Settings, v int64) { s.TimestampAfterMaxMs = v })},
	{"message.timestamp.before.max.ms", kmsg.ConfigTypeLong, "9223372036854775807", number(0, math.MaxInt64, func(s *Settings, v int64) { s.TimestampBeforeMaxMs = v })},
	{"message.timestamp.type", kmsg.ConfigTypeString, "CreateTime",
		oneOf(func(s *Settings, v string) { s.LogAppendTime = v == "LogAppendTime" }, "CreateTime", "LogAppendTime")},
	{"min.cleanable.dirty.ratio", kmsg.ConfigTypeDouble, "0.5", parseRatio},
	{"min.compaction.lag.ms", kmsg.ConfigTypeLong, "0", number(0, math.MaxInt64, nil)},
	{"min.insync.replicas", kmsg.ConfigTypeInt, "1", number(1, math.MaxInt32, func(s *Settings, v int64) { s.MinInsyncReplicas = int32(v) })},
	{"preallocate", kmsg.ConfigTypeBoolean, "false", oneOf(nil, "true", "false")},
	{"remote.log.copy.disable", kmsg.ConfigTypeBoolean, "false", oneOf(nil, "true", "false")},
	{"remote.log.delete.on.disable", kmsg.ConfigTypeBoolean, "false", oneOf(nil, "true", "false")},
	{"remote.storage.enable", kmsg.ConfigTypeBoolean, "false", oneOf(nil, "false")},
	{"retention.bytes", kmsg.ConfigTypeLong, "-1", number(-1, math.MaxInt64, func(s *Settings, v int64) { s.RetentionBytes = v })},
	{"retention.ms", kmsg.ConfigTypeLong, "604800000", number(-1, math.MaxInt64, func(s *Settings, v int64) { s.RetentionMs = v })},
	{"segment.bytes", kmsg.ConfigTypeInt, "1073741824", number(1<<20, math.MaxInt32, func(s *Settings, v int64) { s.SegmentBytes = int32(v) })},
	{"segment.index.bytes", kmsg.ConfigTypeInt, "10485760", number(4, math.MaxInt32, nil)},
	{"segment.jitter.ms", kmsg.ConfigTypeLong, "0", number(0, math.MaxInt64, nil)},
	{"segment.ms", kmsg.ConfigTypeLong, "604800000", number(1, math.MaxInt64, nil)},
	{"unclean.leader.election.enable", kmsg.ConfigTypeBoolean, "false", oneOf(nil, "true", "false")},
}

func findConfig(name string) *configKey {
	i, found := slices.BinarySearchFunc(topicConfigs, name, func(k configKey, name string) int { return strings.Compare(k.name, name) })
	if !found {
		return nil
	}
	return &topicConfigs[i]
}

func number(lowest, highest int64, set func(*Settings, int64)) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		if err != nil || n < lowest || n > highest {
			return fmt.Errorf("%q is not a whole number from %d to %d", v, lowest, highest)
		}
		if set != nil {
			set(s, n)
		}
		return nil
	}
}

func oneOf(set func(*Settings, string), values ...string) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		if !slices.Contains(values, v) {
			return fmt.Errorf("%q is not one of %s", v, strings.Join(values, ", "))
		}
		if set != nil {
			set(s, v)
		}
		return nil
	}
}

func anything(*Settings, string) error { return nil }

func parseRatio(_ *Settings, v string) error {
	if f, err := strconv.ParseFloat(v, 64); err != nil || !(f >= 0 && f <= 1) {
		return fmt.Errorf("%q is not a number from 0 to 1", v)
	}
	return nil
}

func parseCleanup(s *Settings, v string) error {
	var compact, del bool
	for _, policy := range strings.Split(v, ",") {
		switch strings.TrimSpace(policy) {
		case "compact":
			compact = true
		case "delete":
			del = true
		default:
			return fmt.Errorf("%q is not compact, delete or both with a comma", v)
		}
	}
	s.CleanupCompact, s.CleanupDelete = compact, del
	return nil
}

// parseSettings turns what CreateTopics names into Settings. A key that is named twice counts as last named.
func parseSettings(configs []kmsg.CreateTopicsRequestTopicConfig) (Settings, error) {
	s := DefaultSettings()
	values := make(map[string]string, len(configs))
	for _, c := range configs {
		if c.Value == nil {
			return Settings{}, fmt.Errorf("configuration %q has no value", c.Name)
		}
		values[c.Name] = *c.Value
		if findConfig(c.Name) == nil {
			return Settings{}, fmt.Errorf("unknown topic configuration %q", c.Name)
		}
	}
	for i := range topicConfigs {
		k := &topicConfigs[i]
		v, named := values[k.name]
		if !named {
			continue
		}
		if err := k.parse(&s, v); err != nil {
			return Settings{}, fmt.Errorf("topic configuration %s: %w", k.name, err)
		}
		s.Explicit = append(s.Explicit, Setting{Name: k.name, Value: strings.Clone(v)})
	}
	return s, nil
}

// named returns the value that CreateTopics gave.
func (s *Settings) named(name string) (string, bool) {
	for _, e := range s.Explicit {
		if e.Name == name {
			return e.Value, true
		}
	}
	return "", false
}
