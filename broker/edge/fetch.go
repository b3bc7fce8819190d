package edge

import (
	"errors"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

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
	encoder wire.FetchResponse
	parts   []fetchPart
	records fetchRecords
}

// NewFetcher returns a Fetcher.
func (e *Edge) NewFetcher() *Fetcher { return &Fetcher{edge: e} }

// fetchPart is one partition of a Fetch request.
type fetchPart struct {
	req  *kmsg.FetchRequestTopicPartition
	part *sequencer.Partition // nil: code says why
	code int16
	byID bool
	// view is what the response tells; it is loaded once per evaluation.
	view *sequencer.Published
	out  wire.FetchPartition
	// records of this partition are in the response.
	records []byte
}

// Kafka's names for fetch sessions (KIP-227). This broker keeps none: it answers session id 0, and every request
// names all its partitions.
const (
	sessionInitialEpoch = 0
	sessionFinalEpoch   = -1
)

const (
	fetchTopicIDs = 13 // the first version that names topics by id
	movedRetries  = 8  // how often a partition's view is loaded again because its batches have moved
)

// Begin takes a request. It reports false if only Response is left to be called.
func (f *Fetcher) Begin(req *kmsg.FetchRequest) bool {
	f.req, f.code, f.parts = req, 0, f.parts[:0]
	if req.Version >= 7 && (req.SessionID != 0 || req.SessionEpoch != sessionInitialEpoch && req.SessionEpoch != sessionFinalEpoch) {
		f.code = kerr.FetchSessionIDNotFound.Code
		return false
	}
	byID := req.Version >= fetchTopicIDs
	for i := range req.Topics {
		t := &req.Topics[i]
		for k := range t.Partitions {
			p := fetchPart{req: &t.Partitions[k], byID: byID}
			p.part, _, p.code = f.edge.partition(t.Topic, t.TopicID, byID, p.req.Partition)
			f.parts = append(f.parts, p)
		}
	}
	return true
}

// End lets go of the request and its memory; the response must have been written.
func (f *Fetcher) End() {
	f.records.release(f.edge)
	clear(f.parts)
	f.req = nil
}

// Watch lets w be woken when a partition of the request changes, until Unwatch.
func (f *Fetcher) Watch(w *sequencer.Waiter) {
	for i := range f.parts {
		if p := f.parts[i].part; p != nil {
			p.Watch(w)
		}
	}
}

// Unwatch ends Watch.
func (f *Fetcher) Unwatch(w *sequencer.Waiter) {
	for i := range f.parts {
		if p := f.parts[i].part; p != nil {
			p.Unwatch(w)
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
		p := &f.parts[i]
		p.look(req.IsolationLevel)
		urgent = urgent || p.code != 0 || p.out.Diverging != nil
		readable = readable || p.readable(req.IsolationLevel)
	}
	if !readable {
		return urgent || last || req.MinBytes <= 0, true
	}
	budget := int(min(req.MaxBytes, f.edge.FetchMaxBytes))
	for i := range f.parts {
		p := &f.parts[i]
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
	p.out = wire.FetchPartition{Index: p.req.Partition, HighWatermark: -1, LastStable: -1, LogStart: -1}
	if p.part == nil {
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
	p.code = checkEpoch(v, p.req.CurrentLeaderEpoch)
	if v.Deleted && p.byID {
		p.code = kerr.UnknownTopicID.Code
	}
	if p.code == kerr.FencedLeaderEpoch.Code {
		p.out.Leader = &wire.FetchLeader{Epoch: v.LeaderEpoch}
	}
	if p.code == 0 {
		p.out.HighWatermark, p.out.LastStable, p.out.LogStart = v.HighWatermark, v.LastStable, v.LogStart
		if p.req.FetchOffset < v.LogStart || p.req.FetchOffset > v.HighWatermark {
			p.code = kerr.OffsetOutOfRange.Code
		}
	}
	if p.code == 0 && p.req.LastFetchedEpoch >= 0 {
		epoch, end := epochEnd(v, p.req.LastFetchedEpoch)
		if epoch < p.req.LastFetchedEpoch || end < p.req.FetchOffset {
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
	return p.code == 0 && p.part != nil && p.out.Diverging == nil && p.req.FetchOffset < limitOf(p.view, isolation)
}

// readPart reads the partition's records, at most left bytes, except that the first batch of a response comes whole.
// got is false if there is no memory for it at the moment.
func (f *Fetcher) readPart(p *fetchPart, left int, cancel <-chan struct{}) (got, ok bool) {
	r, budget, isolation := &f.records, f.edge.fetchBudget, f.req.IsolationLevel
	want := min(int(max(p.req.PartitionMaxBytes, 0)), max(left, 0), maxPartBytes)
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
		read, err = p.view.Log.Read(r.room(f.edge.Pool, want), p.req.FetchOffset, limitOf(p.view, isolation), want, first)
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
		f.edge.Log.Error("a partition cannot be read", "partition", p.view.Partition, "offset", p.req.FetchOffset, "error", err)
		p.code = kerr.KafkaStorageError.Code
		p.out.ErrorCode = p.code
	case isolation == isolationReadCommitted && len(read) > 0 && len(p.view.Aborted) > 0:
		p.out.Aborted = abortedWithin(p.view, p.req.FetchOffset, read)
	}
	return true, true
}

// Response encodes the answer, records and all, without copying them: they belong to f until End. endpoint is how the
// client reaches this broker.
func (f *Fetcher) Response(correlationID int32, endpoint wire.FetchBroker) net.Buffers {
	topics := f.req.Topics
	if f.code != 0 {
		topics = nil
	}
	f.encoder.Begin(f.req.Version, correlationID, f.code, len(topics))
	var named *wire.FetchBroker
	at := 0
	for i := range topics {
		t := &topics[i]
		f.encoder.Topic(t.Topic, t.TopicID, len(t.Partitions))
		for range t.Partitions {
			p := &f.parts[at]
			at++
			if p.out.Leader != nil {
				p.out.Leader.ID = endpoint.ID
				named = &endpoint
			}
			f.encoder.Partition(&p.out, p.records)
		}
		f.encoder.EndTopic()
	}
	pieces, _ := f.encoder.Finish(nil, named)
	return pieces
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
