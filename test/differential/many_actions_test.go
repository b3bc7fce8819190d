//go:build peers

package differential

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var manyActions = []action{
	{40, (*world).produceMany},
	{12, (*world).produceUnanswered},
	{30, (*world).fetchMany},
}

// spots picks different partitions, of one topic too.
func (w *world) spots(n int) []place {
	seen := map[place]bool{}
	for range n {
		seen[w.place()] = true
	}
	return slices.SortedFunc(maps.Keys(seen), comparePlaces)
}

func comparePlaces(a, b place) int {
	if a.topic != b.topic {
		if a.topic < b.topic {
			return -1
		}
		return 1
	}
	return int(a.partition - b.partition)
}

// produceMany sends batches for several partitions in one request.
func (w *world) produceMany() step {
	p := w.producers[w.IntN(len(w.producers))]
	if p.pid == -1 {
		return w.initProducer()
	}
	var req *kmsg.ProduceRequest
	var all []sent
	for _, at := range w.spots(2 + w.IntN(3)) {
		w.stamp += int64(w.IntN(50) - 10)
		b := batch{producer: p.pid, epoch: p.epoch, sequence: p.next[at], records: 1 + w.IntN(4), magic: 2, salt: w.Uint64(),
			transactional: p.id != nil, timestamp: w.stamp, key: w.chance(30)}
		if w.chance(10) && w.mayErr(p, at) {
			b.sequence++
		}
		all = append(all, sent{at, b})
		if req == nil {
			req = w.produceRequest(p, at, b)
			continue
		}
		more := w.produceRequest(p, at, b).Topics[0]
		if req.Version >= 13 && more.TopicID == ([16]byte{}) {
			more.TopicID = [16]byte{1, 2, 3}
		}
		if last := &req.Topics[len(req.Topics)-1]; last.Topic == more.Topic {
			last.Partitions = append(last.Partitions, more.Partitions...)
		} else {
			req.Topics = append(req.Topics, more)
		}
	}
	return one(p.client, req, func(r kmsg.Response) {
		for _, s := range all {
			w.produced(p, s.at, s.b, true, r.(*kmsg.ProduceResponse))
		}
	})
}

// produceUnanswered sends a batch with acks=0; a broker that refuses it closes the connection.
func (w *world) produceUnanswered() step {
	p := w.producer(false)
	if p.pid == -1 {
		return w.initProducer()
	}
	at := w.place()
	b, next := w.batch(p, at)
	req := w.produceRequest(p, at, b)
	req.Acks = 0
	return one(p.client, req, func(kmsg.Response) {
		if next && b.producer == p.pid && b.epoch == p.epoch {
			p.next[at] = int32((int64(b.sequence) + int64(b.records)) % (1 << 31))
		}
	})
}

// session is a fetch session (KIP-227) as its client knows it.
type session struct {
	id       int32
	epoch    int32 // of the next request
	byID     bool
	isolated int8
	parts    map[place]int64
}

func (w *world) fetchRequest(s *session) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	if s.byID {
		w.version(req, 13, 18)
	} else {
		w.version(req, 7, 12)
	}
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 0, 1, 1<<20
	req.IsolationLevel, req.SessionID, req.SessionEpoch = s.isolated, s.id, s.epoch
	return req
}

// addPart adds a partition to a request; partitions come in the order of their topics.
func (w *world) addPart(req *kmsg.FetchRequest, at place, offset int64) {
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.PartitionMaxBytes, p.CurrentLeaderEpoch, p.FetchOffset = at.partition, 1<<20, -1, offset
	if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != at.topic {
		t := kmsg.NewFetchRequestTopic()
		t.Topic, t.TopicID = at.topic, w.topics[at.topic]
		if req.Version >= 13 && t.TopicID == ([16]byte{}) {
			t.TopicID = [16]byte{1, 2, 3}
		}
		req.Topics = append(req.Topics, t)
	}
	t := &req.Topics[len(req.Topics)-1]
	t.Partitions = append(t.Partitions, p)
}

// fetchMany begins a session, goes on in it, or does what no client should.
func (w *world) fetchMany() step {
	s := &w.sessions[w.IntN(len(w.sessions))]
	if s.id == 0 {
		return w.beginSession(s)
	}
	if w.chance(10) {
		return w.endSession(s)
	}
	req := w.fetchRequest(s)
	if w.chance(8) {
		if w.chance(50) {
			req.SessionID = 17
		} else {
			req.SessionEpoch += pick(w, int32(1), -1, 5)
		}
		return one(0, req, nil)
	}
	for _, at := range w.spots(w.IntN(3)) {
		offset := int64(w.IntN(40))
		w.addPart(req, at, offset)
		s.parts[at] = offset
	}
	if w.chance(25) && len(s.parts) > 0 {
		w.forget(s, req)
	}
	s.epoch++
	return one(0, req, func(r kmsg.Response) {
		if r.(*kmsg.FetchResponse).ErrorCode != 0 {
			w.queue = append(w.queue, func() step { return w.endSession(s) })
		}
	})
}

// forget takes a partition out of a session that its request does not name.
func (w *world) forget(s *session, req *kmsg.FetchRequest) {
	all := slices.SortedFunc(maps.Keys(s.parts), comparePlaces)
	at := all[w.IntN(len(all))]
	for _, t := range req.Topics {
		if t.Topic == at.topic {
			return
		}
	}
	delete(s.parts, at)
	f := kmsg.NewFetchRequestForgottenTopic()
	f.Topic, f.TopicID, f.Partitions = at.topic, w.topics[at.topic], []int32{at.partition}
	if req.Version >= 13 && f.TopicID == ([16]byte{}) {
		f.TopicID = [16]byte{1, 2, 3}
	}
	req.ForgottenTopics = append(req.ForgottenTopics, f)
}

func (w *world) beginSession(s *session) step {
	*s = session{byID: w.chance(50), isolated: int8(w.IntN(2)), parts: map[place]int64{}}
	req := w.fetchRequest(s)
	for _, at := range w.spots(1 + w.IntN(4)) {
		offset := int64(w.IntN(10))
		w.addPart(req, at, offset)
		s.parts[at] = offset
	}
	return one(0, req, func(r kmsg.Response) {
		if resp := r.(*kmsg.FetchResponse); resp.ErrorCode == 0 {
			s.id, s.epoch = resp.SessionID, 1
		}
	})
}

// endSession closes a session, as a rule with a fetch beside all sessions.
func (w *world) endSession(s *session) step {
	req := w.fetchRequest(s)
	req.SessionEpoch = -1
	if w.chance(50) {
		w.addPart(req, w.place(), 0)
	}
	s.id = 0
	return one(0, req, nil)
}
