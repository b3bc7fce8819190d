package brokertest

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// windowBytes is how much may be under way in one direction before a writer has to wait, like a socket's buffers.
const windowBytes = 256 << 10

// newPipe returns the two ends of a connection.
func newPipe(client, server Addr) (*pipeConn, *pipeConn) {
	there, back := newStream(), newStream()
	a := &pipeConn{local: client, remote: server, in: back, out: there, read: newDeadline(), write: newDeadline()}
	b := &pipeConn{local: server, remote: client, in: there, out: back, read: newDeadline(), write: newDeadline()}
	return a, b
}

// pipeConn is one end of an in-memory connection. Closing either end closes both, after what was written is read.
type pipeConn struct {
	local, remote Addr
	in, out       *stream
	read, write   *deadline
	once          sync.Once
	onClose       func()
}

func (c *pipeConn) Read(p []byte) (int, error)  { return c.in.read(p, c.read.expired()) }
func (c *pipeConn) Write(p []byte) (int, error) { return c.out.write(p, c.write.expired()) }
func (c *pipeConn) LocalAddr() net.Addr         { return c.local }
func (c *pipeConn) RemoteAddr() net.Addr        { return c.remote }

func (c *pipeConn) Close() error {
	c.once.Do(func() {
		c.out.finish()
		c.in.abandon()
		c.read.set(time.Time{})
		c.write.set(time.Time{})
		if c.onClose != nil {
			c.onClose()
		}
	})
	return nil
}

func (c *pipeConn) SetDeadline(t time.Time) error {
	c.read.set(t)
	c.write.set(t)
	return nil
}

func (c *pipeConn) SetReadDeadline(t time.Time) error {
	c.read.set(t)
	return nil
}

func (c *pipeConn) SetWriteDeadline(t time.Time) error {
	c.write.set(t)
	return nil
}

// stream is one direction: bytes that were written and not yet read.
type stream struct {
	mu        sync.Mutex
	changed   chan struct{} // closed and replaced at every change
	bytes     []byte
	finished  bool // the writer has closed
	abandoned bool // the reader has closed
}

func newStream() *stream { return &stream{changed: make(chan struct{})} }

// change wakes everybody who waits; mu is held.
func (s *stream) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *stream) read(p []byte, expired <-chan struct{}) (int, error) {
	for {
		select {
		case <-expired:
			return 0, os.ErrDeadlineExceeded
		default:
		}
		s.mu.Lock()
		switch {
		case s.abandoned:
			s.mu.Unlock()
			return 0, net.ErrClosed
		case len(s.bytes) > 0:
			n := copy(p, s.bytes)
			s.bytes = s.bytes[n:]
			s.change()
			s.mu.Unlock()
			return n, nil
		case s.finished:
			s.mu.Unlock()
			return 0, io.EOF
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-expired:
		}
	}
}

func (s *stream) write(p []byte, expired <-chan struct{}) (written int, err error) {
	for {
		select {
		case <-expired:
			return written, os.ErrDeadlineExceeded
		default:
		}
		s.mu.Lock()
		if s.finished {
			s.mu.Unlock()
			return written, net.ErrClosed
		}
		if s.abandoned {
			s.mu.Unlock()
			return written, io.ErrClosedPipe
		}
		if n := min(len(p), windowBytes-len(s.bytes)); n > 0 {
			s.bytes = append(s.bytes, p[:n]...)
			p = p[n:]
			written += n
			s.change()
		}
		changed := s.changed
		s.mu.Unlock()
		if len(p) == 0 {
			return written, nil
		}
		select {
		case <-changed:
		case <-expired:
		}
	}
}

func (s *stream) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished = true
	s.change()
}

func (s *stream) abandon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abandoned = true
	s.bytes = nil
	s.change()
}

// deadline is a point in time that can be moved. Whoever waits keeps the channel that was there when they began.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	past  chan struct{}
}

func newDeadline() *deadline { return &deadline{past: make(chan struct{})} }

func (d *deadline) expired() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.past
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.timer.Stop() {
		<-d.past // the timer is closing it
	}
	d.timer = nil
	select {
	case <-d.past:
		d.past = make(chan struct{})
	default:
	}
	if t.IsZero() {
		return
	}
	past := d.past
	if wait := time.Until(t); wait > 0 {
		d.timer = time.AfterFunc(wait, func() { close(past) })
		return
	}
	close(past)
}
