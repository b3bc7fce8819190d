package group

import "github.com/twmb/franz-go/pkg/kmsg"

// Groups is every group of the broker. It has no clock and no locks: one caller at a time, time comes with Context.
// Requests must own their strings (kmsg's ReadFrom, not UnsafeReadFrom); byte slices are copied when they are kept.
// Responses share byte slices with the state and must not be written to; the state never writes to them either.
type Groups struct{ cfg Config }

// New returns a coordinator without groups.
func New(cfg Config) *Groups { return &Groups{cfg: cfg.withDefaults()} }

// JoinGroup answers a JoinGroup request, v0 to 9, at once or when the join phase ends.
func (gs *Groups) JoinGroup(ctx Context, req *kmsg.JoinGroupRequest) {}

// SyncGroup answers a SyncGroup request, v0 to 5, at once or when the leader's assignment is recorded.
func (gs *Groups) SyncGroup(ctx Context, req *kmsg.SyncGroupRequest) {}

// Heartbeat answers a Heartbeat request, v0 to 4.
func (gs *Groups) Heartbeat(ctx Context, req *kmsg.HeartbeatRequest) {}

// LeaveGroup answers a LeaveGroup request, v0 to 5.
func (gs *Groups) LeaveGroup(ctx Context, req *kmsg.LeaveGroupRequest) {}

// OffsetCommit answers an OffsetCommit request, v2 to 10.
func (gs *Groups) OffsetCommit(ctx Context, req *kmsg.OffsetCommitRequest) {}

// OffsetFetch answers an OffsetFetch request, v1 to 10.
func (gs *Groups) OffsetFetch(ctx Context, req *kmsg.OffsetFetchRequest) {}

// DescribeGroups answers a DescribeGroups request, v0 to 6.
func (gs *Groups) DescribeGroups(ctx Context, req *kmsg.DescribeGroupsRequest) {}

// ListGroups answers a ListGroups request, v0 to 5.
func (gs *Groups) ListGroups(ctx Context, req *kmsg.ListGroupsRequest) {}

// TxnOffsetCommit makes offsets pending for producerID, v0 to 5. The caller has checked the transactional id, the
// producer's epoch and that the group is part of the transaction; it sends the response.
func (gs *Groups) TxnOffsetCommit(ctx Context, producerID int64, req *kmsg.TxnOffsetCommitRequest) *kmsg.TxnOffsetCommitResponse {
	return nil
}

// Tick does what is due at ctx.EngineMs, a bounded amount of it; NextTimer tells whether more is due.
func (gs *Groups) Tick(ctx Context) {}

// NextTimer returns when Tick has something to do next, in engine milliseconds; ok is false if never.
func (gs *Groups) NextTimer() (engineMs int64, ok bool) { return 0, false }

// Apply applies one durable record, decided now or replayed. An error means the record is damaged or does not fit
// the state; the state is unchanged then.
func (gs *Groups) Apply(kind uint8, payload []byte) error { return nil }

// ApplyTxnEnd ends producerID's transaction: its pending offsets become committed, where nothing newer was committed
// meanwhile, or are dropped. It is part of the machine's own transaction record, replayed or new.
func (gs *Groups) ApplyTxnEnd(producerID int64, commit bool) {}

// ApplyTopicDeleted drops all offsets of a topic, committed and pending. It is part of the machine's own record.
func (gs *Groups) ApplyTopicDeleted(name string) {}

// HasPending tells whether producerID has offsets that wait for the end of its transaction.
func (gs *Groups) HasPending(producerID int64) bool { return false }

// AppendSnapshot appends the durable state.
func (gs *Groups) AppendSnapshot(dst []byte) []byte { return dst }

// Restore replaces the state by that of a snapshot. After an error the state is unchanged.
func (gs *Groups) Restore(data []byte) error { return nil }

// Hash is a hash of the durable state's content: equal states have equal hashes, however they came about.
func (gs *Groups) Hash() uint64 { return 0 }
