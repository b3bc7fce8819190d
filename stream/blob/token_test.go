package blob

import (
	"bytes"
	"encoding/hex"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline-io/strandline/internal/alloc"
)

// golden is the token of docs/formats/blob-token.md.
const golden = "534254" + "01" + // magic, version
	"06666c69676874" + "0137" + "0564656c6179" + "06726f77572d30" + // job, run, sink, task
	"0c" + "02" + // epoch 6, two blobs
	"0101" + "2464656c61792f302f323032342f30312f30322f30332f30342d30352d3132382e6176726f" +
	"00112233445566778899aabbccddeeff" + "0f0e0d0c0b0a09080706050403020100" +
	"e807" + "b960" + "f8ac01" + "cafef00d" + "f0b3b1daba6f" +
	"02" + "a0000000000000000000000000000001" + "00" + "03" + "a0000000000000000000000000000002" + "00" + "01" +
	"0004" + "2464656c61792f302f323032342f30312f30322f30342f30342d30352d3939392e6176726f" +
	"00112233445566778899aabbccddeeff" + "ffffffffffffffffffffffffffffffff" +
	"01" + "32" + "0a" + "00000001" + "00" +
	"01" + "a0000000000000000000000000000003" + "00" + "01"

func goldenToken() *Token {
	schema := Fingerprint{0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
	nonce := func(n byte) Nonce { return Nonce{0: 0xa0, 15: n} }
	sync := [16]byte{15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}
	return &Token{Job: "flight", Run: "7", Sink: "delay", Task: "rowW-0", Epoch: 6, Blobs: []Blob{
		{Name: "delay/0/2024/01/02/03/04-05-128.avro", Done: true, Codec: Null, Schema: schema, Sync: sync, Rows: 1000,
			Bytes: 12345, RawBytes: 22136, Checksum: 0xcafef00d, OpenedMs: 1914844884216,
			Runs: []Run{{Nonce: nonce(1), Count: 3}, {Nonce: nonce(2), Count: 1}}},
		{Name: "delay/0/2024/01/02/04/04-05-999.avro", Codec: Zstandard, Schema: schema, Sync: [16]byte(bytes.Repeat([]byte{255}, 16)),
			Rows: 1, Bytes: 50, RawBytes: 10, Checksum: 1, Runs: []Run{{Nonce: nonce(3), Count: 1}}},
	}}
}

func TestTokenGolden(t *testing.T) {
	want := goldenToken()
	data, err := hex.DecodeString(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(want.AppendTo(nil)); got != golden {
		t.Errorf("encoded\n%s\nwant\n%s", got, golden)
	}
	got, err := ParseToken(data)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestTokenRefusals(t *testing.T) {
	data, _ := hex.DecodeString(golden)
	f := func(name string, token []byte, want string) {
		t.Helper()
		_, err := ParseToken(token)
		var e *TokenError
		if !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want a TokenError with %q", name, err, want)
		}
	}
	f("nothing", nil, "does not start")
	f("other bytes", []byte(`{"version":1}`), "does not start")
	newer := bytes.Clone(data)
	newer[3] = 2
	f("newer", newer, "version 2, this program knows 1")
	for n := 4; n < len(data); n++ {
		if _, err := ParseToken(data[:n]); err == nil {
			t.Errorf("cut to %d bytes: accepted", n)
		}
	}
	f("longer", append(bytes.Clone(data), 0), "1 bytes are left over")
	f("huge", make([]byte, maxTokenBytes+1), "at most")
	empty := goldenToken()
	empty.Blobs[0].Runs = nil
	f("no blocks", empty.AppendTo(nil), "1000 rows in 0 blocks")
	state := goldenToken()
	state.Blobs[1].Codec = 9
	f("codec", state.AppendTo(nil), "codec 9")
	many := goldenToken()
	many.Blobs[0].Runs = []Run{{Count: 30_000}, {Count: 30_000}}
	f("blocks", many.AppendTo(nil), "more than 50000 blocks")
}

func FuzzParseToken(f *testing.F) {
	data, _ := hex.DecodeString(golden)
	f.Add(data)
	f.Add([]byte("SBT\x01"))
	f.Add(append([]byte("SBT\x01\x00\x00\x00\x00\x00"), 0xff, 0xff, 0xff, 0xff, 0x7f))
	f.Fuzz(func(t *testing.T, data []byte) {
		var token *Token
		var err error
		alloc.Within(t, len(data), 64, func() { token, err = ParseToken(data) })
		if err != nil {
			return
		}
		again := token.AppendTo(nil)
		if len(again) > len(data) {
			t.Fatalf("%d bytes became %d", len(data), len(again))
		}
		second, err := ParseToken(again)
		if err != nil {
			t.Fatalf("own bytes refused: %v", err)
		}
		if d := cmp.Diff(token, second); d != "" {
			t.Fatal(d)
		}
	})
}

// TestTokenAllocation: counts in hostile bytes must not make the decoder allocate ahead of the data.
func TestTokenAllocation(t *testing.T) {
	data := []byte("SBT\x01\x00\x00\x00\x00\x00\x90\x4e") // 10,000 blobs, none there
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 100 {
		if _, err := ParseToken(data); err == nil {
			t.Fatal("accepted")
		}
	}
	runtime.ReadMemStats(&after)
	if n := (after.TotalAlloc - before.TotalAlloc) / 100; n > 4096 {
		t.Errorf("%d bytes allocated for %d", n, len(data))
	}
}
