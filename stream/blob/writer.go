package blob

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/strandline-io/strandline/internal/mutant"
	"github.com/strandline-io/strandline/stream"
)

// writer is one task's end of a Sink.
type writer struct {
	sink      *Sink
	who       identity
	partition int
	ledger    ledger
	uploads   *uploads
	compress  compressor
	record    []byte // the record being written, its memory reused
	nowMs     int64  // the newest time that WantsCommit was told
	used      bool   // Restore or Write was called
	closed    bool
}

func newWriter(s *Sink, who identity, partition int) *writer {
	return &writer{sink: s, who: who, partition: partition, ledger: ledger{who: who, limits: &s.cfg},
		uploads: newUploads(s), compress: compressor{codec: s.cfg.Codec}}
}

// usable returns why the writer must not be used any more.
func (w *writer) usable() error {
	if w.closed {
		return errors.New("the blob writer is closed")
	}
	return w.uploads.failed()
}

// Restore publishes what the token lists as done and takes over what it lists as open.
func (w *writer) Restore(ctx context.Context, token []byte) error {
	if w.closed || w.used {
		return errors.New("a blob writer is restored once, before anything else")
	}
	if len(token) == 0 {
		w.used = true
		return nil
	}
	t, err := w.parse(token)
	if err != nil {
		return err
	}
	ctx, cancel := w.sink.cfg.Runtime.Context(ctx, w.sink.cfg.PrepareTimeout)
	defer cancel()
	if !mutant.On("restore does not publish") {
		if err := w.publish(ctx, t, nil); err != nil {
			return err
		}
	}
	l := ledger{who: w.who, limits: w.ledger.limits}
	l.restore(t)
	open := append([]*file(nil), l.open...)
	foreign := make([]int, len(open))
	err = w.sink.each(len(open), func(i int) (err error) {
		foreign[i], err = w.verify(ctx, &open[i].Blob)
		return err
	})
	if err != nil {
		return err
	}
	for i, f := range open {
		if !l.continuable(f, foreign[i]) {
			l.seal(f)
		}
	}
	w.ledger, w.used = l, true
	return nil
}

// parse decodes a token and refuses another writer's.
func (w *writer) parse(token []byte) (*Token, error) {
	t, err := ParseToken(token)
	if err != nil {
		return nil, err
	}
	if got := (identity{job: t.Job, run: t.Run, sink: t.Sink, task: t.Task}); got != w.who {
		return nil, tokenError("it is of job %q, run %q, sink %q, task %q; this is job %q, run %q, sink %q, task %q",
			got.job, got.run, got.sink, got.task, w.who.job, w.who.run, w.who.sink, w.who.task)
	}
	return t, nil
}

// verify checks that all blocks of an open blob are still staged, and counts the blocks of others under its name.
func (w *writer) verify(ctx context.Context, b *Blob) (foreign int, err error) {
	if mutant.On("restored blocks not looked for") {
		return 0, nil
	}
	staged, err := w.staged(ctx, b.Name)
	if err != nil {
		return 0, err
	}
	have := make(map[string]bool, len(staged))
	for _, id := range staged {
		have[id] = true
	}
	missing := 0
	for _, id := range b.BlockIDs() {
		if !have[string(id[:])] {
			missing++
		}
	}
	if missing == 0 {
		return len(staged) - b.Blocks(), nil
	}
	props, err := w.props(ctx, b.Name)
	switch {
	case err == nil:
		later, err := w.continues(ctx, b)
		if err != nil {
			return 0, err
		}
		if later {
			return 0, &SupersededError{Store: w.sink.store.String(), Name: b.Name}
		}
		_, got := isOurs(w.who, b, props)
		return 0, &FencedError{Store: w.sink.store.String(), Name: b.Name, Want: w.who.commitID(b), Got: got}
	case kindOf(err) == ErrNotFound:
		return 0, &GoneError{Store: w.sink.store.String(), Name: b.Name, Rows: b.Rows}
	}
	return 0, err
}

// tailBytes is how much of a blob is read at a time when only its end matters.
const tailBytes = 64 << 10

// continues reports whether the visible blob of this name is b with more blocks: every Avro file ends with its sync
// marker, and b's is random.
func (w *writer) continues(ctx context.Context, b *Blob) (bool, error) {
	var tail []byte
	err := w.sink.calls().repeat(ctx, func(ctx context.Context) error {
		r, err := w.sink.store.Read(ctx, b.Name)
		if err != nil {
			return err
		}
		defer r.Close()
		tail = nil
		buf := make([]byte, tailBytes)
		for {
			n, err := r.Read(buf)
			tail = append(tail, buf[max(0, n-len(b.Sync)):n]...)
			tail = tail[max(0, len(tail)-len(b.Sync)):]
			if err == io.EOF {
				return nil
			}
			if err != nil {
				return err
			}
		}
	})
	return string(tail) == string(b.Sync[:]) && !mutant.On("a later owner's blob taken as another's"), err
}

func (w *writer) staged(ctx context.Context, name string) (ids []string, err error) {
	err = w.sink.calls().repeat(ctx, func(ctx context.Context) (err error) {
		ids, err = w.sink.store.Uncommitted(ctx, name)
		return err
	})
	return ids, err
}

func (w *writer) props(ctx context.Context, name string) (p Props, err error) {
	err = w.sink.calls().repeat(ctx, func(ctx context.Context) (err error) {
		p, err = w.sink.store.Props(ctx, name)
		return err
	})
	return p, err
}

// Write encodes one record into the open blob of its schema. *RecordError: this record cannot be written, and the
// writer goes on without it. Any other error means that the epoch is lost.
func (w *writer) Write(ctx context.Context, r stream.SinkRecord) error {
	if err := w.usable(); err != nil {
		return err
	}
	w.used = true
	record, schema, err := encodeRecord(w.record[:0], r.Value, w.sink.cfg.Schema)
	if err != nil {
		return err
	}
	if w.record = record; cap(record) > 1<<20 {
		w.record = nil
	}
	f := w.ledger.find(schema.fingerprint)
	if f != nil && w.ledger.full(f, len(record)) {
		if err := w.finish(ctx, f); err != nil {
			return err
		}
		f = nil
	}
	if f != nil && !f.ours && mutant.On("a continuation writes a header") {
		f.header = appendHeader(nil, schema.text, f.Codec, f.Sync)
	}
	if f == nil {
		if f, err = w.create(ctx, r, schema); err != nil {
			return err
		}
	}
	w.ledger.wrote(f, len(record))
	f.raw = append(f.raw, record...)
	f.rawRows++
	if len(f.raw) >= w.sink.cfg.AvroBlockBytes || f.rawRows >= maxRowsPerBlock {
		if err := w.endBlock(f); err != nil {
			return err
		}
	}
	if len(f.buf) >= w.sink.cfg.BlockBytes {
		return w.stage(ctx, f)
	}
	return nil
}

// create opens the blob whose first row is r.
func (w *writer) create(ctx context.Context, r stream.SinkRecord, schema *Schema) (*file, error) {
	number := r.RowSequence
	if w.sink.cfg.Number != nil {
		number = w.sink.cfg.Number(r)
	}
	f := &file{fresh: true, Blob: Blob{
		Name:     blobName(w.sink.cfg.Stream, w.partition, r.TimestampMs, number),
		Codec:    w.sink.cfg.Codec,
		Schema:   schema.fingerprint,
		Sync:     w.sink.nonce(),
		OpenedMs: w.nowMs,
	}}
	if w.ledger.named(f.Name) {
		err := fmt.Errorf("two blobs at once would be named %s: rows need numbers that differ (SinkRecord.RowSequence, or "+
			"Config.Number), the newest has %d", f.Name, number)
		w.uploads.fail(err)
		return nil, err
	}
	f.header = appendHeader(nil, schema.text, f.Codec, f.Sync)
	if evicted := w.ledger.add(f); evicted != nil {
		if err := w.finish(ctx, evicted); err != nil {
			return nil, err
		}
	}
	if n := w.ledger.tokenBound(); n > w.sink.cfg.TokenBytes && !mutant.On("token size not checked") {
		err := &SizeError{What: fmt.Sprintf("the token of %d blobs", len(w.ledger.done)+len(w.ledger.open)), Size: n,
			Limit: w.sink.cfg.TokenBytes, Fix: "commit more often, make blobs larger (MaxRows, MaxBytes), or raise TokenBytes"}
		w.uploads.fail(err)
		return nil, err
	}
	return f, nil
}

// finish makes f done and stages what is left of it.
func (w *writer) finish(ctx context.Context, f *file) error {
	w.ledger.seal(f)
	return w.drain(ctx, f)
}

// drain ends f's Avro block and stages all that is left of it.
func (w *writer) drain(ctx context.Context, f *file) error {
	if err := w.endBlock(f); err != nil {
		return err
	}
	if f.Done {
		f.raw = nil
	}
	if len(f.buf) == 0 {
		return nil
	}
	return w.stage(ctx, f)
}

// endBlock ends the Avro block that is being filled, if it has rows.
func (w *writer) endBlock(f *file) error {
	if f.rawRows == 0 {
		return nil
	}
	packed, err := w.compress.compress(f.raw)
	if err != nil {
		err = fmt.Errorf("compressing rows of blob %s: %w", f.Name, err)
		w.uploads.fail(err)
		return err
	}
	if f.buf == nil {
		f.buf = w.sink.buffers.get()
	}
	f.buf = append(f.buf, f.header...)
	f.header = nil
	f.buf = appendBlock(f.buf, f.rawRows, packed, f.Sync)
	f.raw, f.rawRows = f.raw[:0], 0
	return nil
}

// stage hands f's whole Avro blocks over as one block of the blob.
func (w *writer) stage(ctx context.Context, f *file) error {
	if err := w.settleName(ctx, f); err != nil {
		w.uploads.fail(err)
		return err
	}
	data := f.buf
	f.buf = nil
	return w.uploads.submit(ctx, f.Name, f.cut(data, w.sink.nonce), data)
}

// settleName looks at a new name before its first block: one that others have filled with uncommitted blocks, or where
// they use ids of another length, gets a suffix. What is staged there is not ours: the name is new.
func (w *writer) settleName(ctx context.Context, f *file) error {
	if f.probed || mutant.On("a crowded name is used") {
		return nil
	}
	for n := range maxSuffix {
		name := suffixed(f.Name, n)
		staged, err := w.staged(ctx, name)
		if err != nil {
			return err
		}
		if len(staged) <= maxForeignUncommitted && (len(staged) == 0 || len(staged[0]) == blockIDBytes) {
			f.Name, f.probed = name, true
			return nil
		}
	}
	return fmt.Errorf("blob %s and %d names with a suffix are full of uncommitted blocks of others in %v: find out who "+
		"writes there, or wait until they expire after seven days", f.Name, maxSuffix-1, w.sink.store)
}

// Prepare stages what is left, checks that new names are free, and returns the token.
func (w *writer) Prepare(ctx context.Context, epoch int64) ([]byte, error) {
	if err := w.usable(); err != nil {
		return nil, err
	}
	ctx, cancel := w.sink.cfg.Runtime.Context(ctx, w.sink.cfg.PrepareTimeout)
	defer cancel()
	var fresh []*file
	for _, files := range [2][]*file{w.ledger.done, w.ledger.open} {
		for _, f := range files {
			if mutant.On("Prepare does not stage the rest") && f.Blocks() > 0 {
				continue
			}
			if err := w.drain(ctx, f); err != nil {
				return nil, err
			}
			if f.fresh && !mutant.On("new names not looked at") {
				fresh = append(fresh, f)
			}
		}
	}
	if err := w.sink.each(len(fresh), func(i int) error { return w.checkFree(ctx, fresh[i].Name) }); err != nil {
		return nil, err
	}
	if !mutant.On("Prepare does not wait for uploads") {
		if err := w.uploads.wait(ctx); err != nil {
			return nil, err
		}
	}
	w.ledger.sealDue(w.nowMs)
	t := w.ledger.token(epoch)
	if len(t.Blobs) == 0 {
		w.ledger.returned()
		return nil, nil
	}
	token := t.AppendTo(nil)
	if len(token) > w.sink.cfg.TokenBytes && !mutant.On("token size not checked") {
		return nil, &SizeError{What: fmt.Sprintf("the token of %d blobs", len(t.Blobs)), Size: len(token),
			Limit: w.sink.cfg.TokenBytes, Fix: "commit more often, make blobs larger (MaxRows, MaxBytes), or raise TokenBytes"}
	}
	if mutant.On("blobs published before EndTxn") {
		w.publish(ctx, t, nil)
	}
	w.ledger.returned()
	return token, nil
}

// checkFree refuses a name that is taken: after the transaction it would be too late.
func (w *writer) checkFree(ctx context.Context, name string) error {
	_, err := w.props(ctx, name)
	if err == nil {
		return &NameTakenError{Store: w.sink.store.String(), Name: name, Again: w.sink.taken.add(name)}
	}
	if kindOf(err) == ErrNotFound {
		return nil
	}
	return err
}

// Commit publishes what the token lists as done.
func (w *writer) Commit(ctx context.Context, token []byte) error {
	if w.closed {
		return errors.New("the blob writer is closed")
	}
	if len(token) == 0 {
		return nil
	}
	t, err := w.parse(token)
	if err != nil {
		return err
	}
	ctx, cancel := w.sink.cfg.Runtime.Context(ctx, w.sink.cfg.PrepareTimeout)
	defer cancel()
	return w.publish(ctx, t, w.ledger.confirm)
}

// publish makes the done blobs of t visible and calls confirm for each that is.
func (w *writer) publish(ctx context.Context, t *Token, confirm func(name string)) error {
	var done []*Blob
	for i := range t.Blobs {
		if t.Blobs[i].Done {
			done = append(done, &t.Blobs[i])
		}
	}
	visible := make([]bool, len(done))
	err := w.sink.each(len(done), func(i int) error {
		err := w.publishOne(ctx, done[i])
		visible[i] = err == nil
		return err
	})
	for i, b := range done {
		if visible[i] && confirm != nil {
			confirm(b.Name)
		}
	}
	return err
}

func (w *writer) publishOne(ctx context.Context, b *Blob) error {
	store, c := w.sink.store, w.sink.calls()
	meta, ids := w.who.metadata(b, w.sink.cfg.Stream), b.BlockIDs()
	for try := 1; ; try++ {
		err := c.once(ctx, func(ctx context.Context) error { return store.Commit(ctx, b.Name, ids, meta) })
		if err == nil || kindOf(err) == ErrTemporary && mutant.On("a lost reply taken as published") {
			return nil
		}
		var props Props
		look := c.once(ctx, func(ctx context.Context) (err error) {
			props, err = store.Props(ctx, b.Name)
			return err
		})
		ours, got := false, ""
		if look == nil {
			ours, got = isOurs(w.who, b, props)
		}
		switch judge(kindOf(err), kindOf(look), ours) {
		case confirmed:
			return nil
		case fenced:
			return &FencedError{Store: store.String(), Name: b.Name, Want: w.who.commitID(b), Got: got}
		case gone:
			return &GoneError{Store: store.String(), Name: b.Name, Rows: b.Rows}
		case refused:
			return err
		}
		if err := c.pause(ctx, try, fmt.Errorf("%w; looking at it: %w", err, look)); err != nil {
			return fmt.Errorf("blob %s (%d rows) is staged and listed, but not visible yet: %w", b.Name, b.Rows, err)
		}
	}
}

// Finish makes everything open done.
func (w *writer) Finish() {
	if !mutant.On("Finish leaves blobs open") {
		w.ledger.sealAll()
	}
}

// WantsCommit reports that a blob is done and not in a token, or as old as blobs may get, or that the newest token lists
// blobs that are visible by now.
func (w *writer) WantsCommit(nowMs int64) bool {
	w.nowMs = max(w.nowMs, nowMs)
	w.ledger.tick(w.nowMs)
	return w.ledger.wantsCommit(w.nowMs)
}

// Pending reports whether done blobs are not confirmed, or blobs are open.
func (w *writer) Pending() bool { return len(w.ledger.done)+len(w.ledger.open) > 0 }

// Close ends uploads and drops what is not prepared.
func (w *writer) Close() error {
	if !w.closed {
		w.closed = true
		w.uploads.close()
	}
	return nil
}
