package compress

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline-io/strandline/internal/alloc"
)

var codecs = []int8{None, Gzip, Snappy, LZ4, Zstd}

// contents returns inputs of many sizes: empty, tiny, random, repetitive, larger than a snappy block and a zstd window.
func contents() [][]byte {
	rng := rand.New(rand.NewPCG(1, 2))
	random := make([]byte, 100_000)
	for i := range random {
		random[i] = byte(rng.Uint32())
	}
	return [][]byte{
		{}, []byte("x"), bytes.Repeat([]byte("flight "), 30), random,
		bytes.Repeat(random[:1000], 300), make([]byte, 3<<20),
	}
}

func TestRoundTrip(t *testing.T) {
	for _, codec := range codecs {
		for i, content := range contents() {
			packed, err := Encode(codec, content, []byte("before"))
			if err != nil {
				t.Fatal(err)
			}
			packed, found := bytes.CutPrefix(packed, []byte("before"))
			if !found {
				t.Fatalf("codec %d content %d: Encode did not append", codec, i)
			}
			got, err := Decode(codec, packed, []byte("before"), len(content))
			if err != nil || !bytes.Equal(got, append([]byte("before"), content...)) {
				t.Fatalf("codec %d content %d: %d bytes, error %v", codec, i, len(got), err)
			}
		}
	}
}

// TestForeign reads what another client writes, and lets it read ours.
func TestForeign(t *testing.T) {
	other := map[int8]kgo.CompressionCodec{Gzip: kgo.GzipCompression(), Snappy: kgo.SnappyCompression(), LZ4: kgo.Lz4Compression(), Zstd: kgo.ZstdCompression()}
	for _, codec := range codecs[1:] {
		writer, err := kgo.DefaultCompressor(other[codec])
		if err != nil {
			t.Fatal(err)
		}
		for i, content := range contents() {
			packed, used := writer.Compress(new(bytes.Buffer), content)
			got, err := Decode(int8(used), packed, nil, len(content))
			if err != nil || !bytes.Equal(got, content) {
				t.Fatalf("codec %d content %d: %d bytes, error %v", codec, i, len(got), err)
			}
			ours, err := Encode(codec, content, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err = kgo.DefaultDecompressor().Decompress(ours, kgo.CompressionCodecType(codec))
			if len(content) > 0 && (err != nil || !bytes.Equal(got, content)) { // kgo reads no empty xerial stream
				t.Fatalf("codec %d content %d, foreign reader: %d bytes, error %v", codec, i, len(got), err)
			}
		}
	}
}

func TestBound(t *testing.T) {
	for _, codec := range codecs {
		for i, content := range contents() {
			if len(content) == 0 {
				continue
			}
			packed, err := Encode(codec, content, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := Decode(codec, packed, nil, len(content)-1); !errors.Is(err, ErrTooLarge) || len(got) != 0 {
				t.Fatalf("codec %d content %d: %d bytes, error %v, want ErrTooLarge", codec, i, len(got), err)
			}
		}
	}
}

// TestStreamedZstd reads a frame that does not say how large its content is, as the Java client writes them.
func TestStreamedZstd(t *testing.T) {
	content := make([]byte, 5<<20)
	var packed bytes.Buffer
	w, err := zstd.NewWriter(&packed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := Decode(Zstd, packed.Bytes(), nil, len(content))
	if err != nil || !bytes.Equal(got, content) {
		t.Fatalf("%d bytes, error %v", len(got), err)
	}
	if _, err := Decode(Zstd, packed.Bytes(), nil, len(content)-1); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("error %v, want ErrTooLarge", err)
	}
}

// TestClaims gives a few bytes that claim a lot: memory must follow what is there.
func TestClaims(t *testing.T) {
	const bound = 1 << 30
	claim := append(binaryUvarint(1<<29), 0)
	xerial := append(append([]byte{}, xerialMagic...), 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, byte(len(claim)))
	f := func(codec int8, src []byte) {
		t.Helper()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Decode(codec, src, nil, bound)
		runtime.ReadMemStats(&after)
		if allocated := after.TotalAlloc - before.TotalAlloc; err == nil || allocated > 10<<20 { // two of the lz4 frame's largest blocks, which are pooled
			t.Fatalf("codec %d: %d bytes allocated, error %v", codec, allocated, err)
		}
	}
	f(Snappy, claim)
	f(Snappy, append(xerial, claim...))
	f(Snappy, xerial[:12])
	f(Snappy, append(xerial[:16:16], 0xff, 0xff, 0xff, 0xff, 1))
	f(Zstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0x20, 0, 0, 0, 0, 1, 2, 3}) // single segment of 512 MiB
	broken, err := Encode(Zstd, contents()[3], nil)
	if err != nil {
		t.Fatal(err)
	}
	broken[5000] ^= 0xff
	broken[len(broken)-1] ^= 0xff
	f(Zstd, broken)
	f(Gzip, []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3})
	f(LZ4, []byte{4, 0x22, 0x4d, 0x18, 0x64, 0x70, 0xb9, 0xff, 0xff, 0xff, 0x7f})
	f(7, nil)
}

func binaryUvarint(v uint64) []byte {
	var b []byte
	for ; v >= 0x80; v >>= 7 {
		b = append(b, byte(v)|0x80)
	}
	return append(b, byte(v))
}

func TestRawSnappy(t *testing.T) {
	content := contents()[4]
	got, err := Decode(Snappy, s2.EncodeSnappy(nil, content), nil, len(content))
	if err != nil || !bytes.Equal(got, content) {
		t.Fatalf("%d bytes, error %v", len(got), err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, codec := range codecs {
		for _, content := range contents()[:3] {
			packed, err := Encode(codec, content, nil)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(codec, packed)
		}
	}
	f.Fuzz(func(t *testing.T, codec int8, src []byte) {
		const bound = 1 << 20
		var out []byte
		var err error
		// A frame of lz4 may name blocks of 4 MiB: two buffers of that size, from pools that a collection may have emptied.
		alloc.Within(t, bound, 8, func() { out, err = Decode(codec, src, []byte("kept"), bound) })
		if !bytes.HasPrefix(out, []byte("kept")) {
			t.Fatalf("dst was changed to %q", out)
		}
		if err != nil {
			if len(out) != 4 {
				t.Fatalf("error %v and %d bytes", err, len(out)-4)
			}
			return
		}
		if len(out)-4 > bound {
			t.Fatalf("%d bytes, bound %d", len(out)-4, bound)
		}
		packed, err := Encode(codec, out[4:], nil)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Decode(codec, packed, nil, bound)
		if err != nil || !bytes.Equal(again, out[4:]) {
			t.Fatalf("content does not survive a round trip: %v", err)
		}
	})
}
