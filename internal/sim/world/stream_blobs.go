package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/blob"
	"github.com/strandline-io/strandline/stream/task/core"
)

// jobRow is a row of the job's result in a blob.
type jobRow struct {
	Key     string `avro:"key"`
	TimeMs  int64  `avro:"time_ms"`
	StartMs int64  `avro:"start_ms"`
	IDs     []byte `avro:"ids"`
}

func (r *jobRow) String() string {
	return fmt.Sprintf("%s %d %d %x", r.Key, r.TimeMs, r.StartMs, r.IDs)
}

// jobSchemas describe jobRow and differ in their documentation.
var jobSchemas = func() []*blob.Schema {
	var all []*blob.Schema
	for n := range 2 {
		s, err := blob.ParseSchema(fmt.Sprintf(`{"type":"record","name":"row","doc":"schema %d","fields":[{"name":"key","type":"string"},`+
			`{"name":"time_ms","type":"long"},{"name":"start_ms","type":"long"},{"name":"ids","type":"bytes"}]}`, n))
		if err != nil {
			panic(err)
		}
		all = append(all, s)
	}
	return all
}()

const blobSink = "rows"

// jobBlobs is the real blob sink of a job, over one store.
type jobBlobs struct {
	*blobPlace
	s       *streams
	m       blobMode
	seen    map[string]*jobBlob
	offered map[string]bool // blobs that a token lists as done of which EndTxn was asked
	killIn  int             // how many calls later a process dies within one
}

// jobBlob is a blob that readers can see.
type jobBlob struct {
	task   int
	number int64 // the first row's sequence, as the name has it
	rows   []string
	hash   uint64
}

// newJobBlobs draws a store and how the sink uses it.
func newJobBlobs(s *streams) *jobBlobs {
	b := &jobBlobs{s: s, seen: map[string]*jobBlob{}, offered: map[string]bool{}}
	b.blobPlace = newBlobPlace(s.w, b)
	b.longestUs = 30 * secondInUs
	b.m = blobMode{
		folder: b.chance(35), schemas: 1 + b.IntN(2), maxRows: b.Int64N(12), codec: blob.Null, block: 1 + b.IntN(400), maxBytes: 1 << 20,
		maxBlocks: 3 + b.IntN(20), maxAge: time.Duration(20+b.IntN(8000)) * time.Millisecond, uploads: 1 + b.IntN(4), tries: 1 + b.IntN(5),
		token: blob.DefaultTokenBytes,
	}
	b.m.avroBlock = 1 + b.m.block/3
	if b.chance(15) {
		b.m.codec = blob.Snappy
	}
	if b.chance(20) {
		b.m.maxBytes = 200 + b.Int64N(1000)
	}
	if !b.m.folder {
		b.service = newBlobService(b.blobPlace)
	}
	b.calm = s.w.mode.calm
	if b.badPercent = b.IntN(10); b.chance(15) {
		b.badPercent = 20 + b.IntN(20)
	}
	b.tracef("blobs: %+v, %d %% bad", b.m, b.badPercent)
	return b
}

// sink is the sink of one process.
func (b *jobBlobs) sink(r *blobRuntime) stream.Sink {
	return blob.New(blobSink, b.storeOf(r), b.m.options(r, b.randomBytes))
}

// inCall lets a process die within a call that it makes.
func (b *jobBlobs) inCall(r *blobRuntime) {
	if b.healed || b.killIn == 0 {
		return
	}
	if b.killIn--; b.killIn == 0 {
		b.after(0, func() { b.s.kill(r.worker) })
		r.sleep(forever)
	}
}

func (b *jobBlobs) linked(*blobRuntime) {}

func (b *jobBlobs) checkBlocks(name string, blocks int) {
	if blocks > b.m.maxBlocks && strings.HasSuffix(name, ".avro") {
		b.fail("blocks: %s is published with %d blocks, the limit is %d", name, blocks, b.m.maxBlocks)
	}
}

// offer notes what a transaction of which the end is asked now would make visible.
func (b *jobBlobs) offer(checkpoints []core.OutRecord) {
	for _, r := range checkpoints {
		c, err := core.DecodeCheckpoint(r.Value)
		if err != nil {
			b.fail("token: %v", err)
		}
		for _, t := range b.tokens(c) {
			for i := range t.Blobs {
				if t.Blobs[i].Done {
					b.offered[t.Blobs[i].Name] = true
				}
			}
		}
	}
}

func (b *jobBlobs) tokens(c *core.Checkpoint) (out []*blob.Token) {
	for _, s := range c.Sinks {
		if len(s.Token) == 0 {
			continue
		}
		t, err := blob.ParseToken(s.Token)
		if err != nil {
			b.fail("token: %v", err)
		}
		out = append(out, t)
	}
	return out
}

// published judges a blob that has just become visible.
func (b *jobBlobs) published(name string) {
	if !strings.HasSuffix(name, ".avro") {
		return
	}
	if b.seen[name] != nil {
		b.fail("replaced: %s is published again", name)
	}
	if !b.offered[name] {
		b.fail("early: %s is visible, and no transaction that lists it was asked to end", name)
	}
	content := b.content(name)
	seen := &jobBlob{hash: contentHash(content)}
	schema := slices.IndexFunc(jobSchemas, func(s *blob.Schema) bool { return bytes.Contains(content, []byte(s.String())) })
	var firstMs int64
	err := blob.ReadRows(context.Background(), b.reader(), name, func(r jobRow) error {
		if len(seen.rows) == 0 {
			firstMs = r.TimeMs
		}
		if b.s.shape.schemaOf(r.StartMs) != schema {
			b.fail("content: row %s is in %s, whose schema is %d", &r, name, schema)
		}
		seen.rows = append(seen.rows, r.String())
		return nil
	})
	if err != nil {
		b.fail("avro: %v", err)
	}
	if len(seen.rows) == 0 {
		b.fail("avro: %s has no rows", name)
	}
	b.checkName(name, seen, firstMs)
	b.seen[name] = seen
	b.stats.Blobs.Published++
	b.tracef("%s is visible with %d rows", name, len(seen.rows))
}

// checkName: a name says the task, the first row's time, and its sequence.
func (b *jobBlobs) checkName(name string, seen *jobBlob, firstMs int64) {
	parts := strings.Split(name, "/")
	task, err := strconv.Atoi(parts[1])
	_, number, _ := strings.Cut(strings.TrimSuffix(parts[len(parts)-1], ".avro"), "-")
	_, number, _ = strings.Cut(number, "-")
	n, numberErr := strconv.ParseInt(number, 10, 64)
	want := fmt.Sprintf("%s/%d/%s-%d.avro", blobSink, task, time.UnixMilli(firstMs).UTC().Format("2006/01/02/15/04-05"), n)
	if errors.Join(err, numberErr) != nil || name != want {
		b.fail("name: %s begins with a row of time %d, so that it should be %s", name, firstMs, want)
	}
	seen.task, seen.number = task, n
}

// fault lets something go wrong with the store or with whoever calls it.
func (b *jobBlobs) fault() {
	switch {
	case b.chance(50):
		b.killIn = 1 + b.IntN(40)
	case b.service != nil:
		b.badPercent = b.IntN(40)
		b.tracef("from now on %d %% of the store's calls are bad", b.badPercent)
	case b.chance(50):
		b.failDisk()
	default:
		b.losePower()
	}
}

// losePower cuts the power of the machine that the folder and all of the job's processes are on. What a directory did not
// hold for sure may be gone; the end judges whether it came back.
func (b *jobBlobs) losePower() {
	for _, p := range b.s.alive() {
		b.s.kill(p)
	}
	b.cutPower()
	for _, name := range slices.Sorted(maps.Keys(b.seen)) {
		if _, err := b.reader().Props(context.Background(), name); errors.Is(err, blob.ErrNotFound) {
			delete(b.seen, name)
			b.tracef("%s is gone", name)
		}
	}
}

func (b *jobBlobs) heal() {
	b.calm, b.killIn = true, 0
	clear(b.diskFaults)
}

// visible are the rows of all blobs, which must be there as they were published.
func (b *jobBlobs) visible() (rows []string) {
	for _, name := range slices.Sorted(maps.Keys(b.seen)) {
		if contentHash(b.content(name)) != b.seen[name].hash {
			b.fail("altered: %s", name)
		}
		rows = append(rows, b.seen[name].rows...)
	}
	err := b.reader().List(context.Background(), "", func(e blob.Entry) error {
		if strings.HasSuffix(e.Name, ".avro") && b.seen[e.Name] == nil {
			b.fail("reader: %s was never published", e.Name)
		}
		return nil
	})
	if err != nil {
		b.fail("reader: %v", err)
	}
	return rows
}

// check compares blobs with the topic's rows and the newest checkpoints of the tasks. A job without an end may leave what
// the tokens list.
func (b *jobBlobs) check(topic []string, newest map[string]*core.Checkpoint) {
	rows := b.visible()
	slices.Sort(rows)
	slices.Sort(topic)
	listed, count := map[int]int64{}, map[int]int64{}
	open := int64(0)
	for _, name := range slices.Sorted(maps.Keys(newest)) {
		c := newest[name]
		tokens := b.tokens(c)
		if b.s.shape.bounded && len(tokens) > 0 {
			b.fail("pending: task %s has ended and has a token", name)
		}
		for _, s := range c.Sinks {
			count[c.Inputs[0].Partition] = s.Rows
		}
		for _, t := range tokens {
			for i := range t.Blobs {
				if b.seen[t.Blobs[i].Name] == nil {
					listed[c.Inputs[0].Partition] += t.Blobs[i].Rows
					open += t.Blobs[i].Rows
				}
			}
		}
	}
	missing := minus(topic, rows)
	if extra := minus(rows, topic); len(extra) > 0 || int64(len(missing)) != open {
		b.fail("sink: blobs hold %d rows, the topic %d, tokens list %d more; without a row in the topic: %v; without one in blobs: %v",
			len(rows), len(topic), open, extra, missing)
	}
	b.checkNumbers(listed, count)
}

// minus is what a holds more often than b; both are sorted.
func minus(a, b []string) (out []string) {
	for _, x := range a {
		for len(b) > 0 && b[0] < x {
			b = b[1:]
		}
		if len(b) > 0 && b[0] == x {
			b = b[1:]
		} else {
			out = append(out, x)
		}
	}
	return out
}

// checkNumbers: the rows of a task are numbered without a gap, and a blob has the number of its first row.
func (b *jobBlobs) checkNumbers(listed, count map[int]int64) {
	byTask := map[int][]*jobBlob{}
	for _, name := range slices.Sorted(maps.Keys(b.seen)) {
		byTask[b.seen[name].task] = append(byTask[b.seen[name].task], b.seen[name])
	}
	for _, task := range slices.Sorted(maps.Keys(count)) {
		next := int64(0)
		blobs := byTask[task]
		slices.SortFunc(blobs, func(x, y *jobBlob) int { return int(x.number - y.number) })
		for _, f := range blobs {
			if b.m.schemas == 1 && f.number != next {
				b.fail("name: a blob of task %d has the number %d, before it are %d rows", task, f.number, next)
			}
			next += int64(len(f.rows))
		}
		if next+listed[task] != count[task] {
			b.fail("rows: task %d has counted %d, %d are visible and %d listed", task, count[task], next, listed[task])
		}
	}
}
