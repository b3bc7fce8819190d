package world

import (
	"context"
	"errors"
	"fmt"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/blob"
)

// blobOwner is one process's hold on one task. It keeps the protocol that package task keeps.
type blobOwner struct {
	b     *blobWorld
	p     *blobProcess
	t     *blobTask
	epoch int
	w     stream.SinkWriter
	next  int64 // the next row

	restoredUs int64
	toldMs     int64 // the newest time that the writer was told
	ends       int   // transactions behind the last row and the faults
}

const blobRestoreTries = 5

// run takes the task again after each failed or unknown transaction, until the task has ended or is another's.
func (o *blobOwner) run() {
	for !o.life() {
		o.b.stats.Blobs.Aborts++
		if o.p.replaced && (o.b.healed || !o.b.chance(20)) {
			break
		}
		o.p.r.sleep(o.b.Int64N(200 * msInUs))
	}
	o.p.taskOver()
}

// life restores the task and works for it. It reports whether the task has ended.
func (o *blobOwner) life() bool {
	epoch, rows, token, ended := o.t.own(o.b, o.p.r)
	if ended {
		return true
	}
	o.epoch, o.next = epoch, rows
	if !o.restore(token) {
		return false
	}
	ended = o.work()
	o.w.Close()
	return ended
}

func (o *blobOwner) restore(token []byte) bool {
	ctx := context.Background()
	task := stream.SinkTask{
		JobIdentity: stream.JobIdentity{Job: o.t.job.name, Run: "1"},
		Sink:        "out", Task: fmt.Sprintf("stage-%d", o.t.number), TaskNumber: o.t.number,
	}
	for try := 0; ; try++ {
		w, err := o.p.sink.Open(ctx, task)
		if err == nil {
			err = w.Restore(ctx, token)
		}
		if err == nil {
			o.w, o.restoredUs, o.toldMs = w, o.b.nowUs, 0
			o.b.stats.Blobs.Restores++
			o.b.tracef("%s restores task %d at row %d", o.p.r.name, o.t.number, o.next)
			return true
		}
		w.Close()
		if !o.judge("Restore", err) {
			return false
		}
		if try == blobRestoreTries {
			o.p.exit(o.b.Int64N(secondInUs))
			o.wait()
		}
		o.p.r.sleep(secondInUs / 4)
	}
}

// wait is the rest of a process that is about to end.
func (o *blobOwner) wait() { o.p.r.sleep(forever) }

// work writes and commits until the task has ended, which it reports, or a transaction is lost.
func (o *blobOwner) work() bool {
	for n := int64(0); ; {
		if !o.write() {
			return false
		}
		o.toldMs = max(o.toldMs, o.b.wall())
		wants := o.w.WantsCommit(o.toldMs)
		o.p.r.sleep(o.b.Int64N(300 * msInUs))
		if o.b.chance(2) {
			o.p.r.sleep(o.b.Int64N(5 * secondInUs))
		}
		if !wants && o.next < o.b.m.rows && !o.b.chance(40) {
			continue
		}
		n++
		committed, ended := o.transact(n)
		if ended || !committed {
			return ended
		}
	}
}

// write gives some rows to the sink.
func (o *blobOwner) write() bool {
	for range min(o.b.Int64N(o.b.m.batch), o.b.m.rows-o.next) {
		if o.b.chance(1) {
			bad := stream.SinkRecord{Value: blob.Record{Schema: blobSchemas[0], Value: "no row"}, RowSequence: o.next}
			var e *blob.RecordError
			if err := o.w.Write(context.Background(), bad); err != nil && !errors.As(err, &e) {
				o.judge("Write", err)
				return false
			} else if err == nil {
				o.b.fail("record: a value that does not fit was written")
			}
		}
		if err := o.w.Write(context.Background(), o.b.record(o.t, o.next)); err != nil {
			o.judge("Write", err)
			return false
		}
		o.next++
	}
	return true
}

// transact is steps 2 to 5 of a commit.
func (o *blobOwner) transact(n int64) (committed, ended bool) {
	ctx := context.Background()
	last := o.next == o.b.m.rows
	if last || o.b.m.finishes && o.b.chance(10) {
		o.w.Finish()
	}
	token, err := o.w.Prepare(ctx, n)
	if err != nil {
		o.judge("Prepare", err)
		return false, false
	}
	o.checkToken(token)
	if last && o.b.healed {
		if o.ends++; o.ends > 20 {
			o.b.fail("ends: %d transactions after the last row something is still pending", o.ends)
		}
	}
	ended = last && token == nil
	if o.t.commit(o.b, o.p.r, o.epoch, o.next, token, ended) != outcomeCommitted {
		return false, false
	}
	if ended {
		if o.w.Pending() {
			o.b.fail("pending: the sink has something pending, though its token is nil")
		}
		return true, true
	}
	return o.publish(token), false
}

// checkToken judges what Prepare returned.
func (o *blobOwner) checkToken(token []byte) {
	if len(token) == 0 {
		return
	}
	if len(token) > o.b.m.token {
		o.b.fail("token: it has %d bytes, the limit is %d", len(token), o.b.m.token)
	}
	t, err := blob.ParseToken(token)
	if err != nil {
		o.b.fail("token: %v", err)
	}
	for i := range t.Blobs {
		if f := &t.Blobs[i]; !f.Done && f.OpenedMs > 0 && o.toldMs-f.OpenedMs >= o.b.m.maxAge.Milliseconds() {
			o.b.fail("age: %s is %d ms old and still open", f.Name, o.toldMs-f.OpenedMs)
		}
	}
}

// publish is step 5. What fails stays in the token: either the writer goes on and lists it again, or the process ends.
func (o *blobOwner) publish(token []byte) bool {
	last := o.b.IntN(4)
	for try := 0; ; try++ {
		err := o.w.Commit(context.Background(), token)
		if err == nil {
			return true
		}
		if !o.judge("Commit", err) {
			return false
		}
		if try == last {
			if o.b.chance(50) {
				return true
			}
			o.p.exit(o.b.Int64N(secondInUs))
			o.wait()
		}
		o.p.r.sleep(secondInUs / 4)
	}
}

// judge says whether to try again after err, which must be one that may happen here and now.
func (o *blobOwner) judge(what string, err error) (again bool) {
	b, zombie := o.b, o.epoch != o.t.epoch
	b.tracef("%s: %s of task %d: %v", o.p.r.name, what, o.t.number, err)
	var taken *blob.NameTakenError
	var fenced *blob.FencedError
	var gone *blob.GoneError
	var superseded *blob.SupersededError
	var size *blob.SizeError
	switch {
	case errors.As(err, &fenced):
		if !b.intruded[fenced.Name] || what == "Prepare" {
			b.fail("fenced: %s: %v", what, err)
		}
		if b.m.trouble != intruder {
			b.fail("name: it was taken before Prepare and is found taken after the transaction: %v", err)
		}
		o.t.job.stop(o.p, err, fenced.Name, false)
		o.wait()
	case errors.As(err, &gone):
		if b.service == nil || b.service.expired[gone.Name] == 0 {
			b.fail("gone: %s: %v", what, err)
		}
		if what == "Commit" && b.service.expired[gone.Name] < o.restoredUs {
			b.fail("gone: blocks expired before the restore, which did not say so: %v", err)
		}
		o.t.job.stop(o.p, err, "", true)
		o.wait()
	case errors.As(err, &size):
		if b.m.token > 1<<10 {
			b.fail("size: %s: %v", what, err)
		}
		o.t.job.stop(o.p, err, "", true)
		o.wait()
	case errors.As(err, &taken):
		if what != "Prepare" || !b.intruded[taken.Name] && (!zombie || taken.Again) {
			b.fail("taken: %s by a zombie (%t): %v", what, zombie, err)
		}
		if taken.Again {
			o.t.job.stop(o.p, err, taken.Name, false)
			o.wait()
		}
		return false
	case errors.As(err, &superseded):
		if !zombie || what != "Restore" {
			b.fail("superseded: %s by a zombie (%t): %v", what, zombie, err)
		}
		return false
	}
	if !temporary(err) {
		b.fail("error: %s: %v", what, err)
	}
	return true
}

// temporary: to be tried again, as is what a disk says in the middle of a file.
func temporary(err error) bool {
	return errors.Is(err, blob.ErrTemporary) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errInjected)
}

// judgeStart is judge for the claim of the prefix.
func (p *blobProcess) judgeStart(err error) {
	p.b.tracef("%s: start: %v", p.r.name, err)
	var owner *blob.OwnerError
	switch {
	case errors.As(err, &owner):
		if p.b.m.trouble != rival || p.job.claimed {
			p.b.fail("owner: %v", err)
		}
		p.job.stop(p, err, "", true)
	case !temporary(err):
		p.b.fail("error: start: %v", err)
	default:
		p.exit(p.b.Int64N(secondInUs))
	}
}
