package wire

import (
	"bytes"
	"math/rand/v2"
	"runtime/metrics"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/internal/alloc"
)

// decodeSlackBytes is what decoding may take beside its multiple of the input.
const decodeSlackBytes = 64 << 10

// FuzzFrames feeds a connection's bytes: nothing may panic, every frame is what was sent, and the admission is
// given back.
func FuzzFrames(f *testing.F) {
	f.Add(frameBytes(18, 0, 0))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0})
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add(append(frameBytes(0, make([]byte, 100)...), frameBytes(3)...))
	f.Fuzz(func(t *testing.T, sent []byte) {
		alloc.Within(t, len(sent), DecodeFactor, func() { readFrames(t, sent) })
	})
}

func readFrames(t *testing.T, sent []byte) {
	cfg := testConfig()
	r := feed(cfg, sent)
	rest := sent
	for {
		buf, err := next(r)
		if err != nil {
			break
		}
		if len(rest) < 4+len(buf.B) || !bytes.Equal(rest[4:4+len(buf.B)], buf.B) {
			t.Fatal("a frame that was not sent")
		}
		rest = rest[4+len(buf.B):]
		h, body, ok, err := ParseHeader(buf.B, "")
		if err == nil && ok {
			Decode(h, body)
		}
		buf.Release()
	}
	if n := cfg.Admission.InUse(); n != 0 {
		t.Fatalf("%d bytes are still admitted", n)
	}
}

// FuzzBodies decodes arbitrary bytes as the body of every key and version. What is accepted must encode and decode
// again to the same bytes.
func FuzzBodies(f *testing.F) {
	for _, a := range APIs() {
		for v := a.Min; v <= a.Max; v++ {
			req := kmsg.RequestForKey(a.Key)
			req.SetVersion(v)
			f.Add(a.Key, v, req.AppendTo(nil))
			f.Add(a.Key, v, randomBody(rand.New(rand.NewPCG(1, uint64(v))), 200))
		}
	}
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		a, ok := Lookup(key)
		if !ok || !a.Serves(version) {
			return
		}
		h := Header{Key: key, Version: version}
		var req kmsg.Request
		var err error
		alloc.Within(t, len(body), DecodeFactor, func() { req, err = Decode(h, body) })
		if err != nil {
			return
		}
		once := req.AppendTo(nil)
		again, err := Decode(h, once)
		if err != nil {
			t.Fatalf("%s version %d: what was decoded cannot be decoded again: %v", a.Name, version, err)
		}
		if !bytes.Equal(once, again.AppendTo(nil)) {
			t.Fatalf("%s version %d: encoding is not stable", a.Name, version)
		}
	})
}

// randomBody is made of bytes that array lengths like.
func randomBody(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = []byte{0, 0, 0, 1, 2, 3, 0x7f, 0xff}[r.IntN(8)]
	}
	return b
}

// TestDecodingIsBounded measures, for every key and version, what hostile bodies make the decoder allocate.
func TestDecodingIsBounded(t *testing.T) {
	const size = 30_000
	worst, where := 0.0, Header{}
	for _, a := range APIs() {
		for v := a.Min; v <= a.Max; v++ {
			if v > a.Min && v < a.Max-3 && v != a.FirstFlexible {
				continue
			}
			h := Header{Key: a.Key, Version: v}
			for _, body := range hostileBodies(a.Flexible(v), size) {
				got := allocatedBy(func() { Decode(h, body) })
				if got > decodeSlackBytes+DecodeFactor*uint64(len(body)) {
					t.Errorf("%s version %d: a body of %d bytes takes %d", a.Name, v, len(body), got)
				}
				if f := float64(got) / size; f > worst {
					worst, where = f, h
				}
			}
		}
	}
	t.Logf("worst: %.1f bytes for each byte sent, key %d version %d", worst, where.Key, where.Version)
}

// hostileBodies announce as many elements as the decoder may believe, at every position of the body's start.
func hostileBodies(flexible bool, size int) [][]byte {
	var all [][]byte
	for _, fill := range []byte{0, 1} {
		for _, at := range []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 16, 20, 22} {
			b := bytes.Repeat([]byte{fill}, size)
			n := size - at - 8
			for _, divisor := range []int{2, 3, 16} {
				c := bytes.Clone(b[:size])
				clear(c[:at])
				k := uint32(n / divisor)
				if flexible {
					copy(c[at:], []byte{byte(k) | 0x80, byte(k>>7) | 0x80, byte(k>>14) | 0x80, byte(k >> 21)})
				} else {
					copy(c[at:], []byte{byte(k >> 24), byte(k >> 16), byte(k >> 8), byte(k)})
				}
				all = append(all, c)
			}
		}
	}
	return all
}

// allocatedBy reads a counter that is exact for large allocations; small ones do not matter here.
func allocatedBy(f func()) uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	before := sample[0].Value.Uint64()
	f()
	metrics.Read(sample)
	return sample[0].Value.Uint64() - before
}
