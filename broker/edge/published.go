package edge

import (
	"sort"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/machine/producer"
	"github.com/strandline-io/strandline/broker/record"
	"github.com/strandline-io/strandline/broker/sequencer"
	"github.com/strandline-io/strandline/broker/wire"
)

// Leader epochs as clients name them; -1 means that the client does not care.
const noEpoch = -1

// partition finds a published partition. byID says that the request names topics by id.
func (e *Edge) partition(name string, id [16]byte, byID bool, index int32) (*sequencer.Partition, *machine.Topic, int16) {
	board := e.Board
	var t *machine.Topic
	var ok bool
	if byID {
		if t, ok = board.TopicByID(id); !ok {
			return nil, nil, kerr.UnknownTopicID.Code
		}
	} else if t, ok = board.Topic(name); !ok {
		return nil, nil, kerr.UnknownTopicOrPartition.Code
	}
	if index < 0 || int(index) >= len(t.Partitions) {
		return nil, t, kerr.UnknownTopicOrPartition.Code
	}
	p := board.Partition(t.Partitions[index])
	if p == nil { // deleted since the topic was looked up
		return nil, t, kerr.UnknownTopicOrPartition.Code
	}
	return p, t, 0
}

// checkEpoch compares the leader epoch that a client believes in with the real one (KIP-320).
func checkEpoch(v *sequencer.Published, epoch int32) int16 {
	switch {
	case v.Deleted:
		return kerr.UnknownTopicOrPartition.Code
	case epoch == noEpoch:
		return 0
	case epoch < v.LeaderEpoch:
		return kerr.FencedLeaderEpoch.Code
	case epoch > v.LeaderEpoch:
		return kerr.UnknownLeaderEpoch.Code
	}
	return 0
}

// isolationReadCommitted is the isolation level that ends at the last stable offset.
const isolationReadCommitted = 1

// limitOf is the first offset that a reader may not see.
func limitOf(v *sequencer.Published, isolation int8) int64 {
	if isolation == isolationReadCommitted {
		return v.LastStable
	}
	return v.HighWatermark
}

// epochEnd answers where the largest epoch at or below requested ends (kafka-eos.md C.8): the current epoch at the
// high watermark, an older one where the next begins. Below all known epochs it is the requested epoch itself, up to
// the first known one. Unknown epochs are (-1, -1).
func epochEnd(v *sequencer.Published, requested int32) (epoch int32, endOffset int64) {
	switch {
	case requested < 0 || requested > v.LeaderEpoch:
		return -1, -1
	case requested == v.LeaderEpoch:
		return requested, v.HighWatermark
	}
	next := sort.Search(len(v.Epochs), func(i int) bool { return v.Epochs[i].Epoch > requested })
	if next == 0 {
		if len(v.Epochs) == 0 {
			return requested, v.LogStart
		}
		return requested, v.Epochs[0].StartOffset
	}
	epoch = v.Epochs[next-1].Epoch
	if next == len(v.Epochs) {
		return epoch, v.HighWatermark
	}
	return epoch, v.Epochs[next].StartOffset
}

// epochAt is the leader epoch under which the batch at offset was appended, or -1.
func epochAt(v *sequencer.Published, offset int64) int32 {
	next := sort.Search(len(v.Epochs), func(i int) bool { return v.Epochs[i].StartOffset > offset })
	if next == 0 {
		return noEpoch
	}
	return v.Epochs[next-1].Epoch
}

// abortedWithin is what a response with records tells of aborted transactions (see producer.AbortedWithin).
func abortedWithin(v *sequencer.Published, from int64, records []byte) []wire.FetchAborted {
	within := producer.AbortedWithin(v.Aborted, from, record.EndOffset(records))
	found := make([]wire.FetchAborted, len(within))
	for i := range within {
		found[i] = wire.FetchAborted{ProducerID: within[i].ProducerID, FirstOffset: within[i].FirstOffset}
	}
	return found
}
