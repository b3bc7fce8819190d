package brokertest

import (
	"context"
	"fmt"
	"net"
	"sync"
)

// Network connects listeners and dialers inside one process, without sockets, so that everything runs inside a
// testing/synctest bubble: make it, and whatever uses it, inside the bubble. DialContext fits kgo.Dialer. Names are
// not looked up: an address is whatever Listen was given.
type Network struct {
	mu        sync.Mutex
	listeners map[string]*listener
	conns     map[*pipeConn]struct{}
	lastPort  int
}

// NewNetwork returns a network without listeners.
func NewNetwork() *Network {
	return &Network{listeners: make(map[string]*listener), conns: make(map[*pipeConn]struct{}), lastPort: 40_000}
}

// acceptBacklog is how many connections wait to be accepted before dialing blocks.
const acceptBacklog = 128

// Listen takes connections to address, host:port.
func (n *Network) Listen(address string) (net.Listener, error) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, fmt.Errorf("listen on the in-memory network: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[address] != nil {
		return nil, fmt.Errorf("listen on the in-memory network: %s is in use", address)
	}
	l := &listener{network: n, address: Addr(address), queue: make(chan net.Conn, acceptBacklog), closed: make(chan struct{})}
	n.listeners[address] = l
	return l, nil
}

// DialContext connects to the listener of address. Nobody listening is an error at once, as with a closed port.
func (n *Network) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[address]
	n.lastPort++
	from := Addr(fmt.Sprintf("client:%d", n.lastPort))
	n.mu.Unlock()
	refused := &net.OpError{Op: "dial", Net: "memory", Addr: Addr(address), Err: fmt.Errorf("connection refused: nobody listens on %s", address)}
	if l == nil {
		return nil, refused
	}
	client, server := newPipe(from, l.address)
	n.add(client)
	client.onClose = func() { n.remove(client) }
	select {
	case l.queue <- server:
		return client, nil
	case <-l.closed:
		client.Close()
		return nil, refused
	case <-ctx.Done():
		client.Close()
		return nil, ctx.Err()
	}
}

// Cut breaks all connections that there are; new ones can be made.
func (n *Network) Cut() {
	n.mu.Lock()
	var conns []*pipeConn
	for c := range n.conns {
		conns = append(conns, c)
	}
	n.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
}

func (n *Network) add(c *pipeConn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns[c] = struct{}{}
}

func (n *Network) remove(c *pipeConn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, c)
}

// Addr is an address of a Network.
type Addr string

// Network returns "memory".
func (Addr) Network() string { return "memory" }

func (a Addr) String() string { return string(a) }

type listener struct {
	network *Network
	address Addr
	queue   chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.closed:
		return nil, net.ErrClosed
	default:
	}
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		l.network.mu.Lock()
		delete(l.network.listeners, string(l.address))
		l.network.mu.Unlock()
		close(l.closed)
		for {
			select {
			case c := <-l.queue:
				c.Close()
			default:
				return
			}
		}
	})
	return nil
}

func (l *listener) Addr() net.Addr { return l.address }
