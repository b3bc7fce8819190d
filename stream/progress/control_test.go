package progress

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/strandline-io/strandline/internal/alloc"
)

func TestControlBytes(t *testing.T) {
	f := func(c Control, want string) {
		t.Helper()
		got := c.Append(nil)
		if string(got) != want {
			t.Fatalf("got  %q\nwant %q", got, want)
		}
		kind, payload, err := Parse(got)
		if err != nil {
			t.Fatal(err)
		}
		back, err := ParseControl(kind, payload)
		if err != nil || back != c {
			t.Fatalf("read back %+v %v, want %+v", back, err, c)
		}
	}
	f(Control{Kind: KindWatermark, Task: "task-1", TaskCount: 4, TimestampMs: 5},
		"\x01"+`{"version":1,"taskName":"task-1","taskCount":4,"timestamp":5}`)
	f(Control{Kind: KindWatermark, Task: "task-1", TaskCount: 4, Run: 2, TimestampMs: -5, Idle: true},
		"\x01"+`{"version":1,"taskName":"task-1","taskCount":4,"timestamp":-5,"runId":"2","idle":true}`)
	f(Control{Kind: KindWatermark, Task: "t", TaskCount: 4, TimestampMs: None, Idle: true},
		"\x01"+`{"version":1,"taskName":"t","taskCount":4,"idle":true}`)
	f(Control{Kind: KindEndOfStream, Task: "task-1", TaskCount: 4, Stream: "words", TimestampMs: None},
		"\x02"+`{"version":1,"taskName":"task-1","taskCount":4,"streamId":"words"}`)
}

// Samza's own bytes, of 2017 and of today, and what their reader accepts.
func TestControlReading(t *testing.T) {
	f := func(kind Kind, payload string, want Control) {
		t.Helper()
		want.Kind = kind
		got, err := ParseControl(kind, []byte(payload))
		if err != nil || got != want {
			t.Fatalf("%s: got %+v %v, want %+v", payload, got, err, want)
		}
	}
	f(KindWatermark, `{"timestamp":5,"taskName":"task-1","version":1}`, Control{Task: "task-1", TimestampMs: 5})
	f(KindWatermark, `{"task-name":"t","task-count":3,"version":1,"timestamp":5}`, Control{Task: "t", TaskCount: 3, TimestampMs: 5})
	f(KindWatermark, `{"task-name":"old","taskName":"new","timestamp":5}`, Control{Task: "new", TimestampMs: 5})
	f(KindWatermark, `{"taskName":"new","task-name":"old","timestamp":5}`, Control{Task: "new", TimestampMs: 5})
	f(KindWatermark, ` {"taskName":"t","timestamp":9223372036854775807,"what":{"is":["this"]}}`, Control{Task: "t", TimestampMs: math.MaxInt64})
	f(KindEndOfStream, `{"taskName":"t","stream-id":"s","run-id":"7"}`, Control{Task: "t", Stream: "s", Run: 7, TimestampMs: None})
}

func TestControlRefused(t *testing.T) {
	f := func(payload string, want error, text string) {
		t.Helper()
		_, err := ParseControl(KindWatermark, []byte(payload))
		if !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
			t.Fatalf("%.80s: got %v, want %v with %q", payload, err, want, text)
		}
	}
	f(`{"version":2,"taskName":"t","timestamp":5}`, ErrNewerVersion, "update the reading program")
	f(`{"version":0,"taskName":"t","timestamp":5}`, ErrCorrupt, "version is 0")
	f(`null`, ErrCorrupt, "JSON object")
	f(``, ErrCorrupt, "JSON object")
	f(`[]`, ErrCorrupt, "JSON object")
	f(`{"taskName":"t","timestamp":5} x`, ErrCorrupt, "invalid character")
	f(`{"taskName":null,"timestamp":5}`, ErrCorrupt, "taskName has 0 bytes")
	f(`{"taskName":"t"}`, ErrCorrupt, "without a timestamp")
	f(`{"taskName":"t","timestamp":"5"}`, ErrCorrupt, "")
	f(`{"taskName":"t","timestamp":5,"taskCount":0}`, ErrCorrupt, "taskCount is 0")
	f(`{"taskName":"t","timestamp":5,"taskCount":2000000}`, ErrCorrupt, "taskCount is 2000000")
	f(`{"taskName":"t","timestamp":5,"runId":"-1"}`, ErrCorrupt, "runId")
	f(`{"taskName":"`+strings.Repeat("x", MaxControlBytes)+`"}`, ErrCorrupt, "allowed are")
}

func TestTypeByte(t *testing.T) {
	f := func(value string, kind Kind, payload, text string) {
		t.Helper()
		k, p, err := Parse([]byte(value))
		if text != "" {
			if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), text) {
				t.Fatalf("%q: got %v, want %q", value, err, text)
			}
			return
		}
		if err != nil || k != kind || string(p) != payload {
			t.Fatalf("%q: got %d %q %v", value, k, p, err)
		}
	}
	f("\x00\x01\x02", KindUser, "\x01\x02", "")
	f("\x00", KindUser, "", "")
	f("\x02x", KindEndOfStream, "x", "")
	f("", 0, "", "empty")
	f("\x03x", 0, "", "type byte is 3")
	f("\x80x", 0, "", "type byte is 128")
	if got := string(AppendUser(nil, []byte{1, 2})); got != "\x00\x01\x02" {
		t.Fatalf("AppendUser gave %q", got)
	}
}

func FuzzControl(f *testing.F) {
	f.Add([]byte("\x01" + `{"version":1,"taskName":"t","taskCount":4,"timestamp":5,"runId":"1","idle":true}`))
	f.Add([]byte("\x02" + `{"task-name":"t","task-count":4,"stream-id":"s"}`))
	f.Add([]byte("\x01null"))
	f.Fuzz(func(t *testing.T, value []byte) {
		kind, payload, err := Parse(value)
		if err != nil || kind == KindUser {
			return
		}
		var c Control
		alloc.Within(t, len(value), 16, func() { c, err = ParseControl(kind, payload) })
		if err != nil {
			return
		}
		again := c.Append(nil)
		back, err := ParseControl(Kind(again[0]), again[1:])
		if len(again) <= MaxControlBytes && (err != nil || back != c) {
			t.Fatalf("%q reads as %+v, written %q, reads as %+v, %v", value, c, again, back, err)
		}
	})
}
