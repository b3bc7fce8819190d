// Package broker is an embeddable Kafka-protocol broker: New, Serve, Close. It keeps what it acknowledges: a reply
// leaves only when everything that it says is durable (see Config.Durability). All of its state lives behind one
// loop (package sequencer); this package holds the connections, the judgement of record batches, and the requests
// that are answered from published state alone: Fetch, ListOffsets and OffsetForLeaderEpoch.
package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/strandline-io/strandline/broker/journal"
	"github.com/strandline-io/strandline/broker/keeper"
	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/machine/group"
	"github.com/strandline-io/strandline/broker/wire"
	"github.com/strandline-io/strandline/internal/vfs"
)

// Durability says which moment releases replies.
type Durability = journal.Durability

const (
	// DurabilityFsync, the default: after fdatasync; what was acknowledged survives power loss.
	DurabilityFsync = journal.DurabilityFsync
	// DurabilityWrite: after write(2); what was acknowledged survives kill -9, not power loss. This is what Apache
	// Kafka does by default.
	DurabilityWrite = journal.DurabilityWrite
)

// MigrationPolicy says which groups change between the classic and the consumer protocol while they have members.
type MigrationPolicy = group.MigrationPolicy

// Migration policies.
const (
	MigrationBidirectional = group.MigrationBidirectional // both; the default
	MigrationUpgrade       = group.MigrationUpgrade       // classic groups become consumer groups
	MigrationDowngrade     = group.MigrationDowngrade     // consumer groups become classic ones
	MigrationDisabled      = group.MigrationDisabled      // none
)

// ErrDiverged is what Serve's error wraps when Config.Verify has found that a restart would not continue from the state
// that clients were told of. Keep a copy of the data folder and report it.
var ErrDiverged = keeper.ErrDiverged

// Config describes a broker. The zero value works: it listens on 127.0.0.1:9092 and keeps everything in memory.
// Sizes are bytes; a size, count or duration of 0 means the default.
type Config struct {
	// Listen is the TCP address to listen on, host:port; port 0 takes a free one. Default "127.0.0.1:9092". It is
	// not used when Listener is set.
	Listen string
	// Listener, when not nil, is where connections come from, instead of a TCP socket; the broker closes it. An
	// in-memory one (see brokertest.Network) lets a broker run inside a testing/synctest bubble.
	Listener net.Listener
	// Advertise is the address that clients are told to use, host:port. Empty means: the address at which each
	// client has reached the broker, which is right unless something in between translates addresses.
	Advertise string
	// Listeners, instead of the three above, are several places to listen, all over the same data: for clients that
	// reach the broker by different addresses. A client is told the address of the one by which it came. At most 64.
	Listeners []Listener

	// DataDir is the folder of everything durable; it is made if need be. Empty means memory only: all is gone when
	// the broker is closed. A folder belongs to one broker at a time; a second one is refused.
	DataDir string
	// FS, when not nil, stands in for the disk under DataDir, which then is only a name. Simulations use it.
	FS vfs.FS
	// Durability says what an acknowledgement is worth. Default DurabilityFsync.
	Durability Durability
	// JournalSegmentBytes is the size of one journal segment. Default 64 MiB; range 32 KiB to 1 GiB.
	JournalSegmentBytes int64
	// JournalMaxBytes bounds the journal: when it is reached, produce is slowed until batches have moved to their
	// partitions' own files. Default 1 GiB; at least four segments.
	JournalMaxBytes int64
	// Verify compares, in the background, the running state with what replaying the journal gives, group by group as
	// segments are sealed, and each snapshot with what it restores to. A difference is a bug: Serve then returns an error
	// that wraps ErrDiverged, nothing more is answered, and nothing more is removed from the folder. The replay serves
	// snapshots anyway; what it costs more is some nanoseconds and 16 bytes for each group in segments that are not
	// followed yet, and the state's size in memory once more while a snapshot is stored. Without a data folder it does
	// nothing.
	Verify bool

	// NodeID is the broker's id, 1 or more. Default 1.
	NodeID int32
	// DefaultPartitions is the partition count of topics that name none. Default 1; range 1 to 10,000.
	DefaultPartitions int32
	// ClampReplicationFactor accepts topics with a replication factor above 1 and makes them with 1, which is what is
	// reported; without it they are refused, so that nobody takes one copy for three.
	ClampReplicationFactor bool
	// NoAutoCreateTopics turns off that topics are created when a client asks for their metadata.
	NoAutoCreateTopics bool
	// MessageMaxBytes (message.max.bytes) bounds a batch, as stored, in topics without a max.message.bytes of their own.
	// Default 1,048,588.
	MessageMaxBytes int32

	// ProducerIDExpirationMs (producer.id.expiration.ms) is for how long a partition remembers an idle producer, to
	// recognise its duplicates, in milliseconds. One with an open transaction is not forgotten. Default 86,400,000: a day.
	ProducerIDExpirationMs int32
	// MaxProducerIDs bounds what all partitions remember of producers, about 400 bytes each: beyond it the one that was idle
	// for the longest is forgotten before its time, never one with an open transaction, and the log says how many.
	// Default 100,000; at most 10,000,000.
	MaxProducerIDs int
	// TransactionalIDExpirationMs (transactional.id.expiration.ms) is for how long a transactional id without an open
	// transaction is remembered, in milliseconds. Default 604,800,000: a week.
	TransactionalIDExpirationMs int32
	// MaxTransactionalIDs bounds the transactional ids, as MaxProducerIDs does producers. Default 100,000; at most 10,000,000.
	MaxTransactionalIDs int
	// TransactionMaxTimeoutMs (transaction.max.timeout.ms) is the longest transaction timeout that a producer may ask for, in
	// milliseconds; more is refused with INVALID_TRANSACTION_TIMEOUT. Default 900,000.
	TransactionMaxTimeoutMs int32

	// OffsetsRetentionMinutes (offsets.retention.minutes) is for how long offsets are kept that no member uses any more.
	// Default 10,080: a week.
	OffsetsRetentionMinutes int32
	// OffsetsRetentionCheckIntervalMs (offsets.retention.check.interval.ms) is the pause between two looks for these, in
	// milliseconds. Default 600,000.
	OffsetsRetentionCheckIntervalMs int64
	// OffsetMetadataMaxBytes (offset.metadata.max.bytes) bounds the string beside a committed offset, in characters, as Apache
	// Kafka counts it; more is refused with OFFSET_METADATA_TOO_LARGE. Default 4,096; at most 1,048,576.
	OffsetMetadataMaxBytes int32
	// GroupMinSessionTimeoutMs and GroupMaxSessionTimeoutMs (group.min.session.timeout.ms, group.max…) bound what a member of
	// a classic group may ask for, in milliseconds; else INVALID_SESSION_TIMEOUT. Defaults 6,000 and 1,800,000.
	GroupMinSessionTimeoutMs int32
	GroupMaxSessionTimeoutMs int32
	// GroupMaxSize and GroupConsumerMaxSize (group.max.size, group.consumer.max.size) bound the members of a classic and of a
	// consumer group; one more is refused with GROUP_MAX_SIZE_REACHED. Default 10,000 each.
	GroupMaxSize         int32
	GroupConsumerMaxSize int32
	// GroupInitialRebalanceDelayMs (group.initial.rebalance.delay.ms) is how long the first rebalance of an empty group
	// waits for more members, in milliseconds. Default 3,000; -1 does not wait; at most 600,000.
	GroupInitialRebalanceDelayMs int32
	// GroupConsumerSessionTimeoutMs (group.consumer.session.timeout.ms) is after what silence a member of a consumer group is
	// fenced, GroupConsumerHeartbeatIntervalMs (group.consumer.heartbeat.interval.ms) how often it is to send heartbeats,
	// in milliseconds. Defaults 45,000 and 5,000.
	GroupConsumerSessionTimeoutMs    int32
	GroupConsumerHeartbeatIntervalMs int32
	// GroupConsumerAssignmentIntervalMs (group.consumer.assignment.interval.ms) lies at least between two assignments of a
	// consumer group, in milliseconds. Default 1,000; -1 is no pause.
	GroupConsumerAssignmentIntervalMs int32
	// GroupConsumerMinSessionTimeoutMs to GroupConsumerMaxAssignmentIntervalMs (group.consumer.min.session.timeout.ms and so on)
	// bound what a consumer group's own settings may say, and the three above. Defaults 45,000 to 60,000, 5,000 to 15,000 and
	// 0 to 15,000; a longest pause of -1 is none.
	GroupConsumerMinSessionTimeoutMs     int32
	GroupConsumerMaxSessionTimeoutMs     int32
	GroupConsumerMinHeartbeatIntervalMs  int32
	GroupConsumerMaxHeartbeatIntervalMs  int32
	GroupConsumerMinAssignmentIntervalMs int32
	GroupConsumerMaxAssignmentIntervalMs int32
	// GroupConsumerMigrationPolicy (group.consumer.migration.policy) says which groups change their protocol while they have
	// members. Default MigrationBidirectional.
	GroupConsumerMigrationPolicy MigrationPolicy

	// MaxConnections bounds the open connections; further ones are closed at once. Default 8,192.
	MaxConnections int
	// MaxConnectionsPerAddress bounds those from one client address. Default: only MaxConnections does.
	MaxConnectionsPerAddress int
	// MaxInFlight bounds the requests of one connection that are read and not yet answered. Default 64.
	MaxInFlight int
	// MaxRequestBytes bounds one request, and so the largest batch, whatever the max.message.bytes of its topic. Default
	// 100 MiB; range 64 KiB to 256 MiB. What the records of one batch unpack to is bounded by a quarter more, or by 128
	// MiB if that is more. Requests other than Produce are bounded by 4 MiB as well.
	MaxRequestBytes int32
	// RequestMemoryBytes bounds the requests that all connections together hold in memory; more are not read until
	// there is room. Default 256 MiB, or twice MaxRequestBytes if that is more.
	RequestMemoryBytes int64
	// FetchMaxBytes bounds one Fetch response, whatever the client asks for; the first batch is sent whole even if it
	// is larger. Default 55 MiB.
	FetchMaxBytes int32
	// FetchMemoryBytes bounds the record bytes that all Fetch responses together hold in memory. Default 256 MiB, or
	// FetchMaxBytes if that is more.
	FetchMemoryBytes int64
	// MaxFetchSessions bounds the fetch sessions (KIP-227), by which clients that read many partitions ask only for what
	// has changed. Default 1,000; -1 keeps none. Clients for whom there is no session name all their partitions each time.
	MaxFetchSessions int
	// FetchSessionMemoryBytes bounds the memory of all fetch sessions, about 400 bytes for each partition of each. Default
	// 64 MiB.
	FetchSessionMemoryBytes int64
	// IdleTimeout closes connections on which nothing happens. Default 10 minutes.
	IdleTimeout time.Duration
	// StallTimeout closes connections whose client stops in the middle of a request, or does not read its responses:
	// each MiB must pass within it. Default 30 seconds.
	StallTimeout time.Duration

	// Logger gets what an operator should know. Default: nothing is logged.
	Logger *slog.Logger
	// Now is the clock, with its monotonic reading. Default time.Now.
	Now func() time.Time
	// Intercept, when not nil, sees every request before it is handled and may delay it or lose it: a seam for tests
	// (see brokertest). It is called from the connection's own goroutine and may block until ctx, which ends with the
	// connection, is done.
	Intercept func(ctx context.Context, r *Request) Fate

	// may authorizes operations; nil lets everybody do everything.
	may machine.Authorizer
}

// Listener is one of several places to listen; its fields are those of Config.
type Listener struct {
	Listen    string
	Listener  net.Listener
	Advertise string
}

// listeners are all places to listen, at least one.
func (c Config) listeners() []Listener {
	if len(c.Listeners) > 0 {
		return c.Listeners
	}
	return []Listener{{Listen: c.Listen, Listener: c.Listener, Advertise: c.Advertise}}
}

// Defaults of Config.
const (
	DefaultListen              = "127.0.0.1:9092"
	DefaultJournalSegmentBytes = 64 << 20
	DefaultJournalMaxBytes     = 1 << 30
	DefaultMaxConnections      = 8192
	DefaultMaxInFlight         = 64
	DefaultMaxRequestBytes     = wire.DefaultMaxRequestBytes
	DefaultRequestMemoryBytes  = 256 << 20
	MaxRequestBytesLimit       = 256 << 20
	DefaultFetchMaxBytes       = 55 << 20
	DefaultFetchMemoryBytes    = 256 << 20
	DefaultMaxFetchSessions    = 1000
	DefaultFetchSessionBytes   = 64 << 20
	DefaultIdleTimeout         = 10 * time.Minute
	DefaultStallTimeout        = 30 * time.Second

	maxPartitionsPerTopic = 10_000
	maxListeners          = 64
	minUnpackedBytes      = 128 << 20
)

// orDefaults returns c with every 0 replaced.
func (c Config) orDefaults() Config {
	if len(c.Listeners) == 0 {
		def(&c.Listen, DefaultListen)
	}
	def(&c.JournalSegmentBytes, DefaultJournalSegmentBytes)
	def(&c.JournalMaxBytes, max(DefaultJournalMaxBytes, 4*c.JournalSegmentBytes))
	def(&c.NodeID, 1)
	def(&c.DefaultPartitions, 1)
	for _, s := range settings {
		if s.get(&c) == 0 {
			s.set(&c, s.Default)
		}
	}
	def(&c.MaxConnections, DefaultMaxConnections)
	def(&c.MaxConnectionsPerAddress, c.MaxConnections)
	def(&c.MaxInFlight, DefaultMaxInFlight)
	def(&c.MaxRequestBytes, DefaultMaxRequestBytes)
	def(&c.RequestMemoryBytes, max(DefaultRequestMemoryBytes, 2*int64(c.MaxRequestBytes)))
	def(&c.FetchMemoryBytes, max(DefaultFetchMemoryBytes, int64(c.FetchMaxBytes)))
	def(&c.FetchSessionMemoryBytes, DefaultFetchSessionBytes)
	def(&c.IdleTimeout, DefaultIdleTimeout)
	def(&c.StallTimeout, DefaultStallTimeout)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate returns everything that is wrong with c, joined, or nil.
func (c Config) Validate() error {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	within := func(name string, got, low, high int64) {
		if got < low || got > high {
			bad("%s is %d, want %d to %d", name, got, low, high)
		}
	}
	c = c.orDefaults()
	if len(c.Listeners) > 0 && (c.Listen != "" || c.Listener != nil || c.Advertise != "") {
		bad("Listeners are given beside Listen, Listener or Advertise: use either")
	}
	within("the number of Listeners", int64(len(c.Listeners)), 0, maxListeners)
	for _, l := range c.listeners() {
		if err := l.validate(); err != nil {
			bad("%w", err)
		}
	}
	if c.Durability != DurabilityFsync && c.Durability != DurabilityWrite {
		bad("Durability is %d, want DurabilityFsync or DurabilityWrite", c.Durability)
	}
	within("JournalSegmentBytes", c.JournalSegmentBytes, 32<<10, 1<<30)
	within("JournalMaxBytes", c.JournalMaxBytes, 4*c.JournalSegmentBytes, 1<<50)
	within("NodeID", int64(c.NodeID), 1, 1<<31-1)
	within("DefaultPartitions", int64(c.DefaultPartitions), 1, maxPartitionsPerTopic)
	for _, s := range settings {
		if err := s.check(s.Get(&c)); err != nil {
			problems = append(problems, err)
		}
	}
	if c.GroupMinSessionTimeoutMs > c.GroupMaxSessionTimeoutMs {
		bad("group.min.session.timeout.ms is %d, above group.max.session.timeout.ms, %d: no client could join a group",
			c.GroupMinSessionTimeoutMs, c.GroupMaxSessionTimeoutMs)
	}
	between := func(name string, v, low, high int32) {
		if v < low || v > high {
			bad("group.consumer.%s is %d, want %d to %d, as group.consumer.min.%s and max.%s say", name, v, low, high, name, name)
		}
	}
	between("session.timeout.ms", c.GroupConsumerSessionTimeoutMs, c.GroupConsumerMinSessionTimeoutMs, c.GroupConsumerMaxSessionTimeoutMs)
	between("heartbeat.interval.ms", c.GroupConsumerHeartbeatIntervalMs, c.GroupConsumerMinHeartbeatIntervalMs, c.GroupConsumerMaxHeartbeatIntervalMs)
	between("assignment.interval.ms", max(0, c.GroupConsumerAssignmentIntervalMs), c.GroupConsumerMinAssignmentIntervalMs, max(0, c.GroupConsumerMaxAssignmentIntervalMs))
	if c.GroupConsumerHeartbeatIntervalMs >= c.GroupConsumerSessionTimeoutMs {
		bad("group.consumer.heartbeat.interval.ms is %d, want less than group.consumer.session.timeout.ms, %d",
			c.GroupConsumerHeartbeatIntervalMs, c.GroupConsumerSessionTimeoutMs)
	}
	within("MaxConnections", int64(c.MaxConnections), 1, 1<<20)
	within("MaxConnectionsPerAddress", int64(c.MaxConnectionsPerAddress), 1, 1<<20)
	within("MaxInFlight", int64(c.MaxInFlight), 1, 1<<12)
	within("MaxRequestBytes", int64(c.MaxRequestBytes), 64<<10, MaxRequestBytesLimit)
	within("RequestMemoryBytes", c.RequestMemoryBytes, 2*int64(c.MaxRequestBytes), 1<<50)
	within("FetchMemoryBytes", c.FetchMemoryBytes, int64(c.FetchMaxBytes), 1<<50)
	within("FetchSessionMemoryBytes", c.FetchSessionMemoryBytes, 1, 1<<50)
	within("IdleTimeout in ms", c.IdleTimeout.Milliseconds(), 1, 1<<40)
	within("StallTimeout in ms", c.StallTimeout.Milliseconds(), 1, 1<<40)
	return errors.Join(problems...)
}

func (l Listener) validate() error {
	var problems []error
	if l.Listener == nil {
		if _, _, err := splitAddress(l.Listen); err != nil {
			problems = append(problems, fmt.Errorf("a listener's Listen: %w", err))
		}
	}
	if l.Advertise != "" {
		if host, port, err := splitAddress(l.Advertise); err != nil {
			problems = append(problems, fmt.Errorf("a listener's Advertise: %w", err))
		} else if host == "" || port == 0 {
			problems = append(problems, fmt.Errorf("a listener's Advertise is %q, want a host and a port that clients can reach", l.Advertise))
		}
	}
	return errors.Join(problems...)
}

// maxUnpackedBytes bounds the records of one batch after decompression, in requests of so many bytes.
func maxUnpackedBytes(maxRequestBytes int) int {
	return max(minUnpackedBytes, maxRequestBytes+maxRequestBytes/4)
}

// splitAddress takes host:port apart.
func splitAddress(address string) (host string, port int32, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("%q is not host:port: %w", address, err)
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%q has port %q, want a number from 0 to 65535", address, text)
	}
	return host, int32(n), nil
}
