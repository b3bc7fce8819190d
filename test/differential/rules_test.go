//go:build peers

package differential

import (
	"iter"
	"reflect"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// rule allows one difference: met makes both answers say the same where it applies, and reports whether it did.
type rule struct {
	name string // docs/compat.md tells each
	key  int16
	met  func(n *names, req kmsg.Request, a, b kmsg.Response) bool
}

var rules = []rule{
	{"Fetch: offsets of a partition that is out of range", 1, fetchOutOfRange},
	{"Fetch: the last stable offset after DeleteRecords within an open transaction", 1, stableBehindStart},
	{"Fetch: aborted transactions behind what is returned", 1, abortedBehind},
	{"ListOffsets: the largest timestamp lies beyond the last stable offset", 2, maxTimestampUnstable},
	{"DescribeTransactions: start of a transaction that is over, offsets as partitions", 65, describedTransactions},
	{"ConsumerGroupHeartbeat: a member of a group that does not exist", 68, memberOfNothing},
	{"ApiVersions: keys and features that are not served", 18, notServed},
	{"CreateTopics: the id of a topic that is only validated", 19, createdInTheory},
	{"Produce: TRANSACTION_ABORTABLE and INVALID_TXN_STATE, by the company that a request is in", 0, abortable},
	{"TxnOffsetCommit: TRANSACTION_ABORTABLE and INVALID_TXN_STATE, by the company that a request is in", 28, abortableOffsets},
	{"EndTxn: v5 with the epoch before, the transaction was ended by v4", 26, endOfOld},
	{"ListOffsets: the largest timestamp, with markers and removed records", 2, maxTimestampOfMarker},
}

// fetched are the partitions that two answers to a Fetch have in common.
func fetched(n *names, ra, rb kmsg.Response) iter.Seq2[*kmsg.FetchResponseTopicPartition, *kmsg.FetchResponseTopicPartition] {
	type key struct {
		name      string
		id        [16]byte
		partition int32
	}
	mine := map[key]*kmsg.FetchResponseTopicPartition{}
	for _, t := range ra.(*kmsg.FetchResponse).Topics {
		for i := range t.Partitions {
			mine[key{t.Topic, t.TopicID, t.Partitions[i].Partition}] = &t.Partitions[i]
		}
	}
	return func(yield func(p, q *kmsg.FetchResponseTopicPartition) bool) {
		for _, t := range rb.(*kmsg.FetchResponse).Topics {
			for i := range t.Partitions {
				p := mine[key{t.Topic, n.ours("topic", t.TopicID).([16]byte), t.Partitions[i].Partition}]
				if p != nil && !yield(p, &t.Partitions[i]) {
					return
				}
			}
		}
	}
}

// stableBehindStart: Apache Kafka names the transaction's first offset, which is gone.
func stableBehindStart(n *names, _ kmsg.Request, a, b kmsg.Response) (met bool) {
	for p, q := range fetched(n, a, b) {
		if q.ErrorCode == 0 && q.LastStableOffset < q.LogStartOffset && p.LastStableOffset == q.LogStartOffset {
			q.LastStableOffset = p.LastStableOffset
			met = true
		}
	}
	return met
}

// abortedBehind: Apache Kafka rounds what a fetch covers up to its index; clients skip what is not theirs.
func abortedBehind(n *names, _ kmsg.Request, a, b kmsg.Response) (met bool) {
	for p, q := range fetched(n, a, b) {
		batches, err := readBatches(p.RecordBatches)
		if err != nil {
			continue
		}
		last := int64(-1)
		for _, x := range batches {
			last = x.base + int64(x.last)
		}
		for _, p := range []*kmsg.FetchResponseTopicPartition{p, q} {
			before := len(p.AbortedTransactions)
			p.AbortedTransactions = slices.DeleteFunc(p.AbortedTransactions, func(t kmsg.FetchResponseTopicPartitionAbortedTransaction) bool {
				return t.FirstOffset > last
			})
			met = met || len(p.AbortedTransactions) < before
		}
	}
	return met
}

// maxTimestampUnstable: Apache Kafka looks for the largest timestamp in the whole log and then finds that readers of
// committed data may not see it; here they get the largest one that they may see.
func maxTimestampUnstable(_ *names, rq kmsg.Request, ra, rb kmsg.Response) (met bool) {
	req, a, b := rq.(*kmsg.ListOffsetsRequest), ra.(*kmsg.ListOffsetsResponse), rb.(*kmsg.ListOffsetsResponse)
	for _, t := range req.Topics {
		p, q := listed(a, t.Topic), listed(b, t.Topic)
		if req.IsolationLevel == 1 && t.Partitions[0].Timestamp == -3 && p != nil && q != nil && p.ErrorCode == 0 && q.ErrorCode == 0 && q.Offset == -1 && p.Offset >= 0 {
			q.Timestamp, q.Offset = p.Timestamp, p.Offset
			met = true
		}
	}
	return met
}

func listed(r *kmsg.ListOffsetsResponse, topic string) *kmsg.ListOffsetsResponseTopicPartition {
	for i := range r.Topics {
		if r.Topics[i].Topic == topic && len(r.Topics[i].Partitions) == 1 {
			return &r.Topics[i].Partitions[0]
		}
	}
	return nil
}

func describedTransactions(_ *names, _ kmsg.Request, ra, rb kmsg.Response) (met bool) {
	b := rb.(*kmsg.DescribeTransactionsResponse)
	for i := range b.TransactionStates {
		s := &b.TransactionStates[i]
		if strings.HasPrefix(s.State, "Complete") && s.StartTimestamp >= 0 {
			s.StartTimestamp = -1
			met = true
		}
		before := len(s.Topics)
		s.Topics = slices.DeleteFunc(s.Topics, func(t kmsg.DescribeTransactionsResponseTransactionStateTopic) bool {
			return t.Topic == "__consumer_offsets"
		})
		met = met || len(s.Topics) < before
	}
	return met
}

// memberOfNothing: a client that hears UNKNOWN_MEMBER_ID joins again, GROUP_ID_NOT_FOUND ends it.
func memberOfNothing(_ *names, rq kmsg.Request, ra, rb kmsg.Response) bool {
	a, b := ra.(*kmsg.ConsumerGroupHeartbeatResponse), rb.(*kmsg.ConsumerGroupHeartbeatResponse)
	if rq.(*kmsg.ConsumerGroupHeartbeatRequest).MemberEpoch <= 0 || a.ErrorCode != kerr.UnknownMemberID.Code || b.ErrorCode != kerr.GroupIDNotFound.Code {
		return false
	}
	b.ErrorCode = a.ErrorCode
	return true
}

// notServed: docs/compat.md lists what is.
func notServed(_ *names, _ kmsg.Request, ra, rb kmsg.Response) bool {
	a, b := ra.(*kmsg.ApiVersionsResponse), rb.(*kmsg.ApiVersionsResponse)
	keys, features := len(b.ApiKeys), len(b.SupportedFeatures)
	b.ApiKeys = slices.DeleteFunc(b.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool {
		return !slices.ContainsFunc(a.ApiKeys, func(o kmsg.ApiVersionsResponseApiKey) bool { return o.ApiKey == k.ApiKey })
	})
	served := map[string]bool{}
	for _, f := range a.SupportedFeatures {
		served[f.Name] = true
	}
	for _, f := range a.FinalizedFeatures {
		served[f.Name] = true
	}
	b.SupportedFeatures = slices.DeleteFunc(b.SupportedFeatures, func(f kmsg.ApiVersionsResponseSupportedFeature) bool { return !served[f.Name] })
	b.FinalizedFeatures = slices.DeleteFunc(b.FinalizedFeatures, func(f kmsg.ApiVersionsResponseFinalizedFeature) bool { return !served[f.Name] })
	return keys > len(b.ApiKeys) || features > len(b.SupportedFeatures)
}

func fetchOutOfRange(n *names, _ kmsg.Request, a, b kmsg.Response) (met bool) {
	for p, q := range fetched(n, a, b) {
		if p.ErrorCode == kerr.OffsetOutOfRange.Code && q.ErrorCode == p.ErrorCode {
			q.HighWatermark, q.LastStableOffset, q.LogStartOffset = p.HighWatermark, p.LastStableOffset, p.LogStartOffset
			met = true
		}
	}
	return met
}

// abortable: Apache Kafka verifies batches of several clients in one request and then answers all as the version of one of
// them understands it.
func abortable(_ *names, _ kmsg.Request, ra, rb kmsg.Response) (met bool) {
	state, abort := kerr.InvalidTxnState.Code, kerr.TransactionAbortable.Code
	mine, theirs := map[int16]bool{}, map[int16]bool{}
	codes(reflect.ValueOf(ra), mine)
	codes(reflect.ValueOf(rb), theirs)
	if mine[abort] == theirs[abort] {
		return false
	}
	for _, r := range []kmsg.Response{ra, rb} {
		for _, t := range r.(*kmsg.ProduceResponse).Topics {
			for i := range t.Partitions {
				if p := &t.Partitions[i]; p.ErrorCode == abort {
					p.ErrorCode = state
					met = true
				}
			}
		}
	}
	return met
}

func abortableOffsets(_ *names, _ kmsg.Request, ra, rb kmsg.Response) (met bool) {
	state, abort := kerr.InvalidTxnState.Code, kerr.TransactionAbortable.Code
	for _, r := range []kmsg.Response{ra, rb} {
		r := r.(*kmsg.TxnOffsetCommitResponse)
		for i := range r.Topics {
			for k := range r.Topics[i].Partitions {
				if p := &r.Topics[i].Partitions[k]; p.ErrorCode == abort {
					p.ErrorCode = state
					met = true
				}
			}
		}
	}
	return met
}

// createdInTheory: with validate_only Apache Kafka answers with a topic id that no topic has.
func createdInTheory(_ *names, rq kmsg.Request, _, rb kmsg.Response) bool {
	if !rq.(*kmsg.CreateTopicsRequest).ValidateOnly {
		return false
	}
	b := rb.(*kmsg.CreateTopicsResponse)
	for i := range b.Topics {
		b.Topics[i].TopicID = [16]byte{}
	}
	return true
}

// endOfOld: Apache Kafka takes it for a repetition of the end.
func endOfOld(_ *names, rq kmsg.Request, ra, rb kmsg.Response) bool {
	a, b := ra.(*kmsg.EndTxnResponse), rb.(*kmsg.EndTxnResponse)
	if rq.GetVersion() < 5 || a.ErrorCode != kerr.ProducerFenced.Code || b.ErrorCode != kerr.InvalidTxnState.Code && b.ErrorCode != 0 {
		return false
	}
	b.ErrorCode, b.ProducerID, b.ProducerEpoch = a.ErrorCode, -1, -1
	return true
}

func maxTimestampOfMarker(_ *names, rq kmsg.Request, ra, rb kmsg.Response) (met bool) {
	a, b := ra.(*kmsg.ListOffsetsResponse), rb.(*kmsg.ListOffsetsResponse)
	for _, t := range rq.(*kmsg.ListOffsetsRequest).Topics {
		p, q := listed(a, t.Topic), listed(b, t.Topic)
		if t.Partitions[0].Timestamp == -3 && p != nil && q != nil && p.ErrorCode == 0 && q.ErrorCode == 0 && (p.Offset != q.Offset || p.Timestamp != q.Timestamp) {
			q.Timestamp, q.Offset = p.Timestamp, p.Offset
			met = true
		}
	}
	return met
}
