package world

import (
	"context"
	"encoding/binary"
	"log/slog"
	"regexp"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/edge"
	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/sequencer"
	"github.com/strandline-io/strandline/broker/wire"
)

// conn is the broker's end of a connection. What it decides is package edge's; what is modelled is the goroutines of
// package broker around it: requests are taken in order, not before the one is answered that blocks the reader, and
// answered in order, those from published state when everything before them was answered.
type conn struct {
	p      *process
	number uint64 // in the order in which connections came, from 1 on
	link   *link
	client string
	frames [][]byte // not taken yet
	slots  []*slot
	fetch  *edge.Fetcher
	waiter *sequencer.Waiter
	closed bool
}

type slot struct {
	header  wire.Header
	req     kmsg.Request
	frame   []byte
	users   int    // of frame
	op      uint64 // 0: answered from published state
	ready   bool
	reply   any
	produce *edge.Produce
	untilUs int64 // a Fetch waits for data
	parked  bool
}

func (c *conn) reset() { c.link.reset() }

func (c *conn) receive(frame []byte) {
	c.frames = append(c.frames, frame)
	c.take()
}

// take reads on until a request blocks.
func (c *conn) take() {
	for len(c.frames) > 0 && !c.closed && !slices.ContainsFunc(c.slots, func(s *slot) bool { return blocks(s.header.Key) }) {
		frame := c.frames[0]
		c.frames = c.frames[1:]
		c.accept(frame)
	}
}

// blocks says for which requests a connection reads no further before they are answered.
func blocks(key int16) bool {
	return !slices.Contains([]int16{0, 8, 12, 22, 24, 25, 26, 28, 68}, key)
}

func (c *conn) accept(frame []byte) {
	w := c.p.w
	h, body, served, err := wire.ParseHeader(frame, c.client)
	if err != nil || !served {
		w.fail("codec: a request for key %d version %d is not understood: %v", h.Key, h.Version, err)
	}
	req, err := wire.Decode(h, body)
	if err != nil {
		w.fail("codec: %v", err)
	}
	s := &slot{header: h, req: req, frame: frame, users: 1}
	c.slots = append(c.slots, s)
	switch r := req.(type) {
	case *kmsg.FetchRequest:
		s.untilUs = w.nowUs + int64(max(r.MaxWaitMillis, 0))*msInUs
		c.flush()
	case *kmsg.ListOffsetsRequest, *kmsg.OffsetForLeaderEpochRequest:
		c.flush()
	case *kmsg.ApiVersionsRequest:
		c.flush()
	case *kmsg.ProduceRequest:
		s.produce = c.p.edge.Produce(r, 1<<20)
		c.submitProduce(s)
	default:
		if c.p.veil != nil {
			c.p.veil.asked(req)
		}
		c.submit(s, req, nil)
	}
}

func (c *conn) submitProduce(s *slot) {
	s.users++
	_, release := s.produce.Grown()
	c.submit(s, &s.produce.Op, func() {
		release()
		s.release()
	})
}

// release spoils a frame that nobody may look at any more, as its next user would.
func (s *slot) release() {
	if s.users--; s.users == 0 {
		for i := range s.frame {
			s.frame[i] = 0xdd
		}
	}
}

func (c *conn) submit(s *slot, body any, written func()) {
	op := &sequencer.Operation{
		Op:  machine.Op{Client: machine.Client{ID: c.client, Host: "127.0.0.1", Principal: "User:ANONYMOUS", Connection: c.number}, Body: body},
		Box: c, SizeBytes: int64(len(s.frame)), Written: written,
	}
	c.p.submit(op)
	s.op, s.ready = op.ID, false
}

// Deliver implements sequencer.Mailbox.
func (c *conn) Deliver(replies []machine.Reply) {
	for _, r := range replies {
		for _, s := range c.slots {
			if s.op == r.ID {
				s.reply, s.ready = r.Body, true
			}
		}
	}
	c.flush()
}

// flush answers what may be answered.
func (c *conn) flush() {
	for len(c.slots) > 0 && !c.closed {
		s := c.slots[0]
		if s.op != 0 && !s.ready || !c.answer(s) {
			return
		}
		c.slots = c.slots[1:]
		s.release()
		c.take()
	}
}

// answer reports false if it is not due yet.
func (c *conn) answer(s *slot) bool {
	if _, late := s.reply.(*machine.Hangup); late {
		c.closed = true
		c.link.reset()
		return false
	}
	var resp kmsg.Response
	switch req := s.req.(type) {
	case *kmsg.FetchRequest:
		return c.answerFetch(s, req)
	case *kmsg.ApiVersionsRequest:
		resp = c.apiVersions(req)
	case *kmsg.ListOffsetsRequest:
		resp = c.p.edge.ListOffsets(req, nil)
	case *kmsg.OffsetForLeaderEpochRequest:
		resp = c.p.edge.OffsetForLeaderEpoch(req, nil)
	case *kmsg.ProduceRequest:
		if s.produce.Again(s.reply.(*machine.ProduceReply)) {
			c.submitProduce(s)
			return false
		}
		produced, err := s.produce.Response()
		switch {
		case err != nil: // without acks the connection says it
			c.closed = true
			c.link.reset()
			return false
		case produced == nil:
			return true
		}
		resp = produced
	default:
		resp = c.finishGroup(s.reply)
		if c.p.veil != nil {
			c.p.veil.answered(c.p.w, s.req, resp)
		}
	}
	resp.SetVersion(s.header.Version)
	c.link.answer(wire.AppendResponse(nil, s.header.CorrelationID, resp))
	return true
}

// finishGroup does what a reply about a group leaves to do, and returns the response.
func (c *conn) finishGroup(reply any) kmsg.Response {
	r, ok := reply.(*machine.GroupReply)
	if !ok {
		return reply.(kmsg.Response)
	}
	bringBack := func(body any) {
		c.p.submit(&sequencer.Operation{Op: machine.Op{Client: machine.Client{ID: c.client, Host: "127.0.0.1", Principal: "User:ANONYMOUS", Connection: c.number}, Body: body}})
	}
	if match := r.Match; match != nil {
		pattern := regexp.MustCompile(`^(?:` + match.Pattern + `)$`)
		for _, t := range c.p.board.Topics() {
			if pattern.MatchString(t.Name) {
				match.Topics = append(match.Topics, t.Name)
			}
		}
		bringBack(match)
	}
	if r.Assign != nil {
		r.Assign.Make()
		bringBack(r.Assign)
	}
	return r.Response
}

// apiVersions answers with the published feature levels.
func (c *conn) apiVersions(req *kmsg.ApiVersionsRequest) kmsg.Response {
	published := c.p.board.Features()
	features := wire.Features{Epoch: published.Epoch}
	for _, f := range published.All {
		features.All = append(features.All, wire.Feature{Name: f.Name, Min: f.Min, Max: f.Max, Finalized: f.Level})
	}
	return wire.ApiVersions(req, features)
}

// answerFetch parks the request until there is enough to read, or its time is over.
func (c *conn) answerFetch(s *slot, req *kmsg.FetchRequest) bool {
	w := c.p.w
	if !s.parked && !c.fetch.Begin(req, nil) {
		c.writeFetch(s)
		return true
	}
	last := w.nowUs >= s.untilUs
	enough, _ := c.fetch.Evaluate(last, nil)
	if !enough && !s.parked {
		s.parked = true
		c.fetch.Watch(c.waiter)
		c.p.parked = append(c.p.parked, c)
		c.p.after(s.untilUs-w.nowUs, c.flush)
		enough, _ = c.fetch.Evaluate(last, nil)
	}
	if !enough {
		return false
	}
	if s.parked {
		c.p.parked = slices.DeleteFunc(c.p.parked, func(other *conn) bool { return other == c })
	}
	c.writeFetch(s)
	return true
}

func (c *conn) writeFetch(s *slot) {
	var frame []byte
	for _, piece := range c.fetch.Response(s.header.CorrelationID, wire.FetchBroker{ID: 1, Host: "broker", Port: 9092}) {
		frame = append(frame, piece...)
	}
	c.fetch.End()
	c.link.answer(frame)
}

// wakeParked lets those fetches look again whose partitions have changed.
func (p *process) wakeParked() {
	for _, c := range slices.Clone(p.parked) {
		select {
		case <-c.waiter.C:
			c.flush()
		default:
		}
	}
}

// newEdge wires what connections decide.
func (p *process) newEdge() *edge.Edge {
	var seed [32]byte
	binary.BigEndian.PutUint64(seed[:], p.w.stream("fetch sessions").Uint64())
	return edge.New(edge.Config{
		Board: p.board, Pool: &p.pool, Log: slog.New(alarm{p}),
		Now:             func() time.Time { return time.UnixMilli(p.w.wall()) },
		MessageMaxBytes: machine.DefaultMessageMaxBytes, FetchMaxBytes: 1 << 20, FetchMemoryBytes: 64 << 20, RebuildMemoryBytes: 64 << 20,
		MaxUnpackedBytes: 16 << 20, FetchSessions: 100, FetchSessionBytes: 1 << 20, SessionSeed: seed,
	})
}

// alarm is a log in which nothing may be written that is worse than a warning, unless the disk is to blame.
type alarm struct{ p *process }

// Enabled implements slog.Handler.
func (alarm) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelError }

// Handle implements slog.Handler.
func (a alarm) Handle(_ context.Context, r slog.Record) error {
	if !a.p.w.diskIsDead() {
		text := r.Message
		r.Attrs(func(attr slog.Attr) bool {
			text += " " + attr.String()
			return true
		})
		a.p.w.fail("damage: %s", text)
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (a alarm) WithAttrs([]slog.Attr) slog.Handler { return a }

// WithGroup implements slog.Handler.
func (a alarm) WithGroup(string) slog.Handler { return a }
