package broker

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine"
)

// Setting is one of Config's fields under the name and in the unit that Apache Kafka's server.properties has for it, with what it
// may be. DescribeConfigs shows it, `strandline serve` has a flag for it.
type Setting struct {
	Name               string // such as transaction.max.timeout.ms
	Doc                string
	Low, High, Default int64
	// Words, when not nil, are what the values from 0 on are called; those of a boolean are false and true.
	Words []string

	kind kmsg.ConfigType
	get  func(*Config) int64 // 0 is "not set"
	set  func(*Config, int64)
	zero int64 // what stands for 0 in the field, where 0 is a value
}

// Settings are all of them, ascending by name.
func Settings() []*Setting { return settings }

// Get is the setting's value in c, with the default for a field that is not set.
func (s *Setting) Get(c *Config) int64 {
	switch v := s.get(c); {
	case v == 0:
		return s.Default
	case s.zero != 0 && v == s.zero:
		return 0
	default:
		return v
	}
}

// Set changes c, or returns an error that names the range.
func (s *Setting) Set(c *Config, v int64) error {
	if err := s.check(v); err != nil {
		return err
	}
	if v == 0 && s.zero != 0 {
		v = s.zero
	}
	s.set(c, v)
	return nil
}

func (s *Setting) check(v int64) error {
	if v < s.Low || v > s.High {
		return fmt.Errorf("%s is %d, want %s", s.Name, v, s.wanted())
	}
	return nil
}

func (s *Setting) wanted() string {
	if s.Words != nil {
		return strings.Join(s.Words, ", ")
	}
	return fmt.Sprintf("%d to %d", s.Low, s.High)
}

// Parse reads a value as Format writes it.
func (s *Setting) Parse(text string) (int64, error) {
	if i := slices.Index(s.Words, text); i >= 0 {
		return int64(i), nil
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || s.Words != nil {
		return 0, fmt.Errorf("%s is %q, want %s", s.Name, text, s.wanted())
	}
	return v, nil
}

// Format writes a value as Apache Kafka's tools do.
func (s *Setting) Format(v int64) string {
	if v >= 0 && v < int64(len(s.Words)) {
		return s.Words[v]
	}
	return strconv.FormatInt(v, 10)
}

// number describes a numeric field. The default is what an unset field stands for.
func number[T int | int32 | int64 | MigrationPolicy](name string, low, high, standard int64, kind kmsg.ConfigType, field func(*Config) *T, doc string) *Setting {
	return &Setting{
		Name: name, Doc: doc, Low: low, High: high, Default: standard, kind: kind,
		get: func(c *Config) int64 { return int64(*field(c)) },
		set: func(c *Config, v int64) { *field(c) = T(v) },
	}
}

const (
	integer = kmsg.ConfigTypeInt
	long    = kmsg.ConfigTypeLong
	maxInt  = math.MaxInt32
)

var settings = []*Setting{
	{
		Name: "auto.create.topics.enable", Doc: "Whether a topic is created when a client asks for its metadata.",
		Words: []string{"false", "true"}, High: 1, Default: 1, kind: kmsg.ConfigTypeBoolean, zero: -1,
		get: func(c *Config) int64 {
			if c.NoAutoCreateTopics {
				return -1
			}
			return 1
		},
		set: func(c *Config, v int64) { c.NoAutoCreateTopics = v < 1 },
	},
	number("fetch.max.bytes", 1<<10, 1<<30, DefaultFetchMaxBytes, integer, func(c *Config) *int32 { return &c.FetchMaxBytes },
		"The largest Fetch response, whatever the client asks for, in bytes; its first batch comes whole."),
	zeroable(number("group.consumer.assignment.interval.ms", 0, maxInt, 1000, integer, func(c *Config) *int32 { return &c.GroupConsumerAssignmentIntervalMs },
		"How long lies at least between two assignments of a consumer group (KIP-848), in milliseconds."), -1),
	number("group.consumer.heartbeat.interval.ms", 1, maxInt, 5000, integer, func(c *Config) *int32 { return &c.GroupConsumerHeartbeatIntervalMs },
		"How often members of consumer groups (KIP-848) are told to send heartbeats, in milliseconds."),
	zeroable(number("group.consumer.max.assignment.interval.ms", 0, maxInt, 15_000, integer, func(c *Config) *int32 { return &c.GroupConsumerMaxAssignmentIntervalMs },
		"The longest pause between assignments that a consumer group (KIP-848) may have by its own settings, in milliseconds."), -1),
	number("group.consumer.max.heartbeat.interval.ms", 1, maxInt, 15_000, integer, func(c *Config) *int32 { return &c.GroupConsumerMaxHeartbeatIntervalMs },
		"The longest heartbeat interval that a consumer group (KIP-848) may have by its own settings, in milliseconds."),
	number("group.consumer.max.session.timeout.ms", 1, maxInt, 60_000, integer, func(c *Config) *int32 { return &c.GroupConsumerMaxSessionTimeoutMs },
		"The longest session timeout that a consumer group (KIP-848) may have by its own settings, in milliseconds."),
	number("group.consumer.max.size", 1, maxInt, 10_000, integer, func(c *Config) *int32 { return &c.GroupConsumerMaxSize },
		"How many members a consumer group (KIP-848) can have."),
	worded(number("group.consumer.migration.policy", 0, 3, 0, kmsg.ConfigTypeString, func(c *Config) *MigrationPolicy { return &c.GroupConsumerMigrationPolicy },
		"Which groups change their protocol while they have members: classic groups become consumer groups (upgrade), these become classic ones (downgrade), both (bidirectional) or none (disabled)."),
		"bidirectional", "upgrade", "downgrade", "disabled"),
	number("group.consumer.min.assignment.interval.ms", 0, maxInt, 0, integer, func(c *Config) *int32 { return &c.GroupConsumerMinAssignmentIntervalMs },
		"The shortest pause between assignments that a consumer group (KIP-848) may have by its own settings, in milliseconds."),
	number("group.consumer.min.heartbeat.interval.ms", 1, maxInt, 5000, integer, func(c *Config) *int32 { return &c.GroupConsumerMinHeartbeatIntervalMs },
		"The shortest heartbeat interval that a consumer group (KIP-848) may have by its own settings, in milliseconds."),
	number("group.consumer.min.session.timeout.ms", 1, maxInt, 45_000, integer, func(c *Config) *int32 { return &c.GroupConsumerMinSessionTimeoutMs },
		"The shortest session timeout that a consumer group (KIP-848) may have by its own settings, in milliseconds."),
	number("group.consumer.session.timeout.ms", 1, maxInt, 45_000, integer, func(c *Config) *int32 { return &c.GroupConsumerSessionTimeoutMs },
		"After what silence a member of a consumer group (KIP-848) is fenced, in milliseconds."),
	zeroable(number("group.initial.rebalance.delay.ms", 0, 600_000, 3000, integer, func(c *Config) *int32 { return &c.GroupInitialRebalanceDelayMs },
		"How long the first rebalance of an empty group waits for more members, in milliseconds."), -1),
	number("group.max.session.timeout.ms", 1, maxInt, 1_800_000, integer, func(c *Config) *int32 { return &c.GroupMaxSessionTimeoutMs },
		"The longest session timeout that a member of a group may ask for, in milliseconds."),
	number("group.max.size", 1, maxInt, 10_000, integer, func(c *Config) *int32 { return &c.GroupMaxSize },
		"How many members a group can have."),
	number("group.min.session.timeout.ms", 1, maxInt, 6000, integer, func(c *Config) *int32 { return &c.GroupMinSessionTimeoutMs },
		"The shortest session timeout that a member of a group may ask for, in milliseconds."),
	zeroable(number("max.incremental.fetch.session.cache.slots", 0, 100_000, DefaultMaxFetchSessions, integer, func(c *Config) *int { return &c.MaxFetchSessions },
		"How many fetch sessions (KIP-227) are kept."), -1),
	number("max.producer.ids", 1, 10_000_000, 100_000, integer, func(c *Config) *int { return &c.MaxProducerIDs },
		"Strandline's own: how many pairs of partition and producer id are remembered. At the bound the one that was idle for the longest is forgotten, never one with an open transaction."),
	number("max.transactional.ids", 1, 10_000_000, 100_000, integer, func(c *Config) *int { return &c.MaxTransactionalIDs },
		"Strandline's own: how many transactional ids are remembered. At the bound the one that was idle for the longest is forgotten, never one with an open transaction."),
	number("message.max.bytes", 1, maxInt, machine.DefaultMessageMaxBytes, integer, func(c *Config) *int32 { return &c.MessageMaxBytes },
		"The largest batch that a topic accepts unless its max.message.bytes says otherwise, in bytes as stored."),
	number("offset.metadata.max.bytes", 1, 1<<20, 4096, integer, func(c *Config) *int32 { return &c.OffsetMetadataMaxBytes },
		"The longest string that may stand beside a committed offset, in characters."),
	number("offsets.retention.check.interval.ms", 1, 1<<40, 600_000, long, func(c *Config) *int64 { return &c.OffsetsRetentionCheckIntervalMs },
		"The pause between two looks for offsets that have expired, in milliseconds."),
	number("offsets.retention.minutes", 1, maxInt, 7*24*60, integer, func(c *Config) *int32 { return &c.OffsetsRetentionMinutes },
		"For how long the offsets of a group without members, or without a subscription to their topic, are kept, in minutes."),
	number("producer.id.expiration.ms", 1, maxInt, 86_400_000, integer, func(c *Config) *int32 { return &c.ProducerIDExpirationMs },
		"For how long a partition remembers an idle producer without an open transaction, in milliseconds."),
	number("transaction.max.timeout.ms", 1, maxInt, 900_000, integer, func(c *Config) *int32 { return &c.TransactionMaxTimeoutMs },
		"The longest transaction timeout that a producer may ask for, in milliseconds."),
	number("transactional.id.expiration.ms", 1, maxInt, 604_800_000, integer, func(c *Config) *int32 { return &c.TransactionalIDExpirationMs },
		"For how long a transactional id without an open transaction is remembered, in milliseconds."),
}

// worded gives the values of s names.
func worded(s *Setting, words ...string) *Setting {
	s.Words = words
	return s
}

// zeroable makes 0 a value of s; instead stands for it in the field.
func zeroable(s *Setting, instead int64) *Setting {
	s.zero = instead
	return s
}

// describe lists what DescribeConfigs tells of the broker: the settings, and what else programs ask about.
func (c *Config) describe() []machine.BrokerConfig {
	all := []machine.BrokerConfig{
		{Name: "broker.id", Value: strconv.Itoa(int(c.NodeID)), Kind: integer, Doc: "The broker's id."},
		{Name: "connections.max.idle.ms", Value: formatInt(c.IdleTimeout.Milliseconds()), Default: formatInt(DefaultIdleTimeout.Milliseconds()), Kind: long,
			Doc: "After what silence a connection is closed, in milliseconds."},
		{Name: "default.replication.factor", Value: "1", Default: "1", Kind: integer, Doc: "The broker is the only replica of every partition."},
		{Name: "delete.topic.enable", Value: "true", Default: "true", Kind: kmsg.ConfigTypeBoolean, Doc: "Topics can be deleted."},
		{Name: "group.consumer.assignors", Value: "uniform,range", Default: "uniform,range", Kind: kmsg.ConfigTypeList,
			Doc: "Who can deal out the partitions of consumer groups (KIP-848); the first is the default."},
		{Name: "group.coordinator.rebalance.protocols", Value: "classic,consumer", Default: "classic,consumer", Kind: kmsg.ConfigTypeList,
			Doc: "The group protocols that are served."},
		{Name: "log.dirs", Value: c.dataDir(), Kind: kmsg.ConfigTypeString, Doc: "The folder of everything durable."},
		{Name: "max.connections", Value: formatInt(c.MaxConnections), Default: formatInt(DefaultMaxConnections), Kind: integer,
			Doc: "Open connections in all; further ones are closed at once."},
		{Name: "max.connections.per.ip", Value: formatInt(c.MaxConnectionsPerAddress), Default: formatInt(c.MaxConnections), Kind: integer,
			Doc: "Open connections from one client address."},
		{Name: "min.insync.replicas", Value: "1", Default: "1", Kind: integer, Doc: "The broker is the only replica of every partition."},
		{Name: "node.id", Value: strconv.Itoa(int(c.NodeID)), Kind: integer, Doc: "The broker's id."},
		{Name: "num.partitions", Value: formatInt(c.DefaultPartitions), Default: "1", Kind: integer, Doc: "How many partitions a topic has that names no number."},
		{Name: "process.roles", Value: "broker,controller", Kind: kmsg.ConfigTypeList, Doc: "There is one process, which is both."},
		{Name: "socket.request.max.bytes", Value: formatInt(c.MaxRequestBytes), Default: formatInt(DefaultMaxRequestBytes), Kind: integer,
			Doc: "The largest request, in bytes."},
		{Name: "transaction.partition.verification.enable", Value: "true", Default: "true", Kind: kmsg.ConfigTypeBoolean,
			Doc: "Transactional batches go in only while their partition is in the producer's open transaction (KIP-890); this cannot be turned off."},
		{Name: "transaction.two.phase.commit.enable", Value: "false", Default: "false", Kind: kmsg.ConfigTypeBoolean,
			Doc: "Transactions that an outside coordinator ends (KIP-939) are not served."},
	}
	for _, s := range settings {
		all = append(all, machine.BrokerConfig{Name: s.Name, Value: s.Format(s.Get(c)), Default: s.Format(s.Default), Kind: s.kind, Doc: s.Doc})
	}
	return all
}

// dataDir is what clients are shown: a path that is relative to where the broker was started would mean nothing to them.
func (c *Config) dataDir() string {
	if c.DataDir == "" {
		return memoryDir
	}
	if whole, err := filepath.Abs(c.DataDir); err == nil && c.FS == nil {
		return whole
	}
	return c.DataDir
}

func formatInt[T int | int32 | int64](v T) string { return strconv.FormatInt(int64(v), 10) }
