// Package machine is the whole durable state of the broker as one deterministic machine: topics, partitions'
// producer state, transactions, groups and committed offsets. Step decides one operation and moves the state at
// once through the same Apply that replay uses; what Step returns must be journaled before anybody hears of it.
package machine

import (
	"github.com/strandline-io/strandline/broker/machine/producer"
	"github.com/strandline-io/strandline/broker/record"
)

// PartitionID names a partition for ever: it is never reused, also not when its topic is deleted and made again.
type PartitionID uint32

// Now is the time of an operation. WallMs is what records and retention show (Unix milliseconds). EngineMs drives
// every timeout: it is monotonic within a run and continues across restarts from the last journaled value.
type Now struct{ WallMs, EngineMs int64 }

// Client is who asks.
type Client struct {
	ID        string // client.id, may be empty
	Host      string // remote address without port
	Principal string // "User:ANONYMOUS" until sign-in exists
	// Connection numbers the connection by which the request came, in the order in which this run has accepted them,
	// from 1 on. 0 is none: nothing can be told from it.
	Connection uint64
}

// Op is one operation. Body is a pointer to a kmsg request (with its Version set) for every API that changes or
// reads decided state, or one of this package's own operations: *Produce, *Tick, *Shelved, *Incarnation.
type Op struct {
	ID     uint64 // names the operation in Reply; unique within a run, never 0
	Now    Now
	Rand   [16]byte // the operation's only source of randomness (topic ids, member ids)
	Client Client
	Body   any
}

// Produce is a Produce request whose batches a connection has read and judged. Its reply is *ProduceReply.
type Produce struct {
	Version         int16
	Acks            int16
	TransactionalID *string
	Partitions      []ProducePartition
	// NoSpace says that there is no room for the batches: each is refused with KAFKA_STORAGE_ERROR, unless it is in
	// already.
	NoSpace bool
}

// ProducePartition is one batch for one partition. Batch is patched in place (base offset, leader epoch, max
// timestamp) when it is accepted; the bytes stay the caller's and must not change until the unit is written.
type ProducePartition struct {
	Topic     string   // empty when TopicID is set
	TopicID   [16]byte // zero when Topic is set
	Partition int32
	Batch     []byte
	Header    record.Header
	// Verdict is what the connection found wrong with the batch, judged under the topic settings of
	// SettingsVersion. A verdict made under other settings than the current ones comes back as stale.
	Verdict         Verdict
	SettingsVersion uint32
}

// Verdict is the connection's judgement of a batch's content (kafka-eos.md A.3 steps 3, 9 and 10). Code 0 is "fine".
type Verdict struct {
	Code    int16
	Message string
	// Container says that what was sent is not one batch that its version may carry (step 3), whatever the settings say:
	// then there is no Header to go by.
	Container bool
	Records   []RecordError
}

// RecordError names one record of a refused batch.
type RecordError struct {
	Index   int32
	Message string
}

// ProduceReply answers *Produce, one entry per partition in request order. A refusal of the whole request stands in
// every entry.
type ProduceReply struct {
	Partitions []ProducePartitionReply
}

// ProducePartitionReply is the outcome for one partition. Stale means: the verdict was made under settings that are no
// longer the topic's; judge the batch again under those that the board shows when this reply is released, and submit
// it once more. Nothing was written.
type ProducePartitionReply struct {
	Code            int16
	Message         string
	Records         []RecordError
	BaseOffset      int64 // -1 on error
	LogAppendTimeMs int64 // -1 for CreateTime topics
	LogStartOffset  int64
	Stale           bool
}

// Tick lets everything due at Now happen: transaction timeouts, session timeouts, delayed joins. No reply.
type Tick struct{}

// Incarnation is the first operation of a run: it raises the leader epoch of all partitions. No reply. Forgets says that a
// power cut may take back what this run answers: then the next run trusts no producer epoch of it (see txn.Coordinator.Doubt).
type Incarnation struct {
	Number  uint32
	Forgets bool
}

// Shelved records how far each partition's batches have been copied out of the journal; reply is *ShelvedReply.
type Shelved struct{ Partitions []ShelvedLength }

// ShelvedLength says that the partition's segment files hold everything below EndOffset, and that the file with
// base offset FileBase is FileBytes long.
type ShelvedLength struct {
	Partition PartitionID
	FileBase  int64
	FileBytes int64
	EndOffset int64
}

// ShelvedReply answers *Shelved once it is decided; like every reply it leaves when durable.
type ShelvedReply struct{}

// Hangup answers a request that came late, by a connection that its client has given up (see txn.Coordinator.Late). The
// connection is to be closed without an answer: nobody waits for one, and a client that does is to send the request again by
// a new connection, where it counts. Nothing was done for it, except that batches for other partitions of the same Produce may
// have gone in.
type Hangup struct{}

// Out collects what Steps decided, until the caller has taken it and calls Reset. One Out serves a whole group.
type Out struct {
	Units   []Unit
	Replies []Reply
	Views   []View
	Topics  []TopicChange
	// Features, when not nil, are the feature levels from now on.
	Features *Features
	Counts   Counts
}

// Counts are of what an operator should hear of.
type Counts struct {
	// Forgotten before their time because there was too much: never what has a transaction open.
	EvictedProducerIDs      int // pairs of partition and producer id (producer.Config.MaxEntries)
	EvictedTransactionalIDs int // txn.Config.MaxIDs and MaxIDBytes
	// Markers that the end of a transaction left out, because the partition refuses them with INVALID_PRODUCER_EPOCH or
	// TRANSACTION_COORDINATOR_FENCED: somebody else has used the producer id there, or an operator wrote a marker.
	SkippedMarkers int
}

// Add adds o to c.
func (c *Counts) Add(o Counts) {
	c.EvictedProducerIDs += o.EvictedProducerIDs
	c.EvictedTransactionalIDs += o.EvictedTransactionalIDs
	c.SkippedMarkers += o.SkippedMarkers
}

// Unit is atomic: it is journaled whole or not at all. Meta holds the machine's records, Batches the record
// batches in the order in which Meta names them. Meta is never written to again. MustSync asks for fdatasync before the
// replies behind this unit leave, in both durability modes: it reserves producer ids or starts an incarnation, and a
// lost tail would hand the same number out twice (design.md §2.2); or it says where batches are whose journal segments
// are freed next.
type Unit struct {
	Meta     []byte
	Batches  []Batch
	MustSync bool
}

// Batch is one record batch of a unit, already patched.
type Batch struct {
	Partition    PartitionID
	BaseOffset   int64
	LastOffset   int64
	MaxTimestamp int64
	Bytes        []byte
}

// Reply answers the operation ID. Several operations may be answered by one Step (a rebalance), or none yet
// (a parked join). Body is a kmsg response or this package's own reply.
type Reply struct {
	ID   uint64
	Body any
}

// View is what readers of one partition may see once everything decided so far is durable. It is immutable.
type View struct {
	Partition     PartitionID
	LogStart      int64
	HighWatermark int64
	LastStable    int64
	Aborted       []producer.Aborted // ascending by LastOffset; a shared prefix, never written to
	Epochs        []EpochStart       // ascending; a shared prefix
}

// EpochStart says that batches from StartOffset on were appended under leader epoch Epoch (KIP-101).
type EpochStart struct {
	Epoch       int32
	StartOffset int64
}

// TopicChange tells the publisher of a topic that came, changed or went.
type TopicChange struct {
	Topic   Topic
	Deleted bool
}

// Topic is a topic's description. It is immutable once published.
type Topic struct {
	Name            string
	ID              [16]byte
	Partitions      []PartitionID // index = partition number
	Settings        Settings
	SettingsVersion uint32
}

// Reset empties o and keeps its memory.
func (o *Out) Reset() {
	clear(o.Units)
	clear(o.Replies)
	clear(o.Views)
	clear(o.Topics)
	*o = Out{Units: o.Units[:0], Replies: o.Replies[:0], Views: o.Views[:0], Topics: o.Topics[:0]}
}
