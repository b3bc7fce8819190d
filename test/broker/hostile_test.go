//go:build peers

package broker

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/test/peers"
)

const (
	// memoryLimit is what the broker may take while it is attacked: its budget for requests, and what it takes anyway.
	memoryLimit = 400 << 20
	// bystanderBytes is more than a connection's read buffer holds.
	bystanderBytes = 20_000
)

// bystander is a client that minds its own business while the port is attacked.
type bystander struct {
	t    *testing.T
	s    *server
	sent int
}

// check writes and reads a record, on old and new connections, and logs how long that took.
func (b *bystander) check(what string, producer *kgo.Client) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	begin := time.Now()
	value := fmt.Sprintf("record %0*d", bystanderBytes, b.sent)
	b.sent++
	if err := producer.ProduceSync(ctx, recordOf("bystander", 0, value)).FirstErr(); err != nil {
		b.t.Fatalf("%s: a bystander cannot write: %v\n%s", what, err, b.s.Stderr())
	}
	wrote := time.Since(begin)
	got := readAll(b.t, ctx, b.s.Addr, kgo.ReadCommitted(), []string{"bystander"})
	if len(got) != b.sent || got[position{"bystander", 0, int64(b.sent - 1)}] != value {
		b.t.Fatalf("%s: a bystander reads %d records of %d", what, len(got), b.sent)
	}
	rss, peak := b.s.memory("VmRSS"), b.s.memory("VmHWM")
	b.t.Logf("%s: a bystander wrote after %v, read after %v; resident %d MiB, peak %d MiB", what, wrote, time.Since(begin), rss>>20, peak>>20)
	if peak > memoryLimit {
		b.t.Errorf("%s: the broker took %d MiB, more than %d MiB", what, peak>>20, memoryLimit>>20)
	}
}

// TestHostilePort: whatever strangers do to the port, the broker lives, its memory is bounded, and others are served.
func TestHostilePort(t *testing.T) {
	rng := peers.Seed(t)
	s := start(t)
	ctx := within(t, 2*patience)
	createTopic(t, ctx, s.Addr, "bystander", 1)
	b := &bystander{t: t, s: s}
	producer := client(t, s.Addr, kgo.ProducerBatchCompression(kgo.NoCompression()))
	b.check("in peace", producer)
	attacks := []struct {
		name   string
		attack func(*testing.T, *rand.Rand, *server) (leave func())
	}{
		{"garbage", sendGarbage},
		{"huge lengths", announceHuge},
		{"stalled requests", stallRequests},
		{"dripping requests", dripRequests},
		{"half-open connections", openMany},
		{"nonsense in valid frames", sendNonsense},
	}
	for _, a := range attacks {
		func() {
			defer a.attack(t, rng, s)()
			b.check(a.name, producer)
		}()
	}
	s.restart()
	b.check("after kill -9", producer)
}

// swarm is a number of connections that stay open until they leave.
type swarm []net.Conn

func newSwarm(t *testing.T, s *server, n int) swarm {
	t.Helper()
	var all swarm
	for range n {
		conn, err := net.DialTimeout("tcp", s.Addr, 10*time.Second)
		if err != nil {
			t.Fatalf("connection %d: %v", len(all), err)
		}
		all = append(all, conn)
	}
	return all
}

func (s swarm) leave() {
	for _, conn := range s {
		conn.Close()
	}
}

func (s swarm) each(f func(net.Conn)) {
	var group sync.WaitGroup
	for _, conn := range s {
		group.Go(func() {
			conn.SetDeadline(time.Now().Add(patience))
			f(conn)
		})
	}
	group.Wait()
}

func randomBytes(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// sendGarbage writes random bytes until the broker hangs up.
func sendGarbage(t *testing.T, rng *rand.Rand, s *server) func() {
	all := newSwarm(t, s, 200)
	for _, conn := range all {
		conn.Write(randomBytes(rng, 1+rng.IntN(64<<10)))
	}
	return all.leave
}

// announceHuge announces frames of all sizes and keys, sends a little of them, and waits.
func announceHuge(t *testing.T, rng *rand.Rand, s *server) func() {
	sizes := []uint32{math.MaxUint32, math.MaxInt32, 1 << 30, 100 << 20, 100<<20 - 1, 64 << 20, 4 << 20, 1 << 20, 0, 7, 8}
	all := newSwarm(t, s, 40*len(sizes))
	for i, conn := range all {
		head := binary.BigEndian.AppendUint32(nil, sizes[i%len(sizes)])
		head = binary.BigEndian.AppendUint16(head, uint16(i/len(sizes)))
		head = binary.BigEndian.AppendUint16(head, uint16(rng.IntN(14)))
		conn.Write(append(head, randomBytes(rng, rng.IntN(2000))...))
	}
	return all.leave
}

// stallRequests begins valid requests that fill the broker's request memory as far as possible, and waits; half of them
// send nearly nothing, the others more than the read buffer holds.
func stallRequests(t *testing.T, rng *rand.Rand, s *server) func() {
	all := newSwarm(t, s, 300)
	for i, conn := range all {
		size := []uint32{4 << 20, 4<<20 - 100, 30 << 10, 90 << 20}[i%4]
		head := binary.BigEndian.AppendUint32(nil, size)
		head = append(head, 0, byte([]int{0, 0, 3, 0}[i%4]), 0, 9, 0, 0, 0, 1, 0xff, 0xff, 0)
		conn.Write(append(head, randomBytes(rng, []int{rng.IntN(100), 10_000}[i/4%2])...))
	}
	return all.leave
}

// dripRequests sends bytes one by one.
func dripRequests(t *testing.T, _ *rand.Rand, s *server) func() {
	all := newSwarm(t, s, 200)
	request := frame(kmsg.NewPtrMetadataRequest())
	quit := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			for _, conn := range all {
				conn.Write(request[i%len(request):][:1])
			}
			select {
			case <-tick.C:
			case <-quit:
				return
			}
		}
	})
	return func() {
		close(quit)
		group.Wait()
		all.leave()
	}
}

// openMany connects and says nothing.
func openMany(t *testing.T, _ *rand.Rand, s *server) func() { return newSwarm(t, s, 3000).leave }

// sendNonsense sends, for every key and version that is served, requests with random fields, some of them damaged, and
// random bodies.
func sendNonsense(t *testing.T, rng *rand.Rand, s *server) func() {
	versions := dial(t, s.Addr).ask(kmsg.NewPtrApiVersionsRequest()).(*kmsg.ApiVersionsResponse)
	var frames [][]byte
	for _, k := range versions.ApiKeys {
		for v := k.MinVersion; v <= k.MaxVersion; v++ {
			for n := range 48 {
				req := kmsg.RequestForKey(k.ApiKey)
				req.SetVersion(v)
				fill(rng, reflect.ValueOf(req).Elem())
				req.SetVersion(v)
				f := frame(req)
				const head = 4 + 8 + 2 + 3 // up to the client id's end
				switch body := f[head:]; {
				case n%3 == 1 && len(body) > 0:
					for range 1 + rng.IntN(4) {
						body[rng.IntN(len(body))] = byte(rng.Uint32())
					}
				case n%12 == 2:
					f = append(f[:head], randomBytes(rng, rng.IntN(200))...)
					binary.BigEndian.PutUint32(f, uint32(len(f)-4))
				}
				frames = append(frames, f)
			}
		}
	}
	t.Logf("%d frames for %d keys", len(frames), len(versions.ApiKeys))
	work := make(chan []byte, len(frames))
	for _, f := range frames {
		work <- f
	}
	close(work)
	newSwarm(t, s, 16).each(func(conn net.Conn) {
		for f := range work {
			conn = throw(conn, s.Addr, f)
		}
		conn.Close()
	})
	return func() {}
}

// throw sends a frame and waits a little for what comes back; it returns the connection to use next.
func throw(conn net.Conn, addr string, f []byte) net.Conn {
	var size [4]byte
	conn.SetDeadline(time.Now().Add(100 * time.Millisecond)) // some are parked, rightly
	_, err := conn.Write(f)
	if err == nil {
		if _, err = io.ReadFull(conn, size[:]); err == nil {
			_, err = io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(size[:])))
		}
	}
	if err == nil {
		return conn
	}
	conn.Close()
	if again, err := net.DialTimeout("tcp", addr, 10*time.Second); err == nil {
		return again
	}
	return conn
}

// words are what strings in nonsense are made of: names that mean something, and some that cannot.
var words = []string{"", "t", "g", "p", "consumer", "range", "nonsense", "a/b", "..", "x\x00y", "retention.ms", "compact", "-1", "é"}

// fill gives every field of a request a random value.
func fill(rng *rand.Rand, v reflect.Value) {
	if v.Type() == reflect.TypeFor[kmsg.Tags]() {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() {
				fill(rng, f)
			}
		}
	case reflect.Pointer:
		if rng.IntN(4) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(rng, v.Elem())
		}
	case reflect.Slice:
		n := rng.IntN(3)
		if v.Type().Elem().Kind() == reflect.Uint8 {
			n = rng.IntN(100)
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(rng, v.Index(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(rng, v.Index(i))
		}
	case reflect.String:
		v.SetString(words[rng.IntN(len(words))])
	case reflect.Bool:
		v.SetBool(rng.IntN(2) > 0)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		edges := []int64{-2, -1, 0, 1, 2, 3, 100, math.MaxInt16, math.MaxInt32, math.MaxInt64, math.MinInt64, math.MinInt32}
		edges = slices.DeleteFunc(edges, v.OverflowInt)
		v.SetInt(edges[rng.IntN(len(edges))])
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(rng.IntN(256)))
	}
}
