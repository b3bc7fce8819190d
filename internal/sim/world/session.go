package world

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/record"
)

// session is a transactional producer: one life of one instance of a transactional id. Any refusal ends it.
type session struct {
	c         *client
	id        string
	rank      int  // of the instance: a higher one fences it
	v2        bool // transaction version 2: implicit adding, the epoch rises with every end
	pid       int64
	epoch     int16
	sequences map[string]int32
	added     map[string]bool // to the open transaction, version 1
	dirty     bool            // something of the transaction was refused
	lateInit  bool            // an earlier attempt to take the id over may be
	current   func() bool     // no other instance was started
	timeoutMs int32           // of a transaction; at least and by default transactionMs
}

// init takes the transactional id over; bump keeps it.
func (s *session) init(bump bool) bool {
	version := int16(4)
	if s.v2 {
		version = 5
	}
	resp, certain := s.c.insist(func() kmsg.Request {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID, req.TransactionTimeoutMillis = &s.id, max(s.timeoutMs, transactionMs)
		if bump {
			req.ProducerID, req.ProducerEpoch = s.pid, s.epoch
		}
		return req
	}, version)
	r := resp.(*kmsg.InitProducerIDResponse)
	switch {
	case r.ErrorCode != 0 && !bump:
		s.c.unexpected("InitProducerId", r.ErrorCode)
	case r.ErrorCode != 0:
		s.c.w.stats.Fenced++
		return false
	case !s.current():
		return false
	}
	if r.ProducerEpoch == 0 && (!bump || r.ProducerID != s.pid) {
		s.c.freshProducerID(r.ProducerID)
	}
	s.pid, s.epoch, s.lateInit = r.ProducerID, r.ProducerEpoch, !certain
	s.sequences, s.added, s.dirty = make(map[string]int32), make(map[string]bool), false
	h := s.c.w.history
	if newest := h.newest[s.id]; newest == nil || newest.rank < s.rank {
		h.newest[s.id] = &claim{s.rank, s.c.w.nowUs}
	}
	s.c.w.owns(fmt.Sprintf("%s (%s, rank %d)", s.c.name, s.id, s.rank), s.identity())
	s.c.tracef("owns %s as %d epoch %d", s.id, s.pid, s.epoch)
	return true
}

func (s *session) identity() identity { return identity{s.pid, s.epoch} }

// wrote checks that a success is not a zombie's: nobody else had the id when the request was sent. Where
// replies leave before the sync, a power loss may forget who has it.
func (s *session) wrote(what string, sentUs int64) {
	if newest := s.c.w.history.newest[s.id]; !s.c.w.mode.lossy && newest.rank > s.rank && sentUs > newest.sinceUs {
		s.c.w.fail("fenced: %s: %s of %s was accepted although instance %d has owned the id since %d us", s.c.name, what, s.id, newest.rank, newest.sinceUs)
	}
}

// insist is the client's, but gives up when the time of a transaction is long over, and notes what stays unknown.
func (s *session) insist(make func() kmsg.Request, version int16) (resp kmsg.Response, sentUs int64, certain bool) {
	certain = true
	for range 60 {
		sentUs = s.c.w.nowUs
		if resp = s.c.ask(make(), version); resp != nil {
			return resp, sentUs, certain
		}
		certain = false
		s.c.sleep(s.c.w.Int64N(100 * msInUs))
	}
	return nil, sentUs, false
}

// destination is a partition that one batch of a transaction goes to; of are the inputs that its values are made of.
type destination struct {
	topic     string
	partition int32
	of        []uint64
}

// produce writes one batch of the open transaction.
func (s *session) produce(tx *transaction, topic string, partition int32, of []uint64) bool {
	return s.produceAll(tx, destination{topic, partition, of})
}

// produceAll writes batches of the open transaction to different partitions, in one request.
func (s *session) produceAll(tx *transaction, all ...destination) bool {
	version := int16(12)
	if !s.v2 {
		version = 11
		if !s.addAll(all) {
			return false
		}
	}
	var left []*batch
	for _, d := range all {
		name := partitionName(d.topic, d.partition)
		b := record.NewBuilder()
		b.Transactional, b.ProducerID, b.ProducerEpoch, b.BaseSequence = true, s.pid, s.epoch, s.sequences[name]
		made := s.c.build(b, name, d.topic, d.partition, tx.name, tx, d.of)
		s.sequences[name] += int32(len(made.values))
		left = append(left, made)
	}
	for len(left) > 0 {
		resp, sentUs, _ := s.insist(func() kmsg.Request { return produceRequest(-1, &s.id, left...) }, version)
		if resp == nil {
			return false
		}
		var again []*batch
		for _, b := range left {
			switch p := b.outcome(resp); {
			case p.ErrorCode == 0:
				s.wrote("Produce", sentUs)
				s.c.acknowledged(b, p.BaseOffset)
			case takesAgain(p.ErrorCode):
				again = append(again, b)
			default:
				return s.refused("Produce", p.ErrorCode)
			}
		}
		if left = again; len(left) > 0 {
			s.c.sleep(s.c.w.Int64N(100 * msInUs))
		}
	}
	return true
}

// refused notes that the transaction cannot go on.
func (s *session) refused(what string, code int16) bool {
	s.c.tracef("%s of %s (%d epoch %d) is refused with code %d", what, s.id, s.pid, s.epoch, code)
	s.c.w.stats.Fenced++
	s.dirty = true
	return false
}

// addAll adds the partitions that are not in the transaction yet.
func (s *session) addAll(all []destination) bool {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = s.id, s.pid, s.epoch
	for _, d := range all {
		if !s.added[partitionName(d.topic, d.partition)] {
			t := kmsg.NewAddPartitionsToTxnRequestTopic()
			t.Topic, t.Partitions = d.topic, []int32{d.partition}
			req.Topics = append(req.Topics, t)
		}
	}
	if len(req.Topics) == 0 {
		return true
	}
	resp, _, _ := s.insist(func() kmsg.Request { return req }, 3)
	if resp == nil {
		return false
	}
	for _, t := range resp.(*kmsg.AddPartitionsToTxnResponse).Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				return s.refused("AddPartitionsToTxn", p.ErrorCode)
			}
		}
	}
	for _, d := range all {
		s.added[partitionName(d.topic, d.partition)] = true
	}
	return true
}

// member is who commits offsets.
type member struct {
	group      string
	id         string
	generation int32
}

// offsets puts positions into the open transaction.
func (s *session) offsets(m member, cursors []*cursor) bool {
	version := int16(5)
	if !s.v2 {
		version = 3
		resp, _, _ := s.insist(func() kmsg.Request {
			req := kmsg.NewPtrAddOffsetsToTxnRequest()
			req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = s.id, s.pid, s.epoch, m.group
			return req
		}, 3)
		if resp == nil {
			return false
		}
		if code := resp.(*kmsg.AddOffsetsToTxnResponse).ErrorCode; code != 0 {
			return s.refused("AddOffsetsToTxn", code)
		}
	}
	resp, sentUs, _ := s.insist(func() kmsg.Request {
		req := kmsg.NewPtrTxnOffsetCommitRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch = s.id, s.pid, s.epoch
		req.Group, req.MemberID, req.Generation = m.group, m.id, m.generation
		t := kmsg.NewTxnOffsetCommitRequestTopic()
		t.Topic = "in"
		for _, u := range cursors {
			p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
			p.Partition, p.Offset = u.partition, u.offset
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
		return req
	}, version)
	if resp == nil {
		return false
	}
	for _, p := range resp.(*kmsg.TxnOffsetCommitResponse).Topics[0].Partitions {
		if p.ErrorCode != 0 {
			return s.refused("TxnOffsetCommit", p.ErrorCode)
		}
	}
	s.wrote("TxnOffsetCommit", sentUs)
	m.commits(s.c.w, s.c.name, sentUs)
	return true
}

// end ends the transaction; false means that the session has ended as well.
func (s *session) end(tx *transaction, commit bool) bool {
	version := int16(5)
	if !s.v2 {
		version = 4
	}
	tx.tried = commit
	resp, sentUs, certain := s.insist(func() kmsg.Request {
		req := kmsg.NewPtrEndTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = s.id, s.pid, s.epoch, commit
		return req
	}, version)
	if resp == nil {
		return false
	}
	r := resp.(*kmsg.EndTxnResponse)
	if r.ErrorCode != 0 {
		tx.aborted = certain || !commit
		return s.refused("EndTxn", r.ErrorCode)
	}
	if certain {
		s.wrote("EndTxn", sentUs)
	}
	tx.committed, tx.aborted = commit, !commit
	if commit {
		s.c.w.stats.Commits++
	} else {
		s.c.w.stats.Aborts++
	}
	s.c.tracef("%s is ended, commit %t", tx.name, commit)
	s.added = make(map[string]bool)
	switch {
	case s.v2:
		if s.pid != r.ProducerID || s.epoch != r.ProducerEpoch {
			s.sequences = make(map[string]int32)
		}
		s.pid, s.epoch, s.dirty = r.ProducerID, r.ProducerEpoch, false
		s.c.w.owns(fmt.Sprintf("%s (%s, rank %d)", s.c.name, s.id, s.rank), s.identity())
	case s.dirty, s.c.w.mode.lossy:
		// Where replies leave before the sync, a power loss may bring the transaction back, or a part of it, and the next one
		// of the same epoch would commit that.
		return s.init(true)
	}
	return true
}
