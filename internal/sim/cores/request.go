package cores

import (
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/record"
)

// kind is what a request asks for.
type kind uint8

const (
	kindTick kind = iota
	kindIncarnation
	kindAge // an InitProducerId of long ago
	kindShelved
	kindInit
	kindAdd
	kindVerify // AddPartitionsToTxn v5, VerifyOnly
	kindAddOffsets
	kindTxnCommit
	kindEnd
	kindProduce
	kindCommit // OffsetCommit
	kindFetch  // OffsetFetch
	kindJoin
	kindSync
	kindHeartbeat
	kindLeave
	kindMarkers       // WriteTxnMarkers: an operator ends what a producer has open in single partitions
	kindTransactions  // DescribeTransactions
	kindProducers     // DescribeProducers
	kindDeleteOffsets // OffsetDelete
	kindDeleteGroup
	kindCreateTopic
	kindGrowTopic
	kindDeleteTopic
)

var kindNames = [...]string{
	"tick", "incarnation", "age", "shelved", "init", "add", "verify", "addoffsets", "txncommit", "end", "produce", "commit", "fetch",
	"join", "sync", "heartbeat", "leave",
	"markers", "transactions", "producers", "deleteoffsets", "deletegroup", "createtopic", "growtopic", "deletetopic",
}

func (k kind) String() string { return kindNames[k] }

// place is a partition by name.
type place struct {
	topic     string
	partition int32
}

// batch is one record batch of a Produce. Its values are numbered by the history.
type batch struct {
	place
	first         int32 // sequence, -1 without a producer
	values        []*value
	transactional bool
	stale         bool  // judged under other settings than the topic's
	verdict       int16 // what its connection found wrong with it
	raw           []byte
}

// position is an offset to commit.
type position struct {
	place
	offset int64
}

// request is what a client sends: the model and the machine get the same.
type request struct {
	kind        kind
	version     int16
	id          string // transactional id
	none        bool   // no transactional id
	pid         int64
	epoch       int16
	timeoutMs   int32
	parts       []place
	batches     []*batch
	commit      bool
	group       string
	member      string
	instance    string
	generation  int32
	positions   []position
	stable      bool
	assignments map[string]string
	order       []string // the members of assignments
	count       int32    // partitions
	number      uint32   // incarnation, or the coordinator epoch that an operator names
	shelved     []machine.ShelvedLength

	from *conn
	op   uint64
	done func(*reply) // nil is a lost connection
}

// String is for traces.
func (r *request) String() string {
	s := fmt.Sprintf("%v v%d", r.kind, r.version)
	if r.kind >= kindInit && r.kind <= kindProduce || r.kind == kindMarkers {
		s += fmt.Sprintf(" id=%s pid=%d epoch=%d", r.id, r.pid, r.epoch)
	}
	for _, b := range r.batches {
		s += fmt.Sprintf(" %s/%d:%d+%d", b.topic, b.partition, b.first, len(b.values))
		if b.stale || b.verdict != 0 {
			s += fmt.Sprintf(" (stale %t verdict %d)", b.stale, b.verdict)
		}
	}
	for _, p := range r.parts {
		s += fmt.Sprintf(" %s/%d", p.topic, p.partition)
	}
	if r.group != "" {
		s += fmt.Sprintf(" group=%s member=%s generation=%d instance=%s", r.group, r.member, r.generation, r.instance)
	}
	for _, p := range r.positions {
		s += fmt.Sprintf(" %s/%d=%d", p.topic, p.partition, p.offset)
	}
	if r.kind == kindEnd {
		s += fmt.Sprintf(" commit=%t", r.commit)
	}
	return s
}

// reply is what comes back, in the form in which model and machine are compared. codes has one entry a partition.
type reply struct {
	codes      []int16
	offsets    []int64 // base offsets, or committed offsets; -1 on error
	stale      []bool
	pid        int64
	epoch      int16
	generation int32
	member     string
	leader     string
	members    []string
	assignment string
	detail     string // of a description
}

func (r *reply) code() int16 {
	if len(r.codes) == 0 {
		return 0
	}
	return r.codes[0]
}

func (r *reply) String() string {
	s := fmt.Sprintf("codes=%v", r.codes)
	if len(r.offsets) > 0 {
		s += fmt.Sprintf(" offsets=%v", r.offsets)
	}
	if r.pid != 0 || r.epoch != 0 {
		s += fmt.Sprintf(" pid=%d epoch=%d", r.pid, r.epoch)
	}
	if r.member != "" {
		s += fmt.Sprintf(" generation=%d member=%s leader=%s members=%d", r.generation, r.member, r.leader, len(r.members))
	}
	return s
}

// body makes the machine's operation of a request.
func (w *World) body(r *request) any {
	switch r.kind {
	case kindTick:
		return &machine.Tick{}
	case kindIncarnation:
		return &machine.Incarnation{Number: r.number}
	case kindShelved:
		return &machine.Shelved{Partitions: r.shelved}
	case kindProduce:
		return w.produceBody(r)
	case kindInit:
		q := kmsg.NewPtrInitProducerIDRequest()
		if !r.none {
			q.TransactionalID = kmsg.StringPtr(r.id)
		}
		q.TransactionTimeoutMillis, q.ProducerID, q.ProducerEpoch = r.timeoutMs, r.pid, r.epoch
		q.Version = r.version
		return q
	case kindAdd, kindVerify:
		return addBody(r)
	case kindAddOffsets:
		q := kmsg.NewPtrAddOffsetsToTxnRequest()
		q.Version, q.TransactionalID, q.ProducerID, q.ProducerEpoch, q.Group = r.version, r.id, r.pid, r.epoch, r.group
		return q
	case kindTxnCommit:
		return txnCommitBody(r)
	case kindEnd:
		q := kmsg.NewPtrEndTxnRequest()
		q.Version, q.TransactionalID, q.ProducerID, q.ProducerEpoch, q.Commit = r.version, r.id, r.pid, r.epoch, r.commit
		return q
	case kindCreateTopic:
		q := kmsg.NewPtrCreateTopicsRequest()
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = r.parts[0].topic, r.count, 1
		q.Version, q.Topics = r.version, append(q.Topics, t)
		return q
	case kindGrowTopic:
		q := kmsg.NewPtrCreatePartitionsRequest()
		q.Version, q.Topics = r.version, []kmsg.CreatePartitionsRequestTopic{{Topic: r.parts[0].topic, Count: r.count}}
		return q
	case kindDeleteTopic:
		q := kmsg.NewPtrDeleteTopicsRequest()
		q.Version, q.TopicNames = r.version, []string{r.parts[0].topic}
		return q
	}
	if r.kind >= kindMarkers {
		return operatorBody(r)
	}
	return groupBody(r)
}

func addBody(r *request) any {
	q := kmsg.NewPtrAddPartitionsToTxnRequest()
	q.Version = r.version
	if r.version < 4 {
		q.TransactionalID, q.ProducerID, q.ProducerEpoch = r.id, r.pid, r.epoch
		for _, p := range r.parts {
			q.Topics = append(q.Topics, kmsg.AddPartitionsToTxnRequestTopic{Topic: p.topic, Partitions: []int32{p.partition}})
		}
		return q
	}
	t := kmsg.NewAddPartitionsToTxnRequestTransaction()
	t.TransactionalID, t.ProducerID, t.ProducerEpoch, t.VerifyOnly = r.id, r.pid, r.epoch, r.kind == kindVerify
	for _, p := range r.parts {
		t.Topics = append(t.Topics, kmsg.AddPartitionsToTxnRequestTransactionTopic{Topic: p.topic, Partitions: []int32{p.partition}})
	}
	q.Transactions = append(q.Transactions, t)
	return q
}

func txnCommitBody(r *request) any {
	q := kmsg.NewPtrTxnOffsetCommitRequest()
	q.Version, q.TransactionalID, q.ProducerID, q.ProducerEpoch, q.Group = r.version, r.id, r.pid, r.epoch, r.group
	q.Generation, q.MemberID, q.InstanceID = r.generation, r.member, optional(r.instance)
	for _, p := range r.positions {
		t := kmsg.NewTxnOffsetCommitRequestTopic()
		t.Topic = p.topic
		part := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		part.Partition, part.Offset, part.LeaderEpoch = p.partition, p.offset, -1
		t.Partitions = append(t.Partitions, part)
		q.Topics = append(q.Topics, t)
	}
	return q
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func groupBody(r *request) any {
	switch r.kind {
	case kindCommit:
		q := kmsg.NewPtrOffsetCommitRequest()
		q.Version, q.Group, q.Generation, q.MemberID, q.InstanceID = r.version, r.group, r.generation, r.member, optional(r.instance)
		for _, p := range r.positions {
			t := kmsg.NewOffsetCommitRequestTopic()
			t.Topic = p.topic
			part := kmsg.NewOffsetCommitRequestTopicPartition()
			part.Partition, part.Offset = p.partition, p.offset
			t.Partitions = append(t.Partitions, part)
			q.Topics = append(q.Topics, t)
		}
		return q
	case kindFetch:
		q := kmsg.NewPtrOffsetFetchRequest()
		q.Version, q.RequireStable = r.version, r.stable
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group = r.group
		for _, p := range r.parts {
			t := kmsg.NewOffsetFetchRequestGroupTopic()
			t.Topic, t.Partitions = p.topic, []int32{p.partition}
			g.Topics = append(g.Topics, t)
		}
		q.Groups = append(q.Groups, g)
		return q
	case kindJoin:
		q := kmsg.NewPtrJoinGroupRequest()
		q.Version, q.Group, q.MemberID, q.InstanceID = r.version, r.group, r.member, optional(r.instance)
		q.ProtocolType, q.SessionTimeoutMillis, q.RebalanceTimeoutMillis = "consumer", sessionMs, sessionMs
		q.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range"}}
		return q
	case kindSync:
		q := kmsg.NewPtrSyncGroupRequest()
		q.Version, q.Group, q.MemberID, q.Generation, q.InstanceID = r.version, r.group, r.member, r.generation, optional(r.instance)
		for _, m := range r.order {
			q.GroupAssignment = append(q.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: m, MemberAssignment: []byte(r.assignments[m])})
		}
		return q
	case kindHeartbeat:
		q := kmsg.NewPtrHeartbeatRequest()
		q.Version, q.Group, q.MemberID, q.Generation, q.InstanceID = r.version, r.group, r.member, r.generation, optional(r.instance)
		return q
	case kindLeave:
		q := kmsg.NewPtrLeaveGroupRequest()
		q.Version, q.Group = r.version, r.group
		q.Members = []kmsg.LeaveGroupRequestMember{{MemberID: r.member, InstanceID: optional(r.instance)}}
		return q
	}
	panic(fmt.Sprintf("BUG: no body for %v", r))
}

func (w *World) produceBody(r *request) any {
	p := &machine.Produce{Version: r.version, Acks: -1}
	if !r.none {
		p.TransactionalID = &r.id
	}
	p.Partitions = make([]machine.ProducePartition, len(r.batches))
	for i, b := range r.batches {
		raw := w.raw(r, b)
		h, err := record.ParseHeader(raw)
		if err != nil {
			panic("BUG: a batch of our own has no header: " + err.Error())
		}
		pp := &p.Partitions[i]
		*pp = machine.ProducePartition{Topic: b.topic, Partition: b.partition, Batch: raw, Header: h}
		pp.SettingsVersion = w.server.settings[b.topic]
		pp.Verdict.Code = b.verdict
		if b.stale {
			pp.SettingsVersion += 100
		}
	}
	return p
}

// raw returns the batch's bytes, a fresh copy: the machine patches them.
func (w *World) raw(r *request, b *batch) []byte {
	if b.raw == nil {
		n := w.builder
		n.Reset()
		n.ProducerID, n.ProducerEpoch, n.BaseSequence, n.Transactional = r.pid, r.epoch, b.first, b.transactional
		for _, v := range b.values {
			var bytes [8]byte
			binary.BigEndian.PutUint64(bytes[:], v.id)
			n.Add(w.wallMs(), nil, bytes[:])
		}
		b.raw = n.Append(nil)
	}
	return append([]byte(nil), b.raw...)
}

// answer reads what the machine replied.
func answer(body any) *reply {
	switch b := body.(type) {
	case *machine.ProduceReply:
		a := &reply{}
		for _, p := range b.Partitions {
			a.codes, a.offsets, a.stale = append(a.codes, p.Code), append(a.offsets, p.BaseOffset), append(a.stale, p.Stale)
		}
		return a
	case *machine.ShelvedReply:
		return &reply{}
	case *kmsg.InitProducerIDResponse:
		return &reply{codes: []int16{b.ErrorCode}, pid: b.ProducerID, epoch: b.ProducerEpoch}
	case *kmsg.AddPartitionsToTxnResponse:
		return addAnswer(b)
	case *kmsg.AddOffsetsToTxnResponse:
		return &reply{codes: []int16{b.ErrorCode}}
	case *kmsg.TxnOffsetCommitResponse:
		a := &reply{}
		for _, t := range b.Topics {
			for _, p := range t.Partitions {
				a.codes = append(a.codes, p.ErrorCode)
			}
		}
		return a
	case *kmsg.EndTxnResponse:
		return &reply{codes: []int16{b.ErrorCode}, pid: b.ProducerID, epoch: b.ProducerEpoch}
	case *kmsg.CreateTopicsResponse:
		return &reply{codes: []int16{b.Topics[0].ErrorCode}}
	case *kmsg.CreatePartitionsResponse:
		return &reply{codes: []int16{b.Topics[0].ErrorCode}}
	case *kmsg.DeleteTopicsResponse:
		return &reply{codes: []int16{b.Topics[0].ErrorCode}}
	}
	if a := operatorAnswer(body); a != nil {
		return a
	}
	return groupAnswer(body)
}

func addAnswer(b *kmsg.AddPartitionsToTxnResponse) *reply {
	a := &reply{}
	for _, t := range b.Topics {
		for _, p := range t.Partitions {
			a.codes = append(a.codes, p.ErrorCode)
		}
	}
	for _, tx := range b.Transactions {
		for _, t := range tx.Topics {
			for _, p := range t.Partitions {
				a.codes = append(a.codes, p.ErrorCode)
			}
		}
	}
	return a
}

func groupAnswer(body any) *reply {
	switch b := body.(type) {
	case *kmsg.OffsetCommitResponse:
		a := &reply{}
		for _, t := range b.Topics {
			for _, p := range t.Partitions {
				a.codes = append(a.codes, p.ErrorCode)
			}
		}
		return a
	case *kmsg.OffsetFetchResponse:
		a := &reply{}
		for _, t := range b.Groups[0].Topics {
			for _, p := range t.Partitions {
				a.codes, a.offsets = append(a.codes, p.ErrorCode), append(a.offsets, p.Offset)
			}
		}
		return a
	case *kmsg.JoinGroupResponse:
		a := &reply{codes: []int16{b.ErrorCode}, generation: b.Generation, member: b.MemberID, leader: b.LeaderID}
		for _, m := range b.Members {
			a.members = append(a.members, m.MemberID)
		}
		return a
	case *kmsg.SyncGroupResponse:
		return &reply{codes: []int16{b.ErrorCode}, assignment: string(b.MemberAssignment)}
	case *kmsg.HeartbeatResponse:
		return &reply{codes: []int16{b.ErrorCode}}
	case *kmsg.LeaveGroupResponse:
		if b.ErrorCode != 0 {
			return &reply{codes: []int16{b.ErrorCode}}
		}
		return &reply{codes: []int16{b.Members[0].ErrorCode}}
	}
	panic(fmt.Sprintf("BUG: no answer of a %T", body))
}
