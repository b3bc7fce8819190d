package group

import (
	"errors"
	"fmt"
)

// Config bounds the coordinator. The zero value means Apache Kafka's defaults where Kafka has one; every bound has
// an error that a client sees when it is hit.
type Config struct {
	// MinSessionTimeoutMs and MaxSessionTimeoutMs bound what JoinGroup may ask for; outside is
	// INVALID_SESSION_TIMEOUT. 0 means 6000 and 1800000.
	MinSessionTimeoutMs int32
	MaxSessionTimeoutMs int32
	// InitialRebalanceDelayMs is how long the first rebalance of an empty group waits for more members; each
	// newcomer extends it, up to the rebalance timeout. 0 means 3000, negative means no delay.
	InitialRebalanceDelayMs int32
	// NewMemberJoinTimeoutMs drops a new member whose JoinGroup waits longer than this: its connection may be gone,
	// and nobody would know. 0 means 300000.
	NewMemberJoinTimeoutMs int32
	// MaxGroups bounds all groups, those without members included; one more is POLICY_VIOLATION. 0 means 100000.
	MaxGroups int
	// MaxGroupSize bounds the members of one group; one more is GROUP_MAX_SIZE_REACHED. 0 means 10000.
	MaxGroupSize int
	// MaxConsumerGroupSize bounds the members of one consumer group (KIP-848) in the same way. 0 means 10000.
	MaxConsumerGroupSize int
	// MaxPendingMembers bounds the member ids of one group that were handed out but have not joined yet; one more is
	// GROUP_MAX_SIZE_REACHED. 0 means 10000.
	MaxPendingMembers int
	// MaxGroupBytes bounds the subscriptions and ids of one group's members together, and its assignments together;
	// more is GROUP_MAX_SIZE_REACHED for a join and POLICY_VIOLATION for a sync. Four times as much is the most that one
	// answer of DescribeGroups or OffsetFetch holds; more is POLICY_VIOLATION. 0 means 16 MiB.
	MaxGroupBytes int
	// MaxStateBytes bounds what all groups together take in memory, about: names, members, assignments, offsets. Above
	// it nothing may grow: POLICY_VIOLATION for a new group and for a sync, GROUP_MAX_SIZE_REACHED for a join,
	// INVALID_COMMIT_OFFSET_SIZE for an offset. 0 means 512 MiB.
	MaxStateBytes int64
	// MaxOffsetsPerGroup bounds the partitions for which one group keeps an offset, committed or pending; one more is
	// INVALID_COMMIT_OFFSET_SIZE. 0 means 100000.
	MaxOffsetsPerGroup int
	// MaxOffsetMetadataChars bounds an offset's metadata string in UTF-16 units; longer is
	// OFFSET_METADATA_TOO_LARGE. 0 means 4096.
	MaxOffsetMetadataChars int
	// ConsumerSessionTimeoutMs fences a member of a consumer group (KIP-848) that was silent for so long. 0 means 45000.
	ConsumerSessionTimeoutMs int32
	// ConsumerHeartbeatMs is how often members of a consumer group are told to send heartbeats. 0 means 5000.
	ConsumerHeartbeatMs int32
	// AssignmentIntervalMs lies at least between two assignments of one consumer group. 0 means 1000, negative none.
	AssignmentIntervalMs int32
	// ConsumerMinSessionTimeoutMs to ConsumerMaxAssignmentIntervalMs bound what a group's own settings may ask for; outside
	// is INVALID_CONFIG. 0 means 45000 to 60000 for sessions, 5000 to 15000 for heartbeats, 0 to 15000 for assignments; a
	// negative ConsumerMaxAssignmentIntervalMs means 0.
	ConsumerMinSessionTimeoutMs     int32
	ConsumerMaxSessionTimeoutMs     int32
	ConsumerMinHeartbeatMs          int32
	ConsumerMaxHeartbeatMs          int32
	ConsumerMinAssignmentIntervalMs int32
	ConsumerMaxAssignmentIntervalMs int32
	// Migration says which groups change their protocol while they have members.
	Migration MigrationPolicy
	// InlineAssignment is up to how many members, topics, partitions and subscriptions together an assignment is made
	// within the operation; a larger one is handed out, and comes back when it is made. 0 means 4096, negative never.
	InlineAssignment int
	// OffsetsRetentionMs is how long offsets outlive their use (kafka-eos.md D.6). 0 means 7 days.
	OffsetsRetentionMs int64
	// OffsetsCheckMs is the pause between two rounds of expiry. 0 means 600000.
	OffsetsCheckMs int64
}

// MigrationPolicy says whether a classic group becomes a consumer group when a member of that protocol comes, and back when
// the last one goes (group.consumer.migration.policy).
type MigrationPolicy uint8

// Migration policies. The zero value is Apache Kafka's default.
const (
	MigrationBidirectional MigrationPolicy = iota
	// MigrationUpgrade makes consumer groups of classic ones only.
	MigrationUpgrade
	// MigrationDowngrade makes classic groups of consumer groups only.
	MigrationDowngrade
	// MigrationDisabled keeps members of the two protocols apart.
	MigrationDisabled
)

// String returns the name that Apache Kafka's setting has for p.
func (p MigrationPolicy) String() string {
	if p > MigrationDisabled {
		return fmt.Sprintf("MigrationPolicy(%d)", uint8(p))
	}
	return [...]string{"bidirectional", "upgrade", "downgrade", "disabled"}[p]
}

func (p MigrationPolicy) upgrades() bool { return p == MigrationBidirectional || p == MigrationUpgrade }
func (p MigrationPolicy) downgrades() bool {
	return p == MigrationBidirectional || p == MigrationDowngrade
}

// Validate returns all problems of c at once, or nil.
func (c Config) Validate() error {
	var errs []error
	positive := func(name string, v int64) {
		if v < 0 {
			errs = append(errs, fmt.Errorf("group: %s is %d: give a value above 0, or 0 for the default", name, v))
		}
	}
	positive("MinSessionTimeoutMs", int64(c.MinSessionTimeoutMs))
	positive("MaxSessionTimeoutMs", int64(c.MaxSessionTimeoutMs))
	positive("NewMemberJoinTimeoutMs", int64(c.NewMemberJoinTimeoutMs))
	positive("MaxGroups", int64(c.MaxGroups))
	positive("MaxGroupSize", int64(c.MaxGroupSize))
	positive("MaxConsumerGroupSize", int64(c.MaxConsumerGroupSize))
	positive("MaxPendingMembers", int64(c.MaxPendingMembers))
	positive("MaxGroupBytes", int64(c.MaxGroupBytes))
	positive("MaxStateBytes", c.MaxStateBytes)
	positive("MaxOffsetsPerGroup", int64(c.MaxOffsetsPerGroup))
	positive("MaxOffsetMetadataChars", int64(c.MaxOffsetMetadataChars))
	positive("ConsumerSessionTimeoutMs", int64(c.ConsumerSessionTimeoutMs))
	positive("ConsumerHeartbeatMs", int64(c.ConsumerHeartbeatMs))
	positive("ConsumerMinSessionTimeoutMs", int64(c.ConsumerMinSessionTimeoutMs))
	positive("ConsumerMaxSessionTimeoutMs", int64(c.ConsumerMaxSessionTimeoutMs))
	positive("ConsumerMinHeartbeatMs", int64(c.ConsumerMinHeartbeatMs))
	positive("ConsumerMaxHeartbeatMs", int64(c.ConsumerMaxHeartbeatMs))
	positive("ConsumerMinAssignmentIntervalMs", int64(c.ConsumerMinAssignmentIntervalMs))
	positive("OffsetsRetentionMs", c.OffsetsRetentionMs)
	positive("OffsetsCheckMs", c.OffsetsCheckMs)
	if d := c.withDefaults(); d.MinSessionTimeoutMs > d.MaxSessionTimeoutMs {
		errs = append(errs, fmt.Errorf("group: MinSessionTimeoutMs %d is above MaxSessionTimeoutMs %d: no client could join",
			d.MinSessionTimeoutMs, d.MaxSessionTimeoutMs))
	}
	if c.Migration > MigrationDisabled {
		errs = append(errs, fmt.Errorf("group: Migration is %v: there is no such policy", c.Migration))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	orDefault(&c.MinSessionTimeoutMs, 6000)
	orDefault(&c.MaxSessionTimeoutMs, 1_800_000)
	orDefault(&c.InitialRebalanceDelayMs, 3000)
	orDefault(&c.NewMemberJoinTimeoutMs, 300_000)
	orDefault(&c.MaxGroups, 100_000)
	orDefault(&c.MaxGroupSize, 10_000)
	orDefault(&c.MaxConsumerGroupSize, 10_000)
	orDefault(&c.MaxPendingMembers, 10_000)
	orDefault(&c.MaxGroupBytes, 16<<20)
	orDefault(&c.MaxStateBytes, 512<<20)
	orDefault(&c.MaxOffsetsPerGroup, 100_000)
	orDefault(&c.MaxOffsetMetadataChars, 4096)
	orDefault(&c.ConsumerSessionTimeoutMs, 45_000)
	orDefault(&c.ConsumerHeartbeatMs, 5000)
	orDefault(&c.AssignmentIntervalMs, 1000)
	orDefault(&c.ConsumerMinSessionTimeoutMs, 45_000)
	orDefault(&c.ConsumerMaxSessionTimeoutMs, 60_000)
	orDefault(&c.ConsumerMinHeartbeatMs, 5000)
	orDefault(&c.ConsumerMaxHeartbeatMs, 15_000)
	orDefault(&c.ConsumerMaxAssignmentIntervalMs, 15_000)
	c.ConsumerMaxAssignmentIntervalMs = max(c.ConsumerMaxAssignmentIntervalMs, 0)
	orDefault(&c.InlineAssignment, 4096)
	orDefault(&c.OffsetsRetentionMs, 7*24*3600*1000)
	orDefault(&c.OffsetsCheckMs, 600_000)
	c.InitialRebalanceDelayMs = max(c.InitialRebalanceDelayMs, 0)
	return c
}

func orDefault[T int | int32 | int64](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}
