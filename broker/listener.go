package broker

import (
	"errors"
	"fmt"
	"net"
	"time"
)

// listener is one place to listen, and the address that clients are told who come by it.
type listener struct {
	net.Listener
	advertise string // empty: the address at which the client came
}

// listenAll opens all listeners, or none. Those that were given are closed as well if another one cannot be opened.
func listenAll(wanted []Listener) (open []*listener, err error) {
	for _, w := range wanted {
		l := w.Listener
		if l == nil && err == nil {
			if l, err = net.Listen("tcp", w.Listen); err != nil {
				err = fmt.Errorf("cannot listen on %s: %w", w.Listen, err)
			}
		}
		if l != nil {
			open = append(open, &listener{Listener: l, advertise: w.Advertise})
		}
	}
	if err != nil {
		closeAll(open)
		return nil, err
	}
	return open, nil
}

func closeAll(listeners []*listener) {
	for _, l := range listeners {
		l.Close()
	}
}

// address is where clients reach the broker.
type address struct {
	host string
	port int32
}

// reachedAt is the address that a client is told whose connection has this local address.
func (l *listener) reachedAt(local net.Addr) address {
	name := l.advertise
	if name == "" {
		name = local.String()
	}
	host, port, err := splitAddress(name)
	if err != nil {
		return address{host: name}
	}
	return address{host: host, port: port}
}

// hostOf is an address without its port.
func hostOf(a net.Addr) string {
	if host, _, err := net.SplitHostPort(a.String()); err == nil {
		return host
	}
	return a.String()
}

// acceptPause is how long the broker waits after an accept that failed for a passing reason, such as no descriptors.
const acceptPause = 50 * time.Millisecond

// acceptAll takes connections until the listener is closed. One that fails for good ends the broker.
func (b *Broker) acceptAll(l *listener, broken chan<- error) {
	for {
		nc, err := l.Accept()
		if err == nil {
			b.take(l, nc)
			continue
		}
		b.mu.Lock()
		ended := b.ended
		b.mu.Unlock()
		var ne net.Error
		switch {
		case ended:
			return
		case errors.As(err, &ne) && !errors.Is(err, net.ErrClosed):
			b.log.Warn("a connection cannot be accepted", "error", err)
			select {
			case <-time.After(acceptPause):
			case <-b.served:
				return
			}
		default:
			broken <- fmt.Errorf("the broker cannot accept connections on %s any more: %w", l.Addr(), err)
			return
		}
	}
}

// take starts to serve a connection, or closes it if there are too many.
func (b *Broker) take(l *listener, nc net.Conn) {
	host := hostOf(nc.RemoteAddr())
	b.mu.Lock()
	limit, from := 0, ""
	switch {
	case len(b.conns) >= b.cfg.MaxConnections:
		limit, from = b.cfg.MaxConnections, "all addresses"
	case b.perHost[host] >= b.cfg.MaxConnectionsPerAddress:
		limit, from = b.cfg.MaxConnectionsPerAddress, host
	}
	if limit > 0 || b.ended {
		b.mu.Unlock()
		nc.Close()
		if limit > 0 {
			b.warn("a connection was refused: there are too many", "remote", nc.RemoteAddr().String(), "from", from, "limit", limit)
		}
		return
	}
	b.accepted++
	c := newConn(b, l, nc, b.accepted)
	b.conns[c] = struct{}{}
	b.perHost[host]++
	b.wg.Add(1)
	b.mu.Unlock()
	go c.serve()
}
