package broker

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/wire"
)

// write is the writer goroutine. It returns nil when everything was answered and no more will come.
func (c *conn) write() error {
	for {
		var s *slot
		var open bool
		select {
		case s, open = <-c.slots:
		default:
			// Nothing to add: what was collected may go.
			if err := c.flush(); err != nil {
				return err
			}
			select {
			case s, open = <-c.slots:
			case <-c.ctx.Done():
				return nil
			}
		}
		if !open {
			return c.flush()
		}
		err := c.answer(s)
		s.release()
		c.inFlight.Add(-1)
		if err != nil {
			return err
		}
		if s.blocks {
			signal(c.passed)
		}
		if len(c.out) >= flushBytes {
			if err := c.flush(); err != nil {
				return err
			}
		}
	}
}

// answer waits for the slot's answer and encodes it, or writes it.
func (c *conn) answer(s *slot) error {
	switch {
	case s.local != nil:
		return c.respond(s, s.local)
	case s.op:
		if err := c.await(s); err != nil {
			return err
		}
		if _, late := s.reply.(*machine.Hangup); late {
			return errLate
		}
		resp, err := s.api.finish(c, s)
		if err != nil || resp == nil {
			return err
		}
		return c.respond(s, resp)
	default:
		return s.api.evaluate(c, s)
	}
}

// respond adds a response to what is written next.
func (c *conn) respond(s *slot, resp kmsg.Response) error {
	if s.loseReply {
		return errOnPurpose
	}
	c.out = wire.AppendResponse(c.out, s.header.CorrelationID, resp)
	return nil
}

// errLate ends a connection by which something came that belongs to the past.
var errLate = errors.New("a transactional request came by it although its producer has sent newer ones by another connection since; " +
	"a client that is still there sends it again by a new connection")

// errDrained ends a connection that still owed an answer when the client had said its last and the wait was over.
var errDrained = errors.New("the client has closed its side before its last request was answered")

// await waits for the loop's reply. Nobody else has to wait for what is already there, so that goes out first.
func (c *conn) await(s *slot) error {
	var late <-chan time.Time
	eof := c.eof
	for {
		c.mu.Lock()
		ready := s.ready
		c.mu.Unlock()
		if ready {
			return nil
		}
		if err := c.flush(); err != nil {
			return err
		}
		select {
		case <-c.wake:
		case <-eof:
			eof = nil
			timer := time.NewTimer(drainTimeout)
			defer timer.Stop()
			late = timer.C
		case <-late:
			return errDrained
		case <-c.ctx.Done():
			return net.ErrClosed
		}
	}
}

// flush writes the collected responses.
func (c *conn) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	err := c.writePieces(net.Buffers{c.out})
	if c.out = c.out[:0]; cap(c.out) > keepOutBytes {
		c.out = nil
	}
	return err
}

// writePieces writes pieces in portions, each of which must pass within the stall timeout: a slow reader is served,
// one that reads nothing is not kept for ever. It consumes pieces.
func (c *conn) writePieces(pieces net.Buffers) error {
	var portion net.Buffers
	for len(pieces) > 0 {
		portion = portion[:0]
		room := writePieceBytes
		for len(pieces) > 0 && room > 0 {
			p := pieces[0]
			if len(p) > room {
				portion = append(portion, p[:room])
				pieces[0] = p[room:]
				break
			}
			portion = append(portion, p)
			room -= len(p)
			pieces = pieces[1:]
		}
		if err := c.nc.SetWriteDeadline(time.Now().Add(c.b.cfg.StallTimeout)); err != nil {
			return err
		}
		var err error
		if len(portion) == 1 {
			_, err = c.nc.Write(portion[0])
		} else {
			todo := portion // WriteTo consumes its receiver
			_, err = todo.WriteTo(c.nc)
		}
		if err != nil {
			return fmt.Errorf("writing a response: %w", err)
		}
	}
	return nil
}
