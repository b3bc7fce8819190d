package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func testConfig() ReaderConfig {
	return ReaderConfig{
		MaxRequestBytes: 32 << 20, MaxControlBytes: 1 << 20,
		IdleTimeout: time.Minute, StallTimeout: time.Second,
		Admission: NewAdmission(64 << 20), Pool: new(Pool),
	}
}

// frameBytes is a frame of a key, with payload behind the header's first eight bytes.
func frameBytes(key byte, payload ...byte) []byte {
	n := 8 + len(payload)
	frame := []byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n), 0, key, 0, 3, 0, 0, 0, 1}
	return append(frame, payload...)
}

// feed writes bytes to a reader from another goroutine and then closes.
func feed(cfg ReaderConfig, pieces ...[]byte) *Reader {
	client, server := net.Pipe()
	go func() {
		for _, p := range pieces {
			client.Write(p)
		}
		client.Close()
	}()
	return NewReader(server, cfg)
}

func next(r *Reader) (*Buffer, error) {
	h, err := r.Head()
	if err != nil {
		return nil, err
	}
	return r.Frame(h, nil)
}

func TestFramesComeWhole(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789abcdef"), 600_000) // larger than what is trusted at once
	small := frameBytes(18, 'x')
	cfg := testConfig()
	r := feed(cfg, small[:3], small[3:], append(frameBytes(0, big...), frameBytes(3)...))
	for _, want := range [][]byte{small, frameBytes(0, big...), frameBytes(3)} {
		buf, err := next(r)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(buf.B, want[4:]) {
			t.Errorf("frame of %d bytes differs", len(want))
		}
		buf.Release()
	}
	if _, err := next(r); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
	if n := cfg.Admission.InUse(); n != 0 {
		t.Errorf("%d bytes are still admitted", n)
	}
}

func TestBadFrameLengths(t *testing.T) {
	f := func(want string, frame ...byte) {
		t.Helper()
		_, err := next(feed(testConfig(), frame))
		if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", frame, err)
		}
	}
	f("frame of 7 bytes", 0, 0, 0, 7, 0, 18, 0, 0)
	f("frame of -1 bytes", 0xff, 0xff, 0xff, 0xff, 0, 18, 0, 0)
	f("frame of 2147483647 bytes", 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0)
	f("want 8 to 1048576", 0, 0x20, 0, 0, 0, 3, 0, 0) // fine for Produce only
	f("HTTP", []byte("GET / HTTP/1.1\r\n")...)
	f("TLS", 0x16, 0x03, 0x01, 0x02, 0, 0, 0, 0)
	f("ended after 3 of 8 bytes", 0, 0, 0)
	f("ended after 5 of 9 bytes", 0, 0, 0, 9, 0, 18, 0, 0, 1)
}

// TestAnnouncedBytesAreNotAllocated: a client that announces much and sends little costs no more than a constant.
func TestAnnouncedBytesAreNotAllocated(t *testing.T) {
	cfg := testConfig()
	r := feed(cfg, []byte{0x01, 0xff, 0xff, 0xff, 0, 0, 0, 3, 1, 2, 3, 4})
	h, err := r.Head()
	if err != nil {
		t.Fatal(err)
	}
	buf := &Buffer{B: make([]byte, 0, trustedBytes), budget: NewBudget(1)}
	if err := r.fill(buf, int(h.SizeBytes)); !errors.Is(err, ErrMalformed) {
		t.Errorf("error %v", err)
	}
	if cap(buf.B) > trustedBytes {
		t.Errorf("%d bytes for 12 sent", cap(buf.B))
	}
}

func TestTimeoutsOfReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer client.Close()
		r := NewReader(server, testConfig())
		start := time.Now()
		if _, err := r.Head(); !errors.Is(err, ErrIdle) || time.Since(start) != time.Minute {
			t.Errorf("idle: %v after %v", err, time.Since(start))
		}
		// An idle reader may go on.
		frame := frameBytes(18, 1, 2, 3)
		go client.Write(frame[:14])
		h, err := r.Head()
		if err != nil {
			t.Fatal(err)
		}
		start = time.Now()
		if _, err := r.Frame(h, nil); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("stalled: %v after %v", err, time.Since(start))
		}
		if n := r.cfg.Admission.InUse(); n != 0 {
			t.Errorf("%d bytes are still admitted", n)
		}
	})
}

func TestAdmissionHoldsFramesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.Admission = NewAdmission(16 << 10) // 4 KiB for small requests
		frame := frameBytes(0, make([]byte, 3000)...)
		first, err := next(feed(cfg, frame))
		if err != nil {
			t.Fatal(err)
		}
		second := make(chan error, 1)
		go func() {
			buf, err := next(feed(cfg, frame))
			if err == nil {
				buf.Release()
			}
			second <- err
		}()
		cancelled := make(chan struct{})
		third := make(chan error, 1)
		go func() {
			r := feed(cfg, frame)
			h, err := r.Head()
			if err == nil {
				_, err = r.Frame(h, cancelled)
			}
			third <- err
		}()
		synctest.Wait()
		close(cancelled)
		if err := <-third; !errors.Is(err, net.ErrClosed) {
			t.Errorf("a cancelled wait ends with %v", err)
		}
		select {
		case err := <-second:
			t.Fatalf("the second frame was read while the first held the budget: %v", err)
		default:
		}
		first.Release()
		if err := <-second; err != nil {
			t.Errorf("after the first was released: %v", err)
		}
	})
}

// TestAnnouncedFramesHoldNothing: who announces and does not send takes nothing away from others.
func TestAnnouncedFramesHoldNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		begin := func(size int32, sent int) {
			client, server := net.Pipe()
			t.Cleanup(func() { client.Close() })
			r := NewReader(server, cfg)
			go func() {
				if _, err := next(r); err == nil {
					t.Errorf("%d bytes of a frame of %d were enough", sent, size)
				}
			}()
			head := binary.BigEndian.AppendUint32(nil, uint32(size))
			client.Write(append(head, make([]byte, sent)...))
		}
		for range 100 {
			begin(8000, 7000)
			begin(1<<20, 7000)
			begin(30<<20, 7000)
		}
		synctest.Wait()
		if n := cfg.Admission.InUse(); n != 0 {
			t.Errorf("%d bytes are admitted that were only announced", n)
		}
		<-time.After(cfg.StallTimeout)
		synctest.Wait()
	})
}

// TestSlowFramesYield: a client that has the memory and sends nothing keeps it until others wait for it.
func TestSlowFramesYield(t *testing.T) {
	const size, half = 100 << 10, 50 << 10
	f := func(name string, pause time.Duration, piece int, others bool, want error, atMost time.Duration) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := testConfig()
				cfg.StallTimeout = 10 * time.Second
				cfg.Admission = NewAdmission(4 * size) // one frame at a time
				client, server := net.Pipe()
				defer client.Close()
				start := time.Now()
				ended, quit := make(chan error, 1), make(chan struct{})
				defer close(quit)
				go func() {
					buf, err := next(NewReader(server, cfg))
					if err == nil {
						buf.Release()
					}
					ended <- err
				}()
				frame := frameBytes(0, make([]byte, size)...)
				client.Write(frame[:half])
				go func() {
					for rest := frame[half:]; len(rest) > 0; rest = rest[min(piece, len(rest)):] {
						select {
						case <-time.After(pause):
						case <-quit:
							return
						}
						if _, err := client.Write(rest[:min(piece, len(rest))]); err != nil {
							return
						}
					}
				}()
				synctest.Wait()
				if others {
					go func() {
						buf, err := next(feed(cfg, frame))
						if err != nil {
							t.Error(err)
							return
						}
						buf.Release()
					}()
				}
				err := <-ended
				if !errors.Is(err, want) || time.Since(start) > atMost {
					t.Errorf("ended after %v with %v", time.Since(start), err)
				}
				server.Close()
			})
		})
	}
	f("stalled, alone", time.Hour, size, false, os.ErrDeadlineExceeded, 10*time.Second)
	f("stalled, others wait", time.Hour, size, true, os.ErrDeadlineExceeded, 2*time.Second)
	f("slow, alone", 900*time.Millisecond, 10<<10, false, nil, 10*time.Second)
	f("slow, others wait", 900*time.Millisecond, 10<<10, true, os.ErrDeadlineExceeded, 3*time.Second)
	f("steady, others wait", 400*time.Millisecond, 20<<10, true, nil, 10*time.Second)
}
