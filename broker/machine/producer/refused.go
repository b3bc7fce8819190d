package producer

// A batch that was refused although its sequence was the right one (its verdict was stale, its partition not yet in
// the transaction) will come again. Until then a later batch of the same producer must not slip in before it: with no
// batch known, any sequence would do (kafka-eos.md A.4 row 5, A.7). What is remembered for that is volatile.

type refusal struct {
	partition  *Partition
	producerID int64
	epoch      int16
	lowest     int32
	prev, next *refusal
}

// refusals are all partitions' memories, oldest first.
type refusals struct {
	first, last *refusal
	count       int
}

func (l *refusals) pushBack(r *refusal) {
	r.prev, r.next = l.last, nil
	if l.last == nil {
		l.first = r
	} else {
		l.last.next = r
	}
	l.last = r
	l.count++
}

func (l *refusals) remove(r *refusal) {
	if r.prev == nil {
		l.first = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		l.last = r.prev
	} else {
		r.next.prev = r.prev
	}
	l.count--
}

// Refused remembers that b did not go in for a reason that lies outside of Check, and that the client will send it
// again. It is forgotten when any batch or marker of the producer goes in, and when too many others are remembered.
func (p *Partition) Refused(b Batch) {
	if e := p.entries[b.ProducerID]; e != nil && (b.Epoch < e.epoch || (b.Epoch == e.epoch && e.batches.count > 0)) {
		return
	}
	if r := p.refused[b.ProducerID]; r != nil {
		switch {
		case b.Epoch > r.epoch:
			r.epoch, r.lowest = b.Epoch, b.FirstSequence
		case b.Epoch == r.epoch && b.FirstSequence < r.lowest:
			r.lowest = b.FirstSequence
		}
		return
	}
	l := &p.table.refused
	if l.count >= p.table.cfg.MaxRefused {
		l.first.partition.Forget(l.first.producerID)
	}
	r := &refusal{partition: p, producerID: b.ProducerID, epoch: b.Epoch, lowest: b.FirstSequence}
	if p.refused == nil {
		p.refused = make(map[int64]*refusal)
	}
	p.refused[b.ProducerID] = r
	l.pushBack(r)
}

// Forget drops what Refused remembered of a producer.
func (p *Partition) Forget(producerID int64) {
	if len(p.refused) == 0 {
		return
	}
	if r := p.refused[producerID]; r != nil {
		p.table.refused.remove(r)
		delete(p.refused, producerID)
	}
}

// GaveUp notes that b did not go in and that the client will not send it again: what comes behind it need not wait for
// it, but still waits for an earlier one.
func (p *Partition) GaveUp(b Batch) {
	r := p.refused[b.ProducerID]
	if r == nil || r.epoch > b.Epoch || r.epoch == b.Epoch && r.lowest < b.FirstSequence {
		return
	}
	p.Forget(b.ProducerID)
}
