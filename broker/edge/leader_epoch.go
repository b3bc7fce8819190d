package edge

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetForLeaderEpoch answers where epochs end (KIP-101, KIP-320), to a client with these permissions.
func (e *Edge) OffsetForLeaderEpoch(req *kmsg.OffsetForLeaderEpochRequest, may Permissions) *kmsg.OffsetForLeaderEpochResponse {
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	resp.Version = req.Version
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = t.Topic
		denied := may.denied(kmsg.ACLOperationDescribe, t.Topic)
		for k := range t.Partitions {
			p := &t.Partitions[k]
			rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			rp.Partition, rp.LeaderEpoch, rp.EndOffset = p.Partition, -1, -1
			part, _, code := e.partition(t.Topic, [16]byte{}, false, p.Partition)
			if denied {
				code = kerr.TopicAuthorizationFailed.Code
			}
			if rp.ErrorCode = code; code == 0 {
				v := part.Load()
				if rp.ErrorCode = checkEpoch(v, p.CurrentLeaderEpoch); rp.ErrorCode == 0 {
					rp.LeaderEpoch, rp.EndOffset = epochEnd(v, p.LeaderEpoch)
				}
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}
