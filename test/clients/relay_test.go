//go:build peers

package clients

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// relay is an address that always takes connections and hands them to the broker, as a load balancer does: while the broker
// is away, a new connection waits for it. Connections to a broker that dies are closed.
func relay(t *testing.T, to string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	var all sync.WaitGroup
	t.Cleanup(func() {
		close(over)
		l.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			down, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer down.Close()
				up := dialUntil(over, to)
				if up == nil {
					return
				}
				defer up.Close()
				all.Go(func() { // whoever ends first ends both
					_, _ = io.Copy(up, down)
					up.Close()
				})
				ended := make(chan struct{})
				defer close(ended)
				all.Go(func() {
					select {
					case <-over:
						up.Close()
					case <-ended:
					}
				})
				_, _ = io.Copy(down, up)
			})
		}
	})
	return l.Addr().String()
}

// dialUntil tries again until somebody listens, or it is over.
func dialUntil(over <-chan struct{}, addr string) net.Conn {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if c, err := net.Dial("tcp", addr); err == nil {
			return c
		}
		select {
		case <-over:
			return nil
		case <-tick.C:
		}
	}
}
