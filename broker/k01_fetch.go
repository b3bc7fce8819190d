package broker

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/segment"
	"github.com/strandline-io/strandline/broker/sequencer"
	"github.com/strandline-io/strandline/broker/wire"
)

// fetcher is what a connection keeps for its Fetch requests, one after another. It belongs to the writer.
type fetcher struct {
	waiter  *sequencer.Waiter
	encoder wire.FetchResponse
	parts   []fetchPart
	records fetchRecords
}

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

// serveFetch answers a Fetch request, waiting for data as long as the client wants (kafka-eos.md C.6).
func serveFetch(c *conn, s *slot) error {
	req := s.req.(*kmsg.FetchRequest)
	f := &c.fetch
	f.parts = f.parts[:0]
	if req.Version >= 7 && (req.SessionID != 0 || req.SessionEpoch != sessionInitialEpoch && req.SessionEpoch != sessionFinalEpoch) {
		return c.writeFetch(s, kerr.FetchSessionIDNotFound.Code)
	}
	c.findFetchParts(req)
	deadline := time.Now().Add(time.Duration(max(req.MaxWaitMillis, 0)) * time.Millisecond)
	watching := false
	defer func() {
		if watching {
			c.watchFetch((*sequencer.Partition).Unwatch)
		}
		f.records.release(c.b)
		clear(f.parts)
	}()
	for {
		last := !time.Now().Before(deadline) || c.readerIsDone()
		enough, err := c.readFetch(req, last)
		if err != nil {
			return err
		}
		if enough {
			return c.writeFetch(s, 0)
		}
		f.records.release(c.b)
		if !watching {
			// Watch, then look again: a change in between must not be missed.
			watching = true
			c.watchFetch((*sequencer.Partition).Watch)
			continue
		}
		if err := c.waitFetch(deadline); err != nil {
			return err
		}
	}
}

// findFetchParts fills f.parts, in request order.
func (c *conn) findFetchParts(req *kmsg.FetchRequest) {
	f := &c.fetch
	byID := req.Version >= fetchTopicIDs
	for i := range req.Topics {
		t := &req.Topics[i]
		for k := range t.Partitions {
			p := fetchPart{req: &t.Partitions[k], byID: byID}
			p.part, _, p.code = c.b.partition(t.Topic, t.TopicID, byID, p.req.Partition)
			f.parts = append(f.parts, p)
		}
	}
}

// watchFetch applies Watch or Unwatch to every partition of the request.
func (c *conn) watchFetch(do func(*sequencer.Partition, *sequencer.Waiter)) {
	for i := range c.fetch.parts {
		if p := c.fetch.parts[i].part; p != nil {
			do(p, c.fetch.waiter)
		}
	}
}

// waitFetch waits for a change, for the deadline, or for the client to have gone.
func (c *conn) waitFetch(deadline time.Time) error {
	if err := c.flush(); err != nil {
		return err
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-c.fetch.waiter.C:
	case <-timer.C:
	case <-c.eof:
	case <-c.ctx.Done():
		return errOnPurpose
	}
	return nil
}

func (c *conn) readerIsDone() bool {
	select {
	case <-c.eof:
		return true
	default:
		return false
	}
}

// readFetch evaluates all partitions and reads what may be answered. enough says that the response is due: because
// it has enough bytes, or an error, or it is the last chance.
func (c *conn) readFetch(req *kmsg.FetchRequest, last bool) (enough bool, err error) {
	f := &c.fetch
	urgent, readable := len(f.parts) == 0, false
	for i := range f.parts {
		p := &f.parts[i]
		p.look(req.IsolationLevel)
		urgent = urgent || p.code != 0 || p.out.Diverging != nil
		readable = readable || p.readable(req.IsolationLevel)
	}
	if !readable {
		return urgent || last || req.MinBytes <= 0, nil
	}
	budget := int(min(req.MaxBytes, c.b.cfg.FetchMaxBytes))
	for i := range f.parts {
		p := &f.parts[i]
		if !p.readable(req.IsolationLevel) {
			continue
		}
		got, err := c.readPart(p, req.IsolationLevel, budget-f.records.size)
		if err != nil {
			return false, err
		}
		urgent = urgent || p.code != 0
		if !got {
			break // memory is short: answer with what is there
		}
	}
	return f.records.size >= int(req.MinBytes) || f.records.full || urgent || last, nil
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
// It returns false if there is no memory for it at the moment.
func (c *conn) readPart(p *fetchPart, isolation int8, left int) (bool, error) {
	r := &c.fetch.records
	want := min(int(max(p.req.PartitionMaxBytes, 0)), max(left, 0), maxPartBytes)
	first := r.size == 0
	if first {
		n, ok := c.b.fetchBudget.Acquire(int64(want), c.ctx.Done())
		if !ok {
			return false, errOnPurpose
		}
		r.taken += n
	} else if !c.b.fetchBudget.TryAcquire(int64(want)) {
		return false, nil
	} else {
		r.taken += int64(want)
	}
	var read []byte
	var err error
	for range movedRetries {
		read, err = p.view.Log.Read(r.room(&c.b.pool, want), p.req.FetchOffset, limitOf(p.view, isolation), want, first)
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
		c.b.fetchBudget.Release(spare)
	}
	switch {
	case p.code != 0:
	case err != nil:
		c.b.log.Error("a partition cannot be read", "partition", p.view.Partition, "offset", p.req.FetchOffset, "error", err)
		p.code = kerr.KafkaStorageError.Code
		p.out.ErrorCode = p.code
	case isolation == isolationReadCommitted && len(read) > 0 && len(p.view.Aborted) > 0:
		p.out.Aborted = abortedWithin(p.view, p.req.FetchOffset, read)
	}
	return true, nil
}

// writeFetch writes the response at once, without copying its records.
func (c *conn) writeFetch(s *slot, code int16) error {
	if s.loseReply {
		return errOnPurpose
	}
	req := s.req.(*kmsg.FetchRequest)
	f := &c.fetch
	topics := req.Topics
	if code != 0 {
		topics = nil
	}
	f.encoder.Begin(req.Version, s.header.CorrelationID, code, len(topics))
	var endpoint *wire.FetchBroker
	at := 0
	for i := range topics {
		t := &topics[i]
		f.encoder.Topic(t.Topic, t.TopicID, len(t.Partitions))
		for range t.Partitions {
			p := &f.parts[at]
			at++
			if p.out.Leader != nil {
				p.out.Leader.ID = c.b.cfg.NodeID
				endpoint = &wire.FetchBroker{ID: c.b.cfg.NodeID, Host: c.reach.host, Port: c.reach.port}
			}
			f.encoder.Partition(&p.out, p.records)
		}
		f.encoder.EndTopic()
	}
	pieces, _ := f.encoder.Finish(nil, endpoint)
	if err := c.flush(); err != nil {
		return err
	}
	return c.writePieces(pieces)
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
func (r *fetchRecords) release(b *Broker) {
	if len(r.chunks) == 0 && r.taken == 0 {
		return
	}
	for i, chunk := range r.chunks {
		chunk.Release()
		r.chunks[i] = nil
	}
	b.fetchBudget.Release(r.taken)
	*r = fetchRecords{chunks: r.chunks[:0], lastSize: r.size, lastPart: r.largest}
}
