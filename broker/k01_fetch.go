package broker

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/wire"
)

// serveFetch answers a Fetch request, waiting for data as long as the client wants (kafka-eos.md C.6).
func serveFetch(c *conn, s *slot) error {
	req := s.req.(*kmsg.FetchRequest)
	f := c.fetch
	defer f.End()
	if !f.Begin(req, c.topicPermissions(s)) {
		return c.writeFetch(s)
	}
	deadline := time.Now().Add(time.Duration(max(req.MaxWaitMillis, 0)) * time.Millisecond)
	watching := false
	for {
		last := !time.Now().Before(deadline) || c.readerIsDone()
		enough, ok := f.Evaluate(last, c.ctx.Done())
		switch {
		case !ok:
			return errOnPurpose
		case enough:
			return c.writeFetch(s)
		case !watching:
			// Watch, then look again: a change in between must not be missed.
			watching = true
			f.Watch(c.waiter)
			continue
		}
		if err := c.waitFetch(deadline); err != nil {
			return err
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
	case <-c.waiter.C:
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

// writeFetch writes the response at once, without copying its records.
func (c *conn) writeFetch(s *slot) error {
	if s.loseReply {
		return errOnPurpose
	}
	pieces := c.fetch.Response(s.header.CorrelationID, wire.FetchBroker{ID: c.b.cfg.NodeID, Host: c.reach.host, Port: c.reach.port})
	if err := c.flush(); err != nil {
		return err
	}
	return c.writePieces(pieces)
}
