package task

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/task/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// page is a log that tests read.
type page struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (p *page) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.b.Write(text)
}

func (p *page) waits() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Count(p.b.String(), "no broker answers yet")
}

func refusing(address string) error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused: " + address)}
}

// dropped is a connection whose other end closes it at the first request.
func dropped() net.Conn {
	here, there := net.Pipe()
	go func() {
		_, _ = there.Read(make([]byte, 1<<16))
		there.Close()
	}()
	return here
}

// A broker that refuses connections, drops them, or drops what the start asks after its first answer, is waited for.
func TestStartWaitsForABroker(t *testing.T) {
	t.Parallel()
	fake, cfg := cluster(t)
	var dials, asked atomic.Int32
	cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		switch n := dials.Add(1); {
		case n <= 2:
			return nil, refusing(address)
		case n <= 4:
			return dropped(), nil
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	fake.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		return nil, errors.New("drop the connection"), asked.Add(1) <= 2
	})
	file, want := input(300)
	var log page
	err := run(t, t.Context(), sums(t, "j", file), Config{Kafka: cfg, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if log.waits() != 1 || dials.Load() <= 4 || asked.Load() <= 2 {
		t.Errorf("the log says %d times that it waits, %d dials, %d asked", log.waits(), dials.Load(), asked.Load())
	}
	cfg.Dial = nil
	same(t, rows(t, cfg, "j-sums"), want)
}

func TestStartGivesUpAtTheDeadline(t *testing.T) {
	t.Parallel()
	giveUp := func(t *testing.T, dial func(ctx context.Context, network, address string) (net.Conn, error), want string) {
		file, _ := input(1)
		plan := sums(t, "j", file)
		var log page
		cfg := Config{
			Kafka:         kafka.Config{Brokers: []string{"broker.example:9092"}, Dial: dial},
			StartDeadline: 15 * time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		}
		for _, err := range []error{run(t, t.Context(), plan, cfg), Watch(t.Context(), plan, cfg)} {
			_, ok := errors.AsType[*kafka.UnreachableError](err)
			if !ok || !strings.Contains(err.Error(), "no broker answered at broker.example:9092 within 15s") ||
				!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "is SASL missing?") {
				t.Errorf("got %v", err)
			}
		}
		if log.waits() != 2 {
			t.Errorf("two waits are in the log %d times", log.waits())
		}
	}
	f := func(dial func(ctx context.Context, network, address string) (net.Conn, error), want string) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) { giveUp(t, dial, want) })
	}
	f(func(_ context.Context, _, address string) (net.Conn, error) { return nil, refusing(address) }, "connection refused")
	f(func(context.Context, string, string) (net.Conn, error) { return dropped(), nil }, "does it want TLS or SASL?")
	f(func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }, "is it running")
}

// What brokers and sinks refuse is not waited for.
func TestRefusalsAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	calls := 0
	f := func(want error) {
		t.Helper()
		plan := sums(t, "j", []byte{})
		calls = 0
		err := reach(t.Context(), Config{}.withDefaults(plan), "the start", func(context.Context, func()) error { calls++; return want })
		if err != want || calls != 1 {
			t.Errorf("%d calls, %v, want %v", calls, err, want)
		}
	}
	f(&MissingTopicError{Job: "j", Topic: "t"})
	f(&protocol.SinkCheckError{Sink: "blobs", Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}})
	f(&net.OpError{Op: "dial", Err: &net.AddrError{Err: "missing port in address", Addr: "broker"}})
	f(&stream.RecordError{})
}
