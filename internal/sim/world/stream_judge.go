package world

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/progress"
	"github.com/strandline-io/strandline/stream/task/core"
)

// streamJudge reads everything when the job is done, and compares it with the oracle.
type streamJudge struct {
	s      *streams
	w      *World
	client *kafka.Client
	record *core.JobRecord
	topics map[kafka.TopicPartition][]kafka.Record // committed
	stable map[kafka.TopicPartition]int64
	want   map[uint64]*element
	found  map[uint64]string // where the job's result shows an id
	// glancing says that the job still runs: what is read one after the other need not fit together.
	glancing bool
}

// runJudge waits for the end of the job, restarts the broker once more and judges what is there.
func (s *streams) runJudge(c *client) {
	w := s.w
	for !w.healed || w.writers > 0 || s.feeding > 0 || len(s.replicas) == 0 || s.shape.bounded && !s.allDone() {
		c.sleep(100 * msInUs)
	}
	j := &streamJudge{s: s, w: w, client: (&streamLink{c: c, v2: s.v2}).client()}
	if !s.shape.bounded {
		for !j.complete() {
			c.sleep(500 * msInUs)
		}
		s.stopping = true
		for !s.allDone() {
			for _, p := range s.alive() {
				p.askToStop()
			}
			c.sleep(200 * msInUs)
		}
	}
	c.waitStable()
	for s.blobs != nil && s.blobs.service != nil && s.blobs.service.inFlight > 0 {
		c.sleep(100 * msInUs)
	}
	w.crash("kill", true)
	j.judge()
	w.stats.Late += j.late()
	w.tracef("all is well: %d elements, %d late", len(j.want), j.late())
	w.ended = true
}

func (j *streamJudge) must(err error) {
	if err != nil {
		j.w.fail("judge: %v", err)
	}
}

// read reads all topics anew.
func (j *streamJudge) read() {
	j.topics, j.stable = make(map[kafka.TopicPartition][]kafka.Record), j.ends(kafka.Committed)
	for _, tp := range slices.SortedFunc(maps.Keys(j.stable), kafka.TopicPartition.Compare) {
		var all []kafka.Record
		_, err := j.client.ReadTo(context.Background(), tp, 0, j.stable[tp], func(r kafka.Record) error {
			all = append(all, r)
			return nil
		})
		j.must(err)
		j.topics[tp] = all
	}
}

// ends is where every partition ends, or its committed part.
func (j *streamJudge) ends(iso kafka.Isolation) map[kafka.TopicPartition]int64 {
	var tps []kafka.TopicPartition
	for _, t := range j.s.plan.Topics {
		for n := range t.Partitions {
			tps = append(tps, kafka.TopicPartition{Topic: t.Name, Partition: int32(n)})
		}
	}
	ends, err := retried(func() (map[kafka.TopicPartition]int64, error) {
		return j.client.EndOffsets(context.Background(), tps, iso)
	})
	j.must(err)
	return ends
}

func retried[T any](f func() (T, error)) (T, error) {
	v, err := f()
	for try := 0; err != nil && try < 20; try++ {
		v, err = f()
	}
	return v, err
}

// all lists the committed records of a topic.
func (j *streamJudge) all(topic string) []kafka.Record {
	var out []kafka.Record
	for n := int32(0); ; n++ {
		records, ok := j.topics[kafka.TopicPartition{Topic: topic, Partition: n}]
		if !ok {
			return out
		}
		out = append(out, records...)
	}
}

// complete reports whether an unbounded job shows, or holds in its stores, everything that was written.
func (j *streamJudge) complete() bool {
	j.read()
	j.findRecord()
	if j.record == nil {
		return false
	}
	j.oracle()
	j.glancing = true
	j.collect()
	j.glancing = false
	seen := j.stable
	return len(j.found) == len(j.want) && maps.Equal(seen, j.ends(kafka.Committed)) && maps.Equal(seen, j.ends(kafka.Uncommitted))
}

func (j *streamJudge) judge() {
	j.read()
	j.findRecord()
	if j.record == nil {
		j.w.fail("run: no job record")
	}
	j.oracle()
	j.collect()
	for _, id := range j.ids() {
		if _, ok := j.found[id]; !ok {
			e := j.want[id]
			j.w.fail("exactly once: element %d, key %s, time %d, sure %t, is nowhere in the job's result", id, e.key, e.timeMs, e.sure)
		}
	}
	newest := j.checkCheckpoints()
	j.checkSink(newest)
	j.checkControl()
}

func (j *streamJudge) ids() []uint64 {
	var ids []uint64
	for id := range j.want {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// findRecord: a job has one record, whoever starts how often.
func (j *streamJudge) findRecord() {
	j.record = nil
	for _, r := range j.topics[kafka.TopicPartition{Topic: j.s.plan.CheckpointTopic}] {
		if string(r.Key) != core.JobRecordKey {
			continue
		}
		record, err := core.DecodeJobRecord(r.Value)
		j.must(err)
		if j.record != nil {
			j.w.fail("run: the job has two records, of run %d and run %d", j.record.Run, record.Run)
		}
		j.record = record
	}
}

// oracle evaluates the operators over everything that the sources hold, in one pass.
func (j *streamJudge) oracle() {
	j.want = make(map[uint64]*element)
	shape := &j.s.shape
	for n := range shape.partitions {
		if shape.files {
			var newest int64 = -1 << 40
			for line := range strings.Lines(string(j.s.files[sourceFile(n)].Data)) {
				id, timeMs, err := parseLine([]byte(line))
				j.must(err)
				newest = j.add(id, timeMs, newest)
			}
			continue
		}
		for topic := range shape.sources {
			tp := kafka.TopicPartition{Topic: sourceTopic(topic), Partition: int32(n)}
			end := j.endOf(tp)
			var newest int64 = -1 << 40
			for _, r := range j.topics[tp] {
				if r.Offset < end {
					id, err := stream.Int64.Decode(r.Value)
					j.must(err)
					newest = j.add(uint64(id), r.TimestampMs, newest)
				}
			}
		}
	}
}

// endOf is where the job's reading of a source partition ends: what its record fixed, or all that is committed.
func (j *streamJudge) endOf(tp kafka.TopicPartition) int64 {
	for _, e := range j.record.Ends {
		if e.Topic == tp.Topic && e.Partition == int(tp.Partition) {
			return e.EndOffset
		}
	}
	return j.stable[tp]
}

func (j *streamJudge) add(id uint64, timeMs, newest int64) int64 {
	shape := &j.s.shape
	for _, e := range shape.elements(id, timeMs, timeMs >= newest-shape.disorderMs && shape.idleMs == 0) {
		j.want[e.id] = &e
	}
	return max(newest, timeMs)
}

// collect finds every id in the job's result: in windows, among what was late, and, of a job without an end, in stores.
func (j *streamJudge) collect() {
	j.found = make(map[uint64]string)
	for _, r := range j.all("out") {
		p, err := paneCodecs.Value.Decode(r.Value)
		j.must(err)
		for _, id := range splitIDs(p.Value) {
			e := j.show(id, "out")
			if key, start, end := j.s.shape.place(e); !j.glancing && (key != string(r.Key) || start != p.StartMs || end != p.EndMs) {
				j.w.fail("place: element %d of key %s and time %d is in window [%d, %d) of %q", id, e.key, e.timeMs, p.StartMs, p.EndMs, r.Key)
			}
		}
	}
	for _, r := range j.all("late") {
		id, err := stream.Int64.Decode(r.Value)
		j.must(err)
		if e := j.show(uint64(id), "late"); e.sure {
			j.w.fail("early result: element %d of time %d came after its window had closed, within the disorder of %d ms", id, e.timeMs, j.s.shape.disorderMs)
		}
	}
	for _, r := range j.all("later") {
		if j.s.shape.idleMs == 0 {
			j.w.fail("early result: a window's result at %d came after the wider window had closed", r.TimestampMs)
		}
		p, err := paneCodecs.Value.Decode(r.Value)
		j.must(err)
		for _, id := range splitIDs(p.Value) {
			j.show(id, "later")
		}
	}
	if !j.s.shape.bounded {
		j.collectStores()
	}
}

// collectStores looks into the stores as their changelogs have them: windows that are still open.
func (j *streamJudge) collectStores() {
	for _, st := range j.s.plan.Stages {
		for _, spec := range st.Stores {
			for n := range st.Tasks {
				held := make(map[string][]byte)
				var keys []string
				for _, r := range j.topics[kafka.TopicPartition{Topic: spec.ChangelogTopic, Partition: int32(n)}] {
					if _, known := held[string(r.Key)]; !known {
						keys = append(keys, string(r.Key))
					}
					held[string(r.Key)] = r.Value
				}
				for _, key := range keys {
					for _, id := range splitIDs(held[key]) {
						j.show(id, fmt.Sprintf("store %s of task %d", spec.Name, n))
					}
				}
			}
		}
	}
}

// show notes where an id is. Nothing is there twice, and nothing that nobody wrote.
func (j *streamJudge) show(id uint64, where string) *element {
	e := j.want[id]
	if e == nil && j.glancing {
		return &element{}
	}
	if e == nil {
		j.w.fail("exactly once: %s shows element %d, which no source holds", where, id)
	}
	if before, twice := j.found[id]; twice && !j.glancing {
		j.w.fail("exactly once: element %d of key %s and time %d is in %s and in %s", id, e.key, e.timeMs, before, where)
	}
	j.found[id] = where
	return e
}

func (j *streamJudge) late() (n int) {
	for _, where := range j.found { // a count: any order
		if where == "late" || where == "later" {
			n++
		}
	}
	return n
}

// checkSink: the sink has the rows that the topic has.
func (j *streamJudge) checkSink(newest map[string]*core.Checkpoint) {
	if !j.s.shape.sink || j.s.shape.second == secondByHand {
		return
	}
	var topic, sink []string
	for _, r := range j.all("out") {
		p, err := paneCodecs.Value.Decode(r.Value)
		j.must(err)
		topic = append(topic, fmt.Sprintf("%s %d %d %x", r.Key, r.TimestampMs, p.StartMs, p.Value))
	}
	if j.s.blobs != nil {
		j.s.blobs.check(topic, newest)
		return
	}
	for _, row := range j.s.rows.Place.Rows() {
		p := row.Value.(pane)
		sink = append(sink, fmt.Sprintf("%s %d %d %x", row.Key, row.TimestampMs, p.StartMs, p.Value))
	}
	slices.Sort(topic)
	slices.Sort(sink)
	if !j.s.shape.bounded {
		// Files that a task had open when it was given back in the last moment are its next owner's.
		topic = slices.DeleteFunc(topic, func(row string) bool { return !slices.Contains(sink, row) })
	}
	if !slices.Equal(topic, sink) {
		j.w.fail("sink: it shows %d rows, the topic %d: %v, %v", len(sink), len(topic), sink, topic)
	}
}

// checkControl: in every partition of an intermediate stream, each upstream task's watermarks never fall, its end of
// stream comes once and last, and no user record comes after all of them.
func (j *streamJudge) checkControl() {
	for _, st := range j.s.plan.Stages {
		for i := range st.Inputs {
			in := &st.Inputs[i]
			if in.Kind != stream.InputIntermediate {
				continue
			}
			up, _ := j.s.plan.Stage(in.UpstreamStage)
			for n := range in.Partitions {
				j.checkPartition(kafka.TopicPartition{Topic: in.Topic, Partition: int32(n)}, up.Tasks, in.Bounded)
			}
		}
	}
}

func (j *streamJudge) checkPartition(tp kafka.TopicPartition, tasks int, bounded bool) {
	book := newNaiveBook(tasks)
	for _, r := range j.topics[tp] {
		kind, payload, err := progress.Parse(r.Value)
		j.must(err)
		if kind == progress.KindUser {
			if len(book.ended) == tasks {
				j.w.fail("end of stream: %s holds a record at %d behind the ends of all %d tasks", tp, r.Offset, tasks)
			}
			continue
		}
		c, err := progress.ParseControl(kind, payload)
		j.must(err)
		if c.Run != j.record.Run {
			j.w.fail("run: %s at %d has run %d, the job is in run %d", tp, r.Offset, c.Run, j.record.Run)
		}
		if book.ended[c.Task] && !(j.s.echoes && c.Kind == progress.KindEndOfStream) {
			j.w.fail("end of stream: %s holds a message of task %s at %d behind its end", tp, c.Task, r.Offset)
		}
		if old, known := book.watermarks[c.Task]; known && c.Kind == progress.KindWatermark && c.TimestampMs < old && c.TimestampMs != progress.None {
			j.w.fail("watermark: %s at %d: that of task %s falls from %d to %d", tp, r.Offset, c.Task, old, c.TimestampMs)
		}
		book.apply(c)
	}
	if bounded && len(book.ended) != tasks {
		j.w.fail("end of stream: %s has the ends of %d tasks of %d", tp, len(book.ended), tasks)
	}
}
