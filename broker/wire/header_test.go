package wire

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// requestFrame encodes a request as kmsg does, without the length.
func requestFrame(clientID *string, correlationID int32, req kmsg.Request) []byte {
	var opts []kmsg.RequestFormatterOpt
	if clientID != nil {
		opts = append(opts, kmsg.FormatterClientID(*clientID))
	}
	return kmsg.NewRequestFormatter(opts...).AppendRequest(nil, req, correlationID)[4:]
}

func TestHeaderOfEveryVersion(t *testing.T) {
	id := "console"
	for _, a := range APIs() {
		for v := a.Min; v <= a.Max; v++ {
			for _, client := range []*string{nil, &id} {
				req := kmsg.RequestForKey(a.Key)
				req.SetVersion(v)
				frame := requestFrame(client, 42, req)
				h, body, ok, err := ParseHeader(frame, "")
				if err != nil || !ok {
					t.Fatalf("%s version %d: ok %t, %v", a.Name, v, ok, err)
				}
				want := Header{Key: a.Key, Version: v, CorrelationID: 42}
				if client != nil {
					want.ClientID = *client
				}
				if diff := cmp.Diff(want, h); diff != "" {
					t.Errorf("%s version %d (-want +got):\n%s", a.Name, v, diff)
				}
				if diff := cmp.Diff(req.AppendTo(nil), append([]byte(nil), body...)); diff != "" {
					t.Errorf("%s version %d, body (-want +got):\n%s", a.Name, v, diff)
				}
				if _, err := Decode(h, body); err != nil {
					t.Errorf("%s version %d: %v", a.Name, v, err)
				}
			}
		}
	}
}

func TestHeaderSkipsTags(t *testing.T) {
	frame := []byte{0, 18, 0, 3, 0, 0, 0, 9, 0xff, 0xff, 2, 0, 2, 'a', 'b', 5, 0, 'x'}
	h, body, ok, err := ParseHeader(frame, "")
	if err != nil || !ok || h.CorrelationID != 9 || h.ClientID != "" || string(body) != "x" {
		t.Errorf("got %+v, body %q, %t, %v", h, body, ok, err)
	}
}

func TestHeaderOfUnservedRequestsIsParsedOnlyInPart(t *testing.T) {
	f := func(key, version byte) {
		t.Helper()
		h, body, ok, err := ParseHeader([]byte{0, key, 0, version, 0, 0, 0, 5, 0xff}, "")
		if err != nil || ok || body != nil || h.CorrelationID != 5 || h.Key != int16(key) {
			t.Errorf("key %d version %d: %+v, %v, %t, %v", key, version, h, body, ok, err)
		}
	}
	f(99, 0)  // unknown
	f(18, 9)  // ApiVersions of the future
	f(0, 2)   // advertised, not served
	f(36, 1)  // not yet
	f(1, 200) // nonsense
}

func TestMalformedHeaders(t *testing.T) {
	f := func(frame ...byte) {
		t.Helper()
		if _, _, _, err := ParseHeader(frame, ""); !errors.Is(err, ErrMalformed) {
			t.Errorf("%v: error %v", frame, err)
		}
	}
	f()
	f(0, 18, 0, 0, 0, 0, 0)
	f(0, 18, 0, 0, 0, 0, 0, 1)                                              // no client id
	f(0, 18, 0, 0, 0, 0, 0, 1, 0)                                           // half of its length
	f(0, 18, 0, 0, 0, 0, 0, 1, 0, 5, 'a')                                   // shorter than it says
	f(0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xfe)                                  // length -2
	f(0, 18, 0, 3, 0, 0, 0, 1, 0, 0)                                        // no tags
	f(0, 18, 0, 3, 0, 0, 0, 1, 0, 0, 1)                                     // a tag that is not there
	f(0, 18, 0, 3, 0, 0, 0, 1, 0, 0, 1, 0, 9)                               // a tag that ends too early
	f(0, 18, 0, 3, 0, 0, 0, 1, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)    // more than 32 bits
	f(0, 18, 0, 3, 0, 0, 0, 1, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0) // four billion tags
}

func TestRepeatedClientIDIsNotAllocatedAgain(t *testing.T) {
	id := "a-client"
	frame := requestFrame(&id, 1, &kmsg.HeartbeatRequest{Version: 3})
	last := ""
	parse := func() {
		h, _, _, err := ParseHeader(frame, last)
		if err != nil {
			t.Fatal(err)
		}
		last = h.ClientID
	}
	parse()
	if n := testing.AllocsPerRun(100, parse); n > 0 {
		t.Errorf("%v allocations per header", n)
	}
}

func TestResponseHeaders(t *testing.T) {
	f := func(resp kmsg.Response, version int16, tags bool) {
		t.Helper()
		resp.SetVersion(version)
		got := AppendResponse([]byte("before"), 3, resp)
		body := resp.AppendTo(nil)
		want := append([]byte("before"), 0, 0, 0, byte(4+len(body)), 0, 0, 0, 3)
		if tags {
			want[9]++
			want = append(want, 0)
		}
		if diff := cmp.Diff(append(want, body...), got); diff != "" {
			t.Errorf("%T version %d (-want +got):\n%s", resp, version, diff)
		}
	}
	f(&kmsg.HeartbeatResponse{}, 3, false)
	f(&kmsg.HeartbeatResponse{}, 4, true)
	f(&kmsg.ApiVersionsResponse{}, 2, false)
	f(&kmsg.ApiVersionsResponse{}, 4, false)
}
