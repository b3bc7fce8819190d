package kafka

import (
	"context"
	"fmt"
	"net"
	"sync"
)

// conns are the connections of one client, so that they can be cut: franz-go's Close waits for a JoinGroup that a
// broker may hold for as long as a rebalance takes.
type conns struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu   sync.Mutex
	cut  bool
	open map[*conn]struct{}
}

type conn struct {
	net.Conn
	of *conns
}

// errCut is a context's end, so that franz-go does not take it for the network's fault and try again.
var errCut = fmt.Errorf("kafka: the client is being closed: %w", context.Canceled)

func newConns(cfg Config) *conns { return &conns{dial: cfg.dialer(), open: make(map[*conn]struct{})} }

func (cs *conns) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	nc, err := cs.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.cut {
		nc.Close()
		return nil, errCut
	}
	c := &conn{nc, cs}
	cs.open[c] = struct{}{}
	return c, nil
}

func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// Cut closes all connections and refuses new ones.
func (cs *conns) Cut() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.cut = true
	for c := range cs.open {
		c.Conn.Close()
	}
}
