//go:build peers

package broker

import (
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/record"
)

// drilledRequests are all requests that move a transaction, each with the answers that Apache Kafka gives the first
// time and to a repetition. Transaction versions 0 and 1 are the same requests.
var drilledRequests = slices.Concat(
	drilledInits(), drilledFences(1), drilledFences(2), drilledIdempotent(), drilledAdds(), drilledOffsets(1), drilledOffsets(2),
	drilledProduces(1), drilledProduces(2), drilledEnds(1), drilledEnds(2), drilledMarkers(), drilledDeletions(1), drilledDeletions(2), drilledData(),
)

func versioned(name string, version int) string { return fmt.Sprintf("%s v%d", name, version) }

// taken moves the client to the producer id and epoch of an answer.
func (c *cell) taken(resp kmsg.Response) *kmsg.InitProducerIDResponse {
	c.t.Helper()
	r := resp.(*kmsg.InitProducerIDResponse)
	if code := c.initialized(r); code != 0 {
		c.t.Fatalf("%s: %v", c.name, kerr.ErrorForCode(code))
	}
	return r
}

// unnamed and named are InitProducerId of a client that has just started, and of one that names what it had (KIP-360).
func unnamed(c *cell) kmsg.Request {
	stranger := *c.producer
	stranger.id, stranger.epoch = -1, -1
	return stranger.initRequest(time.Minute)
}

func named(c *cell) kmsg.Request { return c.initRequest(time.Minute) }

// bumps judges an InitProducerId by how far the epoch goes, the first time and the second.
func bumps(fresh, again int16) func(*cell, kmsg.Response) {
	return func(c *cell, resp kmsg.Response) {
		old := *c.producer
		c.old = &old
		r := c.taken(resp)
		if r.ProducerID != old.id {
			c.t.Errorf("%s: the producer id is %d, was %d", c.name, r.ProducerID, old.id)
		}
		c.is("the epoch", int64(r.ProducerEpoch), int64(old.epoch+fresh), int64(old.epoch+again))
		c.settle(false)
	}
}

// drilledInits: InitProducerId of a transactional id without an open transaction, the same for all transaction versions.
func drilledInits() []drilledRequest {
	return []drilledRequest{
		{
			name: "InitProducerId, new", version: 2, request: unnamed,
			judge: func(c *cell, resp kmsg.Response) { c.is("the epoch", int64(c.taken(resp).ProducerEpoch), 0, 1) },
		},
		{name: "InitProducerId, known", version: 2, before: (*cell).begin, request: unnamed, judge: bumps(1, 2)},
		{name: "InitProducerId, named", version: 2, before: (*cell).begin, request: named, judge: bumps(1, 1)},
	}
}

// drilledFences: InitProducerId over an open transaction, of a successor and of its own producer.
func drilledFences(version int) []drilledRequest {
	return []drilledRequest{
		{
			name: versioned("InitProducerId, fencing", version), version: version,
			before: (*cell).beginOpen, request: unnamed, judge: bumps(2, 3),
			after: func(c *cell) {
				_, code := c.old.writeAt(c.topic, 0, c.old.next[position{topic: c.topic}], "zombie")
				c.mustBe("the fenced one's Produce", code, kerr.InvalidProducerEpoch)
				c.mustBe("the fenced one's commit", c.old.end(true), kerr.ProducerFenced)
				c.mustBe("the fenced one's InitProducerId", c.old.init(time.Minute), kerr.ProducerFenced)
			},
		},
		{
			name: versioned("InitProducerId, named, over its own", version), version: version,
			before: (*cell).beginOpen, request: named, judge: bumps(2, 2),
		},
	}
}

// drilledIdempotent: InitProducerId without a transactional id.
func drilledIdempotent() []drilledRequest {
	return []drilledRequest{{
		name: "InitProducerId, idempotent", version: 2, unwritten: true, // producer ids are reserved in blocks
		before: (*cell).beginOpen,
		request: func(c *cell) kmsg.Request {
			req := kmsg.NewPtrInitProducerIDRequest()
			req.Version, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = 4, 60_000, -1, -1
			return req
		},
		judge: func(c *cell, resp kmsg.Response) {
			r := resp.(*kmsg.InitProducerIDResponse)
			given := c.id
			if c.first != nil {
				given = c.first.(*kmsg.InitProducerIDResponse).ProducerID
			}
			if r.ErrorCode != 0 || r.ProducerID <= given || r.ProducerEpoch != 0 {
				c.t.Fatalf("%s: %+v, after producer id %d", c.name, r, given)
			}
			plain := *c.producer
			plain.id, plain.epoch = r.ProducerID, 0
			for range 2 { // the second is a duplicate
				b := record.NewBuilder()
				b.ProducerID, b.ProducerEpoch, b.BaseSequence = plain.id, 0, 0
				b.Add(time.Now().UnixMilli(), nil, []byte("plain"))
				req := plain.batchRequest(c.topic, 1, 0)
				req.TransactionID, req.Topics[0].Partitions[0].Records = nil, b.Append(nil)
				if p := c.ask(req).(*kmsg.ProduceResponse).Topics[0].Partitions[0]; p.ErrorCode != 0 || p.BaseOffset != 1 {
					c.t.Errorf("%s: an idempotent batch: %+v", c.name, p)
				}
			}
			c.open[1] = append(c.open[1], "plain") // behind the open "b"
		},
	}}
}

// drilledAdds: what clients of transaction version 1 add by requests of their own, and brokers for those of version 2.
func drilledAdds() []drilledRequest {
	partition := func(c *cell) kmsg.Request { return c.addPartitionRequest(c.topic, 1) }
	added := func(c *cell, resp kmsg.Response) {
		c.code(resp.(*kmsg.AddPartitionsToTxnResponse).Topics[0].Partitions[0].ErrorCode, nil, nil)
	}
	group := func(c *cell) kmsg.Request { return c.addGroupRequest(c.group) }
	addedGroup := func(c *cell, resp kmsg.Response) {
		c.code(resp.(*kmsg.AddOffsetsToTxnResponse).ErrorCode, nil, nil)
	}
	one := func(c *cell) { c.begin(); c.put(0, "a") }
	return []drilledRequest{
		{name: "AddPartitionsToTxn, begins v1", version: 1, before: (*cell).begin, request: partition, judge: added},
		{name: "AddPartitionsToTxn v1", version: 1, before: one, request: partition, judge: added},
		{
			name: "AddPartitionsToTxn of brokers v2", version: 2, before: one,
			request: func(c *cell) kmsg.Request {
				req := kmsg.NewPtrAddPartitionsToTxnRequest()
				req.Version = 5
				add := kmsg.NewAddPartitionsToTxnRequestTransaction()
				add.TransactionalID, add.ProducerID, add.ProducerEpoch = c.name, c.id, c.epoch
				topic := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
				topic.Topic, topic.Partitions = c.topic, []int32{1}
				add.Topics = append(add.Topics, topic)
				req.Transactions = append(req.Transactions, add)
				return req
			},
			judge: func(c *cell, resp kmsg.Response) {
				c.code(resp.(*kmsg.AddPartitionsToTxnResponse).Transactions[0].Topics[0].Partitions[0].ErrorCode, nil, nil)
			},
		},
		{name: "AddOffsetsToTxn, begins v1", version: 1, before: (*cell).begin, request: group, judge: addedGroup},
		{name: "AddOffsetsToTxn v1", version: 1, before: one, request: group, judge: addedGroup},
	}
}

// drilledOffsets: TxnOffsetCommit; of version 2 it adds its group by itself.
func drilledOffsets(version int) []drilledRequest {
	request := func(c *cell) kmsg.Request { return c.offsetRequest(c.group, c.topic, 0, 7) }
	judge := func(c *cell, resp kmsg.Response) {
		c.code(resp.(*kmsg.TxnOffsetCommitResponse).Topics[0].Partitions[0].ErrorCode, nil, nil)
		c.openOffset = 7
	}
	// The offset is committed as it is, before the client goes on with others.
	after := func(c *cell) { c.finish(true); c.checkOffset() }
	begins := func(c *cell) {
		c.begin()
		if version == 1 {
			c.mustBe("AddOffsetsToTxn", c.ask(c.addGroupRequest(c.group)).(*kmsg.AddOffsetsToTxnResponse).ErrorCode, nil)
		}
	}
	return []drilledRequest{
		{name: versioned("TxnOffsetCommit, begins", version), version: version, before: begins, request: request, judge: judge, after: after},
		{name: versioned("TxnOffsetCommit", version), version: version, before: func(c *cell) { begins(c); c.put(0, "a") }, request: request, judge: judge, after: after},
	}
}

// drilledProduces: a batch that begins a partition's part of the transaction, of version 2 the transaction too, and a later one.
func drilledProduces(version int) []drilledRequest {
	produce := func(name string, before func(*cell), baseOffset int64) drilledRequest {
		return drilledRequest{
			name: versioned(name, version), version: version, before: before,
			request: func(c *cell) kmsg.Request {
				return c.batchRequest(c.topic, 0, c.next[position{topic: c.topic}], "under way", "with it")
			},
			judge: func(c *cell, resp kmsg.Response) {
				p := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
				c.code(p.ErrorCode, nil, nil)
				c.is("the base offset", p.BaseOffset, baseOffset, baseOffset)
				c.next[position{topic: c.topic}] += 2
				c.open[0] = append(c.open[0], "under way", "with it")
			},
			after: func(c *cell) { c.put(0, "behind") },
		}
	}
	begins := func(c *cell) {
		c.begin()
		if version == 1 {
			c.mustBe("AddPartitionsToTxn", c.addPartition(c.topic, 0), nil)
		}
	}
	return []drilledRequest{produce("Produce, begins", begins, 2), produce("Produce", (*cell).beginOpen, 3)}
}

// drilledEnds: EndTxn.
func drilledEnds(version int) []drilledRequest {
	end := func(name string, commit bool, before func(*cell)) drilledRequest {
		return drilledRequest{
			name: versioned(name, version), version: version, before: before,
			request: func(c *cell) kmsg.Request { return c.endRequest(commit) },
			found: func(c *cell) { // it has ended by itself, or it is as it was
				before, ended := "Ongoing", "CompleteAbort"
				if commit {
					ended = "CompleteCommit"
				} else if c.openOffset < 0 {
					before = "CompleteCommit" // there is nothing
				}
				if got := c.state(); (c.carried == yes || got != before) && (c.carried == no || got != ended) {
					c.t.Errorf("%s: the transaction is in state %s", c.name, got)
				}
			},
			judge: func(c *cell, resp kmsg.Response) {
				r := resp.(*kmsg.EndTxnResponse)
				was := *c.producer
				c.code(c.ended(r), nil, nil)
				if want := was.epoch + 1; version == 2 && (r.ProducerID != was.id || r.ProducerEpoch != want) {
					c.t.Errorf("%s: the next transaction has producer %d, epoch %d; want %d, %d", c.name, r.ProducerID, r.ProducerEpoch, was.id, want)
				}
				c.settle(commit)
			},
			after: func(c *cell) { c.checkOffset() },
		}
	}
	offsets := func(c *cell) { c.begin(); c.putOffset(5) }
	all := []drilledRequest{
		end("EndTxn, commit", true, (*cell).beginOpen), end("EndTxn, abort", false, (*cell).beginOpen),
		end("EndTxn, commit of offsets", true, offsets), end("EndTxn, abort of offsets", false, offsets),
	}
	if version == 2 {
		all = append(all, end("EndTxn, abort of nothing", false, (*cell).begin))
	}
	return all
}

// drilledMarkers: WriteTxnMarkers, by which an operator aborts what is open in one partition. The coordinator hears nothing of it.
func drilledMarkers() []drilledRequest {
	marker := func(name string, version int, after func(*cell)) drilledRequest {
		return drilledRequest{
			name: versioned(name, version), version: version, before: (*cell).beginOpen,
			request: func(c *cell) kmsg.Request {
				req := kmsg.NewPtrWriteTxnMarkersRequest()
				req.Version = int16(version)
				m := kmsg.NewWriteTxnMarkersRequestMarker()
				m.ProducerID, m.ProducerEpoch, m.CoordinatorEpoch = c.id, c.epoch, c.coordinatorEpoch()
				if version == 2 {
					m.ProducerEpoch, m.TransactionVersion = c.epoch+1, 2
				}
				topic := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
				topic.Topic, topic.Partitions = c.topic, []int32{0}
				m.Topics = append(m.Topics, topic)
				req.Markers = append(req.Markers, m)
				return req
			},
			judge: func(c *cell, resp kmsg.Response) { // the repetition writes another marker
				c.code(resp.(*kmsg.WriteTxnMarkersResponse).Markers[0].Topics[0].Partitions[0].ErrorCode, nil, nil)
				c.open[0] = nil
			},
			after: after,
		}
	}
	return []drilledRequest{
		marker("WriteTxnMarkers", 1, func(c *cell) { c.put(0, "behind the marker") }),
		marker("WriteTxnMarkers", 2, func(c *cell) {
			_, code := c.writeAt(c.topic, 0, c.next[position{topic: c.topic}], "of the epoch before")
			c.mustBe("Produce behind a marker", code, kerr.InvalidProducerEpoch)
			c.finish(false)
		}),
	}
}

// drilledDeletions: what is deleted under an open transaction.
func drilledDeletions(version int) []drilledRequest {
	return []drilledRequest{
		{
			name: versioned("OffsetDelete", version), version: version, before: (*cell).beginOpen,
			request: func(c *cell) kmsg.Request {
				req := kmsg.NewPtrOffsetDeleteRequest()
				req.Group = c.group
				topic := kmsg.NewOffsetDeleteRequestTopic()
				topic.Topic, topic.Partitions = c.topic, []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}
				req.Topics = append(req.Topics, topic)
				return req
			},
			judge: func(c *cell, resp kmsg.Response) {
				r := resp.(*kmsg.OffsetDeleteResponse)
				c.code(r.ErrorCode, nil, nil)
				c.forgotten()
			},
			after: func(c *cell) { c.finish(true); c.checkOffset() },
		},
		{
			name: versioned("DeleteGroups", version), version: version, before: (*cell).beginOpen,
			request: func(c *cell) kmsg.Request {
				req := kmsg.NewPtrDeleteGroupsRequest()
				req.Version, req.Groups = 2, []string{c.group}
				return req
			},
			judge: func(c *cell, resp kmsg.Response) {
				c.code(resp.(*kmsg.DeleteGroupsResponse).Groups[0].ErrorCode, nil, kerr.GroupIDNotFound)
				c.forgotten()
			},
			after: func(c *cell) { c.finish(true); c.checkOffset() },
		},
	}
}

// drilledData: what is deleted of the data of an open transaction, the same for all transaction versions.
func drilledData() []drilledRequest {
	const second = "-second"
	return []drilledRequest{
		{
			name: "DeleteRecords", version: 2, before: (*cell).beginOpen,
			request: func(c *cell) kmsg.Request {
				req := kmsg.NewPtrDeleteRecordsRequest()
				req.Version = 2
				topic := kmsg.NewDeleteRecordsRequestTopic()
				topic.Topic = c.topic
				topic.Partitions = []kmsg.DeleteRecordsRequestTopicPartition{{Partition: 0, Offset: 1}}
				req.Topics = append(req.Topics, topic)
				return req
			},
			judge: func(c *cell, resp kmsg.Response) {
				p := resp.(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0]
				c.code(p.ErrorCode, nil, nil)
				c.is("the log start", p.LowWatermark, 1, 1)
				c.want[0] = c.want[0][1:]
			},
		},
		{
			name: "DeleteTopics", version: 2,
			before: func(c *cell) {
				c.d.createTopic(c.topic+second, 1)
				c.beginOpen()
				c.mustWrite(c.topic+second, 0, "goes with its topic")
			},
			request: func(c *cell) kmsg.Request {
				req := kmsg.NewPtrDeleteTopicsRequest()
				req.Version, req.TopicNames = 5, []string{c.topic + second}
				return req
			},
			judge: func(c *cell, resp kmsg.Response) {
				c.code(resp.(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode, nil, kerr.UnknownTopicOrPartition)
			},
		},
	}
}

// forgotten notes that the group's offsets are gone, those of the open transaction included.
func (c *cell) forgotten() { c.offset, c.openOffset = -1, -1 }

// mustBe checks an error code that does not depend on the crash.
func (c *cell) mustBe(what string, got int16, want *kerr.Error) {
	c.t.Helper()
	if got == 0 && want == nil || want != nil && got == want.Code {
		return
	}
	c.t.Errorf("%s: %s: %v, want %v", c.name, what, kerr.ErrorForCode(got), want)
}

// state is the coordinator's.
func (c *cell) state() string {
	c.t.Helper()
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{c.name}
	return c.ask(req).(*kmsg.DescribeTransactionsResponse).TransactionStates[0].State
}

// coordinatorEpoch is what partition 0 knows of who has written the client's markers.
func (c *cell) coordinatorEpoch() int32 {
	c.t.Helper()
	req := kmsg.NewPtrDescribeProducersRequest()
	topic := kmsg.NewDescribeProducersRequestTopic()
	topic.Topic, topic.Partitions = c.topic, []int32{0}
	req.Topics = append(req.Topics, topic)
	for _, p := range c.ask(req).(*kmsg.DescribeProducersResponse).Topics[0].Partitions[0].ActiveProducers {
		if p.ProducerID == c.id {
			return p.CoordinatorEpoch
		}
	}
	c.t.Fatalf("%s: partition 0 does not know producer %d", c.name, c.id)
	return 0
}
