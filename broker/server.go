package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/strandline-io/strandline/broker/edge"
	"github.com/strandline-io/strandline/broker/sequencer"
	"github.com/strandline-io/strandline/broker/wire"
)

// loop is what the connections see of the engine.
type loop interface {
	// Submit queues an operation; it does not block.
	Submit(*sequencer.Operation) error
	Board() *sequencer.Board
	// Done is closed when the loop has stopped; Err then says why, nil after Close.
	Done() <-chan struct{}
	Err() error
	// Close finishes what is queued, makes it durable and lets go of the data folder.
	Close() error
}

// Broker is one running broker. New, then Serve; Close ends both.
type Broker struct {
	cfg       Config
	log       *slog.Logger
	listeners []*listener
	engine    loop
	clusterID string

	pool      wire.Pool
	admission *wire.Admission
	edge      *edge.Edge
	badConns  *throttle

	closing   chan struct{} // closed by Close
	closeOnce sync.Once
	served    chan struct{} // closed when everything has ended
	endOnce   sync.Once
	endErr    error

	mu       sync.Mutex
	conns    map[*conn]struct{}
	perHost  map[string]int // how many of conns come from an address
	accepted uint64         // connections so far
	serving  bool
	ended    bool // no connection is taken any more
	wg       sync.WaitGroup
}

// New opens the data folder, recovers what it holds, and starts to listen; clients that connect are served once Serve
// runs. A folder that another process holds is refused with an error that says so.
func New(cfg Config) (*Broker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("the broker's configuration is not valid: %w", err)
	}
	cfg = cfg.orDefaults()
	listeners, err := listenAll(cfg.listeners())
	if err != nil {
		return nil, err
	}
	e, err := openEngine(cfg)
	if err != nil {
		closeAll(listeners)
		return nil, err
	}
	clusterID, err := clusterID(cfg)
	if err != nil {
		closeAll(listeners)
		return nil, errors.Join(err, e.Close())
	}
	return newBroker(cfg, listeners, e, clusterID), nil
}

func newBroker(cfg Config, listeners []*listener, engine loop, clusterID string) *Broker {
	b := &Broker{
		cfg: cfg, log: cfg.Logger, listeners: listeners, engine: engine, clusterID: clusterID,
		admission: wire.NewAdmission(cfg.RequestMemoryBytes),
		badConns:  &throttle{now: cfg.Now},
		closing:   make(chan struct{}),
		served:    make(chan struct{}),
		conns:     make(map[*conn]struct{}),
		perHost:   make(map[string]int),
	}
	var seed [32]byte
	rand.Read(seed[:])
	b.edge = edge.New(edge.Config{
		Board: engine.Board(), Now: cfg.Now, Log: cfg.Logger, Pool: &b.pool, MessageMaxBytes: cfg.MessageMaxBytes, FetchMaxBytes: cfg.FetchMaxBytes,
		FetchMemoryBytes: cfg.FetchMemoryBytes, RebuildMemoryBytes: cfg.RequestMemoryBytes,
		MaxUnpackedBytes: maxUnpackedBytes(int(cfg.MaxRequestBytes)), FetchSessions: cfg.MaxFetchSessions, FetchSessionBytes: cfg.FetchSessionMemoryBytes, SessionSeed: seed,
	})
	return b
}

// Addr is the address that the broker listens on, the first one if there are several.
func (b *Broker) Addr() net.Addr { return b.listeners[0].Addr() }

// Addrs are all addresses that the broker listens on, in the order of Config.Listeners.
func (b *Broker) Addrs() []net.Addr {
	all := make([]net.Addr, len(b.listeners))
	for i, l := range b.listeners {
		all[i] = l.Addr()
	}
	return all
}

// ClusterID is what clients are told as the cluster's id. It stays the same over restarts on one data folder.
func (b *Broker) ClusterID() string { return b.clusterID }

// Serve serves clients until ctx is cancelled or Close is called, then stops cleanly and returns nil: no new
// requests, what was read is still answered, everything decided becomes durable. If the broker cannot go on, because
// its disk failed, it returns the error, and the data folder cannot be opened again by this process. Serve is called
// once.
func (b *Broker) Serve(ctx context.Context) error {
	b.mu.Lock()
	if b.serving || b.ended {
		b.mu.Unlock()
		return errors.New("the broker is closed, or Serve was called before")
	}
	b.serving = true
	b.mu.Unlock()

	broken := make(chan error, len(b.listeners))
	for _, l := range b.listeners {
		go b.acceptAll(l, broken)
	}
	var err error
	select {
	case <-ctx.Done():
	case <-b.closing:
	case <-b.engine.Done():
		if err = b.engine.Err(); err == nil {
			err = errors.New("the broker's loop has ended by itself")
		}
	case err = <-broken:
	}
	if end := b.end(); err == nil {
		err = end
	}
	return err
}

// Close stops the broker as a cancelled Serve does and waits for the end. It may be called at any time and again, and
// returns what went wrong while stopping.
func (b *Broker) Close() error {
	b.closeOnce.Do(func() { close(b.closing) })
	b.mu.Lock()
	serving := b.serving
	b.mu.Unlock()
	if serving {
		<-b.served
		return b.endErr
	}
	return b.end()
}

// stopTimeout is how long stopping waits for clients that do not read their last responses.
const stopTimeout = 3 * time.Second

// end stops everything, once: the listeners, the connections, the engine.
func (b *Broker) end() error {
	b.endOnce.Do(func() {
		b.mu.Lock()
		b.ended = true
		b.mu.Unlock()
		closeAll(b.listeners)
		b.eachConn((*conn).drain)
		select {
		case <-b.engine.Done():
			b.eachConn((*conn).close) // nothing will be answered any more
		default:
		}
		patience := time.AfterFunc(stopTimeout, func() { b.eachConn((*conn).close) })
		b.wg.Wait()
		patience.Stop()
		b.endErr = b.engine.Close()
		close(b.served)
	})
	<-b.served
	return b.endErr
}

func (b *Broker) eachConn(do func(*conn)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.conns {
		do(c)
	}
}

// connEnded forgets a connection whose goroutines have ended.
func (b *Broker) connEnded(c *conn, err error) {
	if err != nil && !errors.Is(err, net.ErrClosed) {
		b.noteBadConn(c, err)
	}
	b.mu.Lock()
	delete(b.conns, c)
	if b.perHost[c.clientHost]--; b.perHost[c.clientHost] == 0 {
		delete(b.perHost, c.clientHost)
	}
	b.mu.Unlock()
	b.wg.Done()
}

// noteBadConn logs why a connection was closed, unless that was on purpose. A client that leaves without waiting for
// its answers, as consumers do, is nothing to warn of.
func (b *Broker) noteBadConn(c *conn, err error) {
	switch {
	case errors.Is(err, errOnPurpose), errors.Is(err, sequencer.ErrStopped):
		return
	case errors.Is(err, errDrained), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		b.log.Debug("a client has left", "remote", c.nc.RemoteAddr().String(), "client", *c.clientID.Load(), "error", err)
		return
	}
	b.warn("a connection was closed", "remote", c.nc.RemoteAddr().String(), "client", *c.clientID.Load(), "error", err)
}

// warn logs what clients can cause at will, at a bounded rate.
func (b *Broker) warn(message string, args ...any) {
	ok, left := b.badConns.allow()
	if !ok {
		return
	}
	if left > 0 {
		args = append(args, "similar_lines_left_out", left)
	}
	b.log.Warn(message, args...)
}

func (b *Broker) readerConfig() wire.ReaderConfig {
	return wire.ReaderConfig{
		MaxRequestBytes: b.cfg.MaxRequestBytes,
		MaxControlBytes: wire.DefaultMaxControlBytes,
		IdleTimeout:     b.cfg.IdleTimeout,
		StallTimeout:    b.cfg.StallTimeout,
		Admission:       b.admission,
		Pool:            &b.pool,
	}
}

// linesPerSecond is how many log lines clients can cause at will.
const linesPerSecond = 10

// throttle lets a bounded number of events a second pass and counts the others.
type throttle struct {
	now func() time.Time

	mu     sync.Mutex
	second int64
	passed int
	left   int
}

// allow reports whether the event may pass and, if so, how many did not since the last one.
func (t *throttle) allow() (ok bool, left int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.now().Unix(); s != t.second {
		t.second, t.passed = s, 0
	}
	if t.passed >= linesPerSecond {
		t.left++
		return false, 0
	}
	t.passed++
	left, t.left = t.left, 0
	return true, left
}
