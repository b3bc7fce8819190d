package progress

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/strandline-io/strandline/internal/alloc"
)

// FuzzBook restores a book from any JSON and lets it go on with any control messages, one in each line. What it says is
// kept and brought back unchanged at every step, the watermark never falls, and an end stays one.
func FuzzBook(f *testing.F) {
	last := int64(7)
	c := BookCheckpoint{Run: 1,
		EndOfStream: EndOfStreamCheckpoint{StreamID: "by", TotalTasks: 2, Tasks: []string{"in-1"}},
		Watermark:   WatermarkCheckpoint{StreamID: "by", TotalTasks: 2, TasksToEventTime: map[string]int64{"in-0": 7}, LastEmission: &last},
	}
	good, err := json.Marshal(c)
	if err != nil {
		f.Fatal(err)
	}
	messages := bytes.Join([][]byte{
		Control{Kind: KindWatermark, Task: "in-0", TaskCount: 2, Run: 1, TimestampMs: 9}.Append(nil),
		Control{Kind: KindWatermark, Task: "in-0", TaskCount: 2, TimestampMs: None, Idle: true}.Append(nil),
		Control{Kind: KindEndOfStream, Task: "in-0", TaskCount: 2, Stream: "by"}.Append(nil),
	}, []byte("\n"))
	f.Add(good, 2, messages)
	f.Add(good, 0, messages)
	f.Add([]byte(`{"run":1,"endOfStream":{"streamId":"by","totalTasks":-1},"watermark":{"streamId":"by","totalTasks":-1}}`), 0, messages)
	fresh := []byte(`{"run":1,"endOfStream":{"streamId":"by"},"watermark":{"streamId":"by"}}`)
	f.Add(fresh, 0, bytes.Join([][]byte{
		Control{Kind: KindWatermark, Task: "in-0", TimestampMs: 9}.Append(nil),
		Control{Kind: KindEndOfStream, Task: "in-1", Stream: "by"}.Append(nil),
		Control{Kind: KindEndOfStream, Task: "in-1", TaskCount: 1, Stream: "by"}.Append(nil), // fewer than have spoken
	}, []byte("\n")))
	f.Fuzz(func(t *testing.T, checkpoint []byte, expected int, messages []byte) {
		var c BookCheckpoint
		if json.Unmarshal(checkpoint, &c) != nil || expected < 0 {
			return
		}
		var b *Book
		var err error
		alloc.Within(t, len(checkpoint), 256, func() { b, err = RestoreBook(c, "by", 0, 1, expected) })
		if err != nil {
			return
		}
		keepBook(t, b, expected)
		for line := range bytes.Lines(messages) {
			kind, payload, err := Parse(bytes.TrimSuffix(line, []byte("\n")))
			if err != nil || kind == KindUser {
				continue
			}
			control, err := ParseControl(kind, payload)
			if err != nil {
				continue
			}
			before := b.State()
			if _, err := b.Apply(control); err != nil {
				return
			}
			if after := b.State(); after.WatermarkMs < before.WatermarkMs || before.Ended && !after.Ended {
				t.Fatalf("%+v makes %+v of %+v", control, after, before)
			}
			keepBook(t, b, expected)
		}
	})
}

// keepBook keeps a book and brings it back.
func keepBook(t *testing.T, b *Book, expected int) {
	t.Helper()
	if s := b.State(); (s.Idle || s.Ended) && (b.expected <= 0 || len(b.tasks) != b.expected) {
		t.Fatalf("%d of %d tasks have spoken, and the partition is %+v", len(b.tasks), b.expected, s)
	}
	c := b.Checkpoint()
	if !slices.IsSorted(c.EndOfStream.Tasks) {
		t.Fatalf("the tasks are not sorted: %q", c.EndOfStream.Tasks)
	}
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var read BookCheckpoint
	if err := json.Unmarshal(data, &read); err != nil {
		t.Fatal(err)
	}
	again, err := RestoreBook(read, "by", 0, 1, expected)
	if err != nil {
		t.Fatalf("own checkpoint %s: %v", data, err)
	}
	if again.State() != b.State() {
		t.Fatalf("%+v came back as %+v from %s", b.State(), again.State(), data)
	}
	if kept, err := json.Marshal(again.Checkpoint()); err != nil || !bytes.Equal(kept, data) {
		t.Fatalf("checkpoint %s\nbecame     %s, %v", data, kept, err)
	}
}
