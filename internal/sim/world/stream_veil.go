package world

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/machine/producer"
	"github.com/strandline-io/strandline/broker/sequencer"
)

// A veil makes the broker one of Apache Kafka's kind: EndTxn is answered when the decision is durable, and its markers come
// later, in every partition at a time of its own, the group's offsets too. Until then a partition shows the last stable
// offset of before, and a fetch of stable offsets is told to wait. A crash lifts all veils.
type veil struct {
	partitions map[machine.PartitionID]*veiled
	pending    map[int64][]string // what TxnOffsetCommit named, by producer id
	offsets    map[string]int64   // until when an offset is veiled
}

// veiled is a partition whose markers are still to come.
type veiled struct {
	lastStable int64
	aborted    []producer.Aborted
	view       machine.View // what it shows after
}

func newVeil() *veil {
	return &veil{partitions: make(map[machine.PartitionID]*veiled), pending: make(map[int64][]string), offsets: make(map[string]int64)}
}

// delayUs is how long a marker takes.
func (w *World) markerUs() int64 {
	if w.chance(10) {
		return w.Int64N(3 * secondInUs)
	}
	return w.Int64N(300 * msInUs)
}

// cover changes what readers see of partitions whose markers are late.
func (p *process) cover(updates []sequencer.Update) []sequencer.Update {
	out := append([]sequencer.Update(nil), updates...)
	for i := range out {
		v := &out[i].View
		part := p.board.Partition(v.Partition)
		if part == nil {
			continue
		}
		held := p.veil.partitions[v.Partition]
		if old := part.Load(); held == nil && v.LastStable > old.LastStable && p.w.chance(70) {
			held = &veiled{lastStable: old.LastStable, aborted: old.Aborted}
			p.veil.partitions[v.Partition] = held
			id := v.Partition
			p.after(p.w.markerUs(), func() {
				delete(p.veil.partitions, id)
				p.board.Publish(nil, []sequencer.Update{{View: held.view}})
				p.w.tracef("partition %d has its markers, stable %d", id, held.view.LastStable)
				p.wakeParked()
			})
		}
		if held != nil {
			held.view = *v
			v.LastStable, v.Aborted = held.lastStable, held.aborted
		}
	}
	return out
}

func offsetName(group, topic string, partition int32) string {
	return fmt.Sprintf("%s %s/%d", group, topic, partition)
}

// asked notes what a transaction commits besides records.
func (v *veil) asked(req kmsg.Request) {
	r, ok := req.(*kmsg.TxnOffsetCommitRequest)
	if !ok {
		return
	}
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			v.pending[r.ProducerID] = append(v.pending[r.ProducerID], offsetName(r.Group, t.Topic, p.Partition))
		}
	}
}

// answered veils the offsets of a transaction that has ended, and hides those that are veiled.
func (v *veil) answered(w *World, req kmsg.Request, resp kmsg.Response) {
	switch r := req.(type) {
	case *kmsg.EndTxnRequest:
		if resp.(*kmsg.EndTxnResponse).ErrorCode == 0 {
			for _, name := range v.pending[r.ProducerID] {
				v.offsets[name] = w.nowUs + w.markerUs()
			}
			delete(v.pending, r.ProducerID)
		}
	case *kmsg.OffsetFetchRequest:
		if !r.RequireStable {
			return
		}
		topics := resp.(*kmsg.OffsetFetchResponse).Topics
		for i := range topics {
			for k := range topics[i].Partitions {
				p := &topics[i].Partitions[k]
				if v.offsets[offsetName(r.Group, topics[i].Topic, p.Partition)] > w.nowUs {
					p.Offset, p.ErrorCode = -1, kerr.UnstableOffsetCommit.Code
				}
			}
		}
	}
}
