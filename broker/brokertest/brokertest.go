// Package brokertest gives anybody's test a broker: Start(t) and it is ready, on a free port, in memory, gone with the
// test. Requests can be watched, delayed, answered and lost (Intercept and what is built on it), and over a Network a
// broker and its clients run inside one testing/synctest bubble.
package brokertest

import (
	"context"
	"log/slog"
	"testing"

	"github.com/strandline-io/strandline/broker"
)

// Broker is a running broker. Its methods may be called from anywhere.
type Broker struct {
	*broker.Broker
	Faults

	t      testing.TB
	stop   context.CancelFunc
	ended  chan struct{}
	result error
}

// Option changes what Start starts.
type Option func(*settings)

type settings struct {
	cfg broker.Config
	t   testing.TB
}

// Dir keeps the broker's data in a folder, so that it can be started again.
func Dir(folder string) Option { return func(s *settings) { s.cfg.DataDir = folder } }

// Configure lets f change the configuration after all other options, which are in it.
func Configure(f func(*broker.Config)) Option { return func(s *settings) { f(&s.cfg) } }

// Partitions is how many partitions topics get that name no number. Without it they get one.
func Partitions(n int32) Option { return func(s *settings) { s.cfg.DefaultPartitions = n } }

// On makes the broker listen on an in-memory network, under address, instead of a TCP port.
func On(n *Network, address string) Option {
	return func(s *settings) {
		l, err := n.Listen(address)
		if err != nil {
			s.t.Fatal(err)
		}
		s.cfg.Listener = l
	}
}

// Logs writes the broker's log to the test's output.
func Logs() Option {
	return func(s *settings) {
		s.cfg.Logger = slog.New(slog.NewTextHandler(s.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
}

// Start starts a broker that serves until the test ends, or Stop. It listens on a free port of 127.0.0.1, keeps its
// data in memory, lets consumer groups begin without waiting for more members, and verifies itself (broker.Config.Verify). It is
// ready when Start returns. If the broker ends by itself, or cannot stop cleanly, the test fails.
func Start(t testing.TB, options ...Option) *Broker {
	t.Helper()
	s := settings{t: t, cfg: broker.Config{Listen: "127.0.0.1:0", GroupInitialRebalanceDelayMs: -1, Verify: true}}
	for _, option := range options {
		option(&s)
	}
	b := &Broker{t: t, ended: make(chan struct{})}
	if also := s.cfg.Intercept; also != nil {
		b.Intercept(Any, also)
	}
	s.cfg.Intercept = b.Faults.decide
	var err error
	if b.Broker, err = broker.New(s.cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.stop = cancel
	go func() {
		defer close(b.ended)
		b.result = b.Serve(ctx)
	}()
	t.Cleanup(func() {
		if err := b.Stop(); err != nil {
			t.Errorf("the broker did not stop cleanly: %v", err)
		}
	})
	return b
}

// Addr is the address to connect to, host:port.
func (b *Broker) Addr() string { return b.Broker.Addr().String() }

// Stop ends the broker cleanly and waits until it has let go of its folder. It returns what Serve returned; called
// again it does nothing else.
func (b *Broker) Stop() error {
	b.stop()
	b.Heal()
	<-b.ended
	return b.result
}
