package world

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing/fstest"
	"time"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/blob"
	"github.com/strandline-io/strandline/stream/streamtest"
)

// jobName is the job of every run, and the group's name.
const jobName = "job"

// jobShape is what a seed's job is made of, by a small grammar: sources → operators → re-keying → windows, and maybe
// again re-keying and windows, or a topic that the job fills itself and a task written by hand; into a topic, and maybe
// a sink.
type jobShape struct {
	files      bool // one source of files instead of topics
	bounded    bool
	sources    int
	partitions int
	disorderMs int64
	idleMs     int64 // 0: never idle
	steps      []int // operators before the re-keying
	keys       int
	middle     int // partitions of the intermediate streams
	windowMs   int64
	second     secondStage
	sink       bool
	blobs      bool // the sink is the real one
	schemas    int  // of its blobs
	rowsAFile  int
	out        int // partitions of the output topics
}

// secondStage is what follows the windows.
type secondStage int

const (
	secondNone secondStage = iota
	secondWindows
	secondByHand
)

// element is what the operators make of one source record.
type element struct {
	id     uint64
	key    string
	timeMs int64
	sure   bool // within the disorder: it can never be late
}

func (w *World) drawShape() jobShape {
	s := jobShape{
		bounded: w.chance(70), sources: 1 + w.IntN(2), partitions: 1 + w.IntN(3), disorderMs: w.Int64N(800),
		keys: 1 + w.IntN(6), middle: 1 + w.IntN(3), windowMs: 200 + w.Int64N(2000), out: 1 + w.IntN(2),
		sink: w.chance(40), rowsAFile: w.IntN(6),
	}
	if s.files = s.bounded && w.chance(35); s.files {
		s.sources = 1
	}
	if !s.bounded && w.chance(70) {
		s.idleMs = 200 + w.Int64N(800)
	}
	for range w.IntN(3) {
		if step := w.IntN(3); step != 1 || !slices.Contains(s.steps, 1) {
			s.steps = append(s.steps, step) // no twins of twins
		}
	}
	s.second = secondStage(w.IntN(3))
	if s.second == secondByHand && !s.bounded {
		s.second = secondWindows
	}
	return s
}

func sourceTopic(n int) string { return fmt.Sprintf("source-%d", n) }

func topicStream(n int) string { return fmt.Sprintf("topic-%d", n) }

const secondWindowFactor = 3

type (
	idRecord = stream.Record[string, int64]
	idStream = stream.Stream[string, int64]
	pane     = stream.Pane[[]byte]
)

var (
	idCodecs    = stream.Codecs[string, int64]{Key: stream.String, Value: stream.Int64}
	bytesCodecs = stream.Codecs[string, []byte]{Key: stream.String, Value: stream.Bytes}
	paneCodecs  = stream.Codecs[string, pane]{Key: stream.String, Value: stream.JSON[pane]()}
)

// twin marks the second of two records that were made of one.
const twin = 1 << 40

// build makes the plan. Values are ids; a window's result is the list of the ids that it holds.
func (s *jobShape) build(files fstest.MapFS, sink stream.Sink) (*stream.Plan, error) {
	j := stream.NewJob(jobName)
	all := s.source(j, files)
	for _, step := range s.steps {
		all = applyStep(all, step)
	}
	byKey := stream.KeyBy(all, "by-key", s.middle, func(r idRecord) (string, error) { return s.keyOf(r.Value), nil }, idCodecs)
	windows := stream.Window(byKey, "windows", stream.TumblingWindow{SizeMs: s.windowMs})
	stream.ToTopic(windows.Late(), "late", stream.TopicSink[string, int64]{Topic: "late", Partitions: 1, Codecs: idCodecs})
	panes := stream.Aggregate(windows, func() []byte { return nil }, func(ids []byte, r idRecord) ([]byte, error) {
		return binary.BigEndian.AppendUint64(ids, uint64(r.Value)), nil
	}, bytesCodecs)
	switch s.second {
	case secondNone:
		s.end(panes, sink)
	case secondWindows:
		again := stream.KeyBy(panes, "again", s.middle, func(r stream.Record[string, pane]) (string, error) { return secondKey(r.Key), nil }, paneCodecs)
		wider := stream.Window(again, "wider", stream.TumblingWindow{SizeMs: s.windowMs * secondWindowFactor})
		stream.ToTopic(wider.Late(), "later", stream.TopicSink[string, pane]{Topic: "later", Partitions: 1, Codecs: paneCodecs})
		s.end(stream.Aggregate(wider, func() []byte { return nil }, func(ids []byte, r stream.Record[string, pane]) ([]byte, error) {
			return append(ids, r.Value.Value...), nil
		}, bytesCodecs), sink)
	case secondByHand:
		stream.ToTopic(panes, "between", stream.TopicSink[string, pane]{Topic: "between", Partitions: s.middle, Codecs: paneCodecs})
		stream.Process(j, "by-hand", stream.LowLevel{
			Inputs:  []stream.LowLevelInput{{Name: "between-in", Topic: "between", Partitions: s.middle, Bounded: true}},
			Outputs: []stream.LowLevelOutput{{Name: "out", Topic: "out", Partitions: s.out}},
			Stores:  []string{"held"},
			New:     func(stream.TaskInfo) stream.Processor { return &holder{} },
		})
	}
	return j.Build()
}

func (s *jobShape) end(panes stream.Stream[string, pane], sink stream.Sink) {
	stream.ToTopic(panes, "out", stream.TopicSink[string, pane]{Topic: "out", Partitions: s.out, Codecs: paneCodecs})
	if s.sink && s.blobs {
		stream.ToSink(stream.Map(panes, s.toRow), stream.String, sink)
	} else if s.sink {
		stream.ToSink(panes, stream.String, sink)
	}
}

// toRow is a window's result for a blob.
func (s *jobShape) toRow(r stream.Record[string, pane]) (stream.Record[string, blob.Record], error) {
	row := &jobRow{Key: r.Key, TimeMs: r.TimeMs, StartMs: r.Value.StartMs, IDs: r.Value.Value}
	return stream.With(r, r.Key, blob.Record{Schema: jobSchemas[s.schemaOf(row.StartMs)], Value: row}), nil
}

// schemaOf is the schema of a window's results.
func (s *jobShape) schemaOf(startMs int64) int { return int(startMs/100) % s.schemas }

func (s *jobShape) source(j *stream.Job, files fstest.MapFS) idStream {
	if s.files {
		var names []string
		for n := range s.partitions {
			names = append(names, sourceFile(n))
		}
		lines := stream.FromFile(j, "files", stream.FileSource{
			FS: files, Names: names, MaxDisorder: time.Duration(s.disorderMs) * time.Millisecond,
			EventTime: func(line []byte) (int64, error) {
				_, timeMs, err := parseLine(line)
				return timeMs, err
			},
		})
		return stream.Map(lines, func(r stream.Record[stream.None, []byte]) (idRecord, error) {
			id, _, err := parseLine(r.Value)
			return stream.With(r, "", int64(id)), err
		})
	}
	idle := -time.Millisecond
	if s.idleMs > 0 {
		idle = time.Duration(s.idleMs) * time.Millisecond
	}
	var all []idStream
	for n := range s.sources {
		all = append(all, stream.FromTopic(j, topicStream(n), stream.TopicSource[string, int64]{
			Topic: sourceTopic(n), Partitions: s.partitions, Codecs: idCodecs, Bounded: s.bounded,
			MaxDisorder: time.Duration(s.disorderMs) * time.Millisecond, IdleTimeout: idle,
		}))
	}
	if len(all) == 1 {
		return all[0]
	}
	return stream.Merge("both", all[0], all[1:]...)
}

func sourceFile(n int) string { return fmt.Sprintf("part-%d.txt", n) }

func parseLine(line []byte) (id uint64, timeMs int64, err error) {
	_, err = fmt.Sscanf(string(line), "%d %d", &id, &timeMs)
	return id, timeMs, err
}

// applyStep adds an operator; elements does the same.
func applyStep(in idStream, step int) idStream {
	switch step {
	case 0:
		return stream.Filter(in, func(r idRecord) (bool, error) { return r.Value%7 != 3, nil })
	case 1:
		return stream.FlatMap(in, func(r idRecord, emit func(idRecord) error) error {
			if err := emit(r); err != nil || r.Value >= twin {
				return err
			}
			r.Value |= twin
			return emit(r)
		})
	}
	return stream.Map(in, func(r idRecord) (idRecord, error) {
		r.Key += "'"
		return r, nil
	})
}

// elements is the oracle of the operators: what one source record becomes.
func (s *jobShape) elements(id uint64, timeMs int64, sure bool) []element {
	ids := []uint64{id}
	for _, step := range s.steps {
		var next []uint64
		for _, id := range ids {
			switch {
			case step == 0 && id%7 == 3:
			case step == 1 && id < twin:
				next = append(next, id, id|twin)
			default:
				next = append(next, id)
			}
		}
		ids = next
	}
	var out []element
	for _, id := range ids {
		out = append(out, element{id, s.keyOf(int64(id)), timeMs, sure})
	}
	return out
}

func (s *jobShape) keyOf(id int64) string { return fmt.Sprintf("k%d", id%int64(s.keys)) }

func secondKey(key string) string { return "g" + key[len(key)-1:] }

// place is the key and the window under which the job's result must show an element.
func (s *jobShape) place(e *element) (key string, startMs, endMs int64) {
	start := e.timeMs - e.timeMs%s.windowMs
	switch s.second {
	case secondWindows:
		last, wide := start+s.windowMs-1, s.windowMs*secondWindowFactor
		start = last - last%wide
		return secondKey(e.key), start, start + wide
	case secondByHand:
		return e.key, 0, 0
	}
	return e.key, start, start + s.windowMs
}

func splitIDs(b []byte) []uint64 {
	var ids []uint64
	for ; len(b) >= 8; b = b[8:] {
		ids = append(ids, binary.BigEndian.Uint64(b))
	}
	return ids
}

// holder is a task written by hand: it keeps all ids of a key and gives them out at the end, as many at a time as there
// is room for.
type holder struct{}

func (*holder) OnRecord(ctx stream.Context, m *stream.Message) error {
	p, err := paneCodecs.Value.Decode(m.Value)
	if err != nil {
		return err
	}
	held := ctx.Store("held")
	old, _, err := held.Get(m.Key)
	if err != nil {
		return err
	}
	return held.Put(m.Key, append(append([]byte{}, old...), p.Value...))
}

func (*holder) OnWatermark(stream.Context, int64) (bool, error) { return true, nil }

func (*holder) OnEnd(ctx stream.Context) (bool, error) {
	held := ctx.Store("held")
	type entry struct{ key, ids []byte }
	var due []entry
	more, room := false, ctx.Room()
	err := held.Range(nil, nil, func(key, ids []byte) bool {
		if more = len(due) >= room; more {
			return false
		}
		due = append(due, entry{append([]byte{}, key...), append([]byte{}, ids...)})
		return true
	})
	for _, e := range due {
		value, encodeErr := paneCodecs.Value.Append(nil, pane{Value: e.ids})
		if err == nil {
			err = encodeErr
		}
		ctx.Emit(0, stream.Emission{Key: e.key, Value: value})
		if err == nil {
			err = held.Delete(e.key)
		}
	}
	return !more, err
}

// memorySink is the sink of a job whose rows stay in memory.
func (s *jobShape) memorySink() *streamtest.Sink {
	sink := streamtest.NewSink("rows")
	sink.RowsPerFile = s.rowsAFile
	return sink
}

func (s jobShape) String() string {
	kind := "unbounded topics"
	switch {
	case s.files:
		kind = "files"
	case s.bounded:
		kind = "bounded topics"
	}
	return fmt.Sprintf("%d × %d %s, disorder %d ms, idle %d ms, steps %v, %d keys, %d partitions between, windows of %d ms, then %s, sink %t, of blobs %t",
		s.sources, s.partitions, kind, s.disorderMs, s.idleMs, s.steps, s.keys, s.middle, s.windowMs,
		strings.Fields("nothing windows by-hand")[s.second], s.sink, s.blobs)
}
