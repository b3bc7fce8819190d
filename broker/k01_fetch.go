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
	waiter    *sequencer.Waiter
	encoder   wire.FetchResponse
	parts     []fetchPart
	lastBytes int // of records in the last response, to size the next buffer
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
	// recordBytes of this partition are in the response.
	recordBytes int
}

// Kafka's names for fetch sessions (KIP-227). This broker keeps none: it answers session id 0, and every request
// names all its partitions.
const (
	sessionInitialEpoch = 0
	sessionFinalEpoch   = -1
)

const (
	fetchTopicIDs  = 13      // the first version that names topics by id
	minFetchBuffer = 1 << 16 // the smallest record buffer
	movedRetries   = 8       // how often a partition's view is loaded again because its batches have moved
)

// serveFetch answers a Fetch request, waiting for data as long as the client wants (kafka-eos.md C.6).
func serveFetch(c *conn, s *slot) error {
	req := s.req.(*kmsg.FetchRequest)
	f := &c.fetch
	f.parts = f.parts[:0]
	if req.Version >= 7 && (req.SessionID != 0 || req.SessionEpoch != sessionInitialEpoch && req.SessionEpoch != sessionFinalEpoch) {
		return c.writeFetch(s, kerr.FetchSessionIDNotFound.Code, nil, 0)
	}
	c.findFetchParts(req)
	deadline := time.Now().Add(time.Duration(max(req.MaxWaitMillis, 0)) * time.Millisecond)
	watching := false
	defer func() {
		if watching {
			c.watchFetch((*sequencer.Partition).Unwatch)
		}
	}()
	for {
		last := !time.Now().Before(deadline) || c.readerIsDone()
		records, taken, enough, err := c.readFetch(req, last)
		if err != nil {
			return err
		}
		if enough {
			return c.writeFetch(s, 0, records, taken)
		}
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
// it has enough bytes, or an error, or it is the last chance. records is nil if there are none; taken is what must be
// given back to the fetch budget once they are written.
func (c *conn) readFetch(req *kmsg.FetchRequest, last bool) (records *wire.Buffer, taken int64, enough bool, err error) {
	f := &c.fetch
	urgent, readable := len(f.parts) == 0, false
	for i := range f.parts {
		p := &f.parts[i]
		p.look(req.IsolationLevel)
		urgent = urgent || p.code != 0 || p.out.Diverging != nil
		readable = readable || p.readable(req.IsolationLevel)
	}
	if !readable {
		return nil, 0, urgent || last || req.MinBytes <= 0, nil
	}
	budget := int(min(req.MaxBytes, c.b.cfg.FetchMaxBytes))
	records = c.b.pool.Get(max(minFetchBuffer, min(f.lastBytes, budget)))
	for i := range f.parts {
		p := &f.parts[i]
		if !p.readable(req.IsolationLevel) {
			continue
		}
		got, err := c.readPart(p, req.IsolationLevel, records, budget-len(records.B), &taken)
		if err != nil {
			records.Release()
			c.b.fetchBudget.Release(taken)
			return nil, 0, false, err
		}
		urgent = urgent || p.code != 0
		if !got {
			break // memory is short: answer with what is there
		}
	}
	if len(records.B) >= int(req.MinBytes) || urgent || last {
		return records, taken, true, nil
	}
	records.Release()
	c.b.fetchBudget.Release(taken)
	return nil, 0, false, nil
}

// look loads the partition's view and judges what the client asked of it.
func (p *fetchPart) look(isolation int8) {
	p.recordBytes = 0
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

// readPart appends the partition's records to records, at most left bytes, except that the first batch of a response
// comes whole. It returns false if there is no memory for it at the moment. What it takes of the fetch budget is
// added to taken.
func (c *conn) readPart(p *fetchPart, isolation int8, records *wire.Buffer, left int, taken *int64) (bool, error) {
	want := min(int(max(p.req.PartitionMaxBytes, 0)), max(left, 0))
	first := len(records.B) == 0
	if first {
		n, ok := c.b.fetchBudget.Acquire(int64(want), c.ctx.Done())
		if !ok {
			return false, errOnPurpose
		}
		*taken += n
	} else if !c.b.fetchBudget.TryAcquire(int64(want)) {
		return false, nil
	} else {
		*taken += int64(want)
	}
	from := len(records.B)
	var err error
	for range movedRetries {
		records.B, err = p.view.Log.Read(records.B, p.req.FetchOffset, limitOf(p.view, isolation), want, first)
		if !errors.Is(err, segment.ErrMoved) {
			break
		}
		// The batches have moved to files since the view was published; a newer one knows where.
		if p.look(isolation); !p.readable(isolation) {
			return true, nil
		}
	}
	p.recordBytes = len(records.B) - from
	// What was taken and not needed goes back at once; what a large first batch takes beyond it is bounded by one
	// batch for each connection.
	if spare := int64(want - p.recordBytes); spare > 0 {
		spare = min(spare, *taken)
		*taken -= spare
		c.b.fetchBudget.Release(spare)
	}
	switch {
	case err != nil:
		c.b.cfg.Logger.Error("a partition cannot be read", "partition", p.view.Partition, "offset", p.req.FetchOffset, "error", err)
		p.code = kerr.KafkaStorageError.Code
		p.out.ErrorCode = p.code
	case isolation == isolationReadCommitted && p.recordBytes > 0 && len(p.view.Aborted) > 0:
		p.out.Aborted = abortedWithin(p.view.Aborted, p.req.FetchOffset, endOf(records.B[from:]))
	}
	return true, nil
}

// writeFetch writes the response at once, without copying its records, and gives them back.
func (c *conn) writeFetch(s *slot, code int16, records *wire.Buffer, taken int64) error {
	defer func() {
		if records != nil {
			records.Release()
		}
		if taken > 0 {
			c.b.fetchBudget.Release(taken)
		}
	}()
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
			f.encoder.Partition(&p.out, p.recordBytes)
		}
		f.encoder.EndTopic()
	}
	var body []byte
	if records != nil {
		body = records.B
	}
	f.lastBytes = len(body)
	clear(f.parts)
	pieces, _ := f.encoder.Finish(nil, body, endpoint)
	if err := c.flush(); err != nil {
		return err
	}
	return c.writePieces(pieces)
}
