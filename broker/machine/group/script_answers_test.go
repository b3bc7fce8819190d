package group

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine/codec"
)

func codeName(code int16) string {
	if code == 0 {
		return "ok"
	}
	var e *kerr.Error
	if errors.As(kerr.ErrorForCode(code), &e) {
		return e.Message
	}
	return fmt.Sprint(code)
}

func orNone(s *string) string {
	if s == nil {
		return "none"
	}
	return *s
}

// printable shows long bytes, and those that are no text, by their length.
func printable(b []byte) string {
	var a kmsg.ConsumerMemberAssignment
	if a.ReadFrom(b) == nil && len(b) > 0 && bytes.Equal(a.AppendTo(nil), b) {
		out := fmt.Sprintf("v%d", a.Version)
		for _, t := range a.Topics {
			out += fmt.Sprintf("/%s-%v", t.Topic, t.Partitions)
		}
		return out
	}
	if len(b) > 40 || bytes.ContainsFunc(b, func(r rune) bool { return r < ' ' || r > '~' }) {
		return fmt.Sprintf("(%d bytes)", len(b))
	}
	return string(b)
}

// describeResponse says what a client of the response's version reads.
func describeResponse(t *testing.T, resp kmsg.Response) string {
	t.Helper()
	b := resp.AppendTo(nil)
	read := kmsg.ResponseForKey(resp.Key())
	read.SetVersion(resp.GetVersion())
	if err := read.ReadFrom(b); err != nil {
		t.Fatalf("answer does not decode: %v", err)
	}
	if !bytes.Equal(read.AppendTo(nil), b) {
		t.Fatalf("answer changes when it is decoded and encoded again: %+v", resp)
	}
	switch r := read.(type) {
	case *kmsg.JoinGroupResponse:
		return describeJoin(r)
	case *kmsg.SyncGroupResponse:
		if r.ErrorCode != 0 {
			return codeName(r.ErrorCode)
		}
		out := "ok assignment=" + printable(r.MemberAssignment)
		if r.Version >= 5 {
			out += " type=" + orNone(r.ProtocolType) + " protocol=" + orNone(r.Protocol)
		}
		return out
	case *kmsg.HeartbeatResponse:
		return codeName(r.ErrorCode)
	case *kmsg.LeaveGroupResponse:
		out := codeName(r.ErrorCode)
		for _, m := range r.Members {
			out += fmt.Sprintf(" %s/%s=%s", m.MemberID, orNone(m.InstanceID), codeName(m.ErrorCode))
		}
		return out
	case *kmsg.OffsetCommitResponse:
		var parts []string
		for _, topic := range r.Topics {
			for _, p := range topic.Partitions {
				parts = append(parts, fmt.Sprintf("%s-%d=%s", topicName(topic.Topic, topic.TopicID), p.Partition, codeName(p.ErrorCode)))
			}
		}
		return strings.Join(parts, " ")
	case *kmsg.TxnOffsetCommitResponse:
		var parts []string
		for _, topic := range r.Topics {
			for _, p := range topic.Partitions {
				parts = append(parts, fmt.Sprintf("%s-%d=%s", topic.Topic, p.Partition, codeName(p.ErrorCode)))
			}
		}
		return strings.Join(parts, " ")
	case *kmsg.OffsetFetchResponse:
		return describeFetch(r)
	case *kmsg.DescribeGroupsResponse:
		return describeGroups(r)
	case *kmsg.DeleteGroupsResponse:
		return describeDeleted(r)
	case *kmsg.OffsetDeleteResponse:
		return describeOffsetsDeleted(r)
	case *kmsg.ConsumerGroupHeartbeatResponse:
		return describeHeartbeat(r)
	case *kmsg.ConsumerGroupDescribeResponse:
		return describeConsumerGroups(r)
	case *kmsg.ListGroupsResponse:
		out := codeName(r.ErrorCode)
		for _, g := range r.Groups {
			out += fmt.Sprintf(" [%s type=%s %s %s]", g.Group, g.ProtocolType, g.GroupState, g.GroupType)
		}
		return out
	}
	t.Fatalf("no words for %T", resp)
	return ""
}

func describeHeartbeat(r *kmsg.ConsumerGroupHeartbeatResponse) string {
	if r.ErrorCode != 0 {
		return fmt.Sprintf("%s %q", codeName(r.ErrorCode), orNone(r.ErrorMessage))
	}
	out := fmt.Sprintf("ok member=%s epoch=%d", orNone(r.MemberID), r.MemberEpoch)
	if r.Assignment != nil {
		out += " assigned"
		for _, t := range r.Assignment.Topics {
			out += fmt.Sprintf(" %s-%v", topicName("", t.TopicID), t.Partitions)
		}
	}
	return out
}

func describeConsumerGroups(r *kmsg.ConsumerGroupDescribeResponse) string {
	var parts []string
	for _, g := range r.Groups {
		out := fmt.Sprintf("[%s %s", g.Group, codeName(g.ErrorCode))
		if g.ErrorMessage != nil {
			out += fmt.Sprintf(" message=%q", *g.ErrorMessage)
		} else {
			out += fmt.Sprintf(" %s epoch=%d/%d assignor=%s", g.State, g.Epoch, g.AssignmentEpoch, g.AssignorName)
		}
		if g.AuthorizedOperations >= 0 {
			out += fmt.Sprintf(" operations=%b", g.AuthorizedOperations)
		}
		for _, m := range g.Members {
			if r.Version >= 1 && m.MemberType != 1 {
				out += fmt.Sprintf(" type=%d", m.MemberType)
			}
			out += fmt.Sprintf(" %s/%s@%d topics=%v regex=%s has", m.MemberID, orNone(m.InstanceID), m.MemberEpoch,
				m.SubscribedTopics, orNone(m.SubscribedTopicRegex))
			for _, p := range m.Assignment.TopicPartitions {
				out += fmt.Sprintf(" %s-%v", p.Topic, p.Partitions)
			}
			out += " wants"
			for _, p := range m.TargetAssignment.TopicPartitions {
				out += fmt.Sprintf(" %s-%v", p.Topic, p.Partitions)
			}
		}
		parts = append(parts, out+"]")
	}
	return strings.Join(parts, " ")
}

func describeDeleted(r *kmsg.DeleteGroupsResponse) string {
	var parts []string
	for _, g := range r.Groups {
		parts = append(parts, fmt.Sprintf("%s=%s", g.Group, codeName(g.ErrorCode)))
	}
	return strings.Join(parts, " ")
}

func describeOffsetsDeleted(r *kmsg.OffsetDeleteResponse) string {
	out := codeName(r.ErrorCode)
	for _, topic := range r.Topics {
		for _, p := range topic.Partitions {
			out += fmt.Sprintf(" %s-%d=%s", topic.Topic, p.Partition, codeName(p.ErrorCode))
		}
	}
	return out
}

func describeJoin(r *kmsg.JoinGroupResponse) string {
	if r.ErrorCode != 0 {
		return fmt.Sprintf("%s member=%s", codeName(r.ErrorCode), r.MemberID)
	}
	out := fmt.Sprintf("ok gen=%d protocol=%s leader=%s member=%s", r.Generation, orNone(r.Protocol), r.LeaderID, r.MemberID)
	if r.SkipAssignment {
		out += " skip-assignment"
	}
	if len(r.Members) > 0 {
		out += " members="
		for i, m := range r.Members {
			if i > 0 {
				out += ","
			}
			out += m.MemberID
			if m.InstanceID != nil {
				out += "/" + *m.InstanceID
			}
			out += ":" + printable(m.ProtocolMetadata)
		}
	}
	return out
}

// topicName undoes topicID where the version has ids.
func topicName(name string, id [16]byte) string {
	if name == "" {
		return "id:" + string(bytes.TrimRight(id[:], "\x00"))
	}
	return name
}

func describeFetch(r *kmsg.OffsetFetchResponse) string {
	partition := func(topic string, p int32, offset int64, epoch int32, metadata *string, code int16) string {
		out := fmt.Sprintf(" %s-%d=%d", topic, p, offset)
		if epoch != -1 {
			out += fmt.Sprintf("@%d", epoch)
		}
		if metadata == nil {
			return out + "(null)"
		}
		if *metadata != "" {
			out += fmt.Sprintf("(%s)", *metadata)
		}
		if code != 0 {
			out += ":" + codeName(code)
		}
		return out
	}
	out := codeName(r.ErrorCode)
	for _, topic := range r.Topics {
		for _, p := range topic.Partitions {
			out += partition(topic.Topic, p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode)
		}
	}
	for _, g := range r.Groups {
		out += fmt.Sprintf(" [%s %s", g.Group, codeName(g.ErrorCode))
		for _, topic := range g.Topics {
			for _, p := range topic.Partitions {
				out += partition(topicName(topic.Topic, topic.TopicID), p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode)
			}
		}
		out += "]"
	}
	return out
}

func describeGroups(r *kmsg.DescribeGroupsResponse) string {
	var parts []string
	for _, g := range r.Groups {
		out := fmt.Sprintf("[%s %s %s type=%s protocol=%s", g.Group, codeName(g.ErrorCode), g.State, g.ProtocolType, g.Protocol)
		if g.ErrorMessage != nil {
			out += fmt.Sprintf(" message=%q", *g.ErrorMessage)
		}
		if r.Version >= 3 && g.AuthorizedOperations >= 0 {
			out += fmt.Sprintf(" operations=%b", g.AuthorizedOperations)
		}
		for _, m := range g.Members {
			out += fmt.Sprintf(" %s/%s client=%s@%s %s:%s", m.MemberID, orNone(m.InstanceID), m.ClientID, m.ClientHost,
				printable(m.ProtocolMetadata), printable(m.MemberAssignment))
		}
		parts = append(parts, out+"]")
	}
	return strings.Join(parts, " ")
}

// describeClassic says what the member has beside if it is one of the classic protocol.
func describeClassic(info *consumerInfo) string {
	if info.classic == nil {
		return ""
	}
	out := "classic"
	for _, p := range info.classic.protocols {
		out += ":" + p.name
	}
	return out + " "
}

func describeConsumerRecord(kind uint8, r *reader) string {
	out := ""
	switch kind {
	case kindConsumerEpoch:
		rec := readConsumerEpoch(r)
		out = fmt.Sprintf("epoch %s %d", rec.group, rec.epoch)
	case kindConsumerMember, kindClassicMember:
		rec := readConsumerMember(r, kind == kindClassicMember)
		out = describeClassic(rec.info) + fmt.Sprintf("consumer %s %s/%s topics=%v regex=%s", rec.group, rec.info.id, orNone(rec.info.instance), rec.info.topics, rec.info.pattern)
	case kindConsumersRemoved:
		rec := readRemoved(r)
		out = fmt.Sprintf("consumers-removed %s %s", rec.group, strings.Join(rec.members, ","))
	case kindConsumerTarget:
		rec := readConsumerTarget(r)
		out = fmt.Sprintf("target %s %d", rec.group, rec.epoch)
		for _, m := range rec.members {
			out += fmt.Sprintf(" %s:", m.id)
			for _, p := range m.target {
				out += fmt.Sprintf("%s-%d,", topicName("", p.topic)[3:], p.partition)
			}
		}
	case kindConsumerCurrent:
		rec := readConsumerCurrent(r)
		out = fmt.Sprintf("current %s %s@%d after %d %s has", rec.group, rec.id, rec.epoch, rec.prevEpoch,
			[...]string{"stable", "unrevoked", "unreleased"}[rec.state])
		for i, list := range [...][]holding{rec.assigned, rec.revoking} {
			if i == 1 && len(list) > 0 {
				out += " revokes"
			}
			for _, h := range list {
				out += fmt.Sprintf(" %s-%d@%d", topicName("", h.topic)[3:], h.partition, h.since)
			}
		}
	case kindConsumerReplaced, kindClassicReplaced:
		rec := readConsumerReplaced(r, kind == kindClassicReplaced)
		out = describeClassic(rec.info) + fmt.Sprintf("consumer-replaced %s %s by %s", rec.group, rec.oldID, rec.info.id)
	case kindSettings:
		rec := readSettings(r)
		out = fmt.Sprintf("settings %s %v", rec.group, rec.entries)
	case kindConsumerPatterns:
		rec := readConsumerPatterns(r)
		out = "patterns " + rec.group
		for _, p := range rec.patterns {
			out += fmt.Sprintf(" %s=%v", p.Pattern, p.Topics)
		}
	}
	return out
}

// describeRecord says what a journal holds.
func describeRecord(t *testing.T, kind uint8, payload []byte) string {
	t.Helper()
	r := &reader{codec.NewReader(payload)}
	out := ""
	switch kind {
	case kindGeneration:
		rec := readGeneration(r)
		out = fmt.Sprintf("generation %s gen=%d type=%s protocol=%s leader=%s members=", rec.group, rec.generation,
			rec.protocolType, rec.protocol, rec.leader)
		for i, m := range rec.members {
			if i > 0 {
				out += ","
			}
			out += m.id
		}
	case kindAssignment:
		rec := readAssignment(r)
		out = fmt.Sprintf("assignment %s gen=%d", rec.group, rec.generation)
		for _, m := range rec.members {
			out += fmt.Sprintf(" %s:%s", m.id, printable(m.assignment))
		}
	case kindRebalance:
		out = "rebalance " + r.String()
	case kindRemoved:
		rec := readRemoved(r)
		out = fmt.Sprintf("removed %s %s", rec.group, strings.Join(rec.members, ","))
	case kindReplaced:
		rec := readReplaced(r)
		out = fmt.Sprintf("replaced %s %s by %s", rec.group, rec.oldID, rec.member.id)
	case kindOffsets:
		rec := readOffsets(r)
		out = "offsets " + rec.group
		if rec.producerID != noProducer {
			out += fmt.Sprintf(" pid=%d", rec.producerID)
		}
		for _, topic := range rec.topics {
			for _, p := range topic.partitions {
				out += fmt.Sprintf(" %s-%d:%d", topic.name, p.partition, p.offset)
			}
		}
	case kindOffsetsRemoved:
		rec := readOffsetsRemoved(r)
		out = "offsets-removed " + rec.group
		for _, topic := range rec.topics {
			out += fmt.Sprintf(" %s-%v", topic.name, topic.partitions)
		}
	case kindGroupRemoved:
		out = "group-removed " + r.String()
	default:
		out = describeConsumerRecord(kind, r)
	}
	if err := r.End(); err != nil {
		t.Fatalf("record of kind %d: %v", kind, err)
	}
	return out
}
