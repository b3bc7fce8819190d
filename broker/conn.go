package broker

import (
	"context"
	"errors"
	"io"
	"net"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/edge"
	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/sequencer"
	"github.com/strandline-io/strandline/broker/wire"
)

// conn is one client connection. Its reader goroutine reads, judges and submits requests, its writer goroutine
// answers them in the order in which they came. Between them stand slots, one per request.
//
// Replies of the loop arrive by Deliver. Requests that read published state are evaluated by the writer when their
// turn comes, so after everything before them was released (design.md §2.1).
type conn struct {
	b          *Broker
	nc         net.Conn
	gate       *readGate
	frames     *wire.Reader
	session    session
	number     uint64 // in the order in which connections were accepted, from 1 on
	clientHost string
	clientID   atomic.Pointer[string] // of the last request, for the log; the reader sets it
	reach      address

	ctx      context.Context // ends when the connection is of no use any more
	cancel   context.CancelFunc
	slots    chan *slot    // in request order; closed by the reader
	passed   chan struct{} // room for one: a slot that blocks the reader was answered
	wake     chan struct{} // room for one: Deliver brought something
	eof      chan struct{} // closed when no more requests will come
	inFlight atomic.Int32

	mu      sync.Mutex
	waiting map[uint64]*slot // by operation; nil when nothing is delivered any more

	out    []byte        // encoded responses that are not written yet; the writer's
	fetch  *edge.Fetcher // the writer's, as is waiter
	waiter *sequencer.Waiter
}

// slot is one request from its reading to its answer.
type slot struct {
	header wire.Header
	api    *handler
	req    kmsg.Request
	frame  *wire.Buffer
	// local is the answer, if it was known at once.
	local kmsg.Response
	// op says that the loop answers; reply and ready are guarded by conn.mu until ready was seen.
	op    bool
	ready bool
	reply any
	// produce is set for Produce requests that the loop answers.
	produce *edge.Produce
	// pattern is set for ListTransactions requests that have one.
	pattern *regexp.Regexp
	// blocks keeps the reader from the next request until this one is answered.
	blocks    bool
	loseReply bool
}

const (
	// flushBytes of responses are collected before they are written although more could be added.
	flushBytes = 64 << 10
	// keepOutBytes is the largest response buffer that a connection keeps.
	keepOutBytes = 256 << 10
	// writePieceBytes must pass within the stall timeout.
	writePieceBytes = 1 << 20
	// drainTimeout is how long a connection whose client sends nothing more waits for the answers it still owes.
	drainTimeout = time.Second
)

// errOnPurpose ends a connection without a word in the log.
var errOnPurpose = errors.New("the connection is closed on purpose")

func newConn(b *Broker, l *listener, nc net.Conn, number uint64) *conn {
	c := &conn{
		b: b, nc: nc, gate: newReadGate(nc), session: anonymous, number: number,
		clientHost: hostOf(nc.RemoteAddr()),
		reach:      l.reachedAt(nc.LocalAddr()),
		slots:      make(chan *slot, b.cfg.MaxInFlight),
		passed:     make(chan struct{}, 1),
		wake:       make(chan struct{}, 1),
		eof:        make(chan struct{}),
		waiting:    make(map[uint64]*slot),
	}
	c.clientID.Store(new(string))
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.frames = wire.NewReader(c.gate, b.readerConfig())
	c.fetch, c.waiter = b.edge.NewFetcher(), sequencer.NewWaiter()
	return c
}

// serve runs the connection until it ends.
func (c *conn) serve() {
	go c.read()
	err := c.write()
	c.close()
	c.mu.Lock()
	c.waiting = nil
	c.mu.Unlock()
	for s := range c.slots { // the reader closes it, now that the connection is closed
		s.release()
	}
	c.b.connEnded(c, err)
}

// close makes both goroutines end at once.
func (c *conn) close() {
	c.cancel()
	c.nc.Close()
}

// drain stops reading; what was read is still answered.
func (c *conn) drain() { c.gate.shut() }

// read is the reader goroutine.
func (c *conn) read() {
	defer close(c.slots)
	err := c.readRequests()
	close(c.eof)
	if err != nil && c.ctx.Err() == nil {
		c.b.noteBadConn(c, err)
		c.close()
	}
}

// readRequests returns nil when the client has closed its side between two requests, or drain was called.
func (c *conn) readRequests() error {
	blocked := false
	for {
		// The next request's head is awaited also while its turn has not come: it is how a connection that is gone is
		// noticed.
		head, err := c.frames.Head()
		switch {
		case c.gate.isShut():
			return nil
		case errors.Is(err, wire.ErrIdle) && c.inFlight.Load() > 0:
			continue
		case errors.Is(err, wire.ErrIdle), errors.Is(err, io.EOF) && !errors.Is(err, wire.ErrMalformed):
			return nil
		case err != nil:
			return err
		}
		if blocked {
			select {
			case <-c.passed:
				blocked = false
			case <-c.gate.shutting:
				return nil
			case <-c.ctx.Done():
				return nil
			}
		}
		frame, err := c.frames.Frame(head, c.ctx.Done())
		switch {
		case err != nil && c.gate.isShut():
			return nil // what came before it is still answered
		case err != nil:
			return err
		}
		s, err := c.accept(frame)
		if err != nil {
			frame.Release()
			return err
		}
		blocked = s.blocks
		select {
		case c.slots <- s:
		case <-c.ctx.Done():
			s.release()
			return nil
		}
	}
}

// accept turns a frame into a slot: answered, submitted to the loop, or left to the writer. The slot owns the frame,
// unless there is an error.
func (c *conn) accept(frame *wire.Buffer) (*slot, error) {
	last := c.clientID.Load()
	h, body, served, err := wire.ParseHeader(frame.B, *last)
	if err != nil {
		return nil, err
	}
	s := &slot{header: h, frame: frame}
	if !served {
		if s.local, err = refuseVersion(h, frame.B); err != nil {
			return nil, err
		}
		c.inFlight.Add(1)
		return s, nil
	}
	if h.ClientID != *last {
		c.clientID.Store(&h.ClientID)
	}
	if s.api = handlers[h.Key]; s.api == nil {
		panic("BUG: a served API has no handler")
	}
	if s.req, err = wire.Decode(h, body); err != nil {
		return nil, err
	}
	if err := c.session.admit(h.Key); err != nil {
		return nil, err
	}
	if s.api.weigh != nil {
		frame.Lower(s.api.weigh(s.req))
	}
	s.blocks = s.api.blocks
	if c.b.cfg.Intercept != nil {
		if handled, err := c.intercept(s); handled || err != nil {
			return s, err
		}
	}
	if err := s.api.start(c, s); err != nil {
		return nil, err
	}
	c.inFlight.Add(1)
	return s, nil
}

// intercept lets the test seam decide. handled means that the slot has its answer.
func (c *conn) intercept(s *slot) (handled bool, err error) {
	fate := c.b.cfg.Intercept(c.ctx, &Request{
		Key: s.header.Key, Version: s.header.Version, ClientID: s.header.ClientID,
		RemoteAddr: c.nc.RemoteAddr(), Body: s.req,
	})
	s.loseReply = fate.LoseReply
	switch {
	case fate.LoseRequest, c.ctx.Err() != nil:
		return false, errOnPurpose
	case fate.Reply != nil:
		fate.Reply.SetVersion(s.header.Version)
		s.local = fate.Reply
		c.inFlight.Add(1)
		return true, nil
	}
	return false, nil
}

// client is who asks.
func (c *conn) client(s *slot) machine.Client {
	return machine.Client{ID: s.header.ClientID, Host: c.clientHost, Principal: c.session.principal, Connection: c.number}
}

// submit gives the loop an operation whose reply belongs to s.
func (c *conn) submit(s *slot, body any, sizeBytes int64, written func()) error {
	op := &sequencer.Operation{
		Op: machine.Op{
			Client: c.client(s),
			Body:   body,
		},
		Box: c, SizeBytes: sizeBytes, Written: written,
	}
	// The reply may come before Submit returns: Deliver waits for the lock.
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.b.engine.Submit(op); err != nil {
		return err
	}
	s.op, s.ready, s.reply = true, false, nil
	if c.waiting != nil {
		c.waiting[op.ID] = s
	}
	return nil
}

// Deliver implements sequencer.Mailbox.
func (c *conn) Deliver(replies []machine.Reply) {
	c.mu.Lock()
	for i := range replies {
		if s := c.waiting[replies[i].ID]; s != nil {
			delete(c.waiting, replies[i].ID)
			s.reply, s.ready = replies[i].Body, true
		}
	}
	c.mu.Unlock()
	signal(c.wake)
}

// signal never blocks: one waiting signal says as much as two.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// release gives back what the slot holds. It is called once, by whoever the slot ends with.
func (s *slot) release() {
	if s.frame != nil {
		s.frame.Release()
		s.frame = nil
	}
}

// readGate lets another goroutine end the reading for good, whatever deadlines the reader sets.
type readGate struct {
	net.Conn
	shutting chan struct{} // closed by shut
	mu       sync.Mutex
}

func newReadGate(nc net.Conn) *readGate { return &readGate{Conn: nc, shutting: make(chan struct{})} }

func (g *readGate) SetReadDeadline(t time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isShut() {
		t = time.Unix(1, 0)
	}
	return g.Conn.SetReadDeadline(t)
}

// shut is called once.
func (g *readGate) shut() {
	g.mu.Lock()
	close(g.shutting)
	g.mu.Unlock()
	g.SetReadDeadline(time.Time{})
}

func (g *readGate) isShut() bool {
	select {
	case <-g.shutting:
		return true
	default:
		return false
	}
}
