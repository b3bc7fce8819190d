package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/strandline-io/strandline/internal/vfs"
	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/blob"
)

// blobRow is what the tasks write.
type blobRow struct {
	N    int64  `avro:"n"`
	Text string `avro:"text"`
}

// blobSchemas describe blobRow and differ in their documentation.
var blobSchemas = func() []*blob.Schema {
	var all []*blob.Schema
	for n := range 3 {
		s, err := blob.ParseSchema(fmt.Sprintf(`{"type":"record","name":"row","doc":"schema %d","fields":[`+
			`{"name":"n","type":"long"},{"name":"text","type":"string"}]}`, n))
		if err != nil {
			panic(err)
		}
		all = append(all, s)
	}
	return all
}()

// blobFirstMs is the event time of row 0: 2024-12-31 23:59:50 UTC.
const blobFirstMs = 1_735_689_590_000

func blobTimeMs(n int64) int64 { return blobFirstMs + n*700 }

// schemaOf is the schema of a row: they alternate in runs of different lengths.
func (b *blobWorld) schemaOf(n int64) int { return int(n*n/11) % b.m.schemas }

func blobText(job string, task int, n int64) string { return fmt.Sprintf("%s/%d/%d", job, task, n) }

func (b *blobWorld) record(t *blobTask, n int64) stream.SinkRecord {
	row := blobRow{N: n, Text: blobText(t.job.name, t.number, n)}
	return stream.SinkRecord{
		Value:       blob.Record{Schema: blobSchemas[b.schemaOf(n)], Value: &row},
		TimestampMs: blobTimeMs(n), RowSequence: n,
	}
}

// nameOf is the name of the blob of a task that begins with row n.
func (b *blobWorld) nameOf(task int, n int64) string {
	return fmt.Sprintf("out/%d/%s-%d.avro", task, time.UnixMilli(blobTimeMs(n)).UTC().Format("2006/01/02/15/04-05"), n)
}

// blobSeen is a blob that readers can see.
type blobSeen struct {
	task   *blobTask
	rows   []int64
	schema int
	hash   uint64
}

func contentHash(data []byte) uint64 {
	h := fnv.New64a()
	h.Write(data)
	return h.Sum64()
}

// checkBlocks is called before a block list is put.
func (b *blobWorld) checkBlocks(name string, blocks int) {
	if blocks > b.m.maxBlocks && strings.HasSuffix(name, ".avro") {
		b.fail("blocks: %s is published with %d blocks, the limit is %d", name, blocks, b.m.maxBlocks)
	}
}

// published judges a blob that has just become visible.
func (b *blobWorld) published(name string) {
	if !strings.HasSuffix(name, ".avro") {
		return
	}
	if _, ok := b.foreign[name]; ok {
		b.fail("replaced: another's blob %s", name)
	}
	if b.seen[name] != nil {
		b.fail("replaced: %s is published again", name)
	}
	content := b.content(name)
	seen := &blobSeen{hash: contentHash(content), schema: -1}
	for n, s := range blobSchemas {
		if bytes.Contains(content, []byte(s.String())) {
			seen.schema = n
		}
	}
	err := blob.ReadRows(context.Background(), b.reader(), name, func(r blobRow) error {
		b.publishedRow(name, seen, r)
		return nil
	})
	if err != nil {
		b.fail("avro: %v", err)
	}
	if len(seen.rows) == 0 {
		b.fail("avro: %s has no rows", name)
	}
	want := b.nameOf(seen.task.number, seen.rows[0])
	if b.widths[want] {
		want = strings.TrimSuffix(want, ".avro") + "-r1.avro"
	}
	if name != want {
		b.fail("name: %s begins with row %d, so that it should be %s", name, seen.rows[0], want)
	}
	b.seen[name] = seen
	b.stats.Blobs.Published++
	b.tracef("%s is visible: rows %d to %d", name, seen.rows[0], seen.rows[len(seen.rows)-1])
}

func (b *blobWorld) publishedRow(name string, seen *blobSeen, r blobRow) {
	if seen.task == nil {
		for _, j := range b.jobs {
			for _, t := range j.tasks {
				if strings.HasPrefix(r.Text, fmt.Sprintf("%s/%d/", j.name, t.number)) {
					seen.task = t
				}
			}
		}
	}
	t := seen.task
	if t == nil || r.Text != blobText(t.job.name, t.number, r.N) {
		b.fail("content: row %d of %s holds %q", r.N, name, r.Text)
	}
	if r.N < 0 || r.N >= t.rows {
		b.fail("early: row %d is visible in %s, only %d rows of task %d are committed", r.N, name, t.rows, t.number)
	}
	if len(seen.rows) > 0 && r.N <= seen.rows[len(seen.rows)-1] {
		b.fail("order: row %d follows row %d in %s", r.N, seen.rows[len(seen.rows)-1], name)
	}
	if b.schemaOf(r.N) != seen.schema {
		b.fail("content: row %d of schema %d is in %s, whose schema is %d", r.N, b.schemaOf(r.N), name, seen.schema)
	}
	seen.rows = append(seen.rows, r.N)
}

// checkEnd judges the whole.
func (b *blobWorld) checkEnd() {
	b.checkUnaltered(true)
	var all []string
	err := b.reader().List(context.Background(), "", func(e blob.Entry) error {
		all = append(all, e.Name)
		return nil
	})
	if err != nil {
		b.fail("reader: %v", err)
	}
	for _, name := range all {
		_, foreign := b.foreign[name]
		if strings.HasSuffix(name, ".avro") && b.seen[name] == nil && !foreign {
			b.fail("reader: %s was never published", name)
		}
	}
	owners := 0
	for _, j := range b.jobs {
		for _, t := range j.tasks {
			b.checkTask(t)
		}
		if j.claimed {
			owners++
		}
	}
	if owners != 1 {
		b.fail("owner: %d jobs own one prefix", owners)
	}
}

// checkUnaltered reads all published blobs again. After a power cut some may be gone, which the end will judge.
func (b *blobWorld) checkUnaltered(all bool) {
	for _, name := range slices.Sorted(maps.Keys(b.seen)) {
		_, err := b.reader().Props(context.Background(), name)
		if errors.Is(err, blob.ErrNotFound) && !all {
			delete(b.seen, name)
			b.tracef("%s is gone", name)
			continue
		}
		if contentHash(b.content(name)) != b.seen[name].hash {
			b.fail("altered: %s", name)
		}
	}
}

// checkTask: each committed row is visible once, or, if a person has to decide, staged and listed.
func (b *blobWorld) checkTask(t *blobTask) {
	in := make([]string, t.rows)
	starts := map[int][]int64{}
	for _, name := range slices.Sorted(maps.Keys(b.seen)) {
		s := b.seen[name]
		if s.task != t {
			continue
		}
		for _, n := range s.rows {
			if in[n] != "" {
				b.fail("doubled: row %d of task %d is in %s and in %s", n, t.number, in[n], name)
			}
			in[n] = name
		}
		starts[s.schema] = append(starts[s.schema], s.rows[0])
		if b.m.byRows && (s.rows[0]%b.m.maxRows != 0 || !t.job.final && s.rows[0]+b.m.maxRows <= t.rows && int64(len(s.rows)) != b.m.maxRows) {
			b.fail("cut: %s has rows %d to %d, each blob has %d", name, s.rows[0], s.rows[len(s.rows)-1], b.m.maxRows)
		}
		b.stats.Blobs.Rows += len(s.rows)
	}
	b.checkRanges(t, in, starts)
	if t.job.final {
		b.checkListed(t, in)
		return
	}
	if len(t.token) > 0 {
		b.fail("pending: task %d has ended and has a token", t.number)
	}
	for n, name := range in {
		if name == "" {
			b.fail("lost: row %d of task %d", n, t.number)
		}
	}
}

// checkRanges: of the rows of a schema, those between the first row of a blob and of the next are in the first.
func (b *blobWorld) checkRanges(t *blobTask, in []string, starts map[int][]int64) {
	name := map[int]string{}
	for n, have := range in {
		s := b.schemaOf(int64(n))
		if slices.Contains(starts[s], int64(n)) {
			name[s] = have
		}
		if have != "" && have != name[s] {
			b.fail("order: row %d of task %d is in %s, the rows before it go on in %s", n, t.number, have, name[s])
		}
	}
}

// checkListed: a job that has stopped for good keeps its rows: those not visible are listed by the token.
func (b *blobWorld) checkListed(t *blobTask, in []string) {
	missing := int64(0)
	for _, name := range in {
		if name == "" {
			missing++
		}
	}
	listed := int64(0)
	if len(t.token) > 0 {
		token, err := blob.ParseToken(t.token)
		if err != nil {
			b.fail("token: %v", err)
		}
		for i := range token.Blobs {
			if b.seen[token.Blobs[i].Name] == nil {
				listed += token.Blobs[i].Rows
			}
		}
	}
	if listed != missing {
		b.fail("lost: %d rows of task %d are not visible, the token lists %d", missing, t.number, listed)
	}
}

// intrude puts another's blob.
func (b *blobWorld) intrude(name string) {
	content := "theirs"
	b.foreign[name], b.intruded[name] = content, true
	b.tracef("somebody puts %s", name)
	if !b.m.folder {
		b.service.fake.Put(name, []byte(content))
		return
	}
	err := b.files.MkdirAll(path.Dir(name))
	var f vfs.File
	if err == nil {
		f, err = b.files.Create(name)
	}
	if err == nil {
		_, err = f.WriteAt([]byte(content), 0)
	}
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	for dir := path.Dir(name); err == nil; dir = path.Dir(dir) {
		if err = b.files.SyncDir(dir); dir == "." {
			break
		}
	}
	if err != nil {
		b.fail("BUG: %v", err)
	}
}

// moveAway is what a person does with another's blob.
func (b *blobWorld) moveAway(name string) {
	if string(b.content(name)) != b.foreign[name] {
		b.fail("replaced: another's blob %s", name)
	}
	delete(b.foreign, name)
	b.tracef("%s is moved away", name)
	if err := b.reader().Delete(context.Background(), name); err != nil {
		b.fail("reader: %v", err)
	}
}

// stageStrange stages blocks of another program under names that a task will want.
func (b *blobWorld) stageStrange() {
	for n := range b.m.rows {
		if b.service != nil && b.chance(50) {
			name := b.nameOf(0, n)
			b.widths[name] = true
			if err := b.service.fake.StageRaw(name, "other", []byte("theirs")); err != nil {
				b.fail("BUG: %v", err)
			}
		}
	}
}

// afterCommit lets things happen between a transaction and the publication of what its token lists: somebody takes the
// name, or the process is away for days.
func (b *blobWorld) afterCommit(r *blobRuntime, token []byte) {
	if b.healed || len(token) == 0 || b.m.trouble != intruder && !b.m.longDown || !b.chance(20) {
		return
	}
	t, err := blob.ParseToken(token)
	if err != nil {
		b.fail("token: %v", err)
	}
	for i := range t.Blobs {
		if name := t.Blobs[i].Name; t.Blobs[i].Done && b.seen[name] == nil {
			if b.m.trouble == intruder && len(b.foreign) == 0 {
				b.intrude(name)
			}
			if b.m.longDown && !r.dead {
				b.after(0, func() { r.process.kill(b.daysDown()) })
			}
			return
		}
	}
}

// losePower cuts the power of the machine that all processes over a folder run on.
func (b *blobWorld) losePower() {
	for _, p := range slices.Clone(b.processes) {
		p.kill(b.down())
	}
	b.cutPower()
	b.checkUnaltered(false)
}
