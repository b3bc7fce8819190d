package edge

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/segment"
	"github.com/strandline-io/strandline/broker/sequencer"
)

// Special timestamps of ListOffsets (kafka-eos.md C.7), with the version from which each may be asked.
const (
	listLatest        = -1
	listEarliest      = -2
	listMaxTimestamp  = -3 // KIP-734
	listEarliestLocal = -4 // KIP-405
	listLatestTiered  = -5 // KIP-1005
	listPendingUpload = -6 // KIP-1023

	versionMaxTimestamp  = 7
	versionEarliestLocal = 8
	versionLatestTiered  = 9
	versionPendingUpload = 11
)

// ListOffsets answers offsets by time to a client with these permissions.
func (e *Edge) ListOffsets(req *kmsg.ListOffsetsRequest, may Permissions) *kmsg.ListOffsetsResponse {
	resp := kmsg.NewPtrListOffsetsResponse()
	resp.Version = req.Version
	duplicates := duplicatePartitions(req)
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		denied := may.denied(kmsg.ACLOperationDescribe, t.Topic)
		for k := range t.Partitions {
			p := &t.Partitions[k]
			rp := kmsg.NewListOffsetsResponseTopicPartition()
			rp.Partition, rp.Timestamp, rp.Offset, rp.LeaderEpoch = p.Partition, -1, -1, -1
			if denied {
				rp.ErrorCode = kerr.TopicAuthorizationFailed.Code
			} else if duplicates[listedPartition{t.Topic, p.Partition}] {
				rp.ErrorCode = kerr.InvalidRequest.Code
			} else {
				e.listOffset(req, t.Topic, p, &rp)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

type listedPartition struct {
	topic string
	index int32
}

// duplicatePartitions finds what the request names more than once, which is refused.
func duplicatePartitions(req *kmsg.ListOffsetsRequest) map[listedPartition]bool {
	seen := make(map[listedPartition]bool)
	for i := range req.Topics {
		for k := range req.Topics[i].Partitions {
			key := listedPartition{req.Topics[i].Topic, req.Topics[i].Partitions[k].Partition}
			_, again := seen[key]
			seen[key] = again
		}
	}
	return seen
}

func (e *Edge) listOffset(req *kmsg.ListOffsetsRequest, topic string, p *kmsg.ListOffsetsRequestTopicPartition, rp *kmsg.ListOffsetsResponseTopicPartition) {
	if !listable(p.Timestamp, req.Version) {
		rp.ErrorCode = kerr.UnsupportedVersion.Code
		return
	}
	part, _, code := e.partition(topic, [16]byte{}, false, p.Partition)
	if code != 0 {
		rp.ErrorCode = code
		return
	}
	v := part.Load()
	if rp.ErrorCode = checkEpoch(v, p.CurrentLeaderEpoch); rp.ErrorCode != 0 {
		return
	}
	isolation := req.IsolationLevel
	if req.ReplicaID != -1 { // followers and debuggers see everything
		isolation = 0
	}
	limit := limitOf(v, isolation)
	switch ts := p.Timestamp; {
	case ts >= 0:
		e.search(part, v, rp, func(l *segment.Log) (segment.Found, bool, error) { return l.OffsetForTime(ts, v.LogStart, limit) })
	case ts == listLatest:
		rp.Offset, rp.LeaderEpoch = limit, v.LeaderEpoch
	case ts == listEarliest, ts == listEarliestLocal:
		rp.Offset, rp.LeaderEpoch = v.LogStart, epochAt(v, v.LogStart)
	case ts == listMaxTimestamp:
		e.search(part, v, rp, func(l *segment.Log) (segment.Found, bool, error) { return l.MaxTimestamp(v.LogStart, limit) })
	}
	// Nothing is said of listLatestTiered and listPendingUpload: there is no tiered storage, nothing was uploaded or will be.
}

// listable tells which timestamps a version may ask for; that is judged before the partition is looked at.
func listable(timestamp int64, version int16) bool {
	switch timestamp {
	case listLatest, listEarliest:
		return true
	case listMaxTimestamp:
		return version >= versionMaxTimestamp
	case listEarliestLocal:
		return version >= versionEarliestLocal
	case listLatestTiered:
		return version >= versionLatestTiered
	case listPendingUpload:
		return version >= versionPendingUpload
	}
	return timestamp >= 0
}

// search looks a record up by time. The partition's batches may move while it does: then it looks again, where a newer
// view says that they are.
func (e *Edge) search(part *sequencer.Partition, v *sequencer.Published, rp *kmsg.ListOffsetsResponseTopicPartition, find func(*segment.Log) (segment.Found, bool, error)) {
	e.lookups <- struct{}{}
	defer func() { <-e.lookups }()
	found, ok, err := find(v.Log)
	for try := 0; errors.Is(err, segment.ErrMoved) && try < movedRetries; try++ {
		found, ok, err = find(part.Load().Log)
	}
	switch {
	case err != nil:
		e.Log.Error("a partition cannot be searched by time", "partition", v.Partition, "error", err)
		rp.ErrorCode = kerr.KafkaStorageError.Code
	case ok:
		rp.Offset, rp.Timestamp, rp.LeaderEpoch = found.Offset, found.TimestampMs, epochAt(v, found.Offset)
	}
}
