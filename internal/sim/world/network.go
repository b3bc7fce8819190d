package world

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/sequencer"
	"github.com/strandline-io/strandline/broker/wire"
)

// network is how messages fare at the moment. A connection keeps their order or is lost with all that follows;
// connections do not wait for each other, so a retry on a new one may overtake what the old one still carries.
type network struct {
	n           int // which one it is
	losePercent int
	slowPercent int
	slowUs      int64
	// Clients that are cut off: what they send, or what is sent to them, is lost.
	cutPercent              int
	cutRequests, cutReplies bool
	cutSeed                 uint64
}

// loses says whether a message to or from a client gets lost.
func (n *network) loses(r *rand.Rand, client string, reply bool) bool {
	if reply && n.cutReplies || !reply && n.cutRequests {
		h := fnv.New64a()
		_, _ = io.WriteString(h, client)
		if (h.Sum64()^n.cutSeed)%100 < uint64(n.cutPercent) {
			return true
		}
	}
	return r.IntN(100) < n.losePercent
}

func (n *network) delay(r *rand.Rand) int64 {
	d := 50 + r.Int64N(3*msInUs)
	if r.IntN(100) < n.slowPercent {
		d += r.Int64N(n.slowUs)
	}
	return d
}

// setNetwork changes the network, until it is changed again, or for a while.
func (w *World) setNetwork(n network, us int64) {
	w.nets++
	n.n = w.nets
	w.net = n
	w.after(us, func() {
		if w.net.n == n.n {
			w.net = network{}
		}
	})
}

// link is a client's end of a connection.
type link struct {
	w        *World
	owner    *coroutine
	server   *conn
	cut      bool // what is sent is lost; the sender does not know
	lastSend int64
	lastBack int64
	rand     *rand.Rand // of what comes back
	next     int32
	calls    map[int32]*call
	order    []*call
}

// call is one request on its way.
type call struct {
	req    kmsg.Request
	resp   kmsg.Response // when done
	sentUs int64
	done   bool
	failed bool // the connection was reset: the outcome is unknown
}

// connect returns nil while nobody listens.
func (w *World) connect(owner *coroutine) *link {
	if w.process == nil || w.process.dead {
		return nil
	}
	l := &link{w: w, owner: owner, rand: w.stream("link of " + owner.name), calls: make(map[int32]*call)}
	w.process.accepted++
	l.server = &conn{p: w.process, number: w.process.accepted, link: l, client: owner.name, fetch: w.process.edge.NewFetcher(), waiter: sequencer.NewWaiter()}
	w.process.conns = append(w.process.conns, l.server)
	return l
}

// send puts a request on its way, as bytes.
func (l *link) send(req kmsg.Request) *call {
	c := &call{req: req, sentUs: l.w.nowUs}
	l.next++
	id := l.next
	l.calls[id] = c
	l.order = append(l.order, c)
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID(l.owner.name)).AppendRequest(nil, req, id)
	if l.cut = l.cut || l.w.net.loses(l.owner.rand, l.owner.name, false); l.cut {
		l.w.tracef("%s: %s %d is lost", l.owner.name, kmsg.NameForKey(req.Key()), id)
		return c
	}
	at := max(l.lastSend, l.w.nowUs+l.w.net.delay(l.owner.rand))
	l.lastSend = at
	l.server.p.after(at-l.w.nowUs, func() { l.server.receive(frame[4:]) })
	return c
}

// answer carries a response back.
func (l *link) answer(frame []byte) {
	if l.cut = l.cut || l.w.net.loses(l.rand, l.owner.name, true); l.cut {
		return
	}
	at := max(l.lastBack, l.w.nowUs+l.w.net.delay(l.rand))
	l.lastBack = at
	l.w.after(at-l.w.nowUs, func() { l.arrive(frame) })
}

func (l *link) arrive(frame []byte) {
	if size := int(binary.BigEndian.Uint32(frame)); size != len(frame)-4 {
		l.w.fail("codec: a response frame of %d bytes says %d", len(frame)-4, size)
	}
	c := l.calls[int32(binary.BigEndian.Uint32(frame[4:]))]
	if c == nil || c.done || c.failed {
		return
	}
	l.inOrder(c)
	resp := c.req.ResponseKind()
	resp.SetVersion(c.req.GetVersion())
	body := frame[8:]
	if c.req.IsFlexible() && c.req.Key() != wire.KeyApiVersions {
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		l.w.fail("codec: a response to %s version %d cannot be read: %v", kmsg.NameForKey(c.req.Key()), c.req.GetVersion(), err)
	}
	c.resp, c.done = resp, true
	l.owner.signal()
}

// inOrder checks that c is the oldest request that awaits an answer (V9).
func (l *link) inOrder(c *call) {
	for len(l.order) > 0 {
		first := l.order[0]
		l.order = l.order[1:]
		if first == c {
			return
		}
		if r, ok := first.req.(*kmsg.ProduceRequest); !ok || r.Acks != 0 {
			l.w.fail("V9: %s: %s is answered before %s, which was sent earlier", l.owner.name, kmsg.NameForKey(c.req.Key()), kmsg.NameForKey(first.req.Key()))
		}
	}
}

// reset tells the client that the connection has ended.
func (l *link) reset() {
	l.w.after(l.w.net.delay(l.rand), func() {
		l.cut = true
		for _, c := range l.order {
			if !c.done {
				c.failed = true
			}
		}
		l.owner.signal()
	})
}

// client is a model of a client: blocking code over links.
type client struct {
	*coroutine
	link    *link
	session *fetchSession // of its last Fetch, or nil
}

// startClient runs body, which the world waits for if it is work. It reports false if the client is to be left out.
func (w *World) startClient(name string, work bool, body func(c *client)) bool {
	if w.leftOut(name) {
		return false
	}
	w.clients = append(w.clients, name)
	if work {
		w.writers++
	}
	co := w.newCoroutine(name, func(c *coroutine) {
		body(&client{coroutine: c})
		if work {
			w.writers--
		}
		w.tracef("%s has ended", name)
	})
	co.client = true
	w.after(co.rand.Int64N(200*msInUs), co.resume)
	return true
}

func (w *World) leftOut(name string) bool { return slices.Contains(w.opts.WithoutClients, name) }

const callTimeoutUs = 500 * msInUs

// connected returns a link, waiting for the broker if need be.
func (c *client) connected() *link {
	for c.link == nil {
		if c.link = c.w.connect(c.coroutine); c.link == nil {
			c.sleep(20*msInUs + c.w.Int64N(100*msInUs))
		}
	}
	return c.link
}

// ask sends a request and waits for its response; nil means that the outcome is unknown. The link is given up then.
func (c *client) ask(req kmsg.Request, version int16) kmsg.Response {
	return c.askWithin(req, version, callTimeoutUs)
}

// askWithin is ask for what may take its time.
func (c *client) askWithin(req kmsg.Request, version int16, timeoutUs int64) kmsg.Response {
	req.SetVersion(version)
	l := c.connected()
	sent := l.send(req)
	c.await(timeoutUs, func() bool { return sent.done || sent.failed })
	if !sent.done {
		c.link = nil
		return nil
	}
	return sent.resp
}

// insist asks until there is a response. certain is false if an earlier attempt's outcome is unknown.
func (c *client) insist(make func() kmsg.Request, version int16) (resp kmsg.Response, certain bool) {
	certain = true
	for {
		if resp := c.ask(make(), version); resp != nil {
			return resp, certain
		}
		certain = false
		c.sleep(c.w.Int64N(50 * msInUs))
	}
}

// unexpected ends the run for an error code that must not come.
func (c *client) unexpected(what string, code int16) {
	c.w.fail("unexpected code: %s: %s is answered with code %d", c.name, what, code)
}

func (c *client) tracef(format string, args ...any) {
	c.w.tracef("%s: %s", c.name, fmt.Sprintf(format, args...))
}
