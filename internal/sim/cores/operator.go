package cores

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What operators ask and do, with its model.

func operatorBody(r *request) any {
	switch r.kind {
	case kindMarkers:
		q := kmsg.NewPtrWriteTxnMarkersRequest()
		m := kmsg.NewWriteTxnMarkersRequestMarker()
		m.ProducerID, m.ProducerEpoch, m.Committed, m.CoordinatorEpoch = r.pid, r.epoch, r.commit, int32(r.number)
		if r.version >= 2 {
			m.TransactionVersion = 2
		}
		for _, p := range r.parts {
			m.Topics = append(m.Topics, kmsg.WriteTxnMarkersRequestMarkerTopic{Topic: p.topic, Partitions: []int32{p.partition}})
		}
		q.Version, q.Markers = r.version, append(q.Markers, m)
		return q
	case kindTransactions:
		q := kmsg.NewPtrDescribeTransactionsRequest()
		q.TransactionalIDs = []string{r.id}
		return q
	case kindProducers:
		q := kmsg.NewPtrDescribeProducersRequest()
		q.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: r.parts[0].topic, Partitions: []int32{r.parts[0].partition}}}
		return q
	case kindDeleteOffsets:
		q := kmsg.NewPtrOffsetDeleteRequest()
		q.Group = r.group
		q.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: r.parts[0].topic, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: r.parts[0].partition}}}}
		return q
	case kindDeleteGroup:
		q := kmsg.NewPtrDeleteGroupsRequest()
		q.Version, q.Groups = r.version, []string{r.group}
		return q
	}
	panic(fmt.Sprintf("BUG: no body for %v", r))
}

// operatorAnswer is nil for another's answer.
func operatorAnswer(body any) *reply {
	switch b := body.(type) {
	case *kmsg.WriteTxnMarkersResponse:
		a := &reply{}
		for _, t := range b.Markers[0].Topics {
			a.codes = append(a.codes, t.Partitions[0].ErrorCode)
		}
		return a
	case *kmsg.DescribeTransactionsResponse:
		t := &b.TransactionStates[0]
		if t.ErrorCode != 0 {
			return &reply{codes: []int16{t.ErrorCode}}
		}
		detail := fmt.Sprintf("%s %d/%d timeout %d since %d", t.State, t.ProducerID, t.ProducerEpoch, t.TimeoutMillis, t.StartTimestamp)
		for _, topic := range t.Topics {
			detail += fmt.Sprintf(" %s%v", topic.Topic, topic.Partitions)
		}
		return &reply{codes: []int16{0}, detail: detail}
	case *kmsg.DescribeProducersResponse:
		p := &b.Topics[0].Partitions[0]
		var all []string
		for _, e := range p.ActiveProducers {
			all = append(all, describeProducer(e.ProducerID, int16(e.ProducerEpoch), e.LastSequence, e.CoordinatorEpoch, e.CurrentTxnStartOffset))
		}
		slices.Sort(all)
		return &reply{codes: []int16{p.ErrorCode}, detail: strings.Join(all, ", ")}
	case *kmsg.OffsetDeleteResponse:
		if b.ErrorCode != 0 {
			return &reply{codes: []int16{b.ErrorCode}}
		}
		return &reply{codes: []int16{b.Topics[0].Partitions[0].ErrorCode}}
	case *kmsg.DeleteGroupsResponse:
		return &reply{codes: []int16{b.Groups[0].ErrorCode}}
	}
	return nil
}

func describeProducer(pid int64, epoch int16, sequence, coordinator int32, open int64) string {
	return fmt.Sprintf("%d/%d sequence %d coordinator %d open at %d", pid, epoch, sequence, coordinator, open)
}

// writeMarkers: an operator's marker obeys the rules of a coordinator's.
func (m *model) writeMarkers(r *request) *reply {
	a := &reply{}
	for _, at := range r.parts {
		a.codes = append(a.codes, m.writeMarker(r, m.find(at)))
	}
	return a
}

func (m *model) writeMarker(r *request, p *modelPart) int16 {
	switch {
	case p == nil:
		return kerr.UnknownTopicOrPartition.Code
	case r.pid < 0 || r.epoch < 0:
		return kerr.InvalidRequest.Code
	case int32(r.number) > m.leader:
		return kerr.TransactionCoordinatorFenced.Code
	}
	if e := p.entries[r.pid]; e != nil {
		switch {
		case r.epoch < e.epoch, r.version >= 2 && r.epoch == e.epoch && e.open >= 0 && r.epoch != math.MaxInt16:
			return kerr.InvalidProducerEpoch.Code
		case int32(r.number) < e.coordinator:
			return kerr.TransactionCoordinatorFenced.Code
		}
	}
	m.mark(p, r.pid, r.epoch, r.commit)
	return 0
}

func (m *model) describeTransaction(r *request) *reply {
	t := m.ids[r.id]
	if t == nil {
		return &reply{codes: []int16{kerr.TransactionalIDNotFound.Code}}
	}
	since := int64(-1)
	if t.state == txnOngoing {
		since = m.wallMs - (m.engineMs - t.startMs)
	}
	name := [...]string{"Empty", "Ongoing", "CompleteCommit", "CompleteAbort"}[t.state]
	detail := fmt.Sprintf("%s %d/%d timeout %d since %d", name, t.pid, t.epoch, t.timeoutMs, since)
	for _, topic := range [...]string{"a", "b", "tmp"} {
		if m.topics[topic] == nil {
			continue
		}
		var in []int32
		for i, id := range m.topics[topic].parts {
			if t.parts[id] {
				in = append(in, int32(i))
			}
		}
		if len(in) > 0 {
			detail += fmt.Sprintf(" %s%v", topic, in)
		}
	}
	return &reply{codes: []int16{0}, detail: detail}
}

func (m *model) describeProducers(r *request) *reply {
	p := m.find(r.parts[0])
	if p == nil {
		return &reply{codes: []int16{kerr.UnknownTopicOrPartition.Code}}
	}
	var all []string
	for pid, e := range p.entries {
		sequence := int32(-1)
		if n := len(e.batches); n > 0 {
			sequence = e.batches[n-1].last
		}
		all = append(all, describeProducer(pid, e.epoch, sequence, e.coordinator, e.open))
	}
	slices.Sort(all)
	return &reply{codes: []int16{0}, detail: strings.Join(all, ", ")}
}

// observeDelete takes over what an operator deleted. A group with members refuses.
func (m *model) observeDelete(r *request, a *reply) error {
	g := m.groups[r.group]
	held := false // something is committed, so the group is known
	if g != nil {
		for _, o := range g.offsets {
			held = held || o.committed >= 0
		}
	}
	switch {
	case a.code() == kerr.GroupIDNotFound.Code && held:
		return fmt.Errorf("%v does not find the group, which has offsets", r)
	case a.code() != 0 || g == nil:
		return nil
	case r.kind == kindDeleteGroup:
		delete(m.groups, r.group)
	case g.offsets[r.parts[0]] != nil:
		o := g.at(r.parts[0])
		o.committed, o.order = -1, 0
		clear(o.pending) // what open transactions would commit goes too
	}
	return nil
}
