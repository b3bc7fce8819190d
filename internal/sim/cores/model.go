package cores

import (
	"cmp"
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/machine/producer"
)

// model decides like the tables of the protocol, with maps and scans instead of structures: producers (Kafka's rules for
// an idempotent producer on a partition's leader), the transaction coordinator, and the fate of offsets. What it
// says is compared with every answer of the machine. Groups are judged by what their members were told.
type model struct {
	bounds   bounds
	topics   map[string]*modelTopic
	parts    map[machine.PartitionID]*modelPart
	nextPart machine.PartitionID
	ids      map[string]*modelTxn
	groups   map[string]*modelGroup
	touches  int // counts what was touched, to know the longest idle
	entries  int
	refusals int // counts refusals, to know the oldest
	order    int // counts commits of offsets
	nextPID  int64
	endPID   int64
	leader   int32 // leader epoch, and coordinator epoch
	wallMs   int64
	engineMs int64
}

// bounds are the limits of a run.
type bounds struct {
	maxEntries, maxRefused, maxIDs, maxGroups int
	producerMs, idMs                          int64
	maxTimeoutMs                              int32
}

type modelTopic struct{ parts []machine.PartitionID }

type modelPart struct {
	id      machine.PartitionID
	end     int64
	entries map[int64]*modelEntry
	refused map[int64]*modelRefusal // volatile
	aborted []producer.Aborted
	log     []modelBatch
	shelved int64
}

// modelBatch is what a reader must find: values of a batch, or a marker.
type modelBatch struct {
	base   int64
	batch  *batch
	txn    *modelOutcome // nil outside of transactions
	marker bool
}

// modelOutcome is how the transaction that a batch belongs to ended.
type modelOutcome struct{ ended, committed bool }

type modelEntry struct {
	epoch       int16
	coordinator int32
	batches     []modelCached
	open        int64 // first offset of the open transaction, -1 without
	touch       int
	touchedMs   int64
	outcome     *modelOutcome
}

type modelCached struct {
	first, last int32
	base        int64
}

type modelRefusal struct {
	epoch  int16
	lowest int32
	order  int
}

func newModel(b bounds) *model {
	return &model{
		bounds: b, topics: map[string]*modelTopic{}, parts: map[machine.PartitionID]*modelPart{}, nextPart: 1,
		ids: map[string]*modelTxn{}, groups: map[string]*modelGroup{},
	}
}

// restarted forgets what a crash forgets. Producer ids of a block that was begun are not used further.
func (m *model) restarted() {
	m.nextPID = m.endPID
	for _, p := range m.parts {
		p.refused = map[int64]*modelRefusal{}
	}
}

func (m *model) find(at place) *modelPart {
	t := m.topics[at.topic]
	if t == nil || at.partition < 0 || int(at.partition) >= len(t.parts) {
		return nil
	}
	return m.parts[t.parts[at.partition]]
}

func (m *model) grow(t *modelTopic, count int32) {
	for range count {
		m.parts[m.nextPart] = &modelPart{id: m.nextPart, entries: map[int64]*modelEntry{}, refused: map[int64]*modelRefusal{}}
		t.parts = append(t.parts, m.nextPart)
		m.nextPart++
	}
}

func (m *model) newPID() int64 {
	if m.nextPID == m.endPID {
		m.endPID += 1000
	}
	m.nextPID++
	return m.nextPID - 1
}

func (p *modelPart) stable() int64 {
	stable := p.end
	for _, e := range p.entries {
		if e.open >= 0 {
			stable = min(stable, e.open)
		}
	}
	return stable
}

// decide carries out a request and returns the answer that the protocol wants; nil is one that only observe judges.
func (m *model) decide(r *request) *reply {
	if r.kind == kindJoin || r.kind == kindLeave {
		m.unsettle()
	}
	switch r.kind {
	case kindTick:
		m.tick()
		return nil
	case kindIncarnation:
		m.leader = int32(r.number)
		return nil
	case kindAge:
		t := m.ids[r.id]
		t.epoch, t.last, t.timeoutMs = r.epoch, -1, r.timeoutMs
		m.touchID(t)
		m.nextPID = m.endPID
		return nil
	case kindShelved:
		for _, s := range r.shelved {
			if p := m.parts[s.Partition]; p != nil {
				p.shelved = max(p.shelved, s.EndOffset)
			}
		}
		return &reply{}
	case kindProduce:
		return m.produce(r)
	case kindInit:
		return m.init(r)
	case kindAdd, kindVerify:
		return m.addPartitions(r)
	case kindAddOffsets:
		return &reply{codes: []int16{fencedBefore(2, r.version, m.join(r, nil, r.group, true))}}
	case kindEnd:
		return m.endTxn(r)
	case kindTxnCommit:
		return m.txnCommit(r)
	case kindFetch:
		return m.fetch(r)
	case kindMarkers:
		return m.writeMarkers(r)
	case kindTransactions:
		return m.describeTransaction(r)
	case kindProducers:
		return m.describeProducers(r)
	case kindCreateTopic, kindGrowTopic, kindDeleteTopic:
		return &reply{codes: []int16{m.administer(r)}}
	}
	return nil
}

func (m *model) administer(r *request) int16 {
	name := r.parts[0].topic
	t := m.topics[name]
	switch {
	case r.kind == kindCreateTopic:
		if t != nil {
			return kerr.TopicAlreadyExists.Code
		}
		t = &modelTopic{}
		m.topics[name] = t
		m.grow(t, r.count)
	case t == nil:
		return kerr.UnknownTopicOrPartition.Code
	case r.kind == kindGrowTopic:
		if int(r.count) <= len(t.parts) {
			return kerr.InvalidPartitions.Code
		}
		m.grow(t, r.count-int32(len(t.parts)))
	default:
		for _, id := range t.parts {
			m.entries -= len(m.parts[id].entries)
			delete(m.parts, id)
		}
		delete(m.topics, name)
		for _, g := range m.groups {
			for at := range g.offsets {
				if at.topic == name {
					delete(g.offsets, at)
				}
			}
		}
	}
	return 0
}

// produce follows the order of checks of a Produce request.
func (m *model) produce(r *request) *reply {
	a := &reply{}
	nameless := r.none && slices.ContainsFunc(r.batches, func(b *batch) bool { return b.transactional })
	for _, b := range r.batches {
		code, offset, stale := kerr.TransactionalIDAuthorizationFailed.Code, int64(-1), false
		if !nameless {
			code, offset, stale = m.produceOne(r, b)
		}
		a.codes, a.offsets, a.stale = append(a.codes, code), append(a.offsets, offset), append(a.stale, stale)
	}
	return a
}

func (m *model) produceOne(r *request, b *batch) (code int16, offset int64, stale bool) {
	p := m.find(b.place)
	if p == nil {
		return kerr.UnknownTopicOrPartition.Code, -1, false
	}
	last := b.first + int32(len(b.values)) - 1
	if last < b.first {
		last += math.MinInt32 // the space of sequences ends at 2^31 - 1 and begins again at 0
	}
	bumps := b.transactional && r.version >= 12
	if e := p.entries[r.pid]; b.transactional && !(e != nil && e.epoch == r.epoch && e.open >= 0) {
		if e != nil && r.epoch < e.epoch {
			return kerr.InvalidProducerEpoch.Code, -1, false // row 2
		}
		if code := participant(m.join(r, []machine.PartitionID{p.id}, "", r.version >= 12), r.version >= 11); code != 0 { // row 3
			if code != kerr.InvalidProducerEpoch.Code && code != kerr.InvalidProducerIDMapping.Code {
				m.refuse(p, r, b)
			}
			return code, -1, false
		}
	}
	verdict := b.verdict
	if verdict == 0 && r.pid >= 0 && r.epoch < 0 {
		verdict = kerr.InvalidRecord.Code
	}
	if b.stale || verdict != 0 {
		switch {
		case r.pid >= 0 && (b.stale || b.transactional):
			m.refuse(p, r, b)
		case r.pid >= 0:
			if w := p.refused[r.pid]; w != nil && (w.epoch < r.epoch || w.epoch == r.epoch && w.lowest >= b.first) {
				delete(p.refused, r.pid)
			}
		}
		if b.stale {
			return 0, -1, true
		}
		return verdict, -1, false
	}
	if r.pid >= 0 {
		code, offset := m.check(p, r, b, last, bumps)
		if code != 0 || offset >= 0 {
			return code, offset, false
		}
		if p.entries[r.pid] == nil && !m.makeRoom() {
			return kerr.NotEnoughReplicas.Code, -1, false
		}
	}
	return 0, m.append(p, r, b, last), false
}

// check is the decision table of a client's data batch, row by row. A duplicate returns its offset.
func (m *model) check(p *modelPart, r *request, b *batch, last int32, bumps bool) (code int16, duplicate int64) {
	e, wait := p.entries[r.pid], p.refused[r.pid]
	if e != nil && r.epoch == e.epoch { // row 1
		for _, c := range e.batches {
			if c.first == b.first && c.last == last {
				return 0, c.base
			}
		}
	}
	newest := int32(-1)
	if e != nil && len(e.batches) > 0 {
		newest = e.batches[len(e.batches)-1].last
	}
	outOfOrder := kerr.OutOfOrderSequenceNumber.Code
	switch {
	case e != nil && r.epoch < e.epoch: // row 4
		return kerr.InvalidProducerEpoch.Code, -1
	case wait != nil && wait.epoch == r.epoch && b.first > wait.lowest: // row 5
		return outOfOrder, -1
	case bumps && b.first != 0 && newest < 0: // row 6
		return outOfOrder, -1
	case e != nil && r.epoch != e.epoch && b.first != 0: // row 7
		return outOfOrder, -1
	case e != nil && r.epoch > e.epoch: // row 8
	case e == nil: // row 9
	case newest < 0 && b.first == 0: // row 10
	case newest >= 0 && b.first == newest+1, newest == math.MaxInt32 && b.first == 0: // row 11
	default: // row 12
		return outOfOrder, -1
	}
	if !b.transactional && e != nil && e.open >= 0 { // row 13
		return kerr.InvalidTxnState.Code, -1
	}
	return 0, -1
}

func (m *model) append(p *modelPart, r *request, b *batch, last int32) (offset int64) {
	offset = p.end
	p.end += int64(len(b.values))
	row := modelBatch{base: offset, batch: b}
	if r.pid >= 0 {
		e := m.entry(p, r.pid)
		e.adopt(r.epoch)
		e.batches = append(e.batches, modelCached{b.first, last, offset})
		if len(e.batches) > 5 {
			e.batches = e.batches[1:]
		}
		if b.transactional && e.open < 0 { // row 14
			e.open, e.outcome = offset, &modelOutcome{}
		}
		m.touch(e)
		delete(p.refused, r.pid)
		row.txn = e.outcome
	}
	p.log = append(p.log, row)
	return offset
}

func (m *model) entry(p *modelPart, pid int64) *modelEntry {
	e := p.entries[pid]
	if e == nil {
		e = &modelEntry{epoch: -1, coordinator: -1, open: -1}
		p.entries[pid] = e
		m.entries++
	}
	return e
}

func (m *model) touch(e *modelEntry) {
	m.touches++
	e.touch, e.touchedMs = m.touches, m.engineMs
}

func (e *modelEntry) adopt(epoch int16) {
	if e.epoch != epoch {
		e.epoch, e.batches = epoch, nil
	}
}

// refuse remembers a batch that will come again, so that a later one does not slip in before it.
func (m *model) refuse(p *modelPart, r *request, b *batch) {
	if e := p.entries[r.pid]; e != nil && (r.epoch < e.epoch || r.epoch == e.epoch && len(e.batches) > 0) {
		return
	}
	w := p.refused[r.pid]
	switch {
	case w == nil:
		m.forgetRefusal()
		m.refusals++
		p.refused[r.pid] = &modelRefusal{epoch: r.epoch, lowest: b.first, order: m.refusals}
	case r.epoch > w.epoch:
		w.epoch, w.lowest = r.epoch, b.first
	case r.epoch == w.epoch:
		w.lowest = min(w.lowest, b.first)
	}
}

// forgetRefusal makes room for one more.
func (m *model) forgetRefusal() {
	count, oldest := 0, math.MaxInt
	var from *modelPart
	var who int64
	for _, p := range m.parts {
		for pid, w := range p.refused {
			count++
			if w.order < oldest {
				oldest, from, who = w.order, p, pid
			}
		}
	}
	if count >= m.bounds.maxRefused {
		delete(from.refused, who)
	}
}

// makeRoom forgets the producer that was idle for the longest if there is no place for another.
func (m *model) makeRoom() bool {
	if m.entries < m.bounds.maxEntries {
		return true
	}
	p, pid := m.longestIdle()
	if p == nil {
		return false
	}
	m.forget(p, pid)
	return true
}

func (m *model) longestIdle() (at *modelPart, who int64) {
	oldest := math.MaxInt
	for _, p := range m.parts {
		for pid, e := range p.entries {
			if e.open < 0 && e.touch < oldest {
				oldest, at, who = e.touch, p, pid
			}
		}
	}
	return at, who
}

func (m *model) forget(p *modelPart, pid int64) {
	delete(p.entries, pid)
	m.entries--
}

// mark writes a transaction's marker into a partition, unless the producer was seen there with a higher epoch.
func (m *model) mark(p *modelPart, pid int64, epoch int16, commit bool) {
	if e := p.entries[pid]; e != nil && epoch < e.epoch {
		return
	}
	if p.entries[pid] == nil {
		m.makeRoom()
	}
	e := m.entry(p, pid)
	offset := p.end
	p.end++
	first := e.open
	e.open = -1
	if first >= 0 {
		*e.outcome = modelOutcome{ended: true, committed: commit}
		if !commit {
			p.aborted = append(p.aborted, producer.Aborted{ProducerID: pid, FirstOffset: first, LastOffset: offset, LastStable: p.stable()})
		}
	}
	e.outcome = nil
	e.adopt(epoch)
	e.coordinator = m.leader
	m.touch(e)
	delete(p.refused, pid)
	p.log = append(p.log, modelBatch{base: offset, marker: true})
}

// sortedParts lists the partitions, ascending by id.
func (m *model) sortedParts() []*modelPart {
	all := make([]*modelPart, 0, len(m.parts))
	for _, p := range m.parts {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *modelPart) int { return cmp.Compare(a.id, b.id) })
	return all
}
