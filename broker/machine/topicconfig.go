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

// topicConfigDocs say what each key does here, for DescribeConfigs.
var topicConfigDocs = map[string]string{
	"cleanup.policy":                          "What becomes of old records: delete removes them by age and size, compact keeps the newest of each key; both may stand together.",
	"compression.gzip.level":                  "Level of gzip compression. Kept, not used: batches are rewritten at the codec's default level.",
	"compression.lz4.level":                   "Level of lz4 compression. Kept, not used: batches are rewritten at the codec's default level.",
	"compression.type":                        "Codec of the stored batches; producer keeps what each client has sent.",
	"compression.zstd.level":                  "Level of zstd compression. Kept, not used: batches are rewritten at the codec's default level.",
	"delete.retention.ms":                     "For how long a compacted topic keeps tombstones and transaction markers, in milliseconds.",
	"file.delete.delay.ms":                    "Kept, not used: files are removed at once when no reader needs them.",
	"flush.messages":                          "Kept, not used: the broker's durability says when records are synced.",
	"flush.ms":                                "Kept, not used: the broker's durability says when records are synced.",
	"follower.replication.throttled.replicas": "Kept, not used: there are no followers.",
	"index.interval.bytes":                    "Kept, not used: the broker chooses the distance of index entries.",
	"leader.replication.throttled.replicas":   "Kept, not used: there are no followers.",
	"local.retention.bytes":                   "Kept, not used: there is no tiered storage.",
	"local.retention.ms":                      "Kept, not used: there is no tiered storage.",
	"max.compaction.lag.ms":                   "For how long a record of a compacted topic may stay uncompacted, in milliseconds.",
	maxMessageBytes:                           "The largest batch that is accepted, in bytes as stored.",
	"message.timestamp.after.max.ms":          "How far a record's time may lie ahead of the broker's clock, in milliseconds.",
	"message.timestamp.before.max.ms":         "How far a record's time may lie behind the broker's clock, in milliseconds.",
	"message.timestamp.type":                  "Whose time a record carries: CreateTime is the producer's, LogAppendTime the broker's.",
	"min.cleanable.dirty.ratio":               "The part of a compacted topic that must be uncompacted before compaction runs.",
	"min.compaction.lag.ms":                   "For how long a record of a compacted topic stays as it is, in milliseconds.",
	"min.insync.replicas":                     "Kept, not used: the broker is the only replica.",
	"preallocate":                             "Kept, not used: the journal is always preallocated.",
	"remote.log.copy.disable":                 "Kept, not used: there is no tiered storage.",
	"remote.log.delete.on.disable":            "Kept, not used: there is no tiered storage.",
	"remote.storage.enable":                   "There is no tiered storage: false is the only value.",
	"retention.bytes":                         "The size above which a partition loses its oldest segments, in bytes; -1 is no bound.",
	"retention.ms":                            "The age at which records are removed, in milliseconds; -1 is never.",
	"segment.bytes":                           "The size at which a new segment file begins, in bytes.",
	"segment.index.bytes":                     "Kept, not used: indexes grow with their segment.",
	"segment.jitter.ms":                       "Kept, not used: segments do not end by time.",
	"segment.ms":                              "Kept, not used: segments do not end by time.",
	"unclean.leader.election.enable":          "Kept, not used: there are no elections.",
}

const maxMessageBytes = "max.message.bytes"

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
	{maxMessageBytes, kmsg.ConfigTypeInt, "1048588", number(0, math.MaxInt32, func(s *Settings, v int64) { s.MaxMessageBytes = int32(v) })},
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

// configKeys are the keys of a kind of resource.
type configKeys struct {
	of  string
	all []configKey // ascending by name
}

var (
	topicKeys = configKeys{"topic", topicConfigs}
	groupKeys = configKeys{"group", groupConfigs}
)

func (keys *configKeys) find(name string) *configKey {
	i, found := slices.BinarySearchFunc(keys.all, name, func(k configKey, name string) int { return strings.Compare(k.name, name) })
	if !found {
		return nil
	}
	return &keys.all[i]
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
	if v == "" { // keep everything
		s.CleanupCompact, s.CleanupDelete = false, false
		return nil
	}
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
	values := make(map[string]string, len(configs))
	for _, c := range configs {
		if c.Value == nil {
			return Settings{}, fmt.Errorf("configuration %q has no value", c.Name)
		}
		values[c.Name] = *c.Value
		if topicKeys.find(c.Name) == nil {
			return Settings{}, fmt.Errorf("unknown topic configuration %q", c.Name)
		}
	}
	return settingsOf(values)
}

// settingsOf turns values of known keys into Settings.
func settingsOf(values map[string]string) (Settings, error) {
	s := DefaultSettings()
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

// named returns the value that a client gave.
func (s *Settings) named(name string) (string, bool) {
	for _, e := range s.Explicit {
		if e.Name == name {
			return e.Value, true
		}
	}
	return "", false
}
