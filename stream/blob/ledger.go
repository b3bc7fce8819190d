package blob

import (
	"hash/crc32"
	"slices"
	"time"

	"github.com/strandline-io/strandline/internal/mutant"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ledger decides, without touching the world, which blobs of a task are open and done, when one is done, and what the
// token says. Its Blobs hold what was given to them; Prepare stages all of it before it asks for the token.
type ledger struct {
	who    identity
	limits *Config
	open   []*file // from the least to the most recently written
	done   []*file // in the order in which they were done; not confirmed by a Commit
	// stale: the newest token lists blobs that a Commit has confirmed since.
	stale bool
}

// file is a blob of this life of the task, with what is on its way to the store.
type file struct {
	Blob
	fresh    bool // no token that was returned names it: its name must be found free
	probed   bool // its name was looked at before the first block
	ours     bool // the last run is of this life
	prepared bool // a token that lists it as done was returned

	header  []byte // of a new file, until its first block is cut
	raw     []byte // rows of the Avro block being filled
	rawRows int64
	buf     []byte // whole Avro blocks, not staged yet
}

// restore takes over what a committed token lists as open. Its done blobs must have been published before.
func (l *ledger) restore(t *Token) {
	for _, b := range t.Blobs {
		if b.Done {
			l.stale = true
			continue
		}
		b.Runs = slices.Clone(b.Runs)
		f := &file{Blob: b, probed: true}
		if mutant.On("a continuation has a sync marker of its own") {
			f.Sync[0]++
		}
		f.ours = mutant.On("block nonce reused")
		l.open = append(l.open, f)
	}
}

// continuable reports whether another row can go into a restored blob: the codec is the configured one, the name is not
// crowded by blocks of others, and the token has room for another run.
func (l *ledger) continuable(f *file, foreignBlocks int) bool {
	return f.Codec == l.limits.Codec && foreignBlocks <= maxForeignUncommitted && len(f.Runs) < maxRunsPerBlob
}

// find returns the open blob for rows of a schema, nil if there is none.
func (l *ledger) find(schema Fingerprint) *file {
	for i := len(l.open) - 1; i >= 0; i-- {
		if f := l.open[i]; (f.Schema == schema || mutant.On("schemas share a blob")) && f.Codec == l.limits.Codec {
			return f
		}
	}
	return nil
}

// full reports whether f must be done before a row of n bytes. Bytes not compressed yet count as they are. A row, or the
// commit after it, adds one block at most.
func (l *ledger) full(f *file, n int) bool {
	c := l.limits
	size := f.Bytes + int64(len(f.buf)) + int64(len(f.raw)) + int64(n)
	if mutant.On("one block too many") && f.Blocks() == c.MaxBlocks {
		return false
	}
	return c.MaxRows > 0 && f.Rows >= c.MaxRows || f.Rows > 0 && size > c.MaxBytes || f.Blocks() >= c.MaxBlocks
}

// named reports whether a blob that is open or not confirmed has the name.
func (l *ledger) named(name string) bool {
	has := func(f *file) bool { return f.Name == name }
	return slices.ContainsFunc(l.open, has) || slices.ContainsFunc(l.done, has)
}

// add makes f open. evicted is the blob that has to be done because too many are open, or nil.
func (l *ledger) add(f *file) (evicted *file) {
	if len(l.open) >= l.limits.MaxOpen {
		evicted = l.open[0]
	}
	l.open = append(l.open, f)
	return evicted
}

// wrote counts a row of n bytes of f.
func (l *ledger) wrote(f *file, n int) {
	f.Rows++
	f.RawBytes += int64(n)
	if last := len(l.open) - 1; l.open[last] != f {
		i := slices.Index(l.open, f)
		l.open = append(slices.Delete(l.open, i, i+1), f)
	}
}

// cut counts the next block of f, of these bytes, and returns its id. fresh is used if this is the first of this life.
func (f *file) cut(data []byte, fresh func() Nonce) BlockID {
	if !f.ours {
		run := Run{Nonce: fresh()}
		if mutant.On("block nonce reused") {
			run.Nonce = Nonce{}
		}
		f.Runs = append(f.Runs, run)
		f.ours = true
	}
	run := &f.Runs[len(f.Runs)-1]
	id := NewBlockID(run.Nonce, run.First+run.Count)
	run.Count++
	f.Bytes += int64(len(data))
	f.Checksum = crc32.Update(f.Checksum, castagnoli, data)
	return id
}

// seal makes f done.
func (l *ledger) seal(f *file) {
	i := slices.Index(l.open, f)
	l.open = slices.Delete(l.open, i, i+1)
	f.Done = true
	l.done = append(l.done, f)
}

// sealAll makes every open blob done.
func (l *ledger) sealAll() {
	for len(l.open) > 0 {
		l.seal(l.open[0])
	}
}

// sealDue makes done what is old enough.
func (l *ledger) sealDue(nowMs int64) {
	for _, f := range slices.Clone(l.open) {
		if l.aged(f, nowMs) {
			l.seal(f)
		}
	}
}

// tick starts the age of blobs opened since the clock was last known. A clock that went back makes nothing older.
func (l *ledger) tick(nowMs int64) {
	for _, f := range l.open {
		if f.OpenedMs == 0 || f.OpenedMs > nowMs {
			f.OpenedMs = nowMs
		}
	}
}

func (l *ledger) aged(f *file, nowMs int64) bool {
	return !mutant.On("blobs never too old") && f.OpenedMs != 0 && nowMs-f.OpenedMs >= int64(l.limits.MaxAge/time.Millisecond)
}

// wantsCommit: a blob is done and no token says so, or is old; or the newest token lists what is long confirmed, which
// a later restore would look for in vain once a user has moved it.
func (l *ledger) wantsCommit(nowMs int64) bool {
	for _, f := range l.done {
		if !f.prepared {
			return true
		}
	}
	for _, f := range l.open {
		if l.aged(f, nowMs) {
			return true
		}
	}
	return l.stale
}

// token is the state as a token.
func (l *ledger) token(epoch int64) *Token {
	t := &Token{Job: l.who.job, Run: l.who.run, Sink: l.who.sink, Task: l.who.task, Epoch: epoch}
	for _, f := range slices.Concat(l.done, l.open) {
		t.Blobs = append(t.Blobs, f.Blob)
	}
	return t
}

// returned notes that a token with the current state was handed out.
func (l *ledger) returned() {
	for _, f := range slices.Concat(l.done, l.open) {
		f.fresh = false
		f.prepared = f.Done
	}
	if mutant.On("token dropped early") {
		l.done = nil
	}
	l.stale = false
}

// confirm forgets a done blob that is published.
func (l *ledger) confirm(name string) {
	l.done = slices.DeleteFunc(l.done, func(f *file) bool {
		if f.Name != name {
			return false
		}
		l.stale = true
		return true
	})
}

// What a blob and a run take in a token at most, the name apart.
const (
	maxBlobBytes = 96
	maxRunBytes  = nonceBytes + 6
)

// tokenBound is at least the size of any token with the blobs of now, whatever is still written into them.
func (l *ledger) tokenBound() int {
	n := 64 + len(l.who.job) + len(l.who.run) + len(l.who.sink) + len(l.who.task)
	for _, files := range [2][]*file{l.done, l.open} {
		for _, f := range files {
			n += maxBlobBytes + len(f.Name) + len(f.Runs)*maxRunBytes
			if !f.ours {
				n += maxRunBytes
			}
		}
	}
	return n
}
