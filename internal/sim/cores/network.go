package cores

import "slices"

// brain is what a client does. act sends something, and reports whether it did; over says that its work is done and
// nothing is awaited.
type brain interface {
	act(c *client) bool
	over() bool
}

// client is somebody with a connection.
type client struct {
	w     *World
	conn  *conn
	brain brain
}

func (c *client) over() bool { return c.brain.over() }

// conn is a connection: requests arrive in their order, replies too. One that is lost may still deliver what was sent.
type conn struct {
	sent    []*request // not yet arrived
	open    []*request // not yet answered, sent ones included
	replies []waiting
	lost    bool
}

func (w *World) add(b brain) {
	w.clients = append(w.clients, &client{w: w, brain: b})
}

// send puts a request on the way. done is called once: with the reply, or with nil when the connection is lost.
func (c *client) send(r *request, done func(*reply)) {
	if c.conn == nil || c.conn.lost {
		c.conn = &conn{}
		c.w.conns = append(c.w.conns, c.conn)
	}
	r.from, r.done = c.conn, done
	c.conn.sent = append(c.conn.sent, r)
	c.conn.open = append(c.conn.open, r)
}

// act lets some client act.
func (w *World) act() bool {
	from := w.IntN(len(w.clients))
	for i := range w.clients {
		c := w.clients[(from+i)%len(w.clients)]
		if c.brain.act(c) {
			return true
		}
	}
	return false
}

// deliver lets a request arrive.
func (w *World) deliver() bool {
	if len(w.conns) == 0 {
		return false
	}
	from := w.IntN(len(w.conns))
	for i := range w.conns {
		c := w.conns[(from+i)%len(w.conns)]
		if len(c.sent) == 0 {
			continue
		}
		r := c.sent[0]
		c.sent = c.sent[1:]
		w.forgetConn(c)
		w.server.step(r)
		return true
	}
	return false
}

// hear lets a reply arrive.
func (w *World) hear() bool {
	if len(w.conns) == 0 {
		return false
	}
	from := w.IntN(len(w.conns))
	for i := range w.conns {
		c := w.conns[(from+i)%len(w.conns)]
		if len(c.replies) == 0 {
			continue
		}
		a := c.replies[0]
		c.replies = c.replies[1:]
		c.open = slicesRemove(c.open, a.r)
		a.r.done(a.reply)
		return true
	}
	return false
}

// forgetConn drops a lost connection with nothing more to deliver.
func (w *World) forgetConn(c *conn) {
	if c.lost && len(c.sent) == 0 {
		w.conns = slicesRemove(w.conns, c)
	}
}

// breakConn loses a connection. What was sent may be gone, or some of it, or arrive late.
func (w *World) breakConn() {
	alive := slices.DeleteFunc(slices.Clone(w.conns), func(c *conn) bool { return c.lost })
	if len(alive) == 0 {
		return
	}
	c := alive[w.IntN(len(alive))]
	w.stats.Lost++
	if w.trace != nil {
		w.tracef("a connection is lost with %d requests on the way, %d unanswered", len(c.sent), len(c.open))
	}
	c.sent = c.sent[:w.IntN(len(c.sent)+1)]
	late := !slices.ContainsFunc(c.sent, func(r *request) bool { return !r.mayComeLate() })
	if !late {
		// Nothing of these may come after what the client does next; so it comes now.
		for _, r := range c.sent {
			w.server.step(r)
		}
		c.sent = nil
	}
	c.lose(true)
	w.forgetConn(c)
}

// mayComeLate: transactions of version 1 do not tell a request of the last one from one of this one. Kafka's clients and
// brokers accept that, so nothing of them may come late here; the epoch of version 2 tells them apart (KIP-890).
func (r *request) mayComeLate() bool {
	switch r.kind {
	case kindAdd, kindAddOffsets:
		return false
	case kindEnd, kindTxnCommit:
		return r.version >= 5
	case kindProduce:
		return r.none || r.version >= 12
	}
	return true
}

// lose tells the client that no answer will come. Without survives, what was on the way is gone as well.
func (c *conn) lose(survives bool) {
	if c.lost {
		if !survives {
			c.sent = nil
		}
		return
	}
	c.lost = true
	if !survives {
		c.sent = nil
	}
	open := c.open
	c.open, c.replies = nil, nil
	for _, r := range open {
		r.done(nil)
	}
}
