package edge

import (
	"errors"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/segment"
	"github.com/strandline-io/strandline/broker/sequencer"
	"github.com/strandline-io/strandline/broker/wire"
	"github.com/strandline-io/strandline/internal/mutant"
)

// Fetcher answers the Fetch requests of one connection, one after another: Begin, then Evaluate until it is enough,
// Response, End. It belongs to one goroutine.
type Fetcher struct {
	edge    *Edge
	req     *kmsg.FetchRequest
	code    int16
	byID    bool
	encoder wire.FetchResponse
	parts   []*fetchPart // those of own, or of session
	records fetchRecords
	own     ownParts
	// session is what the request goes on with, or what its response begins.
	session *session
	answer  []*fetchPart      // what the response tells
	waiter  *sequencer.Waiter // that watches parts, or nil
}

// ownParts are the partitions of a request that names them all.
type ownParts struct {
	parts []fetchPart
	refs  []*fetchPart
}

// NewFetcher returns a Fetcher.
func (e *Edge) NewFetcher() *Fetcher { return &Fetcher{edge: e} }

// fetchPart is one partition that a Fetch request asks for, itself or by its session.
type fetchPart struct {
	topic   string // empty if the request names topics by id
	topicID [16]byte
	ask     fetchAsk
	part    *sequencer.Partition // nil: code says why
	code    int16
	// known says that there was a topic of this id. When it is deleted, its name is what nothing has.
	known bool
	// denied says that the client may not read the topic.
	denied bool
	// forgotten says that a session's client does not want it any more.
	forgotten bool
	// told is what the session's client knows.
	told toldOffsets
	// view is what the response tells; it is loaded once per evaluation.
	view *sequencer.Published
	out  wire.FetchPartition
	// records of this partition are in the response.
	records []byte
}

// fetchAsk is what a client wants of a partition.
type fetchAsk struct {
	index, maxBytes        int32
	offset                 int64
	leaderEpoch, lastEpoch int32
}

func askOf(p *kmsg.FetchRequestTopicPartition) fetchAsk {
	return fetchAsk{
		index: p.Partition, maxBytes: p.PartitionMaxBytes, offset: p.FetchOffset,
		leaderEpoch: p.CurrentLeaderEpoch, lastEpoch: p.LastFetchedEpoch,
	}
}

// toldOffsets is what a session's client was told last of a partition.
type toldOffsets struct{ highWatermark, lastStable, logStart int64 }

// toldNothing makes the next response tell of the partition.
var toldNothing = toldOffsets{-1, -1, -1}

// note takes down what the response tells. It reports whether the client does not know it yet. Errors are told each
// time, and what follows them too.
func (t *toldOffsets) note(p *fetchPart) (news bool) {
	o := &p.out
	now := toldOffsets{o.HighWatermark, o.LastStable, o.LogStart}
	news = *t != now || len(p.records) > 0 && !mutant.On("fetch session leaves out records") || o.ErrorCode != 0 || o.Diverging != nil
	if *t = now; o.ErrorCode != 0 {
		*t = toldNothing
	}
	return news
}

func (p *fetchPart) key() partKey { return partKey{p.topic, p.topicID, p.ask.index} }

// find looks the partition up, unless it is known and still there.
func (p *fetchPart) find(e *Edge, byID bool) {
	if p.part != nil && !p.part.Load().Deleted {
		return
	}
	p.told = toldNothing
	var t *machine.Topic
	p.part, t, p.code = e.partition(p.topic, p.topicID, byID, p.ask.index)
	if t == nil && p.known {
		p.code = kerr.UnknownTopicOrPartition.Code
	}
	p.known = p.known || t != nil
}

const (
	fetchTopicIDs = 13 // the first version that names topics by id
	movedRetries  = 8  // how often a partition's view is loaded again because its batches have moved
	// keepParts is for how many partitions a connection keeps memory between two requests.
	keepParts = 1024
)

// Begin takes a request of a client with these permissions. It reports false if only Response is left to be called.
func (f *Fetcher) Begin(req *kmsg.FetchRequest, may Permissions) bool {
	if !f.begin(req) {
		return false
	}
	if may != nil {
		f.authorize(may)
	}
	return true
}

// authorize looks which of the partitions the client may read: also those of a session, whose client may be another by now.
func (f *Fetcher) authorize(may Permissions) {
	for _, p := range f.parts {
		name, known := p.topic, true
		if f.byID {
			var t *machine.Topic
			if t, known = f.edge.Board.TopicByID(p.topicID); known {
				name = t.Name
			}
		}
		p.denied = known && may.denied(kmsg.ACLOperationRead, name)
	}
}

func (f *Fetcher) begin(req *kmsg.FetchRequest) bool {
	f.req, f.code, f.byID = req, 0, req.Version >= fetchTopicIDs
	all := f.edge.sessions
	if req.Version < sessionsVersion {
		f.askAll()
		return true
	}
	if req.SessionEpoch == sessionInitialEpoch || req.SessionEpoch == sessionFinalEpoch {
		all.close(req.SessionID)
		f.askAll()
		return true
	}
	if f.session, f.code = all.continueAt(req.SessionID, req.SessionEpoch, f.byID); f.code != 0 {
		return false
	}
	if !all.update(f.session, f.edge, req) {
		// The client begins anew, and is told then that there is no session for so much.
		f.code = kerr.FetchSessionIDNotFound.Code
		return false
	}
	if f.parts = f.session.parts; len(f.parts) == 0 {
		all.close(f.session.id)
		f.leaveSession()
	}
	return true
}

func (f *Fetcher) leaveSession() {
	if f.session != nil {
		f.edge.sessions.rest(f.session)
		f.session = nil
	}
}

// askAll takes all partitions from the request.
func (f *Fetcher) askAll() {
	total := 0
	for i := range f.req.Topics {
		total += len(f.req.Topics[i].Partitions)
	}
	o := &f.own
	if cap(o.parts) < total {
		*o = ownParts{make([]fetchPart, 0, total), make([]*fetchPart, 0, total)}
	}
	for i := range f.req.Topics {
		t := &f.req.Topics[i]
		for k := range t.Partitions {
			o.parts = append(o.parts, fetchPart{ask: askOf(&t.Partitions[k]), told: toldNothing})
			p := &o.parts[len(o.parts)-1]
			if f.byID {
				p.topicID = t.TopicID
			} else {
				p.topic = t.Topic
			}
			p.find(f.edge, f.byID)
			o.refs = append(o.refs, p)
		}
	}
	f.parts = o.refs
}

// End lets go of the request and its memory; the response must have been written.
func (f *Fetcher) End() {
	f.letGo()
	f.records.release(f.edge)
	f.req = nil
}

// letGo ends watching and the use of the session: the client may go on with it as soon as it is answered, on another
// connection too. The records of the response stay.
func (f *Fetcher) letGo() {
	for _, p := range f.parts {
		if f.waiter != nil && p.part != nil {
			p.part.Unwatch(f.waiter)
		}
		p.view, p.records, p.out = nil, nil, wire.FetchPartition{}
	}
	f.parts, f.waiter = nil, nil
	f.leaveSession()
	clear(f.own.parts)
	clear(f.answer)
	f.own.parts, f.own.refs, f.answer = f.own.parts[:0], f.own.refs[:0], f.answer[:0]
	if max(cap(f.own.parts), cap(f.answer)) > keepParts {
		f.own, f.answer = ownParts{}, nil
	}
}

// Watch lets w be woken when a partition of the request changes, until Response or End.
func (f *Fetcher) Watch(w *sequencer.Waiter) {
	f.waiter = w
	for _, p := range f.parts {
		if p.part != nil {
			p.part.Watch(w)
		}
	}
}

// Evaluate looks at all partitions and reads what may be answered. enough says that the response is due: because it has
// enough bytes, or an error, or this is the last chance. It waits for memory until cancel is closed; then ok is false.
func (f *Fetcher) Evaluate(last bool, cancel <-chan struct{}) (enough, ok bool) {
	f.records.release(f.edge)
	req := f.req
	urgent, readable := len(f.parts) == 0, false
	for i := range f.parts {
		p := f.parts[i]
		p.look(req.IsolationLevel)
		urgent = urgent || p.code != 0 || p.out.Diverging != nil
		readable = readable || p.readable(req.IsolationLevel)
	}
	if !readable {
		return urgent || last || req.MinBytes <= 0, true
	}
	budget := int(min(req.MaxBytes, f.edge.FetchMaxBytes))
	for i := range f.parts {
		p := f.parts[i]
		if !p.readable(req.IsolationLevel) {
			continue
		}
		got, ok := f.readPart(p, budget-f.records.size, cancel)
		if !ok {
			return false, false
		}
		urgent = urgent || p.code != 0
		if !got {
			break // memory is short: answer with what is there
		}
	}
	return f.records.size >= int(req.MinBytes) || f.records.full || urgent || last, true
}

// look loads the partition's view and judges what the client asked of it.
func (p *fetchPart) look(isolation int8) {
	p.records = nil
	p.out = wire.FetchPartition{Index: p.ask.index, HighWatermark: -1, LastStable: -1, LogStart: -1}
	if p.denied {
		p.code = kerr.TopicAuthorizationFailed.Code
	}
	if p.part == nil || p.denied {
		p.out.ErrorCode = p.code
		return
	}
	v := p.part.Load()
	if mutant.On("published view read in parts") && p.view != nil {
		parts := *v
		parts.Aborted = p.view.Aborted
		v = &parts
	}
	p.view = v
	p.code = checkEpoch(v, p.ask.leaderEpoch)
	if p.code == kerr.FencedLeaderEpoch.Code {
		p.out.Leader = &wire.FetchLeader{Epoch: v.LeaderEpoch}
	}
	if p.code == 0 {
		p.out.HighWatermark, p.out.LastStable, p.out.LogStart = v.HighWatermark, v.LastStable, v.LogStart
		if p.ask.offset < v.LogStart && !mutant.On("deleted records can be read") || p.ask.offset > v.HighWatermark {
			p.code = kerr.OffsetOutOfRange.Code
		}
	}
	if p.code == 0 && p.ask.lastEpoch >= 0 {
		epoch, end := epochEnd(v, p.ask.lastEpoch)
		if epoch < p.ask.lastEpoch || end < p.ask.offset {
			p.out.Diverging = &wire.FetchEpochEnd{Epoch: epoch, EndOffset: end}
		}
	}
	if p.code == 0 && isolation == isolationReadCommitted {
		p.out.Aborted = []wire.FetchAborted{}
	}
	p.out.ErrorCode = p.code
}

// readable reports whether look found something to read.
func (p *fetchPart) readable(isolation int8) bool {
	return p.code == 0 && p.part != nil && p.out.Diverging == nil && p.ask.offset < limitOf(p.view, isolation)
}

// readPart reads the partition's records, at most left bytes, except that the first batch of a response comes whole.
// got is false if there is no memory for it at the moment.
func (f *Fetcher) readPart(p *fetchPart, left int, cancel <-chan struct{}) (got, ok bool) {
	r, budget, isolation := &f.records, f.edge.fetchBudget, f.req.IsolationLevel
	want := min(int(max(p.ask.maxBytes, 0)), max(left, 0), maxPartBytes)
	first := r.size == 0
	if first {
		n, ok := budget.Acquire(int64(want), cancel)
		if !ok {
			return false, false
		}
		r.taken += n
	} else if !budget.TryAcquire(int64(want)) {
		return false, true
	} else {
		r.taken += int64(want)
	}
	var read []byte
	var err error
	for range movedRetries {
		read, err = p.view.Log.Read(r.room(f.edge.Pool, want), p.ask.offset, limitOf(p.view, isolation), want, first)
		if !errors.Is(err, segment.ErrMoved) {
			break
		}
		// The batches have moved to files since the view was published; a newer one knows where.
		if p.look(isolation); !p.readable(isolation) {
			break
		}
	}
	p.records = r.keep(read)
	r.full = r.full || len(read) > maxPartBytes/2
	// What was taken and not needed goes back at once; what a large first batch takes beyond it is bounded by one
	// batch for each connection.
	if spare := min(int64(want-len(read)), r.taken); spare > 0 {
		r.taken -= spare
		budget.Release(spare)
	}
	switch {
	case p.code != 0:
	case err != nil:
		f.edge.Log.Error("a partition cannot be read", "partition", p.view.Partition, "offset", p.ask.offset, "error", err)
		p.code = kerr.KafkaStorageError.Code
		p.out.ErrorCode = p.code
	case isolation == isolationReadCommitted && len(read) > 0 && len(p.view.Aborted) > 0:
		p.out.Aborted = abortedWithin(p.view, p.ask.offset, read)
	}
	return true, true
}

// Response encodes the answer, records and all, without copying them: they belong to f until End. endpoint is how the
// client reaches this broker. It is called once for each request.
func (f *Fetcher) Response(correlationID int32, endpoint wire.FetchBroker) net.Buffers {
	f.choose()
	id := int32(sessionNone)
	if f.session != nil && f.code == 0 {
		id = f.session.id
	}
	topics := 0
	for i := range f.answer {
		if i == 0 || !f.answer[i].sameTopic(f.answer[i-1]) {
			topics++
		}
	}
	f.encoder.Begin(f.req.Version, correlationID, f.code, id, topics)
	var named *wire.FetchBroker
	for i := 0; i < len(f.answer); {
		first, end := f.answer[i], i+1
		for end < len(f.answer) && f.answer[end].sameTopic(first) {
			end++
		}
		f.encoder.Topic(first.topic, first.topicID, end-i)
		for ; i < end; i++ {
			p := f.answer[i]
			if p.out.Leader != nil {
				p.out.Leader.ID = endpoint.ID
				named = &endpoint
			}
			f.encoder.Partition(&p.out, p.records)
		}
		f.encoder.EndTopic()
	}
	pieces, _ := f.encoder.Finish(nil, named)
	f.letGo()
	return pieces
}

func (p *fetchPart) sameTopic(other *fetchPart) bool {
	return p.topic == other.topic && p.topicID == other.topicID
}

// choose fills answer: with everything, or with what a session's client does not know yet. The first answer of a session
// begins it.
func (f *Fetcher) choose() {
	switch {
	case f.code != 0:
	case f.session != nil:
		for _, p := range f.parts {
			if p.told.note(p) {
				f.answer = append(f.answer, p)
			}
		}
		f.session.answered()
	default:
		f.answer = append(f.answer, f.parts...)
		if f.req.Version >= sessionsVersion && f.req.SessionEpoch == sessionInitialEpoch {
			f.session = f.edge.sessions.begin(f.parts, f.byID)
		}
	}
}

// fetchRecords is the memory that one response's records are read into: few pooled chunks, none of which moves once
// it holds something. What it learns from one response sizes the chunks of the next.
type fetchRecords struct {
	chunks   []*wire.Buffer
	size     int   // bytes of records
	full     bool  // one partition gave about as much as one may
	taken    int64 // from the fetch budget
	largest  int   // of size, of one partition of this response
	lastSize int   // of the last response
	lastPart int   // its largest partition
}

const (
	minChunkBytes = 64 << 10
	maxChunkBytes = 8 << 20
	// maxPartBytes is what one partition gives to one response at most, whatever the client allows: the next response
	// goes on, and memory stays in pieces that fit the pool.
	maxPartBytes = 4 << 20
)

// withSlack adds what the gaps between batches, which are read along, take for a moment.
func withSlack(n int) int { return n + n/16 + 4096 }

// room returns an empty slice to read about want bytes into. Reading more than fits makes the reader allocate.
func (r *fetchRecords) room(pool *wire.Pool, want int) []byte {
	if n := len(r.chunks); n > 0 {
		last := r.chunks[n-1].B
		if cap(last)-len(last) >= min(want, max(minChunkBytes, withSlack(r.lastPart))) {
			return last[len(last):]
		}
	}
	chunk := pool.Get(min(max(minChunkBytes, withSlack(r.lastSize)), maxChunkBytes))
	r.chunks = append(r.chunks, chunk)
	return chunk.B
}

// keep takes what was read into the slice that room has just returned.
func (r *fetchRecords) keep(read []byte) []byte {
	if len(read) == 0 {
		return nil
	}
	r.size += len(read)
	r.largest = max(r.largest, len(read))
	chunk := r.chunks[len(r.chunks)-1]
	if free := chunk.B[len(chunk.B):cap(chunk.B)]; len(free) > 0 && &free[0] == &read[0] {
		chunk.B = chunk.B[:len(chunk.B)+len(read)]
	}
	return read
}

// release gives everything back; the records must not be used any more.
func (r *fetchRecords) release(e *Edge) {
	if len(r.chunks) == 0 && r.taken == 0 {
		return
	}
	for i, chunk := range r.chunks {
		chunk.Release()
		r.chunks[i] = nil
	}
	e.fetchBudget.Release(r.taken)
	*r = fetchRecords{chunks: r.chunks[:0], lastSize: r.size, lastPart: r.largest}
}
