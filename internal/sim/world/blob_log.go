package world

import "context"

// blobTask is what the cluster knows of one task: its owner's epoch, and what the newest committed transaction holds.
type blobTask struct {
	job    *blobJob
	number int
	epoch  int
	rows   int64 // rows of committed transactions; the next row's sequence
	token  []byte
	ended  bool
}

// outcome is what an owner learns of its transaction.
type outcome int

const (
	outcomeUnknown outcome = iota
	outcomeCommitted
	outcomeFenced
)

// maxBlobEvents is many times what any run needs.
const maxBlobEvents = 150_000

// rpc asks the cluster: do runs there if the request arrives. It reports whether the answer came.
func (r *blobRuntime) rpc(b *blobWorld, do func()) bool {
	if b.pushed > maxBlobEvents {
		b.fail("ends: no end after %d events: %s", b.pushed, b.waiting())
	}
	answered, lost := false, 0
	if !b.calm && b.IntN(100) < b.logBadPercent {
		lost = 1 + b.IntN(2)
	}
	if lost != 1 {
		b.after(200+b.Int64N(5*msInUs), func() {
			do()
			if lost == 0 {
				b.after(200+b.Int64N(5*msInUs), func() {
					answered = true
					r.poke()
				})
			}
		})
	}
	r.until(context.Background(), secondInUs, func() bool { return answered })
	return answered
}

// own takes the task: whoever had it before is fenced. It returns the new epoch and what is committed.
func (t *blobTask) own(b *blobWorld, r *blobRuntime) (epoch int, rows int64, token []byte, ended bool) {
	for {
		var e int
		ok := r.rpc(b, func() {
			t.epoch++
			e = t.epoch
			b.tracef("%s owns task %d of %s with epoch %d", r.name, t.number, t.job.name, e)
		})
		if !ok {
			continue
		}
		for {
			if r.rpc(b, func() { rows, token, ended = t.rows, t.token, t.ended }) {
				return e, rows, token, ended
			}
		}
	}
}

// commit ends a transaction up to the row next.
func (t *blobTask) commit(b *blobWorld, r *blobRuntime, epoch int, next int64, token []byte, ended bool) outcome {
	got := outcomeUnknown
	answered := r.rpc(b, func() {
		if epoch != t.epoch {
			got = outcomeFenced
			return
		}
		got = outcomeCommitted
		t.rows, t.token, t.ended = next, token, ended
		b.stats.Blobs.Commits++
		b.afterCommit(r, token)
		b.tracef("%s commits task %d of %s up to row %d, token of %d bytes", r.name, t.number, t.job.name, next, len(token))
	})
	if !answered {
		return outcomeUnknown
	}
	return got
}
