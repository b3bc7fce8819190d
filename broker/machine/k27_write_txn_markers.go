package machine

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine/producer"
	"github.com/strandline-io/strandline/internal/mutant"
)

// WriteTxnMarkers (key 27), v1 and 2: an operator ends, in single partitions, what a producer has open there
// (kafka-eos.md A.5, B.9; kafka-transactions.sh abort). The coordinator is not asked and hears nothing: a transaction that
// it still knows goes on, and its own markers follow later. v2 names the transaction version. The answer has one entry for each
// producer id, however many markers named it.

// maxMarkersPerRequest bounds the unit that one request becomes.
const maxMarkersPerRequest = 1000

func (m *Machine) writeTxnMarkers(req *kmsg.WriteTxnMarkersRequest) {
	resp := req.ResponseKind().(*kmsg.WriteTxnMarkersResponse)
	mayWrite := m.mayCluster(kmsg.ACLOperationAlter) || m.mayCluster(kmsg.ACLOperationClusterAction)
	room := maxMarkersPerRequest
	answered := make(map[int64]int, len(req.Markers))
	for i := range req.Markers {
		want := &req.Markers[i]
		at, known := answered[want.ProducerID]
		if !known {
			at = len(resp.Markers)
			answered[want.ProducerID] = at
			r := kmsg.NewWriteTxnMarkersResponseMarker()
			r.ProducerID = want.ProducerID
			resp.Markers = append(resp.Markers, r)
		}
		r := &resp.Markers[at]
		for _, t := range want.Topics {
			rt := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
			rt.Topic = t.Topic
			for _, number := range t.Partitions {
				code := kerr.ClusterAuthorizationFailed.Code
				if mayWrite {
					code = m.writeTxnMarker(want, t.Topic, number, &room)
				}
				rt.Partitions = append(rt.Partitions, kmsg.WriteTxnMarkersResponseMarkerTopicPartition{Partition: number, ErrorCode: code})
			}
			r.Topics = append(r.Topics, rt)
		}
	}
	m.reply(resp)
}

// writeTxnMarker writes one marker. It carries this broker's coordinator epoch, which is at least the one that the
// request had to match: a higher one in a partition would fence the coordinator itself.
func (m *Machine) writeTxnMarker(want *kmsg.WriteTxnMarkersRequestMarker, topic string, number int32, room *int) int16 {
	var p *partition
	if t := m.topics[topic]; t != nil {
		p = t.find(number)
	}
	switch {
	case p == nil:
		return kerr.UnknownTopicOrPartition.Code
	case want.ProducerID < 0 || want.ProducerEpoch < 0:
		return kerr.InvalidRequest.Code
	case want.CoordinatorEpoch > m.LeaderEpoch() && !mutant.On("marker of a coordinator to come accepted"):
		return kerr.TransactionCoordinatorFenced.Code
	case *room == 0:
		return kerr.PolicyViolation.Code
	}
	marker := producer.Marker{
		ProducerID: want.ProducerID, Epoch: want.ProducerEpoch, CoordinatorEpoch: want.CoordinatorEpoch,
		Commit: want.Committed || mutant.On("an operator's abort commits"), BumpsEpoch: want.TransactionVersion >= 2,
	}
	if code, _ := p.producers.CheckMarker(marker); code != 0 {
		return code
	}
	*room--
	m.appendMarker(nil, p, marker)
	return 0
}
