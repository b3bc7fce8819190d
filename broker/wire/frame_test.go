package wire

import (
	"bytes"
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
	buf := &Buffer{B: make([]byte, 0, trustedBytes)}
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
