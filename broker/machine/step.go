package machine

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine/group"
	"github.com/strandline-io/strandline/broker/machine/txn"
)

// step is the operation that is being decided and the unit that it becomes.
type step struct {
	op       *Op
	out      *Out
	meta     []byte // version, time and records so far; empty as long as nothing was decided
	payload  []byte // of the record that is being made
	batches  []Batch
	mustSync bool
	uuids    uint64 // how many were derived from the operation
	hangup   bool   // the request came late
}

// Step decides op, moves the state at once, and adds to out what must be journaled, answered and published, in this
// order. Batches of a *Produce go out as they are, patched; nothing else of op is kept. Strings of op.Body must not
// be changed later (read requests with kmsg's ReadFrom, not UnsafeReadFrom).
func (m *Machine) Step(op *Op, out *Out) {
	s := &m.step
	s.op, s.out = op, out
	// A unit's time never lies before its predecessor's, whatever the caller's clock does.
	op.Now.EngineMs = max(op.Now.EngineMs, m.lastNow.EngineMs)
	m.dispatch(op.Body)
	m.endUnit()
	s.op, s.out, s.uuids, s.hangup = nil, nil, 0, false
}

func (m *Machine) dispatch(body any) {
	switch b := body.(type) {
	case *Produce:
		m.produce(b)
	case *Tick:
		m.tick()
	case *Shelved:
		m.shelved(b)
	case *Incarnation:
		m.startIncarnation(b)
	case *kmsg.MetadataRequest:
		m.metadata(b)
	case *kmsg.FindCoordinatorRequest:
		m.findCoordinator(b)
	case *kmsg.CreateTopicsRequest:
		m.createTopics(b)
	case *kmsg.DeleteTopicsRequest:
		m.deleteTopics(b)
	case *kmsg.CreatePartitionsRequest:
		m.createPartitions(b)
	case *kmsg.DescribeConfigsRequest:
		m.describeConfigs(b)
	case *kmsg.DeleteRecordsRequest:
		m.deleteRecords(b)
	case *kmsg.AlterConfigsRequest:
		m.alterConfigs(b)
	case *kmsg.IncrementalAlterConfigsRequest:
		m.incrementalAlterConfigs(b)
	case *kmsg.DescribeTopicPartitionsRequest:
		m.describeTopicPartitions(b)
	case *kmsg.InitProducerIDRequest:
		m.initProducerID(b)
	case *kmsg.AddPartitionsToTxnRequest:
		m.addPartitionsToTxn(b)
	case *kmsg.AddOffsetsToTxnRequest:
		m.addOffsetsToTxn(b)
	case *kmsg.TxnOffsetCommitRequest:
		m.txnOffsetCommit(b)
	case *kmsg.EndTxnRequest:
		m.endTxn(b)
	default:
		m.dispatchView(body)
	}
}

// dispatchView is for what operators ask, and do to transactions and features.
func (m *Machine) dispatchView(body any) {
	switch b := body.(type) {
	case *kmsg.UpdateFeaturesRequest:
		m.updateFeatures(b)
	case *kmsg.WriteTxnMarkersRequest:
		m.writeTxnMarkers(b)
	case *kmsg.DescribeProducersRequest:
		m.describeProducers(b)
	case *kmsg.DescribeTransactionsRequest:
		m.describeTransactions(b)
	case *kmsg.ListTransactionsRequest:
		m.listTransactions(b)
	case *kmsg.ListConfigResourcesRequest:
		m.listConfigResources(b)
	default:
		m.dispatchGroup(body)
	}
}

func (m *Machine) dispatchGroup(body any) {
	ctx := (*groupContext)(m)
	switch b := body.(type) {
	case *kmsg.ConsumerGroupHeartbeatRequest:
		m.consumerGroupHeartbeat(b)
	case *Assign:
		m.groups.Assigned(ctx, b.Assignment)
	case *MatchTopics:
		m.matchTopics(b)
	case *kmsg.ConsumerGroupDescribeRequest:
		m.groups.ConsumerGroupDescribe(ctx, b)
	case *kmsg.OffsetCommitRequest:
		m.groups.OffsetCommit(ctx, b)
	case *kmsg.OffsetFetchRequest:
		m.groups.OffsetFetch(ctx, b)
	case *kmsg.JoinGroupRequest:
		m.handOut(b.Group, m.groups.JoinGroup(ctx, b))
	case *kmsg.HeartbeatRequest:
		m.handOut(b.Group, m.groups.Heartbeat(ctx, b))
	case *kmsg.LeaveGroupRequest:
		m.groups.LeaveGroup(ctx, b)
	case *kmsg.SyncGroupRequest:
		m.groups.SyncGroup(ctx, b)
	case *kmsg.DescribeGroupsRequest:
		m.groups.DescribeGroups(ctx, b)
	case *kmsg.ListGroupsRequest:
		m.groups.ListGroups(ctx, b)
	case *kmsg.DeleteGroupsRequest:
		m.groups.DeleteGroups(ctx, b)
	case *kmsg.OffsetDeleteRequest:
		m.groups.OffsetDelete(ctx, b)
	default:
		panic(fmt.Sprintf("BUG: no operation for a body of type %T", body))
	}
}

// beginRecord prepares a record: append its payload to what is returned and give it to endRecord.
func (m *Machine) beginRecord() []byte {
	s := &m.step
	if len(s.meta) == 0 {
		s.meta = append(s.meta, metaVersion)
		s.meta = binary.AppendVarint(s.meta, s.op.Now.WallMs)
		s.meta = binary.AppendVarint(s.meta, s.op.Now.EngineMs)
		m.applyNow(s.op.Now)
	}
	return s.payload[:0]
}

// endRecord adds the record to the unit.
func (m *Machine) endRecord(kind uint8, payload []byte) {
	s := &m.step
	s.payload = payload
	s.meta = append(s.meta, kind)
	s.meta = binary.AppendUvarint(s.meta, uint64(len(payload)))
	s.meta = append(s.meta, payload...)
}

// record adds a record to the unit and applies it.
func (m *Machine) record(kind uint8, payload []byte) {
	m.endRecord(kind, payload)
	if err := m.apply(kind, payload); err != nil {
		panic(fmt.Sprintf("BUG: record of kind %d cannot be applied: %v", kind, err))
	}
}

// recordBatch adds a record of a batch, already applied, to the unit.
func (m *Machine) recordBatch(kind uint8, payload []byte, b Batch) {
	m.endRecord(kind, payload)
	m.step.batches = append(m.step.batches, b)
}

// metaChunkBytes is how much is allocated at once for the Metas of many small units.
const metaChunkBytes = 64 << 10

// endUnit hands over what the records amount to.
func (m *Machine) endUnit() {
	s := &m.step
	if len(s.meta) == 0 {
		return
	}
	if cap(m.metaChunk)-len(m.metaChunk) < len(s.meta) {
		m.metaChunk = make([]byte, 0, max(metaChunkBytes, len(s.meta)))
	}
	start := len(m.metaChunk)
	m.metaChunk = append(m.metaChunk, s.meta...)
	u := Unit{Meta: m.metaChunk[start:len(m.metaChunk):len(m.metaChunk)], MustSync: s.mustSync}
	if len(s.batches) > 0 {
		u.Batches = append([]Batch(nil), s.batches...)
		clear(s.batches)
	}
	s.out.Units = append(s.out.Units, u)
	s.meta, s.batches, s.mustSync = s.meta[:0], s.batches[:0], false
}

// late reports whether a request of transaction version 1 comes late; its reply is a Hangup then.
func (m *Machine) late(p txn.Producer, path txn.Path) bool {
	if !m.txns.Late(p, path, m.step.op.Client.Connection) {
		return false
	}
	m.step.hangup = true
	return true
}

// reply answers the operation.
func (m *Machine) reply(body any) {
	if m.step.hangup {
		body = &Hangup{}
	}
	m.step.out.Replies = append(m.step.out.Replies, Reply{ID: m.step.op.ID, Body: body})
}

// show publishes what may be seen of a partition from now on.
func (m *Machine) show(p *partition) { m.step.out.Views = append(m.step.out.Views, p.view()) }

// newUUID derives a random (version 4) UUID from the operation; each call gives another one.
func (m *Machine) newUUID() [16]byte {
	s := &m.step
	var seed [24]byte
	copy(seed[:], s.op.Rand[:])
	binary.LittleEndian.PutUint64(seed[16:], s.uuids)
	s.uuids++
	sum := sha256.Sum256(seed[:])
	var u [16]byte
	copy(u[:], sum[:])
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	return u
}

// producerIDBlock is how many producer ids are reserved at once (kafka-eos.md B.14).
const producerIDBlock = 1000

// newProducerID gives out a producer id that was never given out before. The reservation is part of the unit and of
// the answer's wait; a block that a stopped broker had begun is not used further.
func (m *Machine) newProducerID() int64 {
	if m.nextProducerID == m.producerIDsEnd {
		m.record(kindProducerIDs, binary.AppendVarint(m.beginRecord(), m.producerIDsEnd+producerIDBlock))
		m.step.mustSync = true
	}
	id := m.nextProducerID
	m.nextProducerID++
	return id
}

// groupContext is the machine as the group coordinator sees it.
type groupContext Machine

var _ group.Context = (*groupContext)(nil)

func (c *groupContext) WallMs() int64      { return c.step.op.Now.WallMs }
func (c *groupContext) EngineMs() int64    { return c.step.op.Now.EngineMs }
func (c *groupContext) OpID() uint64       { return c.step.op.ID }
func (c *groupContext) ClientID() string   { return c.step.op.Client.ID }
func (c *groupContext) ClientHost() string { return c.step.op.Client.Host }

func (c *groupContext) NewID() string {
	u := (*Machine)(c).newUUID()
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

func (c *groupContext) Record(kind uint8, payload []byte) {
	m := (*Machine)(c)
	if kind < firstGroupKind || kind > lastGroupKind {
		panic(fmt.Sprintf("BUG: the group coordinator records kind %d", kind))
	}
	m.record(kind, append(m.beginRecord(), payload...))
}

func (c *groupContext) Reply(opID uint64, resp kmsg.Response) {
	c.step.out.Replies = append(c.step.out.Replies, Reply{ID: opID, Body: resp})
}

func (c *groupContext) Topic(name string) (id [16]byte, partitions int32, ok bool) {
	t := c.topics[name]
	if t == nil {
		return id, 0, false
	}
	return t.ID, int32(len(t.partitions)), true
}

func (c *groupContext) TopicsVersion() uint64 { return c.topicsVersion }

func (c *groupContext) May(op kmsg.ACLOperation, resource kmsg.ACLResourceType, name string) bool {
	return c.may(&c.step.op.Client, Access{op, resource, name})
}

func (c *groupContext) TopicByID(id [16]byte) (name string, ok bool) {
	t := c.topicsByID[id]
	if t == nil {
		return "", false
	}
	return t.Name, true
}
