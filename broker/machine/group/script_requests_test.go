package group

import (
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// requests are the verbs that are answered, now or later.
func (s *script) requests() map[string]func() {
	return map[string]func(){
		"join": s.joinGroup, "sync": s.syncGroup, "beat": s.heartbeat, "leave": s.leaveGroup,
		"commit": s.offsetCommit, "txn-commit": s.txnOffsetCommit, "fetch": s.offsetFetch,
		"describe": func() {
			req := kmsg.NewPtrDescribeGroupsRequest()
			req.Groups, req.IncludeAuthorizedOperations = s.flags, s.args["ops"] != ""
			s.gs.DescribeGroups(s, wire(s, req, 6))
		},
		"delete-groups": func() {
			req := kmsg.NewPtrDeleteGroupsRequest()
			req.Groups = s.flags
			s.gs.DeleteGroups(s, wire(s, req, 2))
		},
		"delete-offsets": s.offsetDelete,
		"hb":             s.consumerHeartbeat,
		"describe-consumers": func() {
			req := kmsg.NewPtrConsumerGroupDescribeRequest()
			req.Groups, req.IncludeAuthorizedOperations = s.flags, s.args["ops"] != ""
			s.gs.ConsumerGroupDescribe(s, wire(s, req, 1))
		},
		"list": func() {
			req := kmsg.NewPtrListGroupsRequest()
			req.StatesFilter, req.TypesFilter = s.list("states"), s.list("types")
			s.gs.ListGroups(s, wire(s, req, 5))
		},
	}
}

func (s *script) group() string {
	if name, ok := s.args["group"]; ok {
		return name
	}
	return "g"
}

// joinGroup: protocols are p=NAME:METADATA,... and default to range:x. With sub=TOPIC,... they are names, and their metadata
// is that subscription, with own=TOPIC-PARTITION,...
func (s *script) joinGroup() {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.MemberID, req.InstanceID = s.group(), s.args["m"], s.optional("i")
	req.SessionTimeoutMillis = int32(s.num("session", 10_000))
	req.RebalanceTimeoutMillis = int32(s.num("rebalance", 20_000))
	req.ProtocolType = "consumer"
	if v, ok := s.args["type"]; ok {
		req.ProtocolType = v
	}
	protocols := []string{"range:x"}
	if _, ok := s.args["p"]; ok {
		protocols = s.list("p")
	}
	for _, p := range protocols {
		name, metadata, _ := strings.Cut(p, ":")
		if _, ok := s.args["sub"]; ok {
			metadata = s.subscription()
		}
		if topics, ok := strings.CutPrefix(metadata, "topics/"); ok {
			sub := kmsg.NewConsumerMemberMetadata()
			sub.Topics = strings.Split(topics, "/")
			metadata = string(sub.AppendTo(nil))
		}
		req.Protocols = append(req.Protocols, kmsg.JoinGroupRequestProtocol{Name: name, Metadata: []byte(metadata)})
	}
	s.outside(s.gs.JoinGroup(s, wire(s, req, 9)))
}

func (s *script) subscription() string {
	sub := kmsg.NewConsumerMemberMetadata()
	sub.Version, sub.Topics = 1, s.list("sub")
	for _, p := range s.places(s.list("own")) {
		sub.OwnedPartitions = append(sub.OwnedPartitions, kmsg.ConsumerMemberMetadataOwnedPartition{Topic: p.topic, Partitions: []int32{p.partition}})
	}
	return string(sub.AppendTo(nil))
}

// assignment is what a consumer's leader sends; user data is what a custom assignor would add.
func assignment(places []position, userData string) []byte {
	a := kmsg.NewConsumerMemberAssignment()
	a.Version, a.UserData = 1, []byte(userData)
	for _, p := range places {
		a.Topics = append(a.Topics, kmsg.ConsumerMemberAssignmentTopic{Topic: p.topic, Partitions: []int32{p.partition}})
	}
	return a.AppendTo(nil)
}

// mandatory is an argument that has to be given, and is not if it is "-".
func (s *script) mandatory(key, standard string) *string {
	v, ok := s.args[key]
	switch {
	case !ok:
		return &standard
	case v == "-":
		return nil
	}
	return &v
}

// syncGroup: assignments are a=MEMBER:ASSIGNMENT,... An assignment as consumers send it is [TOPIC-PARTITION/...].
func (s *script) syncGroup() {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.MemberID, req.InstanceID = s.group(), s.args["m"], s.optional("i")
	req.Generation = int32(s.num("gen", 1))
	req.ProtocolType, req.Protocol = s.mandatory("type", "consumer"), s.mandatory("p", "range")
	for _, a := range s.list("a") {
		id, text, _ := strings.Cut(a, ":")
		b := []byte(text)
		if inner, ok := strings.CutPrefix(text, "["); ok {
			b = assignment(s.places(strings.FieldsFunc(inner, func(r rune) bool { return r == '/' || r == ']' })), s.args["data"])
		}
		req.GroupAssignment = append(req.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: id, MemberAssignment: b})
	}
	s.gs.SyncGroup(s, wire(s, req, 5))
}

// consumerHeartbeat: epoch 0 if none is given; then what a joining member has to say has defaults. topics=A,B, regex=,
// own=TOPIC-PARTITION,... or own= for nothing.
func (s *script) consumerHeartbeat() {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch = s.group(), s.args["m"], int32(s.num("epoch", 0))
	req.InstanceID, req.RackID, req.ServerAssignor = s.optional("i"), s.optional("rack"), s.optional("assignor")
	req.SubscribedTopicRegex = s.optional("regex")
	req.RebalanceTimeoutMillis = -1
	_, owns := s.args["own"]
	if req.MemberEpoch == 0 {
		req.RebalanceTimeoutMillis = 20_000
		owns = owns || s.args["bare"] == ""
	}
	req.RebalanceTimeoutMillis = int32(s.num("rebalance", int64(req.RebalanceTimeoutMillis)))
	if _, ok := s.args["topics"]; ok {
		req.SubscribedTopicNames = append([]string{}, s.list("topics")...)
	}
	if owns {
		req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	}
	for _, word := range s.list("own") {
		topic, partition, _ := strings.Cut(word, "-")
		n, err := strconv.ParseInt(partition, 10, 32)
		if err != nil {
			s.t.Fatal(err)
		}
		req.Topics = append(req.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: topicID(topic), Partitions: []int32{int32(n)}})
	}
	resp, work := s.gs.ConsumerGroupHeartbeat(s, wire(s, req, 1))
	s.Reply(s.op, resp)
	s.outside(work)
}

// outside shows what a request leaves to do, and keeps an assignment for "assigned".
func (s *script) outside(work Work) {
	if work.Pattern != "" {
		s.effect("match %s", work.Pattern)
	}
	if a := work.Assignment; a != nil {
		s.assignment = a
		s.effect("assign %s for epoch %d", a.Group, a.Epoch)
	}
}

func (s *script) offsetDelete() {
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = s.group()
	for _, p := range s.positions() {
		req.Topics = append(req.Topics, kmsg.OffsetDeleteRequestTopic{Topic: p.topic,
			Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: p.partition}}})
	}
	s.gs.OffsetDelete(s, wire(s, req, 0))
}

func (s *script) heartbeat() {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.InstanceID = s.group(), s.args["m"], s.optional("i")
	req.Generation = int32(s.num("gen", 1))
	s.outside(s.gs.Heartbeat(s, wire(s, req, 4)))
}

// leaveGroup: one member as m= and i=, or several as members=MEMBER/INSTANCE,...
func (s *script) leaveGroup() {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = s.group(), s.args["m"]
	req.Members = []kmsg.LeaveGroupRequestMember{{MemberID: s.args["m"], InstanceID: s.optional("i")}}
	if s.args["members"] != "" {
		req.Members = nil
		for _, who := range s.list("members") {
			id, instance, static := strings.Cut(who, "/")
			m := kmsg.LeaveGroupRequestMember{MemberID: id}
			if static {
				m.InstanceID = &instance
			}
			req.Members = append(req.Members, m)
		}
	}
	s.gs.LeaveGroup(s, wire(s, req, 5))
}

// position is TOPIC-PARTITION, or TOPIC-PARTITION:OFFSET.
type position struct {
	topic     string
	partition int32
	offset    int64
}

func (s *script) positions() []position { return s.places(s.flags) }

func (s *script) places(words []string) []position {
	var out []position
	for _, word := range words {
		where, at, _ := strings.Cut(word, ":")
		topic, partition, ok := strings.Cut(where, "-")
		p, err := strconv.ParseInt(partition, 10, 32)
		if !ok || err != nil {
			s.t.Fatalf("%q is no position: want TOPIC-PARTITION or TOPIC-PARTITION:OFFSET", word)
		}
		off, _ := strconv.ParseInt(at, 10, 64)
		out = append(out, position{topic, int32(p), off})
	}
	return out
}

func (s *script) offsetCommit() {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.InstanceID = s.group(), s.args["m"], s.optional("i")
	req.Generation, req.RetentionTimeMillis = int32(s.num("gen", -1)), s.num("retention", -1)
	for _, p := range s.positions() {
		part := kmsg.OffsetCommitRequestTopicPartition{Partition: p.partition, Offset: p.offset,
			LeaderEpoch: int32(s.num("epoch", -1)), Metadata: s.metadata()}
		req.Topics = append(req.Topics, kmsg.OffsetCommitRequestTopic{Topic: p.topic, TopicID: topicID(p.topic),
			Partitions: []kmsg.OffsetCommitRequestTopicPartition{part}})
	}
	s.gs.OffsetCommit(s, wire(s, req, 9))
}

// metadata is meta=TEXT, or metalen=N for a long one.
func (s *script) metadata() *string {
	if n := s.num("metalen", -1); n >= 0 {
		long := strings.Repeat("é", int(n))
		return &long
	}
	return s.optional("meta")
}

func (s *script) txnOffsetCommit() {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.Group, req.MemberID, req.InstanceID = s.group(), s.args["m"], s.optional("i")
	req.Generation, req.ProducerID = int32(s.num("gen", -1)), s.num("pid", 0)
	for _, p := range s.positions() {
		part := kmsg.TxnOffsetCommitRequestTopicPartition{Partition: p.partition, Offset: p.offset,
			LeaderEpoch: int32(s.num("epoch", -1)), Metadata: s.metadata()}
		req.Topics = append(req.Topics, kmsg.TxnOffsetCommitRequestTopic{Topic: p.topic,
			Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{part}})
	}
	s.Reply(s.op, s.gs.TxnOffsetCommit(s, req.ProducerID, wire(s, req, 5)))
}

// offsetFetch: positions, or none for all. stable= asks for stable offsets, groups=A,B for several groups.
func (s *script) offsetFetch() {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group, req.RequireStable = s.group(), s.args["stable"] != ""
	var topics []kmsg.OffsetFetchRequestGroupTopic
	for _, p := range s.positions() {
		topics = append(topics, kmsg.OffsetFetchRequestGroupTopic{Topic: p.topic, TopicID: topicID(p.topic),
			Partitions: []int32{p.partition}})
		req.Topics = append(req.Topics, kmsg.OffsetFetchRequestTopic{Topic: p.topic, Partitions: []int32{p.partition}})
	}
	names := s.list("groups")
	if names == nil {
		names = []string{s.group()}
	}
	for _, name := range names {
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group, g.Topics = name, topics
		g.MemberID, g.MemberEpoch = s.optional("m"), int32(s.num("epoch", -1))
		req.Groups = append(req.Groups, g)
	}
	s.gs.OffsetFetch(s, wire(s, req, 9))
}
