package core

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/progress"
)

func (w *Worker) onRecords(e Records) {
	t := w.find(e.Task)
	if t == nil || w.phase == phaseDropping {
		return
	}
	if e.Input < 0 || e.Input >= len(t.inputs) {
		panic(fmt.Sprintf("BUG: task %s has no input %d", t.id.Name(), e.Input))
	}
	if !t.inputs[e.Input].started {
		return
	}
	if !w.WantsRecords() {
		panic(fmt.Sprintf("BUG: records for task %s while WantsRecords is false", t.id.Name()))
	}
	w.process(e)
}

// process works through one fetch. Where a chunked close begins in the middle, the rest waits in the backlog.
func (w *Worker) process(e Records) {
	t := w.find(e.Task)
	in := t.inputs[e.Input]
	for i := range e.Records {
		m := &e.Records[i]
		if m.Offset < in.position.Offset {
			continue
		}
		if in.end >= 0 && m.Offset >= in.end {
			break
		}
		if t.closing {
			e.Records = e.Records[i:]
			in.position = Position{m.Offset, max(0, m.Line-1)}
			w.backlog = append([]Records{e}, w.backlog...)
			return
		}
		m.Input, m.Partition = e.Input, t.id.Number
		w.txnRecords++
		w.record(t, in, m)
		if w.phase != phaseOpen {
			return
		}
	}
	if e.Next.Offset > in.position.Offset {
		in.position = e.Next
		in.moved, t.moved = true, true
	}
	if w.checkEnds(t) {
		t.touched = true
		w.advance(t)
	} else if in.source != nil && in.source.Fetched(w.nowMs, len(e.Records), in.position.Offset, e.LastStableOffset, e.HighWatermark) {
		w.advance(t)
	}
}

// record processes one record: a user's, or a control message.
func (w *Worker) record(t *task, in *input, m *stream.Message) {
	in.position = Position{m.Offset + 1, m.Line}
	in.moved = true
	if in.book == nil {
		t.touched = true
		if w.user(t, in, m) {
			in.source.Observe(m.TimestampMs)
		}
		w.advance(t)
		return
	}
	if m.Value == nil {
		t.touched = true
		w.user(t, in, m)
		return
	}
	kind, payload, err := progress.Parse(m.Value)
	if err == nil && kind == progress.KindUser {
		t.touched = true
		m.Value = payload
		w.user(t, in, m)
		return
	}
	var c progress.Control
	if err == nil {
		c, err = progress.ParseControl(kind, payload)
	}
	changed := false
	if err == nil {
		changed, err = in.book.Apply(c)
	}
	if err != nil {
		w.stop(fmt.Errorf("task %s: stream %s partition %d offset %d: %w", t.id.Name(), in.spec.Name, m.Partition, m.Offset, err))
		return
	}
	t.moved = true
	if changed {
		t.touched = true
		w.advance(t)
		if in.book.State().Ended {
			w.stopFetch(t, m.Input)
		}
	}
}

// user hands one record to the processor and, if that fails, takes everything back and does what the policy says. It
// reports success.
func (w *Worker) user(t *task, in *input, m *stream.Message) bool {
	c := w.call(t)
	c.begin()
	err := t.proc.OnRecord(c, m)
	if err == nil {
		err = c.err
	}
	if err == nil {
		err = checkTime(m.TimestampMs)
	}
	if err == nil {
		c.end()
		t.counters.Records++
		return true
	}
	c.rollback()
	if c.damage != nil {
		w.stop(fmt.Errorf("task %s: %w", t.id.Name(), c.damage))
		return false
	}
	w.failed(t, in, m, err)
	return false
}

func (w *Worker) failed(t *task, in *input, m *stream.Message, err error) {
	re := &stream.RecordError{
		Job: t.info.Job, Task: t.id.Name(), Stream: in.spec.Name, Partition: m.Partition, Offset: m.Offset, Line: m.Line, Err: err,
	}
	if in.spec.Kind == stream.InputFile {
		re.File = in.spec.Files[t.id.Number].Split.Name
	}
	if errors.Is(err, stream.ErrStore) {
		w.stop(re)
		return
	}
	switch in.spec.OnError.Action {
	case stream.SkipOnError:
		t.counters.Skipped++
	case stream.DeadLetterOnError:
		t.counters.DeadLettered++
		w.outbox = append(w.outbox, deadLetter(re, m, in.spec.OnError.DeadLetterTopic))
	default:
		w.stop(re)
		return
	}
	t.counters.Records++
	if w.status.FirstError == nil {
		w.status.FirstError = re
	}
}

// checkTime refuses event times that no Kafka client carries.
func checkTime(ms int64) error {
	switch {
	case ms < 0:
		return fmt.Errorf("event time %d is before 1970", ms)
	case ms > stream.MaxTimeMs:
		return fmt.Errorf("event time %d is after April 2262, allowed are milliseconds up to %d", ms, int64(stream.MaxTimeMs))
	}
	return nil
}

// maxDeadLetterError bounds the error text in a dead letter's header.
const maxDeadLetterError = 2048

// deadLetter is the record with headers that say what was wrong. One that would be too large with them is cut: a dead
// letter that cannot be sent would hold up the job for ever, which is what the policy is to prevent.
func deadLetter(re *stream.RecordError, m *stream.Message, topic string) OutRecord {
	text := re.Err.Error()
	if len(text) > maxDeadLetterError {
		text = text[:maxDeadLetterError]
	}
	headers := append([]stream.Header{}, m.Headers...)
	add := func(key, value string) { headers = append(headers, stream.Header{Key: key, Value: []byte(value)}) }
	add(stream.HeaderError, text)
	add(stream.HeaderTask, re.Task)
	add(stream.HeaderStream, re.Stream)
	add(stream.HeaderPartition, strconv.Itoa(re.Partition))
	add(stream.HeaderOffset, strconv.FormatInt(re.Offset, 10))
	if re.File != "" {
		add(stream.HeaderFile, re.File)
		add(stream.HeaderLine, strconv.FormatInt(re.Line, 10))
	}
	r := OutRecord{Topic: topic, Key: m.Key, Value: m.Value, Headers: headers, TimestampMs: m.TimestampMs}
	if checkTime(r.TimestampMs) != nil {
		r.TimestampMs = 0
	}
	if stream.RecordBytes(r.Key, r.Value, r.Headers) <= stream.MaxRecordBytes {
		return r
	}
	add(stream.HeaderCut, fmt.Sprintf("key %d, value %d bytes", len(m.Key), len(m.Value)))
	r.Headers = headers
	if stream.RecordBytes(nil, nil, r.Headers) > stream.MaxRecordBytes/2 {
		r.Headers = headers[len(m.Headers):]
	}
	room := stream.MaxRecordBytes - stream.RecordBytes(nil, nil, r.Headers)
	r.Key = r.Key[:min(len(r.Key), room/2)]
	r.Value = r.Value[:min(len(r.Value), room-len(r.Key))]
	return r
}
