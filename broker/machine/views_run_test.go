package machine

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// runView carries out what operators ask and do:
//
//	markers [v=] [pid=] [epoch=] [cepoch=] [tv=] [commit] t/0 … | producers t/0 …
//	delete-records t/0=OFFSET … | describe ID … | list [v=] [states=a,b] [pids=1,2] [longer=MS]
func (w *world) runView(verb string, a *args) (answer string, known bool) {
	w.t.Helper()
	switch verb {
	case "markers":
		return w.runMarkers(a), true
	case "delete-records":
		return w.runDeleteRecords(a), true
	case "producers":
		return w.runProducers(a), true
	case "describe":
		return w.runDescribe(a), true
	case "list":
		return w.runList(a), true
	}
	return "", false
}

func (w *world) runMarkers(a *args) string {
	w.t.Helper()
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID, m.ProducerEpoch, m.Committed = a.pid(), a.epoch(), a.Has("commit")
	m.CoordinatorEpoch, m.TransactionVersion = int32(a.Num("cepoch", 0)), int8(a.Num("tv", 0))
	for _, word := range a.Bare {
		if t, n, ok := place(word); ok {
			m.Topics = append(m.Topics, kmsg.WriteTxnMarkersRequestMarkerTopic{Topic: t, Partitions: []int32{n}})
		}
	}
	req.Markers = append(req.Markers, m)
	var all []string
	for _, t := range w.ask(req, int16(a.Num("v", 2))).(*kmsg.WriteTxnMarkersResponse).Markers[0].Topics {
		for _, p := range t.Partitions {
			all = append(all, errorName(p.ErrorCode))
		}
	}
	return strings.Join(all, " ")
}

func (w *world) runDeleteRecords(a *args) string {
	w.t.Helper()
	req := kmsg.NewPtrDeleteRecordsRequest()
	for where, offset := range a.Values {
		t, n, _ := place(where)
		rt := kmsg.NewDeleteRecordsRequestTopic()
		rt.Topic = t
		rp := kmsg.NewDeleteRecordsRequestTopicPartition()
		rp.Partition = n
		rp.Offset, _ = strconv.ParseInt(offset, 10, 64)
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
	}
	p := w.ask(req, 2).(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0]
	return fmt.Sprintf("%s from %d", errorName(p.ErrorCode), p.LowWatermark)
}

func (w *world) runProducers(a *args) string {
	w.t.Helper()
	req := kmsg.NewPtrDescribeProducersRequest()
	for _, word := range a.Bare {
		t, n, _ := place(word)
		req.Topics = append(req.Topics, kmsg.DescribeProducersRequestTopic{Topic: t, Partitions: []int32{n}})
	}
	var all []string
	for _, t := range w.ask(req, 0).(*kmsg.DescribeProducersResponse).Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				all = append(all, errorName(p.ErrorCode))
			}
			for _, x := range p.ActiveProducers {
				all = append(all, fmt.Sprintf("[pid=%d epoch=%d seq=%d coordinator=%d open=%d]", x.ProducerID, x.ProducerEpoch,
					x.LastSequence, x.CoordinatorEpoch, x.CurrentTxnStartOffset))
			}
		}
	}
	return strings.Join(all, " ")
}

func (w *world) runDescribe(a *args) string {
	w.t.Helper()
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = a.Bare
	var all []string
	for _, s := range w.ask(req, 0).(*kmsg.DescribeTransactionsResponse).TransactionStates {
		if s.ErrorCode != 0 {
			all = append(all, errorName(s.ErrorCode))
			continue
		}
		since := int64(-1)
		if s.StartTimestamp >= 0 {
			since = w.now.WallMs - s.StartTimestamp
		}
		out := fmt.Sprintf("%s %s pid=%d epoch=%d timeout=%d open-for=%d", s.TransactionalID, s.State, s.ProducerID, s.ProducerEpoch, s.TimeoutMillis, since)
		for _, t := range s.Topics {
			out += fmt.Sprintf(" %s%v", t.Topic, t.Partitions)
		}
		all = append(all, out)
	}
	return strings.Join(all, "; ")
}

func (w *world) runList(a *args) string {
	w.t.Helper()
	req := kmsg.NewPtrListTransactionsRequest()
	if s := a.Values["states"]; s != "" {
		req.StateFilters = strings.Split(s, ",")
	}
	for _, s := range strings.Split(a.Values["pids"], ",") {
		if id, err := strconv.ParseInt(s, 10, 64); err == nil {
			req.ProducerIDFilters = append(req.ProducerIDFilters, id)
		}
	}
	req.DurationFilterMillis = a.Num("longer", -1)
	resp := w.ask(req, int16(a.Num("v", 2))).(*kmsg.ListTransactionsResponse)
	all := []string{errorName(resp.ErrorCode)}
	for _, s := range resp.UnknownStateFilters {
		all = append(all, "unknown:"+s)
	}
	for _, s := range resp.TransactionStates {
		all = append(all, fmt.Sprintf("[%s pid=%d %s]", s.TransactionalID, s.ProducerID, s.TransactionState))
	}
	return strings.Join(all, " ")
}
